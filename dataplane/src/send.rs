//! Transmission of generated and captured packets.
//!
//! Senders are defined next to their sockets and programs:
//! [`FrameSender`](crate::poll::port::FrameSender) (AF_XDP), [`LiveSender`](crate::xdp::LiveSender)
//! (in the kernel) and `DpdkSender` in [`poll::port`](crate::poll::port).

use crate::error::Error;
use crate::poll::port::{Frame, MemoryPort, PcapPort, Port, Ports, Received};
use flowgauge_core::Link;
use std::thread;
use std::time::{Duration, Instant};

/// An interface that sends packets unmodified.
pub trait Outlet {
    /// Returns the interface name used in outputs.
    fn interface(&self) -> &str;

    /// Returns the size of the largest packet, in bytes without frame check sequence.
    fn largest(&self) -> usize;

    /// Queues a packet of up to [`largest`](Self::largest) bytes. It is handed to the interface
    /// when [`flush`](Self::flush) returns, or after some more packets.
    ///
    /// # Errors
    /// The packet is too large, or the interface is down or gone.
    fn send(&mut self, packet: &[u8]) -> Result<(), Error>;

    /// Hands all queued packets to the interface.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn flush(&mut self) -> Result<(), Error>;

    /// Waits until every packet was sent or dropped.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn finish(&mut self) -> Result<(), Error>;

    /// Returns the packets of any sender that the interface dropped on transmission since this
    /// outlet was created.
    fn dropped(&self) -> u64;
}

/// Interval between checks whether a packet is due.
const CHECK_INTERVAL: Duration = Duration::from_micros(50);
/// Length of an Ethernet header, in bytes.
const ETHERNET_HEADER_BYTES: usize = 14;

/// Result of a transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets that the capture contains only in part; that part was sent.
    pub cut: u64,
    /// Packets that no Ethernet interface of this MTU can send.
    pub left_out: u64,
    /// Packets of any sender that the interface dropped meanwhile.
    pub dropped: u64,
    /// Duration of the transmission.
    pub lasted: Duration,
}

/// A transmission of packets from ports through an interface.
pub struct Transmission<'a> {
    sender: Box<dyn Outlet>,
    /// Packets per second; `None` sends them at their own pace.
    rate: Option<f64>,
    is_interrupted: &'a dyn Fn() -> bool,
    started: Instant,
    sent: Sent,
    failure: Option<Error>,
}

impl<'a> Transmission<'a> {
    /// Creates a transmission at `rate` packets per second (`None`: at their own pace) that ends
    /// early once `is_interrupted` returns true.
    #[must_use]
    pub fn new(
        sender: Box<dyn Outlet>,
        rate: Option<f64>,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Self {
        Transmission {
            sender,
            rate,
            is_interrupted,
            started: Instant::now(),
            sent: Sent::default(),
            failure: None,
        }
    }

    /// Sends the packets of a capture and calls `progress` repeatedly.
    ///
    /// # Errors
    /// Failures of the sender.
    pub fn send_capture(
        self,
        ports: Ports<PcapPort>,
        progress: &mut dyn FnMut(),
    ) -> Result<Sent, Error> {
        self.run(ports, progress)
    }

    /// Sends generated packets; otherwise like [`send_capture`](Self::send_capture).
    ///
    /// # Errors
    /// Failures of the sender.
    pub fn send_generated(
        self,
        ports: Ports<MemoryPort>,
        progress: &mut dyn FnMut(),
    ) -> Result<Sent, Error> {
        self.run(ports, progress)
    }

    fn run<P: Port>(mut self, ports: Ports<P>, progress: &mut dyn FnMut()) -> Result<Sent, Error> {
        self.started = Instant::now();
        for mut port in ports.ports {
            while self.failure.is_none() && !(self.is_interrupted)() {
                match port.receive(&mut |frame| self.take(&frame)) {
                    Received::Frames => {}
                    Received::Idle => {
                        self.flush();
                        thread::sleep(CHECK_INTERVAL);
                    }
                    Received::Ended => break,
                }
                progress();
            }
        }
        self.flush();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.sender.finish()?;
        Ok(Sent { dropped: self.sender.dropped(), lasted: self.started.elapsed(), ..self.sent })
    }

    fn flush(&mut self) {
        if self.failure.is_none() {
            self.failure = self.sender.flush().err();
        }
    }

    fn take(&mut self, frame: &Frame<'_>) {
        if let Some(rate) = self.rate {
            self.wait_for((self.sent.packets + self.sent.left_out) as f64 / rate);
        }
        if self.failure.is_some() || (self.is_interrupted)() {
            return;
        }
        let bytes = frame.bytes;
        if frame.link != Link::Ethernet
            || !(ETHERNET_HEADER_BYTES..=self.sender.largest()).contains(&bytes.len())
        {
            self.sent.left_out += 1;
            return;
        }
        match self.sender.send(bytes) {
            Ok(()) => {
                self.sent.packets += 1;
                self.sent.bytes += bytes.len() as u64;
                self.sent.cut += u64::from(frame.wire_length as usize > bytes.len());
            }
            Err(error) => self.failure = Some(error),
        }
    }

    /// Waits until `due` seconds after the start.
    fn wait_for(&mut self, due: f64) {
        let left = |started: Instant| due - started.elapsed().as_secs_f64();
        if left(self.started) <= 0.0 {
            return;
        }
        self.flush();
        while left(self.started) > 0.0 && self.failure.is_none() && !(self.is_interrupted)() {
            match left(self.started) {
                long if long > 2.0 * CHECK_INTERVAL.as_secs_f64() => {
                    thread::sleep(Duration::from_secs_f64((long / 2.0).min(0.1)))
                }
                _ => std::hint::spin_loop(),
            }
        }
    }
}
