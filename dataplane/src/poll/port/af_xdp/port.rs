//! Reception from the sockets of one worker.

use super::BATCH;
use super::socket::Socket;
use super::source::InterfaceState;
use crate::poll::port::{Port, PortFrame, Received, Waker, Worker};
use crossbeam::channel::Receiver;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One worker's receive queues.
pub struct AfXdpPort {
    sockets: Vec<Socket>,
    arrivals: Receiver<Socket>,
    shared: Arc<InterfaceState>,
    received: Arc<AtomicU64>,
    /// Waits for packets on all sockets, and for the event.
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
    /// Whether no packets were left in the sockets, and nothing interrupted the last wait.
    drained: bool,
    /// Whether the interface is gone and all packets received from it are counted.
    finished: bool,
}

/// Identifier of [`AfXdpPort`]'s event in its epoll set.
const EVENT: u64 = u64::MAX;

impl AfXdpPort {
    pub(super) fn new(arrivals: Receiver<Socket>, shared: Arc<InterfaceState>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &event, epoll::EventData::new_u64(EVENT), epoll::EventFlags::IN)?;
        let received = Arc::default();
        let mut port = AfXdpPort {
            sockets: Vec::new(),
            arrivals,
            shared,
            received,
            epoll,
            event,
            drained: true,
            finished: false,
        };
        port.admit()?;
        Ok(port)
    }

    /// Takes over the sockets that have arrived.
    #[cold]
    fn admit(&mut self) -> io::Result<()> {
        while let Ok(socket) = self.arrivals.try_recv() {
            let number = epoll::EventData::new_u64(self.sockets.len() as u64);
            epoll::add(&self.epoll, socket.handle().as_fd(), number, epoll::EventFlags::IN)?;
            self.sockets.push(socket);
        }
        Ok(())
    }

    /// Returns the counter of packets counted so far.
    #[must_use]
    pub fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    #[cold]
    fn finish(&mut self) -> Received {
        if !std::mem::replace(&mut self.finished, true)
            && self.shared.at_work.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.shared.gate.end();
        }
        Received::Ended
    }
}

impl Port for AfXdpPort {
    const SIGNALS: bool = true;

    #[inline]
    fn receive(&mut self, sink: &mut impl FnMut(PortFrame<'_>)) -> Received {
        let (mut packets, link) = (0, self.shared.link);
        self.drained = true;
        for socket in &mut self.sockets {
            let found = socket.receive(BATCH, |bytes, wire_length| {
                sink(PortFrame { bytes, wire_length, timestamp: 0, link });
            });
            packets += found;
            self.drained &= found < BATCH;
            socket.wake_receiver();
        }
        if packets > 0 {
            // There is a single writer, so no atomic addition is needed.
            self.received.store(
                self.received.load(Ordering::Relaxed) + u64::from(packets),
                Ordering::Release,
            );
            return Received::Frames;
        }
        if !self.arrivals.is_empty()
            && let Err(error) = self.admit()
        {
            tracing::error!(
                "{}: cannot wait for packets of another queue: {error}",
                self.shared.description.interface
            );
        }
        if self.shared.gone.load(Ordering::Acquire) {
            return self.finish();
        }
        if self.shared.description.busy_poll {
            self.sockets.iter().for_each(Socket::drive);
        }
        Received::Idle
    }

    fn wait(&mut self, most: Duration) {
        let time =
            Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 8];
        // An interrupted wait counts as finished: the process was stopped and continued.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&time)) else {
            self.drained = false;
            return;
        };
        if events.iter().any(|event| event.data.u64() == EVENT) {
            let _ = rustix::io::read(&*self.event, &mut [0; 8]);
        }
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn is_device(&self) -> bool {
        true
    }

    fn waker(&self) -> Option<Waker> {
        let event = Arc::clone(&self.event);
        // Fails only after 2^64 unread calls.
        Some(Arc::new(move || _ = rustix::io::write(&*event, &1_u64.to_ne_bytes())))
    }

    fn work(self, worker: Worker) {
        worker.run(self);
    }
}
