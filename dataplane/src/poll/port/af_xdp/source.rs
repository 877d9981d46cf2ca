//! State shared by the ports of one interface, and supervision: queues, losses, received packets.

use super::description::AfXdp;
use super::prepared;
use super::socket::{Handle, Socket, SocketConfig, SocketLosses};
use crate::error::Error;
use crate::interface::Interface;
use crate::interface::device::{self, CountingStage, DeviceCounters};
use crate::losses::{LossCause, Losses};
use crate::poll::gate::Gate;
use crate::poll::port::PortSource;
use crate::poll::threads::lock;
use crate::tally::{CountRange, Odometer};
use crate::xdp::Mode;
use crate::xdp::redirect::{QUEUES, Redirect};
use crossbeam::channel::Sender;
use flowgauge_core::{Filter, Link};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Checks without a loss, about ten a second, after which a queue counts as quiet again.
const QUIET_CHECKS: u32 = 10;

/// State shared by the ports of one interface.
pub(super) struct InterfaceState {
    pub(super) description: AfXdp,
    pub(super) config: SocketConfig,
    pub(super) gate: Arc<Gate>,
    /// Index of the interface; a recreated interface of the same name has another.
    pub(super) index: u32,
    pub(super) interface: Interface,
    /// Link layer of the interface.
    pub(super) link: Link,
    pub(super) counters_before: DeviceCounters,
    /// Whether the driver counts packets refused by a socket as dropped, so that they must not be
    /// counted twice.
    pub(super) refusals_counted: bool,
    pub(super) gone: AtomicBool,
    /// Ports that may still have packets.
    pub(super) at_work: AtomicUsize,
    pub(super) watch: Mutex<InterfaceWatch>,
    /// Channels that pass new sockets to the ports.
    pub(super) doors: Vec<Sender<Socket>>,
}

/// State maintained by the controller's thread.
pub(super) struct InterfaceWatch {
    pub(super) redirect: Redirect,
    /// Handles of the sockets, by queue.
    pub(super) handles: Vec<Handle>,
    /// Whether the kernel has disconnected the sockets.
    pub(super) disconnected: bool,
    /// Queues of the interface at the last check.
    pub(super) queues: u32,
    /// Whether some of them cannot be counted.
    pub(super) uncounted: bool,
    /// Whether the interface was up.
    pub(super) running: bool,
    /// Loss state of every queue.
    pub(super) quiet: Vec<QueueLosses>,
    /// Packets that arrived on queues without a socket.
    pub(super) passed: u64,
    /// Largest losses of the device reported so far.
    pub(super) device: Losses,
    /// Largest number of oversized packets reported so far.
    pub(super) too_large: u64,
    /// Whether the notice on merged packets was issued.
    pub(super) offloads_reported: bool,
    /// Warning about VLAN tags that a filter does not see, not yet issued.
    pub(super) unseen_tags: Option<String>,
    /// Packets received by the device.
    pub(super) odometer: Odometer,
}

#[derive(Clone, Copy)]
pub(super) struct QueueLosses {
    lost: u64,
    /// The part of `lost` that was larger than a frame.
    too_large: u64,
    /// Packets lost when the queue was last quiet.
    before: u64,
    checks: u32,
}

impl InterfaceWatch {
    /// Returns the packets that arrived on queues without a socket; the previous value if the
    /// kernel does not report it.
    fn passed(&mut self) -> u64 {
        self.passed = self.redirect.passed().unwrap_or(self.passed);
        self.passed
    }

    /// Returns whether the interface has left the network namespace. It may be back.
    fn is_disconnected(&mut self) -> bool {
        self.disconnected =
            self.disconnected || self.handles.iter().any(Handle::is_newly_disconnected);
        self.disconnected
    }

    /// Returns the packets lost by all sockets, and the part of them larger than a frame.
    fn lost(&mut self, pieces: bool) -> (u64, u64) {
        let (mut packets, mut too_large) = (0, 0);
        for lost in self.handles.iter().filter_map(|handle| handle.lost(pieces).ok()) {
            packets += lost.packets;
            too_large += lost.too_large;
        }
        // Read while the kernel counts, it may be less than before.
        self.too_large = self.too_large.max(too_large);
        (packets, self.too_large.min(packets))
    }
}

