//! Any packets as live frames: a program writes the start of each.

use super::{cannot_send, index, load, program, refused, run_all, send};
use aya::maps::{Array, Map, MapData, MapError};
use aya::{Ebpf, EbpfLoader};
use flowgauge_dataplane::Error;
use flowgauge_dataplane::poll::port::Outlet;
use flowgauge_dataplane::xdp::{DeviceCounters, Interface};
use std::thread;
use std::time::{Duration, Instant};

/// Program that sends the packets, and its maps.
const PROGRAM: &str = "flowgauge_send_batch";
const STARTS: &str = "STARTS";
const PROGRESS: &str = "PROGRESS";

/// Packets per part of a batch, and individual bytes at the start of each packet; as in
/// `ebpf/src/send.rs`. With VLAN tag and IPv6 they include the TCP header.
const PART: usize = 1024;
const START: usize = 80;
/// Parts of a batch, 20 MiB in all: for each batch the kernel waits for grace periods, some 20 ms.
const PARTS: u32 = 256;
const BATCH: usize = PART * PARTS as usize;
/// Ethernet header with a VLAN tag, in bytes: what the kernel allows beyond the MTU. It drops
/// longer frames silently.
const LINK_HEADER: u32 = 18;
/// Bytes of a frame that fit into a page with its metadata, on every kernel.
const MAX_FRAME_BYTES: u32 = 2048;
/// Maximum time until a device's counters show what it sent, and the interval of checks.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

type Part = [[u8; START]; PART];

/// Sender of unmodified packets of 14 bytes and more, in batches, at the highest rate that the
/// kernel reaches. Packets of a batch have one length and differ only in their first 80 bytes, as
/// generated traffic does; any other packet starts a new batch.
///
/// A batch is sent when it is full, at 262,144 packets, or [flushed](Outlet::flush), which takes
/// some 20 ms however small it is.
///
/// The packets bypass queueing disciplines, firewalls and egress hooks. A veth device accepts them
/// only while its peer runs a native XDP program or merges packets (GRO).
pub struct LiveSender {
    interface: String,
    index: u32,
    programs: Ebpf,
    starts: Array<MapData, Part>,
    progress: Array<MapData, [u32; 2]>,
    largest: usize,
    /// Template packet of the batch.
    frame: Vec<u8>,
    /// Last part of the batch.
    part: Box<Part>,
    /// Packets in the batch.
    waiting: usize,
    /// Packets handed to the interface.
    sent: u64,
    before: DeviceCounters,
    /// Packets that the interface ignored.
    ignored: u64,
}

impl LiveSender {
    /// Opens a sender on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the interface does not exist or is down, or the kernel refuses the
    /// program.
    pub fn new(interface: &str) -> Result<Self, Error> {
        let index = index(interface)?;
        let failed = |error| refused(interface, format!("cannot read its MTU: {error}"));
        let device = Interface::new(interface).map_err(failed)?;
        let mtu = device.mtu().map_err(failed)?;
        let before = DeviceCounters::read(interface)
            .ok_or_else(|| refused(interface, "cannot read its counters".to_owned()))?;
        if device.is_running() != Some(true) {
            let problem = "cannot send: is it up (`ip link set … up`)?".to_owned();
            return Err(refused(interface, problem));
        }
        let mut loader = EbpfLoader::new();
        let mut programs = load(interface, loader.map_max_entries(STARTS, PARTS), PROGRAM)?;
        let (starts, progress) =
            (take(&mut programs, interface, STARTS)?, take(&mut programs, interface, PROGRESS)?);
        Ok(LiveSender {
            interface: interface.to_owned(),
            index,
            programs,
            starts,
            progress,
            largest: (mtu + LINK_HEADER).min(MAX_FRAME_BYTES) as usize,
            frame: Vec::new(),
            part: Box::new([[0; START]; PART]),
            waiting: 0,
            sent: 0,
            before,
            ignored: 0,
        })
    }

    fn failed(&self, error: &MapError) -> Error {
        refused(&self.interface, format!("cannot hand packets to the kernel: {error}"))
    }

    /// Stores the part that contains the last packet of the batch.
    fn store(&mut self) -> Result<(), Error> {
        let (number, part): (_, &Part) = ((self.waiting - 1) / PART, &self.part);
        self.starts.set(number as u32, part, 0).map_err(|error| self.failed(&error))
    }

    /// Sends the batch.
    fn run(&mut self) -> Result<(), Error> {
        let packets = self.waiting as u32;
        self.progress.set(0, [0, packets], 0).map_err(|error| self.failed(&error))?;
        let LiveSender { interface, index, programs, progress, frame, .. } = self;
        let outcome = run_all(
            packets,
            || progress.get(&0, 0).map(|[sent, _]| sent),
            |left| send(program(programs, PROGRAM)?, *index, frame, left),
        );
        outcome.map_err(|error| cannot_send(interface, &error))
    }

    /// Returns the packets that the interface has neither sent nor dropped, once its counters are
    /// stable.
    fn unaccounted(&self) -> u64 {
        let started = Instant::now();
        loop {
            let taken = DeviceCounters::read(&self.interface).map_or(0, |now| {
                let (taken, before) =
                    (now.sent + now.send_dropped, self.before.sent + self.before.send_dropped);
                taken.saturating_sub(before)
            });
            if taken >= self.sent || started.elapsed() > SETTLE_TIMEOUT {
                return self.sent.saturating_sub(taken);
            }
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

impl Outlet for LiveSender {
    fn interface(&self) -> &str {
        &self.interface
    }

    fn largest(&self) -> usize {
        self.largest
    }

    fn send(&mut self, packet: &[u8]) -> Result<(), Error> {
        if packet.len() > self.largest {
            let problem = format!(
                "cannot send a packet of {} bytes: {} at the most",
                packet.len(),
                self.largest
            );
            return Err(refused(&self.interface, problem));
        }
        // The program writes whole words.
        let own = (packet.len() / 4 * 4).min(START);
        if packet.len() != self.frame.len() || packet[own..] != self.frame[own..] {
            self.flush()?;
            self.frame = packet.to_vec();
        }
        self.part[self.waiting % PART][..own].copy_from_slice(&packet[..own]);
        self.waiting += 1;
        match self.waiting {
            BATCH => self.flush(),
            packets if packets.is_multiple_of(PART) => self.store(),
            _ => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.waiting == 0 {
            return Ok(());
        }
        self.store()?;
        self.run()?;
        let first = self.sent == 0;
        self.sent += self.waiting as u64;
        self.waiting = 0;
        // The kernel does not report this; it is better detected now than after hours.
        if first && self.unaccounted() == self.sent {
            let problem = "takes no live frames; a veth device takes them while its peer runs XDP natively (`flowgauge run -i … \
                           --xdp-mode native`) or merges packets (`ethtool -K … gro on`); or send to af_xdp:";
            return Err(refused(&self.interface, format!("{problem}{}", self.interface)));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.ignored = self.unaccounted();
        Ok(())
    }

    fn dropped(&self) -> u64 {
        let dropped =
            |now: DeviceCounters| now.send_dropped.saturating_sub(self.before.send_dropped);
        self.ignored + DeviceCounters::read(&self.interface).map_or(0, dropped)
    }
}

fn take<M: TryFrom<Map, Error = MapError>>(
    programs: &mut Ebpf,
    interface: &str,
    name: &str,
) -> Result<M, Error> {
    let map = programs.take_map(name).and_then(|map| M::try_from(map).ok());
    map.ok_or_else(|| {
        refused(interface, format!("the object has no map {name}; rebuild it with ebpf/build"))
    })
}
