//! AF_XDP ports: packets of an interface, received directly from its driver.
//!
//! A program at the interface redirects every packet to the socket of its receive queue; the host
//! does not receive it. Each socket has frames of its own, in which a packet stays until it is
//! counted.

mod description;
mod port;
mod sender;
mod socket;
mod source;

pub use description::{AfXdp, Copies};
pub use port::AfXdpPort;
pub use sender::FrameSender;

use super::Ports;
use crate::error::Error;
use crate::interface::Interface;
use crate::interface::device::{self, DeviceCounters};
use crate::losses::Losses;
use crate::poll::gate::{Gate, Pace};
use crate::tally::Odometer;
use crate::xdp::Mode;
use crate::xdp::redirect::{self, QUEUES, Redirect};
use crossbeam::channel::unbounded;
use nix::ifaddrs::getifaddrs;
use rustix::io::Errno;
use socket::{Handle, Socket, SocketConfig, SocketDirection};
use source::{InterfaceState, InterfaceWatch};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Maximum packets per read of one socket.
const BATCH: u32 = 64;
/// Bytes that the kernel reserves before a packet.
const HEADROOM: u32 = 256;
/// Length of an Ethernet header with two VLAN tags, in bytes.
const LINK_HEADER: u32 = 22;
/// Drivers that also count packets refused by a socket as dropped by the device.
const COUNT_REFUSALS: [&str; 3] = ["veth", "virtio_net", "tun"];

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
    let (index, counters) = device::existing(name, DeviceCounters::find(name))?;
    let interface = device::existing(name, Interface::new(name).map(Some))?;
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
        .map(|queue| prepared(description, queue, &config, opened(index, queue, &config)))
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
    let shared = Arc::new(InterfaceState {
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
        watch: Mutex::new(InterfaceWatch {
            redirect,
            handles,
            disconnected: false,
            queues: there,
            uncounted: false,
            running: true,
            quiet: Vec::new(),
            passed: 0,
            device: Losses::default(),
            too_large: 0,
            offloads_reported: false,
            unseen_tags: None,
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

fn config(description: &AfXdp, interface: &Interface) -> Result<SocketConfig, String> {
    let mtu = interface.mtu().map_err(|error| format!("cannot read its MTU: {error}"))?;
    let largest = mtu + LINK_HEADER + HEADROOM;
    let frame_size = if largest <= 2048 { 2048 } else { 4096 };
    Ok(SocketConfig {
        frames: description.frames,
        frame_size,
        copies: description.copies,
        pieces: largest > frame_size,
        task: SocketDirection::Receive,
    })
}

fn prepared(
    description: &AfXdp,
    queue: u32,
    config: &SocketConfig,
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
fn opened(index: u32, queue: u32, config: &SocketConfig) -> io::Result<Socket> {
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

fn advice(error: &io::Error, config: &SocketConfig) -> String {
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
        Some(Errno::OPNOTSUPP | Errno::INVAL) if config.copies == Copies::ZeroCopy => {
            "its driver has no zero-copy here; use mode=copy"
        }
        Some(Errno::OPNOTSUPP | Errno::INVAL) if config.pieces => {
            "packets as large as its MTU take Linux 6.6; lower the MTU"
        }
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}
