//! AF_XDP ports: packets of an interface, received directly from its driver.
//!
//! A program at the interface redirects every packet to the socket of its receive queue; the host
//! does not receive it. Each socket has frames of its own, in which a packet stays until it is
//! counted.

mod description;
mod sender;
mod socket;

pub use description::{AfXdp, Copies};
pub use sender::FrameSender;

use super::{Frame, Port, Ports, Received, Source, Waker, WorkerConfig};
use crate::error::Error;
use crate::interface::Interface;
use crate::interface::device::{self, Counted, DeviceCounters};
use crate::losses::{LossCause, Losses};
use crate::poll::gate::{Gate, Pace};
use crate::tally::{Odometer, Tally};
use crate::xdp::Mode;
use crate::xdp::redirect::{self, QUEUES, Redirect};
use crossbeam::channel::{Receiver, Sender, unbounded};
use flowgauge_core::Link;
use nix::ifaddrs::getifaddrs;
use rustix::event::epoll;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use socket::{Config, Handle, Socket, SocketLosses, Task};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum packets per read of one socket.
const BATCH: u32 = 64;
/// Bytes that the kernel reserves before a packet.
const HEADROOM: u32 = 256;
/// Length of an Ethernet header with two VLAN tags, in bytes.
const LINK_HEADER: u32 = 22;
/// Drivers that also count packets refused by a socket as dropped by the device.
const COUNT_REFUSALS: [&str; 3] = ["veth", "virtio_net", "tun"];
/// Checks without a loss, about ten a second, after which a queue counts as quiet again.
const QUIET_CHECKS: u32 = 10;

/// Creates ports on an interface's receive queues: one per queue, or fewer if `workers` is less.
///
/// # Errors
/// [`Error::Kernel`] if the interface has fewer queues than described, or has addresses; if the
/// kernel lacks such sockets, denies them, or has no memory for frames; if another program or
/// another process's socket is attached.
pub fn af_xdp(description: &AfXdp, workers: Option<usize>) -> Result<Ports<AfXdpPort>, Error> {
    let name = &description.interface;
    let failed = |problem, source| Error::Kernel { interface: name.clone(), problem, source };
    let refused = |problem: String| failed(problem, None);
    let opened = device::index(name).zip(DeviceCounters::read(name)).zip(Interface::new(name).ok());
    let Some(((index, counters), interface)) = opened else {
        return Err(refused("there is no such interface; `ip link` lists them".to_owned()));
    };
    if !description.from_host
        && let Some(address) = address_of(name)
    {
        return Err(refused(format!(
            "has the address {address}, and af_xdp would take its packets from this host; use -i {name}, or say that you \
             mean it: af_xdp:{name},from-host"
        )));
    }
    let there = interface.receive_queues();
    let queues = description.queues.unwrap_or(there.min(QUEUES));
    if queues > there {
        return Err(refused(format!(
            "has {there} receive queues and not {queues}; `ethtool -L` changes their number"
        )));
    }
    let link = device::link(name).map_err(refused)?;
    let config = config(description, &interface).map_err(refused)?;
    let sockets: Vec<Socket> = (0..queues)
        .map(|queue| open(description, index, queue, &config))
        .collect::<Result<_, _>>()?;
    let handles: Vec<Handle> = sockets.iter().map(Socket::handle).collect();
    let redirect = Redirect::attach(name, description.xdp, config.pieces, &handles)?;
    let odometer = match (redirect::settle(), DeviceCounters::read(name)) {
        (true, Some(begun)) => Odometer::new(counters.arrived(), begun.arrived()),
        _ => Odometer::later(),
    };
    let zero_copy = handles.iter().filter(|handle| handle.is_zero_copy()).count();
    let how = if zero_copy == handles.len() { "zero-copy" } else { "the kernel copies packets" };
    tracing::info!("{name}: {queues} receive queues, {how}, {} frames each", config.frames);

    let count = workers.map_or(queues as usize, |workers| workers.clamp(1, queues as usize));
    let (doors, arrivals): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded()).unzip();
    sockets
        .into_iter()
        .enumerate()
        .for_each(|(queue, socket)| _ = doors[queue % count].send(socket));
    let gate = Arc::new(Gate::new(Pace::Open));
    let refusals_counted =
        description.xdp == Mode::Native && COUNT_REFUSALS.contains(&interface.driver().as_str());
    let shared = Arc::new(Shared {
        description: description.clone(),
        config,
        gate: Arc::clone(&gate),
        index,
        interface,
        link,
        counters_before: counters,
        refusals_counted,
        gone: AtomicBool::new(false),
        at_work: AtomicUsize::new(count),
        watch: Mutex::new(Watch {
            redirect,
            handles,
            queues: there,
            uncounted: false,
            running: true,
            quiet: Vec::new(),
            passed: 0,
            device: Losses::default(),
            too_large: 0,
            told_of_offloads: false,
            odometer,
        }),
        doors,
    });
    let ports = arrivals.into_iter().map(|arrivals| AfXdpPort::new(arrivals, Arc::clone(&shared)));
    let ports = ports
        .collect::<io::Result<_>>()
        .map_err(|error| failed(format!("cannot wait for packets: {error}"), Some(error)))?;
    Ok(Ports { ports, source: shared, gate, interface: name.clone() })
}