impl InterfaceState {
    /// Opens sockets for queues that the interface has gained since the last check.
    fn follow_queues(&self, watch: &mut InterfaceWatch, messages: &mut Vec<String>) {
        let name = &self.description.interface;
        let there = self.interface.receive_queues();
        let before = std::mem::replace(&mut watch.queues, there);
        let now = format!("{name}: has {there} receive queues now instead of {before}");
        if self.description.queues.is_some() {
            if there != before {
                messages.push(format!(
                    "{now}; {} are counted, as requested",
                    (watch.handles.len() as u32).min(there)
                ));
            }
            return;
        }
        let mut problem = if there > before { watch.redirect.renew().err() } else { None };
        while problem.is_none() && (watch.handles.len() as u32) < there.min(QUEUES) {
            problem = self.add_queue(watch).err();
        }
        let counted = (watch.handles.len() as u32).min(there);
        let was_reported = watch.uncounted;
        watch.uncounted = problem.is_some();
        match problem {
            Some(error) if there != before || !was_reported => {
                messages.push(format!("{now}; {counted} are counted: {error}"))
            }
            None if there != before => messages.push(format!("{now}; all are counted")),
            None if was_reported => {
                messages.push(format!("{name}: all {there} receive queues are counted again"))
            }
            _ => {}
        }
    }

    /// Opens a socket for the next queue.
    fn add_queue(&self, watch: &mut InterfaceWatch) -> Result<(), Error> {
        let queue = watch.handles.len() as u32;
        let socket = prepared(
            &self.description,
            queue,
            &self.config,
            Socket::open(self.index, queue, &self.config),
        )?;
        watch.redirect.add(queue, &socket.handle())?;
        watch.handles.push(socket.handle());
        // The port lives as long as its worker.
        let _ = self.doors[queue as usize % self.doors.len()].send(socket);
        Ok(())
    }

    /// Reports queues that start or stop losing packets.
    fn follow_losses(&self, watch: &mut InterfaceWatch, messages: &mut Vec<String>) {
        let name = &self.description.interface;
        let InterfaceWatch { handles, quiet, .. } = watch;
        quiet.resize(
            handles.len(),
            QueueLosses { lost: 0, too_large: 0, before: 0, checks: QUIET_CHECKS },
        );
        for (queue, (handle, quiet)) in handles.iter().zip(quiet).enumerate() {
            let Ok(lost) = handle.lost(self.config.pieces) else { continue };
            let was_quiet = quiet.checks >= QUIET_CHECKS;
            if lost.packets > quiet.lost {
                let too_large = lost.too_large > quiet.too_large;
                if was_quiet && too_large {
                    messages.push(format!(
                        "{name}: queue {queue} loses packets that are larger than its frames ({} bytes): the kernel merges them (GRO), or the \
                         peer sends them unsegmented (TSO, GSO); switch that off (`ethtool -K`), or count with -i {name} --xdp-mode tcx",
                        self.config.frame_size
                    ));
                } else if was_quiet {
                    messages.push(format!(
                        "{name}: queue {queue} loses packets, since its worker does not keep up"
                    ));
                }
                quiet.checks = 0;
            } else if !was_quiet {
                quiet.checks += 1;
                if quiet.checks == QUIET_CHECKS {
                    let packets = lost.packets - quiet.before;
                    let SocketLosses { no_frame, too_large, .. } = lost;
                    messages.push(format!(
                        "{name}: queue {queue} loses no more packets; it lost {packets} (no free frame: {no_frame} times; larger than a frame: {too_large})"
                    ));
                    quiet.before = lost.packets;
                }
            }
            (quiet.lost, quiet.too_large) = (lost.packets, lost.too_large);
            if lost.invalid > 0 && was_quiet {
                tracing::debug!(
                    "{name}: queue {queue}: {} descriptors refused by the kernel",
                    lost.invalid
                );
            }
        }
    }

    /// Returns all packets that arrived at the interface, except on queues that are not configured.
    fn arrived(&self, watch: &mut InterfaceWatch) -> Option<u64> {
        // Packets on other queues are read first: they have arrived.
        let elsewhere = if self.description.queues.is_some() { watch.passed() } else { 0 };
        let counters = DeviceCounters::read(&self.description.interface)
            .filter(|_| !self.gone.load(Ordering::Acquire))?;
        Some(counters.arrived().saturating_sub(elsewhere))
    }
}

