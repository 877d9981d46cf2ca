//! The Tofino backend: a switch that runs `p4/flowgauge.p4` counts packets, and this process
//! controls it over BFRuntime (gRPC).
//!
//! # Path of a packet
//! The packet stays on the switch. The ingress pipeline parses it, hashes its key, and counts it in
//! the registers of the active bank. The necessary match tables come from [`Tables`].
//!
//! # Lifecycle of a window
//! The default action of one table selects the active bank, so that one write closes a window in
//! all pipes. Packets that read the old number have left the ingress pipeline after
//! [`Options::transit`]. Then the closed bank is read and cleared: the chip copies each register
//! array as a whole, a thousand times faster than reading its elements one by one, and the copy is
//! read. Two conditions are checked: the bank's counters do not change while it is read, and,
//! before the end of every window, the switch counts in the expected bank.
//!
//! # Failure of the switch or the connection
//! Calls have a deadline. Unanswered calls are repeated, and every write is idempotent: a repeated
//! `rotate` continues where it stopped. After a reconnection the switch's tables are compared with
//! the desired ones. If they are equal, nothing was lost. Otherwise the switch was restarted and
//! its counts are lost: the tables are installed again, counting continues in the same window, and
//! its [`Snapshot`] is not [complete](Snapshot::complete).
//!
//! # Where to look
//! `session`: one connection, and calls with a deadline; `program`: features of the switch's
//! program, derived from its schema; `table`, `array`, `hash`: match tables, registers and hashes,
//! the building blocks of measurements; `ports`: frames received by the switch; `measurement`: one
//! file per measurement; `times`: duration of reads; `names`: names in the P4 source. `p4/model`
//! executes the source, so that tests need no switch.

mod array;
mod hash;
mod measurement;
mod names;
mod options;
mod ports;
mod program;
mod session;
mod slot;
mod status;
mod table;
mod times;

pub use measurement::{Build, builds, definitions};
pub use options::{Fec, Options, Port, Speed, Tls};
pub use slot::{SLOT_BITS, nearest_slot, slot_bits};
pub use times::{ReadTimes, TableTimes, read_times};

pub use crate::error::Failure;

use crate::capabilities::Capabilities;
use crate::error::Error;
use crate::losses::Losses;
use crate::snapshot::Snapshot;
use crate::status::{Status, SwitchStatus};
use crate::tables::Tables;
use crate::tally::Tally;
use crate::{Adopted, Bounds, Dataplane, Event};
use array::{Array, Cells, Reading};
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::{Schema, Table};
use flowgauge_bfruntime::{Entry, Place};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::delay::{Admission, DelaySample, Kind};
use flowgauge_core::{Counters, Lasting, Settings};
use measurement::{Alarms, NO_THRESHOLDS, Samples, Staggered, alarms};
use ports::Ports;
use program::Program;
use session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use table::{Content, DesiredState};
use tokio::runtime::Runtime;

/// Maximum reads of a closed bank until it no longer changes.
const STANDSTILL_TRIES: u32 = 8;

/// The Tofino backend.
pub struct Tofino {
    runtime: Runtime,
    switch: Switch,
}

struct Switch {
    options: Options,
    settings: Settings,
    /// Arrays that are read and cleared.
    arrays: Vec<Array>,
    capabilities: Capabilities,
    program: Program,
    session: Option<Session>,
    back_off: BackOff,
    /// Receiver of individual delays, if enabled.
    samples: Option<Samples>,
    /// Receiver of entropy alarms, if enabled and the program watches an entropy.
    alarms: Option<Alarms>,
    /// Staggered registers, if distinct flows are counted without windows.
    staggered: Option<Staggered>,
    counting: Option<Counting>,
    events: Vec<Event>,
}

/// Delay before the next reconnection attempt.
#[derive(Default)]
struct BackOff {
    /// Earliest time of the next attempt, and the delay after that.
    next: Option<(Instant, Duration)>,
}

/// State of counting on a switch.
struct Counting {
    desired: DesiredState,
    /// Active bank, not counting a rotation in progress.
    active: usize,
    rotation: Rotation,
    /// Whether packets are missing in the open window.
    gap: bool,
    /// Whether the switch's tables differ from the desired state.
    damaged: bool,
    /// Number of pipes.
    pipes: usize,
    /// Counters of the ports, if the switch reports them.
    ports: Option<Ports>,
}

/// Properties of a switch, known once it counts.
struct Begun {
    pipes: usize,
    ports: Option<Ports>,
}

/// Progress of a rotation.
enum Rotation {
    /// No rotation is in progress.
    None,
    /// The switch to the other bank was requested; its result is unknown.
    Flipping,
    /// The other bank is active.
    Flipped,
    /// The closed bank was read, and may not be cleared yet.
    Read(Box<Closed>),
    /// The closed bank was read, and the switch no longer contains its counts.
    Cleared(Box<Closed>),
}

struct Closed {
    reading: Reading,
    delays: Vec<DelaySample>,
    complete: bool,
}