/// Checks whether this kernel accepts the redirecting program, without attaching it.
///
/// # Errors
/// [`Error::Kernel`] with the kernel's reason.
pub fn try_af_xdp() -> Result<(), Error> {
    redirect::try_program()
}

/// Returns an address by which other hosts reach this host through the interface.
fn address_of(interface: &str) -> Option<IpAddr> {
    let addresses = getifaddrs().ok()?.filter(|found| found.interface_name == interface);
    let address = |found: nix::ifaddrs::InterfaceAddress| {
        let address = found.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    let reachable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    addresses.filter_map(address).find(reachable)
}

fn config(description: &AfXdp, interface: &Interface) -> Result<Config, String> {
    let mtu = interface.mtu().map_err(|error| format!("cannot read its MTU: {error}"))?;
    let largest = mtu + LINK_HEADER + HEADROOM;
    let frame_size = if largest <= 2048 { 2048 } else { 4096 };
    let zero_copy = match description.copies {
        Copies::Auto => None,
        Copies::Copy => Some(false),
        Copies::ZeroCopy => Some(true),
    };
    Ok(Config {
        frames: description.frames,
        frame_size,
        zero_copy,
        pieces: largest > frame_size,
        task: Task::Receive,
    })
}

fn open(description: &AfXdp, index: u32, queue: u32, config: &Config) -> Result<Socket, Error> {
    prepared(description, queue, config, opened(index, queue, config))
}

fn prepared(
    description: &AfXdp,
    queue: u32,
    config: &Config,
    socket: io::Result<Socket>,
) -> Result<Socket, Error> {
    let socket = socket.and_then(|socket| {
        if description.busy_poll {
            socket.handle().prefer_busy_poll(BUSY_POLL_US, BATCH as i32)?;
        }
        Ok(socket)
    });
    socket.map_err(|error| Error::Kernel {
        interface: description.interface.clone(),
        problem: format!("cannot open a socket of queue {queue}: {}", advice(&error, config)),
        source: Some(error),
    })
}

/// Opens a socket. The kernel frees a queue some milliseconds after its previous socket was closed.
fn opened(index: u32, queue: u32, config: &Config) -> io::Result<Socket> {
    for _ in 0..FREED_WITHIN.as_millis() / FREED_LOOK.as_millis() {
        match Socket::open(index, queue, config) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(FREED_LOOK),
            outcome => return outcome,
        }
    }
    Socket::open(index, queue, config)
}

const FREED_WITHIN: Duration = Duration::from_secs(1);
const FREED_LOOK: Duration = Duration::from_millis(5);

/// Time that the kernel may poll for the worker, in microseconds.
const BUSY_POLL_US: i32 = 20;

fn advice(error: &io::Error, config: &Config) -> String {
    let advice = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "it takes root, or the capabilities CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON"
        }
        Some(Errno::BUSY) => "another program has a socket there",
        Some(Errno::AFNOSUPPORT) => {
            "the kernel has no such sockets; use -i, or a kernel built with CONFIG_XDP_SOCKETS"
        }
        Some(Errno::NOBUFS | Errno::NOMEM) => {
            "the frames take more memory than may be locked; raise `ulimit -l`, or give fewer frames="
        }
        Some(Errno::OPNOTSUPP | Errno::INVAL) if config.zero_copy == Some(true) => {
            "its driver has no zero-copy here; use mode=copy"
        }
        Some(Errno::OPNOTSUPP | Errno::INVAL) if config.pieces => {
            "packets as large as its MTU take Linux 6.6; lower the MTU"
        }
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// State shared by the ports of one interface.
struct Shared {
    description: AfXdp,
    config: Config,
    gate: Arc<Gate>,
    /// Index of the interface; a recreated interface of the same name has another.
    index: u32,
    interface: Interface,
    /// Link layer of the interface.
    link: Link,
    counters_before: DeviceCounters,
    /// Whether the driver counts packets refused by a socket as dropped, so that they must not be
    /// counted twice.
    refusals_counted: bool,
    gone: AtomicBool,
    /// Ports that may still have packets.
    at_work: AtomicUsize,
    watch: Mutex<Watch>,
    /// Channels that pass new sockets to the ports.
    doors: Vec<Sender<Socket>>,
}

/// State maintained by the controller's thread.
struct Watch {
    redirect: Redirect,
    /// Handles of the sockets, by queue.
    handles: Vec<Handle>,
    /// Queues of the interface at the last check.
    queues: u32,
    /// Whether some of them cannot be counted.
    uncounted: bool,
    /// Whether the interface was up.
    running: bool,
    /// Loss state of every queue.
    quiet: Vec<QueueLosses>,
    /// Packets that arrived on queues without a socket.
    passed: u64,
    /// Largest losses of the device reported so far.
    device: Losses,
    /// Largest number of oversized packets reported so far.
    too_large: u64,
    /// Whether the notice on merged packets was issued.
    told_of_offloads: bool,
    /// Packets received by the device.
    odometer: Odometer,
}