impl PortSource for InterfaceState {
    fn losses(&self) -> Losses {
        let mut watch = lock(&self.watch);
        // Read before the sockets: a driver counts later than a socket, so the sockets have counted
        // everything that it has.
        let counted = if self.description.xdp == Mode::Native {
            CountingStage::BeforeStack
        } else {
            CountingStage::InStack
        };
        // Another interface may have the name of one that is gone.
        let device = DeviceCounters::read(&self.description.interface)
            .filter(|_| !self.gone.load(Ordering::Acquire));
        let device = device.map(|counters| counters.losses(&self.counters_before, counted));
        let (lost, too_large) = watch.lost(self.config.pieces);
        let mut found = Losses::default();
        let mut counted_twice = if self.refusals_counted { lost } else { 0 };
        for (cause, packets) in device.iter().flat_map(Losses::iter) {
            let twice = match cause {
                LossCause::Device | LossCause::DeviceOrStack => counted_twice.min(packets),
                _ => 0,
            };
            counted_twice -= twice;
            found.add(cause, (packets - twice).max(watch.device.get(cause)));
        }
        if device.is_some() {
            watch.device = found;
        }
        let mut losses = watch.device.clone();
        losses.add(LossCause::Socket, lost - too_large);
        losses.add(LossCause::TooLarge, too_large);
        if self.description.queues.is_none() {
            losses.add(LossCause::Queue, watch.passed());
        }
        losses
    }

    fn rotating(&self) {
        let mut watch = lock(&self.watch);
        let entries = self.config.frames;
        let waiting = watch
            .handles
            .iter()
            .map(|handle| handle.waiting(entries).map_or(u64::from(entries), u64::from))
            .sum();
        watch.odometer.rotate(Instant::now(), waiting);
    }

    fn received(&self) -> Option<CountRange> {
        let mut watch = lock(&self.watch);
        let arrived = self.arrived(&mut watch)?;
        watch.odometer.tally(arrived)
    }

    fn exclude(&self, packets: u64) {
        lock(&self.watch).odometer.exclude(packets);
    }

    fn has_gap(&self) -> bool {
        lock(&self.watch).is_disconnected()
    }

    fn filters(&self, filter: &Filter) {
        let name = &self.description.interface;
        lock(&self.watch).unseen_tags =
            device::unseen_vlan_tags(name, filter).map(|warning| format!("{name}: {warning}"));
    }

    fn warnings(&self) -> Vec<String> {
        let name = &self.description.interface;
        // An interface that the system cannot look up counts as present.
        let is_elsewhere = device::index(name).is_ok_and(|index| index != Some(self.index));
        let has_left = lock(&self.watch).is_disconnected();
        if (is_elsewhere || has_left)
            && !self.gone.load(Ordering::Acquire)
            && let Ok(named) = device::name(self.index)
        {
            let mut watch = lock(&self.watch);
            let warning = match named {
                Some(renamed) if !has_left => {
                    watch.redirect.detach();
                    format!(
                        "{name}: the interface is called {renamed} now, and is not counted any more; count at af_xdp:{renamed}"
                    )
                }
                _ => watch.redirect.leave(),
            };
            // Last: the traffic ends once workers find nothing, and nothing arrives from here on.
            self.gone.store(true, Ordering::Release);
            return vec![warning];
        }
        lock(&self.watch).unseen_tags.take().into_iter().collect()
    }

    fn notices(&self) -> Vec<String> {
        let mut messages = Vec::new();
        if self.gone.load(Ordering::Acquire) {
            return messages;
        }
        let name = &self.description.interface;
        let mut watch = lock(&self.watch);
        if let Some(arrived) = self.arrived(&mut watch) {
            watch.odometer.read(Instant::now(), arrived);
        }
        if let Some(running) = self.interface.is_running()
            && std::mem::replace(&mut watch.running, running) != running
        {
            messages.push(format!(
                "{name}: {}",
                if running { "is up again" } else { "is down; no packets arrive" }
            ));
        }
        if self.description.xdp == Mode::Skb
            && !std::mem::replace(&mut watch.offloads_reported, true)
        {
            messages.extend(device::merged(name).map(|merged| format!("{name}: {merged}")));
        }
        self.follow_queues(&mut watch, &mut messages);
        self.follow_losses(&mut watch, &mut messages);
        messages
    }
}