/// A bank, with the parameters needed to read it.
struct Bank {
    number: usize,
    settings: Settings,
    /// Requests that it admits.
    admissions: Vec<(Kind, Admission)>,
    arrays: Vec<Array>,
    /// Number of pipes that must answer.
    pipes: usize,
}

impl Tofino {
    /// Connects to a switch and checks its program. Counting starts once tables are installed.
    ///
    /// # Errors
    /// [`Error::Switch`] if the switch cannot be reached, or its program does not match the
    /// settings.
    pub fn connect(options: Options, settings: Settings) -> Result<Self, Error> {
        let address = options.address.clone();
        let failed =
            |failure| Error::Switch { operation: "connect", target: address.clone(), failure };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| failed(Failure::Runtime { problem: error.to_string() }))?;
        let (session, schema) = runtime
            .block_on(Session::open(&options, settings.delay.samples || options.watches))
            .map_err(failed)?;
        let samples = settings.delay.samples.then(|| Samples::new(&schema, &settings.delay));
        let program = Program::new(schema).map_err(failed)?;
        program.check_settings(&settings).map_err(failed)?;
        program.check_forward(&options.forward).map_err(failed)?;
        let alarms = if options.watches {
            Alarms::find(program.schema(), &settings).map_err(failed)?
        } else {
            None
        };
        let is_staggered = settings.cardinality.mode == Mode::Staggered;
        let staggered =
            is_staggered.then(|| Staggered::find(program.schema(), &settings, options.slot_ns));
        let mut capabilities = program.capabilities(&options.address);
        capabilities.watches_from = alarms.as_ref().map(|_| alarms::FIRST);
        let mut switch = Switch {
            capabilities,
            options,
            settings,
            arrays: program.arrays(&settings),
            program,
            session: Some(session),
            back_off: BackOff::default(),
            samples: samples.transpose().map_err(failed)?,
            alarms,
            staggered: staggered.transpose().map_err(failed)?,
            counting: None,
            events: Vec::new(),
        };
        if switch.options.watches && switch.alarms.is_none() {
            switch.notice(alarms::ADVICE);
        }
        Ok(Tofino { runtime, switch })
    }
}

impl Tofino {
    /// Pretends, for tests, that the last read of staggered registers was `by` earlier, to test
    /// wrap-arounds that take hours.
    #[doc(hidden)]
    pub fn age(&mut self, by: Duration) {
        self.switch.staggered.iter_mut().for_each(|staggered| staggered.age(by));
    }

    /// Sets the maximum duration of later calls.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.switch.options.deadline = deadline;
        if let Some(session) = &mut self.switch.session {
            session.deadline = deadline;
        }
    }
}

impl Dataplane for Tofino {
    fn capabilities(&self) -> &Capabilities {
        &self.switch.capabilities
    }

    fn settings(&self) -> &Settings {
        &self.switch.settings
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        let target = self.switch.options.address.clone();
        if self.switch.counting.is_some() {
            return Err(Error::AlreadyStarted { target });
        }
        tables.check(&self.switch.settings, &target)?;
        let installed = self.runtime.block_on(self.switch.install(tables));
        installed.map(|()| None).map_err(|failure| Error::Switch {
            operation: "install tables",
            target,
            failure,
        })
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        let (operation, target) = ("sample", self.switch.started("sample")?);
        let snapshot = self.runtime.block_on(self.switch.sample());
        snapshot.map_err(|failure| Error::Switch { operation, target, failure })
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        let (operation, target) = ("rotate", self.switch.started("rotate")?);
        let snapshot = self.runtime.block_on(self.switch.rotate());
        snapshot.map_err(|failure| Error::Switch { operation, target, failure })
    }

    /// Does nothing: the closed bank is cleared as soon as it was read, since no other process
    /// adopts it.
    fn published(&mut self, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        if self.switch.counting.is_some() && self.switch.samples.is_some() {
            self.runtime.block_on(self.switch.receive());
        }
        Ok(self.switch.samples.as_mut().map_or_else(Vec::new, Samples::take))
    }