#[derive(Clone, Copy)]
struct QueueLosses {
    lost: u64,
    /// The part of `lost` that was larger than a frame.
    too_large: u64,
    /// Packets lost when the queue was last quiet.
    before: u64,
    checks: u32,
}

impl Watch {
    /// Returns the packets that arrived on queues without a socket; the previous value if the
    /// kernel does not report it.
    fn passed(&mut self) -> u64 {
        self.passed = self.redirect.passed().unwrap_or(self.passed);
        self.passed
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

impl Shared {
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens sockets for queues that the interface has gained since the last check.
    fn follow_queues(&self, watch: &mut Watch, messages: &mut Vec<String>) {
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
    fn add_queue(&self, watch: &mut Watch) -> Result<(), Error> {
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
    fn follow_losses(&self, watch: &mut Watch, messages: &mut Vec<String>) {
        let name = &self.description.interface;
        let Watch { handles, quiet, .. } = watch;
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
}

impl Shared {
    /// Returns all packets that arrived at the interface, except on queues that are not configured.
    fn arrived(&self, watch: &mut Watch) -> Option<u64> {
        // Packets on other queues are read first: they have arrived.
        let elsewhere = if self.description.queues.is_some() { watch.passed() } else { 0 };
        let counters = DeviceCounters::read(&self.description.interface)
            .filter(|_| !self.gone.load(Ordering::Acquire))?;
        Some(counters.arrived().saturating_sub(elsewhere))
    }
}

impl Source for Shared {
    fn losses(&self) -> Losses {
        let mut watch = self.watch();
        // Read before the sockets: a driver counts later than a socket, so the sockets have counted
        // everything that it has.
        let counted = if self.description.xdp == Mode::Native {
            Counted::BeforeStack
        } else {
            Counted::InStack
        };
        let device = DeviceCounters::read(&self.description.interface);
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
        let mut watch = self.watch();
        let entries = self.config.frames;
        let waiting = watch
            .handles
            .iter()
            .map(|handle| handle.waiting(entries).map_or(u64::from(entries), u64::from))
            .sum();
        watch.odometer.rotate(Instant::now(), waiting);
    }

    fn received(&self) -> Option<Tally> {
        let mut watch = self.watch();
        let arrived = self.arrived(&mut watch)?;
        watch.odometer.tally(arrived)
    }

    fn warnings(&self) -> Vec<String> {
        let name = &self.description.interface;
        if device::index(name) != Some(self.index) && !self.gone.swap(true, Ordering::AcqRel) {
            return vec![format!("{name}: the interface is gone, and the program with it")];
        }
        Vec::new()
    }

    fn notices(&self) -> Vec<String> {
        let mut messages = Vec::new();
        if self.gone.load(Ordering::Acquire) {
            return messages;
        }
        let name = &self.description.interface;
        let mut watch = self.watch();
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
            && !std::mem::replace(&mut watch.told_of_offloads, true)
        {
            messages.extend(device::merged(name).map(|merged| format!("{name}: {merged}")));
        }
        self.follow_queues(&mut watch, &mut messages);
        self.follow_losses(&mut watch, &mut messages);
        messages
    }
}

/// One worker's receive queues.
pub struct AfXdpPort {
    sockets: Vec<Socket>,
    arrivals: Receiver<Socket>,
    shared: Arc<Shared>,
    received: Arc<AtomicU64>,
    /// Waits for packets on all sockets, and for the event.
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
    /// Whether the interface is gone and all packets received from it are counted.
    finished: bool,
}

/// Identifier of [`AfXdpPort`]'s event in its epoll set.
const EVENT: u64 = u64::MAX;

impl AfXdpPort {
    fn new(arrivals: Receiver<Socket>, shared: Arc<Shared>) -> io::Result<Self> {
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
    fn receive(&mut self, sink: &mut impl FnMut(Frame<'_>)) -> Received {
        let (mut packets, link) = (0, self.shared.link);
        for socket in &mut self.sockets {
            packets += socket.receive(BATCH, |bytes, wire_length| {
                sink(Frame { bytes, wire_length, timestamp: 0, link });
            });
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
        // An interrupted wait counts as finished.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&time)) else { return };
        if events.iter().any(|event| event.data.u64() == EVENT) {
            let _ = rustix::io::read(&*self.event, &mut [0; 8]);
        }
    }

    fn waker(&self) -> Option<Waker> {
        let event = Arc::clone(&self.event);
        // Fails only after 2^64 unread calls.
        Some(Arc::new(move || _ = rustix::io::write(&*event, &1_u64.to_ne_bytes())))
    }

    fn work(self, worker: WorkerConfig) {
        worker.run(self);
    }
}
