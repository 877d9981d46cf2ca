//! The XDP backend: the kernel counts, with the code of `dataplane/core`.
//!
//! A program in the receive path of an interface (`ebpf/`) counts in an array with one [`Core`](flowgauge_core::Core) a CPU,
//! which this process maps. A rotation stores the other bank's number in every element and waits for the packets in flight;
//! from then on the old bank belongs to user space. The program leaves the interface with the process.

mod mapped;
mod object;

use crate::capabilities::Capabilities;
use crate::error::Error;
use crate::losses::{LossCause, Losses};
use crate::snapshot::Snapshot;
use crate::tables::Tables;
use crate::{Dataplane, Event};
use aya::maps::{Map, MapData};
use aya::programs::xdp::XdpMode;
use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp as Program};
use aya::{Ebpf, EbpfError};
use flowgauge_core::{Bank, HashIdentity, Settings};
use mapped::{Cores, wait_for_packets_in_flight};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PROGRAM: &str = "flowgauge_xdp";

/// Where in the receive path an interface runs the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything. There is no silent fall-back to another mode.
    #[default]
    Native,
    /// In the kernel's generic path: works on every interface, and costs several times as much.
    Skb,
    /// On the network card.
    Offload,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Native, Mode::Skb, Mode::Offload];

    /// The name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Skb => "skb",
            Mode::Offload => "offload",
        }
    }
}

impl From<Mode> for XdpMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Skb => XdpMode::Skb,
            Mode::Offload => XdpMode::Hardware,
        }
    }
}

/// The XDP backend.
pub struct Xdp {
    capabilities: Capabilities,
    settings: Settings,
    attach: Option<Mode>,
    programs: Programs,
    kernel: Option<Kernel>,
    /// Losses of the interface when counting began.
    losses_before: Losses,
    gone: bool,
}

/// What the kernel holds for us once tables are installed.
struct Kernel {
    cores: Cores,
    hash: HashIdentity,
    active: usize,
    /// A rotation was begun and not finished.
    rotating: bool,
}

type Programs = Arc<Mutex<Option<Ebpf>>>;

fn locked(programs: &Programs) -> MutexGuard<'_, Option<Ebpf>> {
    programs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Xdp {
    /// A backend that will count what arrives at an interface once tables are installed.
    #[must_use]
    pub fn on_interface(interface: &str, mode: Mode, settings: Settings) -> Self {
        Self::new(interface, Some(mode), settings)
    }

    /// A backend without an interface, fed through its [`Injector`]: for tests and benchmarks.
    #[must_use]
    pub fn detached(settings: Settings) -> Self {
        Self::new("injected frames", None, settings)
    }

    fn new(interface: &str, attach: Option<Mode>, settings: Settings) -> Self {
        let everything = Capabilities::of_core("xdp", interface.to_owned(), cpus());
        let capabilities = Capabilities { atomic_snapshots: false, staggered: false, ..everything };
        let losses_before = Losses::default();
        Xdp { capabilities, settings, attach, programs: Programs::default(), kernel: None, losses_before, gone: false }
    }

    /// A way to run frames through the program as if they had arrived; works once tables are installed.
    #[must_use]
    pub fn injector(&self) -> Injector {
        Injector { programs: Arc::clone(&self.programs) }
    }

    fn interface(&self) -> String {
        self.capabilities.interface.clone()
    }

    fn kernel(&mut self, operation: &'static str) -> Result<&mut Kernel, Error> {
        let target = || self.capabilities.interface.clone();
        self.kernel.as_mut().ok_or_else(|| Error::NotStarted { operation, target: target() })
    }

    fn refused(&self, problem: String) -> Error {
        Error::Kernel { interface: self.interface(), problem }
    }

    fn load(&self, tables: &Tables) -> Result<Ebpf, Error> {
        let mut ebpf = object::load(self.settings, &tables.tabulation, cpus()).map_err(|error| self.refused(loading(&error)))?;
        let program = program(&mut ebpf).map_err(|error| self.refused(error.to_string()))?;
        program.load().map_err(|error| self.refused(attaching(&error, self.attach)))?;
        if let Some(mode) = self.attach {
            program.attach(&self.interface(), mode.into()).map_err(|error| self.refused(attaching(&error, self.attach)))?;
        }
        Ok(ebpf)
    }

    fn map(&self, ebpf: &Ebpf) -> Result<Cores, Error> {
        let Some(Map::Array(map)) = ebpf.map("CORES") else {
            return Err(self.refused("the object has no array CORES; rebuild it with ebpf/build".to_owned()));
        };
        let map: &MapData = map;
        Cores::new(map, cpus()).map_err(|error| self.refused(format!("cannot map the array of cores: {error}")))
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Program, ProgramError> {
    ebpf.program_mut(PROGRAM).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// CPUs that may ever run; programs index their array by CPU number.
fn cpus() -> usize {
    aya::util::nr_cpus().unwrap_or(1)
}

fn loading(error: &EbpfError) -> String {
    format!("cannot load the programs: {error}{}", advice(io_error(error)))
}

fn attaching(error: &ProgramError, mode: Option<Mode>) -> String {
    let cause = io_error(error);
    let busy = [libc::EBUSY, libc::EEXIST];
    if matches!(error, ProgramError::UnknownInterface { .. }) {
        return "there is no such interface; `ip link` lists them".to_owned();
    }
    match cause {
        Some(code) if busy.contains(&code) => {
            "another XDP program is attached; `ip link` shows its number, `ip link set … xdp off` \
                                               removes it"
                .to_owned()
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == Some(Mode::Native) => {
            "its driver does not run XDP programs natively here; --xdp-mode skb works on every interface, but is slower".to_owned()
        }
        _ => format!("cannot attach: {error}{}", advice(cause)),
    }
}

fn advice(code: Option<i32>) -> &'static str {
    match code {
        Some(libc::EPERM | libc::EACCES) => "; it takes root, or the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        _ => "",
    }
}

/// The system's error number at the bottom of an error.
fn io_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error))
        .last()
}