    fn admit(&mut self, admissions: &[(Kind, Admission)]) -> Result<(), Error> {
        let (operation, target) = ("set shares", self.switch.started("set shares")?);
        let done = self.runtime.block_on(self.switch.admit(admissions));
        done.map_err(|failure| Error::Switch { operation, target, failure })
    }

    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        let (operation, target) = ("set bounds", self.switch.started("set bounds")?);
        let done = self.runtime.block_on(self.switch.watch(bounds));
        done.map_err(|failure| Error::Switch { operation, target, failure })
    }

    /// Returns events; also detects a lost connection and restores it, so that as few packets as
    /// possible are missing in the window.
    fn events(&mut self) -> Result<Vec<Event>, Error> {
        if self.switch.counting.is_some() {
            self.runtime.block_on(self.switch.look_after());
            if self.switch.alarms.is_some() {
                self.runtime.block_on(self.switch.receive());
            }
        }
        Ok(std::mem::take(&mut self.switch.events))
    }

    /// Returns the losses at the last port read. A switch counts in the ingress pipeline, before
    /// all queues, so earlier losses are losses of ports.
    fn losses(&mut self) -> Result<Losses, Error> {
        let ports = self.switch.counting.as_ref().and_then(|counting| counting.ports.as_ref());
        Ok(ports.map(|ports| ports.losses().clone()).unwrap_or_default())
    }

    fn received(&mut self) -> Result<Option<Tally>, Error> {
        Ok(self.switch.counting.as_ref().and_then(|counting| counting.ports.as_ref()?.tally()))
    }

    fn status(&self) -> Status {
        let Switch { options, session, counting, .. } = &self.switch;
        let verified = session.as_ref().is_some_and(|session| session.verified);
        let switch = SwitchStatus {
            address: options.address.clone(),
            program: options.program.clone(),
            connected: verified && counting.as_ref().is_none_or(|counting| !counting.damaged),
            pipes: counting.as_ref().map_or(0, |counting| counting.pipes),
        };
        Status { switch: Some(switch), ..Status::default() }
    }
}

impl BackOff {
    /// Returns the time until the next attempt is allowed.
    fn remaining(&self) -> Duration {
        self.next.map_or(Duration::ZERO, |(next, _)| next.saturating_duration_since(Instant::now()))
    }

    fn failed(&mut self, first: Duration) {
        let wait = self.next.map_or(first, |(_, wait)| (wait * 2).min(Options::LONGEST_BACK_OFF));
        self.next = Some((Instant::now() + wait, wait));
    }

    fn succeeded(&mut self) {
        self.next = None;
    }
}

impl Switch {
    fn started(&self, operation: &'static str) -> Result<String, Error> {
        let target = self.options.address.clone();
        if self.counting.is_some() {
            Ok(target)
        } else {
            Err(Error::NotStarted { operation, target })
        }
    }

    fn notice(&mut self, notice: &str) {
        self.events.push(Event::Notice(format!("{}: {notice}", self.options.address)));
    }

    fn warn(&mut self, warning: String) {
        self.events.push(Event::Warning(format!("{}: {warning}", self.options.address)));
    }