impl Dataplane for Xdp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn install(&mut self, tables: &Tables) -> Result<(), Error> {
        if self.kernel.is_some() {
            return Err(Error::AlreadyStarted { target: self.interface() });
        }
        tables.check(&self.settings, &self.capabilities.interface)?;
        self.losses_before = self.losses()?;
        let ebpf = self.load(tables)?;
        let cores = self.map(&ebpf)?;
        *locked(&self.programs) = Some(ebpf);
        self.kernel = Some(Kernel { cores, hash: tables.hash, active: 0, rotating: false });
        Ok(())
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        let settings = self.settings;
        let Kernel { cores, hash, active, rotating } = self.kernel("sample")?;
        let active = if *rotating { *active ^ 1 } else { *active };
        let packets = || (0..cores.count()).map(|cpu| cores.counters(cpu, active).packets()).sum();
        let packets_before = packets();
        let (mut bank, mut scratch) = (Box::new(Bank::new()), Box::new(Bank::new()));
        for cpu in 0..cores.count() {
            cores.merge_active(cpu, active, &settings, &mut bank, &mut scratch);
        }
        Ok(Snapshot { bank, staggered: None, packets_before, packets_after: packets(), hash: *hash, truth: None, complete: true })
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        let (settings, interface) = (self.settings, self.interface());
        let kernel = self.kernel("rotate")?;
        let closed = kernel.active;
        if !kernel.rotating {
            kernel.cores.set_bank((closed ^ 1) as u32);
            kernel.rotating = true;
        }
        wait_for_packets_in_flight().map_err(|error| Error::Kernel {
            interface,
            problem: format!("cannot wait for packets in flight (membarrier): {error}"),
        })?;
        let mut bank = Box::new(Bank::new());
        for part in kernel.cores.closed(closed) {
            bank.merge(part, &settings);
            part.clear(&settings);
        }
        kernel.active = closed ^ 1;
        kernel.rotating = false;
        let packets = bank.counters.packets();
        Ok(Snapshot {
            bank,
            staggered: None,
            packets_before: packets,
            packets_after: packets,
            hash: kernel.hash,
            truth: None,
            complete: true,
        })
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        if self.gone || self.attach.is_none() || device(&self.capabilities.interface).is_some() {
            return Ok(Vec::new());
        }
        self.gone = true;
        Ok(vec![
            Event::Warning(format!("{}: the interface is gone, and the program with it", self.interface())),
            Event::TrafficEnded,
        ])
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        let mut losses = Losses::default();
        if self.attach.is_some()
            && let Some(dropped) = device(&self.capabilities.interface)
        {
            losses.add(LossCause::Device, dropped);
        }
        Ok(losses.since(&self.losses_before))
    }
}

/// Packets that an interface of this thread's network namespace received and dropped; `None` if there is no such interface.
fn device(interface: &str) -> Option<u64> {
    const RECEIVE_DROPPED: usize = 3;
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
    let counters = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    counters.split_ascii_whitespace().nth(RECEIVE_DROPPED)?.parse().ok()
}

/// Runs frames through a program, in the kernel but without an interface (BPF_PROG_TEST_RUN).
#[derive(Clone)]
pub struct Injector {
    programs: Programs,
}

impl Injector {
    /// Counts one Ethernet frame of 14 bytes or more on this CPU.
    ///
    /// # Errors
    /// [`Error::Kernel`] before tables are installed, and if the kernel refuses the frame.
    pub fn inject(&self, frame: &[u8]) -> Result<(), Error> {
        let refused = |problem: String| Error::Kernel { interface: "injected frames".to_owned(), problem };
        let mut programs = locked(&self.programs);
        let ebpf = programs.as_mut().ok_or_else(|| refused("install tables first".to_owned()))?;
        let program = program(ebpf).map_err(|error| refused(error.to_string()))?;
        let options = TestRunOptions { data_in: Some(frame), repeat: 1, ..TestRunOptions::default() };
        program.test_run(options).map(drop).map_err(|error| refused(format!("{} bytes: {error}", frame.len())))
    }
}