    /// Calls a switch whose tables are known to be as desired.
    async fn with<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Session, &Program) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.reach().await?;
        if self.session.as_ref().is_some_and(|session| !session.verified) {
            let problem =
                "the connection was lost and restored; the tables of the switch are not verified yet"
                    .to_owned();
            return Err(Failure::Unreachable { problem });
        }
        self.with_any(call).await
    }

    /// Calls a switch, whatever its tables contain.
    async fn with_any<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Session, &Program) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.reach().await?;
        let Some(session) = &mut self.session else {
            return Err(Failure::Unreachable { problem: "no session".to_owned() });
        };
        let answer = call(session, &self.program).await;
        // An unanswered call may still be carried out at any time until its connection ends.
        if let Err(Failure::Unreachable { .. } | Failure::NoAnswer { .. }) = &answer {
            self.session = None;
        }
        answer
    }

    /// Opens a session unless one is open.
    async fn reach(&mut self) -> Result<(), Failure> {
        if let Some(session) = &mut self.session
            && let Some(why) = session.is_lost()
        {
            self.session = None;
            if self.counting.is_some() {
                self.notice(&format!("the connection was lost: {why}"));
            }
        }
        if self.session.is_some() {
            return Ok(());
        }
        let remaining = self.back_off.remaining();
        if !remaining.is_zero() {
            return Err(Failure::Unreachable {
                problem: format!("the connection was lost; trying again in {remaining:.1?}"),
            });
        }
        match self.reopen().await {
            Ok(session) => {
                self.back_off.succeeded();
                self.session = Some(session);
                Ok(())
            }
            Err(failure) => {
                self.back_off.failed(self.options.back_off);
                Err(failure)
            }
        }
    }

    async fn reopen(&mut self) -> Result<Session, Failure> {
        let opened = self.open_after_our_own().await;
        let (session, schema, is_adopted) = opened.map_err(|failure| match failure {
            // While a switch starts, its program is not loaded yet.
            Failure::Refused { code, problem, .. } => {
                Failure::Refused { code, problem, transient: true }
            }
            failure => failure,
        })?;
        let program = Program::new(schema)?;
        program.check_settings(&self.settings)?;
        program.check_forward(&self.options.forward)?;
        self.staggered
            .iter()
            .try_for_each(|staggered| staggered.check(program.schema(), &self.settings))?;
        self.program = program;
        if is_adopted {
            let lost = if self.learns() {
                "; digests, of delays one by one and of alarms, are missing until it does"
            } else {
                ""
            };
            self.notice(&format!(
                "the switch does not know that the connection was lost; going on as the client that it was{lost}"
            ));
        }
        Ok(session)
    }

    /// Returns whether it receives digests.
    fn learns(&self) -> bool {
        self.samples.is_some() || self.alarms.is_some()
    }

    /// Opens a session. Returns also whether it continues the subscription of the previous session:
    /// a switch needs a moment to notice that a session has ended, and never does if the connection
    /// was lost silently.
    async fn open_after_our_own(&self) -> Result<(Session, Schema, bool), Failure> {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        const MAX_WAIT: Duration = Duration::from_millis(200);
        let begin = Instant::now();
        loop {
            match Session::open(&self.options, self.learns()).await {
                Err(Failure::Taken { .. }) if begin.elapsed() < MAX_WAIT => {
                    tokio::time::sleep(POLL_INTERVAL).await
                }
                Err(taken @ Failure::Taken { .. }) => {
                    let Ok((session, schema)) = Session::adopt(&self.options).await else {
                        return Err(taken);
                    };
                    return Ok((session, schema, true));
                }
                opened => return opened.map(|(session, schema)| (session, schema, false)),
            }
        }
    }

    /// Opens a session unless one is open, and restores the switch's tables.
    async fn restored(&mut self) -> Result<(), Failure> {
        self.reach().await?;
        let verified = self.session.as_ref().is_some_and(|session| session.verified);
        let Some(counting) = &self.counting else { return Ok(()) };
        if !counting.damaged && verified {
            return Ok(());
        }
        let (desired, damaged, forward, batch) = (
            counting.desired.clone(),
            counting.damaged,
            self.options.forward.clone(),
            self.options.batch,
        );
        let settings = self.settings;
        if !damaged
            && self
                .with_any(async |session, program| {
                    holds(session, program, &settings, &desired, &forward).await
                })
                .await?
        {
            // An unanswered write may have been carried out or not.
            self.with_any(async |session, program| {
                set_changing(session, program, &settings, None, &desired, batch).await
            })
            .await?;
            self.verified();
            self.notice("connected again; the switch counted on, nothing is missing");
            return Ok(());
        }
        self.restart(&desired).await
    }

    fn verified(&mut self) {
        if let Some(session) = &mut self.session {
            session.verified = true;
        }
    }

    /// Installs everything again and continues counting in the open window.
    async fn restart(&mut self, desired: &DesiredState) -> Result<(), Failure> {
        if let Some(counting) = &mut self.counting {
            counting.damaged = true;
            counting.gap = true;
            counting.rotation = match std::mem::replace(&mut counting.rotation, Rotation::None) {
                Rotation::Read(closed) | Rotation::Cleared(closed) => Rotation::Cleared(closed),
                Rotation::None | Rotation::Flipping | Rotation::Flipped => Rotation::None,
            };
        }
        let begun = self.begin(desired).await?;
        if let Some(counting) = &mut self.counting {
            counting.damaged = false;
            counting.active = 0;
            counting.pipes = begun.pipes;
            counting.ports = begun.ports.map(|new| match counting.ports.take() {
                Some(before) => before.followed_by(new),
                None => new,
            });
        }
        self.verified();
        let warning = "the switch lost its tables and what it had counted; they are installed again, and the window that is open \
                       lacks what came before";
        self.warn(warning.to_owned());
        Ok(())
    }

    /// Fills the tables, clears both banks, and starts to count in bank 0.
    async fn begin(&mut self, desired: &DesiredState) -> Result<Begun, Failure> {
        let Options { ports, forward, batch, transit, .. } = self.options.clone();
        let (settings, arrays) = (self.settings, self.arrays.clone());
        let lasting: Vec<Array> = self.lasting().collect();
        let begun = self.with_any(async |session, program| {
            for port in &ports {
                session.configure_port(program, port).await?;
            }
            for content in program.contents(&settings, desired, &forward)? {
                // Frames would be dropped while this table is empty.
                if content.table == names::FORWARD
                    && holds_content(session, program, &content).await?
                {
                    continue;
                }
                fill(session, program, content, batch).await?;
            }
            // Counts up to now are not ours. Everything is cleared while bank 1 is active; packets
            // that arrive in it after that are cleared while bank 0 is active, where counting
            // starts with the switch.
            flip(session, program, 1, transit).await?;
            for table in
                arrays.iter().chain(&lasting).map(|array| &*array.table).chain([names::FRAMES])
            {
                empty(session, program.table(table)?).await?;
            }
            let before = ports::read(session, program).await?;
            flip(session, program, 0, transit).await?;
            let after = ports::read(session, program).await?;
            let cells = read_arrays(session, program, &arrays, 1).await?;
            let raised: Vec<_> =
                arrays.iter().zip(&cells).map(|(array, cells)| array.raised(cells)).collect();
            session.write("clearing a bank", program.clear(1, &arrays, &raised)?, batch).await?;
            let ports = before.zip(after).map(|(before, after)| Ports::new(before, after));
            // Without banked arrays there may be persistent ones.
            let latest = lasting.last().filter(|_| cells.is_empty());
            let others = read_arrays(
                session,
                program,
                latest.map(std::slice::from_ref).unwrap_or_default(),
                0,
            )
            .await?;
            Ok(Begun { pipes: cells.iter().chain(&others).next().map_or(0, Vec::len), ports })
        });
        let begun = begun.await?;
        self.samples.iter_mut().for_each(Samples::restart);
        self.alarms.iter_mut().for_each(Alarms::next_window);
        self.staggered.iter_mut().for_each(Staggered::restart);
        Ok(begun)
    }

    /// Returns the arrays of staggered registers.
    fn lasting(&self) -> impl Iterator<Item = Array> {
        self.staggered
            .iter()
            .flat_map(|staggered| [staggered.registers.clone(), staggered.latest.clone()])
    }

    async fn install(&mut self, tables: &Tables) -> Result<(), Failure> {
        let began = Instant::now();
        let desired = DesiredState {
            tables: tables.clone(),
            admissions: Default::default(),
            thresholds: NO_THRESHOLDS,
        };
        let Begun { pipes, ports } = loop {
            match self.begin(&desired).await {
                Ok(begun) => break begun,
                Err(failure)
                    if !failure.is_transient() || began.elapsed() >= self.options.patience =>
                {
                    return Err(failure);
                }
                Err(failure) => {
                    tracing::debug!(
                        "{}: installing tables failed, trying again: {failure}",
                        self.options.address
                    );
                    tokio::time::sleep(self.back_off.remaining().max(self.options.back_off)).await;
                }
            }
        };
        self.verified();
        self.counting = Some(Counting {
            desired,
            active: 0,
            rotation: Rotation::None,
            gap: false,
            damaged: false,
            pipes,
            ports,
        });
        Ok(())
    }

    fn counting(&mut self) -> Result<&mut Counting, Failure> {
        self.counting.as_mut().ok_or_else(|| Failure::options("tables are not installed"))
    }

    /// Returns a bank with the parameters needed to read it.
    fn bank(&mut self, number: usize) -> Result<Bank, Failure> {
        let (settings, arrays) = (self.settings, self.arrays.clone());
        let Counting { pipes, desired, .. } = self.counting()?;
        let admissions = desired.admissions.get(number).cloned().unwrap_or_default();
        Ok(Bank { number, settings, admissions, arrays, pipes: *pipes })
    }

    /// Reads the active bank's number from the switch. An unexpected number leads to a restart of
    /// counting.
    async fn checked_bank(&mut self) -> Result<usize, Failure> {
        let bank = self.with(async |session, program| active(session, program).await).await?;
        let counting = self.counting()?;
        let expected = match counting.rotation {
            Rotation::None | Rotation::Cleared(_) => Some(counting.active),
            Rotation::Flipping => None,
            Rotation::Flipped | Rotation::Read(_) => Some(counting.active ^ 1),
        };
        if expected.is_none_or(|expected| bank == expected) {
            return Ok(bank);
        }
        self.warn(format!(
            "bank {bank} counts and should not: something else writes to the switch"
        ));
        let desired = self.counting()?.desired.clone();
        self.restart(&desired).await?;
        Ok(0)
    }

    async fn sample(&mut self) -> Result<Snapshot, Failure> {
        self.restored().await?;
        let bank_number = self.checked_bank().await?;
        let bank = self.bank(bank_number)?;
        let read = async |session: &mut Session, program: &Program| {
            read_bank(session, program, &bank).await
        };
        let (before, reading, after) = self.with(read).await?;
        let (lasting, slot_time) = self.read_staggered().await?.unzip();
        let counting = self.counting()?;
        let snapshot = counting.snapshot(
            reading,
            Vec::new(),
            before.packets(),
            after.packets(),
            !counting.gap,
        );
        Ok(Snapshot { lasting, slot_time, ..snapshot })
    }

    /// Reads staggered registers, if there are any, with the time of their clock.
    async fn read_staggered(&mut self) -> Result<Option<(Box<Lasting>, u64)>, Failure> {
        let arrays: Vec<Array> = self.lasting().collect();
        if arrays.is_empty() {
            return Ok(None);
        }
        if let Some(elapsed) = self.staggered.as_ref().and_then(Staggered::overdue) {
            // The clock is cleared too: it may contain the time of the last packet before the gap,
            // and later packets would appear to be older than that.
            let begin = async |session: &mut Session, program: &Program| {
                for array in &arrays {
                    empty(session, program.table(&array.table)?).await?;
                }
                Ok(())
            };
            self.with(begin).await?;
            self.staggered.iter_mut().for_each(Staggered::restart);
            self.warn(format!(
                "registers were not read for {elapsed:.0?}, and nobody knows of which round they are: they begin anew"
            ));
        }
        let read = async |session: &mut Session, program: &Program| {
            // The clock is read after the registers, so that none of them is later.
            for array in &arrays {
                session.sync(&[program.table(&array.table)?]).await?;
            }
            let at = Instant::now();
            Ok((read_synced(session, program, &arrays, 0).await?, at))
        };
        let (cells, at) = self.with(read).await?;
        let pipes = self.counting()?.pipes;
        if let Some(other) = cells.iter().map(Vec::len).find(|read| *read != pipes) {
            return Err(Failure::answer(format!("registers of {other} pipes, of {pipes} before")));
        }
        let (Some(staggered), [registers, latest]) = (&mut self.staggered, &cells[..]) else {
            return Ok(None);
        };
        staggered.lasting(registers, latest, at).map(Some)
    }

    async fn rotate(&mut self) -> Result<Snapshot, Failure> {
        self.restored().await?;
        self.checked_bank().await?;
        let (batch, transit) = (self.options.batch, self.options.transit);
        loop {
            let counting = self.counting()?;
            let closed = counting.active;
            match &mut counting.rotation {
                Rotation::None => {
                    counting.rotation = Rotation::Flipping;
                    counting.ports.iter_mut().for_each(Ports::closing);
                    // Digests received by now belong to the window that ends.
                    self.receive().await;
                    self.samples.iter_mut().for_each(Samples::closing);
                    self.alarms.iter_mut().for_each(Alarms::next_window);
                }
                Rotation::Flipping => {
                    self.with(async |session, program| {
                        flip(session, program, closed ^ 1, transit).await
                    })
                    .await?;
                    self.counting()?.rotation = Rotation::Flipped;
                }
                Rotation::Flipped => {
                    let bank = self.bank(closed)?;
                    let read = async |session: &mut Session, program: &Program| {
                        read_closed(session, program, &bank, transit).await
                    };
                    let mut reading = self.with(read).await?;
                    if let Some(difference) = reading.difference.take() {
                        self.warn(difference);
                    }
                    let delays = self.close_samples(&mut reading).await;
                    let counting = self.counting()?;
                    // A gap belongs to the window that ends here.
                    let complete = !std::mem::take(&mut counting.gap);
                    counting.rotation =
                        Rotation::Read(Box::new(Closed { reading, delays, complete }));
                }
                Rotation::Read(read) => {
                    // Empty elements need no write.
                    let raised = read.reading.raised.clone();
                    let updates = self.program.clear(closed, &self.arrays, &raised)?;
                    self.with(async |session, _| {
                        session.write("clearing a bank", updates, batch).await
                    })
                    .await?;
                    let counting = self.counting()?;
                    counting.active = closed ^ 1;
                    counting.rotation =
                        match std::mem::replace(&mut counting.rotation, Rotation::None) {
                            Rotation::Read(closed) => Rotation::Cleared(closed),
                            other => other,
                        };
                }
                Rotation::Cleared(_) => {
                    self.read_ports(true).await;
                    let counting = self.counting()?;
                    if let Rotation::Cleared(closed) =
                        std::mem::replace(&mut counting.rotation, Rotation::None)
                    {
                        let Closed { reading, delays, complete } = *closed;
                        let packets = reading.bank.counters.packets();
                        return Ok(counting.snapshot(reading, delays, packets, packets, complete));
                    }
                }
            }
        }
    }

    /// Reads the port counters. If that fails, only the ledger of the closed window is missing.
    async fn read_ports(&mut self, closed: bool) {
        let ports = |counting: &Counting| {
            counting.ports.as_ref().is_some_and(|ports| closed || ports.are_due())
        };
        if !self.counting.as_ref().is_some_and(ports) {
            return;
        }
        let counters =
            match self.with(async |session, program| ports::read(session, program).await).await {
                Ok(counters) => counters,
                Err(failure) => {
                    tracing::debug!(
                        "{}: what came to the ports is not known: {failure}",
                        self.options.address
                    );
                    None
                }
            };
        let Some(ports) = self.counting.as_mut().and_then(|counting| counting.ports.as_mut())
        else {
            return;
        };
        if closed {
            ports.closed(counters);
        } else if let Some(counters) = counters {
            ports.take(counters);
        }
    }

    /// Processes the digests that have arrived, for a limited time. Returns whether there were any.
    async fn receive(&mut self) -> bool {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        const MAX_DURATION: Duration = Duration::from_millis(50);
        if !self.learns() {
            return false;
        }
        // A window that is being closed is evaluated as a whole right after.
        let is_open = |counting: &&Counting| matches!(counting.rotation, Rotation::None);
        let open = self.counting.as_ref().filter(is_open).map(|counting| counting.active);
        let Some(session) = &mut self.session else { return false };
        let began = Instant::now();
        let mut has_any = false;
        while began.elapsed() < MAX_DURATION
            && let Ok(Some(digests)) =
                tokio::time::timeout(POLL_INTERVAL, session.digests.recv()).await
        {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.samples
                .iter_mut()
                .for_each(|samples| samples.receive(&digests, now.as_nanos() as u64));
            if let Some(alarms) = &mut self.alarms
                && alarms.receive(&digests, open)
            {
                self.events.push(Event::Crossed(alarms.key));
            }
            has_any = true;
        }
        has_any
    }

    /// Returns the delays of a closed bank that were not taken before. Waits for missing ones as
    /// long as others arrive.
    async fn close_samples(&mut self, reading: &mut Reading) -> Vec<DelaySample> {
        const MAX_WAIT: Duration = Duration::from_millis(100);
        let mut last = Instant::now();
        while self.samples.as_ref().is_some_and(|samples| !samples.are_all(&reading.bank))
            && last.elapsed() < MAX_WAIT
        {
            if self.receive().await {
                last = Instant::now();
            }
        }
        let Some(samples) = &mut self.samples else { return Vec::new() };
        // The bank is not shared yet.
        Arc::get_mut(&mut reading.bank).map_or_else(Vec::new, |bank| samples.close(bank))
    }

    /// Sets the request admission of the inactive bank.
    async fn admit(&mut self, admissions: &[(Kind, Admission)]) -> Result<(), Failure> {
        self.change(|desired, active| desired.admissions[active & 1 ^ 1] = admissions.to_vec())
            .await
    }

    /// Changes the desired state while the switch counts, given the active bank.
    async fn change(
        &mut self,
        change: impl FnOnce(&mut DesiredState, usize),
    ) -> Result<(), Failure> {
        self.restored().await?;
        let (settings, batch) = (self.settings, self.options.batch);
        let counting = self.counting()?;
        let before = counting.desired.clone();
        let mut desired = before.clone();
        change(&mut desired, counting.active);
        self.with(async |session, program| {
            set_changing(session, program, &settings, Some(&before), &desired, batch).await
        })
        .await?;
        self.counting()?.desired = desired;
        Ok(())
    }

    /// Sets the usual range of the entropy that the switch watches.
    async fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Failure> {
        let key = self.alarms.as_ref().map(|alarms| alarms.key);
        let Some(bounds) = bounds.iter().find(|bounds| Some(bounds.key) == key) else {
            return Ok(());
        };
        let thresholds = measurement::thresholds(bounds.lowest, bounds.highest);
        self.change(|desired, _| desired.thresholds = thresholds).await
    }

    /// Detects a lost connection and restores it; a failed attempt is repeated by the next call.
    async fn look_after(&mut self) {
        if let Some(session) = &mut self.session {
            session.lost().await;
        }
        match self.restored().await {
            Ok(()) => self.read_ports(false).await,
            Err(failure) => tracing::debug!("{}: {failure}", self.options.address),
        }
    }
}

impl Counting {
    fn snapshot(
        &self,
        reading: Reading,
        delays: Vec<DelaySample>,
        packets_before: u64,
        packets_after: u64,
        complete: bool,
    ) -> Snapshot {
        Snapshot {
            delay_samples: delays,
            packets_before,
            packets_after,
            complete,
            ..Snapshot::of(reading.bank, self.desired.tables.hash)
        }
    }
}

/// Removes all entries of a table, or resets all elements of a register or counter, of both banks,
/// to their initial values.
async fn empty(session: &mut Session, table: &Table) -> Result<(), Failure> {
    let all = proto::TableEntry { table_id: table.id, ..Default::default() };
    let update = proto::Update {
        r#type: proto::update::Type::Delete.into(),
        entity: Some(program::entity(all)),
    };
    session.write(&format!("emptying {}", table.name), vec![update], 1).await
}

/// Replaces the content of a table.
async fn fill(
    session: &mut Session,
    program: &Program,
    content: Content,
    batch: usize,
) -> Result<(), Failure> {
    let table = program.table(&content.table)?;
    // A table without a key has only a default action.
    if !table.keys.is_empty() {
        empty(session, table).await?;
    }
    let mut updates = Vec::with_capacity(content.entries.len() + 1);
    if let Some(data) = content.default {
        updates.push(program::update(
            table,
            proto::update::Type::Modify,
            &Entry { place: Place::Default, data },
        )?);
    }
    for entry in &content.entries {
        updates.push(program::update(table, proto::update::Type::Insert, entry)?);
    }
    session.write(&format!("filling {}", table.name), updates, batch).await
}

/// Returns whether the switch's tables are as desired, that is, whether it was not restarted.
async fn holds(
    session: &mut Session,
    program: &Program,
    settings: &Settings,
    desired: &DesiredState,
    forward: &[(u32, u32)],
) -> Result<bool, Failure> {
    for content in program.contents(settings, desired, forward)? {
        if !holds_content(session, program, &content).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a table has exactly these entries; for a table without a key, this default
/// entry.
async fn holds_content(
    session: &mut Session,
    program: &Program,
    content: &Content,
) -> Result<bool, Failure> {
    let table = program.table(&content.table)?;
    let has_key = !table.keys.is_empty();
    let default = content
        .default
        .iter()
        .filter(|_| !has_key)
        .map(|data| Entry { place: Place::Default, data: data.clone() });
    let default: Vec<Entry> = default.collect();
    let mut expected: Vec<&Entry> = content.entries.iter().chain(&default).collect();
    expected.sort_by_key(|entry| entry.place.key().cloned());
    // A truncated answer looks like a table that has lost entries. A "no" leads to a reset of the
    // counters, so it is confirmed once.
    for _ in 0..2 {
        let answer = if has_key {
            session.read_all(table).await?
        } else {
            session.read_default(table).await?
        };
        let mut desired = answer
            .iter()
            .map(|message| program.decode(table, message))
            .collect::<Result<Vec<Entry>, _>>()?;
        desired.sort_by_key(|entry| entry.place.key().cloned());
        let is_same = |(desired, expected): (&Entry, &&Entry)| {
            if content.changes { desired.place == expected.place } else { desired == *expected }
        };
        if desired.len() == expected.len() && desired.iter().zip(&expected).all(is_same) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes the entries of tables that change while the switch counts: those that differ from
/// `before`, or all.
async fn set_changing(
    session: &mut Session,
    program: &Program,
    settings: &Settings,
    before: Option<&DesiredState>,
    desired: &DesiredState,
    batch: usize,
) -> Result<(), Failure> {
    let before =
        before.map(|before| program.changing(settings, before)).transpose()?.unwrap_or_default();
    for content in program.changing(settings, desired)? {
        let same = before.iter().find(|before| before.table == content.table);
        let table = program.table(&content.table)?;
        let is_new = |entry: &&Entry| same.is_none_or(|same| !same.entries.contains(entry));
        let default = content
            .default
            .iter()
            .filter(|default| same.is_none_or(|same| same.default.as_ref() != Some(*default)));
        let default: Vec<Entry> =
            default.map(|data| Entry { place: Place::Default, data: data.clone() }).collect();
        let new = content.entries.iter().filter(is_new).chain(&default);
        let updates = new.map(|entry| program::update(table, proto::update::Type::Modify, entry));
        session
            .write(&format!("changing {}", table.name), updates.collect::<Result<_, _>>()?, batch)
            .await?;
    }
    Ok(())
}

async fn active(session: &mut Session, program: &Program) -> Result<usize, Failure> {
    let answer = session.read_default(program.table(names::BANK)?).await?;
    program.bank(&answer)
}

/// Makes a bank active, and waits until no packet is counted in the other one.
async fn flip(
    session: &mut Session,
    program: &Program,
    bank: usize,
    transit: Duration,
) -> Result<(), Failure> {
    session.write("changing the bank that counts", vec![program.set_bank(bank)?], 1).await?;
    tokio::time::sleep(transit).await;
    Ok(())
}

async fn read_counters(
    session: &mut Session,
    program: &Program,
    bank: usize,
) -> Result<Counters, Failure> {
    let table = program.table(names::FRAMES)?;
    session.sync(&[table]).await?;
    let elements = program.elements(table, names::COUNTER_INDEX, Program::classes(bank))?;
    program.counters(bank, &session.read_elements(table, elements).await?)
}

async fn read_arrays(
    session: &mut Session,
    program: &Program,
    arrays: &[Array],
    bank: usize,
) -> Result<Vec<Cells>, Failure> {
    let tables =
        arrays.iter().map(|array| program.table(&array.table)).collect::<Result<Vec<_>, _>>()?;
    session.sync(&tables).await?;
    read_synced(session, program, arrays, bank).await
}

/// Reads the chip's last copy.
async fn read_synced(
    session: &mut Session,
    program: &Program,
    arrays: &[Array],
    bank: usize,
) -> Result<Vec<Cells>, Failure> {
    let mut cells = Vec::with_capacity(arrays.len());
    for array in arrays {
        let table = program.table(&array.table)?;
        let elements = program.elements(table, names::REGISTER_INDEX, array.of_bank(bank))?;
        cells.push(array.read(program, bank, &session.read_elements(table, elements).await?)?);
    }
    Ok(cells)
}

/// Reads a bank's counters, then the bank with its counters, then the counters again.
async fn read_bank(
    session: &mut Session,
    program: &Program,
    bank: &Bank,
) -> Result<(Counters, Reading, Counters), Failure> {
    let Bank { number, settings, admissions, arrays, pipes } = bank;
    let (number, pipes) = (*number, *pipes);
    let before = read_counters(session, program, number).await?;
    let cells = read_arrays(session, program, arrays, number).await?;
    if let Some(other) = cells.iter().map(Vec::len).find(|read| *read != pipes) {
        return Err(Failure::answer(format!("registers of {other} pipes, of {pipes} before")));
    }
    let after = read_counters(session, program, number).await?;
    Ok((before, Reading::of(settings, admissions, arrays, &cells, after), after))
}

/// Reads a bank after it has stopped changing.
async fn read_closed(
    session: &mut Session,
    program: &Program,
    bank: &Bank,
    transit: Duration,
) -> Result<Reading, Failure> {
    for _ in 0..STANDSTILL_TRIES {
        let (before, reading, after) = read_bank(session, program, bank).await?;
        if before == after && reading.changed == 0 {
            return Ok(reading);
        }
        tokio::time::sleep(transit).await;
    }
    Err(Failure::answer(format!(
        "bank {} is closed and counts on; does something else write to the switch?",
        bank.number
    )))
}
