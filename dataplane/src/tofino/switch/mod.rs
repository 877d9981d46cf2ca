//! A switch that counts: its state, calls to it, the beginning of counting, and the digests that it
//! sends (individual delays and alarms).

mod reconnection;
mod rotation;

use super::array::Array;
use super::bank::Reading;
use super::measurement::{self, Alarms, NO_THRESHOLDS, Samples, Staggered};
use super::options::Options;
use super::ports::SwitchPorts;
use super::program::Program;
use super::session::{Client, Session};
use super::table::DesiredState;
use super::{filter, names};
use crate::capabilities::Capabilities;
use crate::error::{Error, Failure};
use crate::status::SwitchStatus;
use crate::tables::Tables;
use crate::{Bounds, Event};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::delay::{Admission, DelayKind, DelaySample};
use flowgauge_core::{Filter, Settings};
use reconnection::BackOff;
use rotation::Rotation;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A switch that was connected to, and its state if it counts.
pub(super) struct Switch {
    pub(super) options: Options,
    /// Arrays that are read and cleared.
    arrays: Vec<Array>,
    pub(super) capabilities: Capabilities,
    pub(super) program: Program,
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

/// State of counting on a switch.
struct Counting {
    desired: DesiredState,
    /// Active bank, not counting a rotation in progress.
    active: usize,
    rotation: Rotation,
    /// Filter of the windows from the next rotation on.
    filter: Option<Arc<Filter>>,
    /// Whether the entries of the inactive bank's filter are unknown, since their change failed.
    is_filter_unknown: bool,
    /// Whether packets are missing in the open window.
    gap: bool,
    /// Whether the switch's tables differ from the desired state.
    damaged: bool,
    /// Number of pipes.
    pipes: usize,
    /// Counters of the ports, if the switch reports them.
    ports: Option<SwitchPorts>,
}

/// Properties of a switch, known once it counts.
struct Begun {
    pipes: usize,
    ports: Option<SwitchPorts>,
}

impl Switch {
    /// Connects to a switch and checks its program.
    pub(super) async fn connect(options: Options, settings: Settings) -> Result<Self, Failure> {
        let learns = settings.delay.samples || options.watches;
        let (session, schema) = Session::open(&options, learns).await?;
        let program = Program::fitting(schema, settings, options.forward.clone())?;
        let (schema, statement) = (&program.schema, &program.statement);
        let alarms =
            if options.watches { Alarms::find(schema, statement, &settings)? } else { None };
        let samples = settings.delay.samples.then(|| Samples::new(schema, &settings.delay));
        let is_staggered = settings.cardinality.mode == Mode::Staggered;
        let staggered =
            is_staggered.then(|| Staggered::find(schema, statement, &settings, options.slot_ns));
        let mut capabilities = program.capabilities(&options.address);
        capabilities.watches_from = alarms.as_ref().map(|_| measurement::MIN_WATCHED_PACKETS);
        let mut switch = Switch {
            capabilities,
            options,
            arrays: program.arrays()?,
            samples: samples.transpose()?,
            staggered: staggered.transpose()?,
            program,
            session: Some(session),
            back_off: BackOff::default(),
            alarms,
            counting: None,
            events: Vec::new(),
        };
        if switch.options.watches && switch.alarms.is_none() {
            switch.notice(measurement::ALARM_ADVICE);
        }
        Ok(switch)
    }

    /// Pretends, for tests, that the last read of staggered registers was `by` earlier.
    pub(super) fn age(&mut self, by: Duration) {
        self.staggered.iter_mut().for_each(|staggered| staggered.age(by));
    }

    /// Sets the maximum duration of later calls.
    pub(super) fn set_deadline(&mut self, deadline: Duration) {
        self.options.deadline = deadline;
        if let Some(session) = &mut self.session {
            session.options.deadline = deadline;
        }
    }

    /// Returns whether tables are installed.
    pub(super) fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// Returns the counters of the ports, if the switch reports them.
    pub(super) fn ports(&self) -> Option<&SwitchPorts> {
        self.counting.as_ref()?.ports.as_ref()
    }

    pub(super) fn status(&self) -> SwitchStatus {
        let Switch { options, session, counting, .. } = self;
        let verified = session.as_ref().is_some_and(|session| session.verified);
        SwitchStatus {
            address: options.address.clone(),
            program: options.program.clone(),
            connected: verified && counting.as_ref().is_none_or(|counting| !counting.damaged),
            pipes: counting.as_ref().map_or(0, |counting| counting.pipes),
        }
    }

    /// Returns events; also detects a lost connection and restores it.
    pub(super) async fn events(&mut self) -> Vec<Event> {
        if self.is_counting() {
            self.look_after().await;
            if self.alarms.is_some() {
                self.receive().await;
            }
        }
        std::mem::take(&mut self.events)
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
        call: impl AsyncFnOnce(&mut Client<'_>) -> Result<T, Failure>,
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
        call: impl AsyncFnOnce(&mut Client<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.reach().await?;
        let Some(session) = &mut self.session else {
            return Err(Failure::Unreachable { problem: "no session".to_owned() });
        };
        let answer = call(&mut Client { session, program: &self.program }).await;
        // An unanswered call may still be carried out at any time until its connection ends.
        if let Err(Failure::Unreachable { .. } | Failure::NoAnswer { .. }) = &answer {
            self.session = None;
        }
        answer
    }

    fn verified(&mut self) {
        if let Some(session) = &mut self.session {
            session.verified = true;
        }
    }

    /// Fills the tables, clears both banks, and starts to count in bank 0.
    async fn begin(&mut self, desired: &DesiredState) -> Result<Begun, Failure> {
        let Options { ports, batch, transit, .. } = self.options.clone();
        let arrays = self.arrays.clone();
        let persistent: Vec<Array> = self.persistent().collect();
        let begun = self.with_any(async |client| {
            for port in &ports {
                client.configure_port(port).await?;
            }
            for content in client.program.contents(desired, |_| true)? {
                // Frames would be dropped while this table is empty.
                if content.table == names::FORWARD && client.holds_content(&content, None).await? {
                    continue;
                }
                client.fill(content, batch).await?;
            }
            // Counts up to now are not ours. Everything is cleared while bank 1 is active; packets
            // that arrive in it after that are cleared while bank 0 is active, where counting
            // starts with the switch.
            client.flip(1, transit).await?;
            for table in
                arrays.iter().chain(&persistent).map(|array| &*array.table).chain([names::FRAMES])
            {
                client.empty(table).await?;
            }
            let before = client.read_ports().await?;
            client.flip(0, transit).await?;
            let after = client.read_ports().await?;
            let cells = client.read_arrays(&arrays, 1).await?;
            let raised: Vec<_> =
                arrays.iter().zip(&cells).map(|(array, cells)| array.raised(cells)).collect();
            let updates = client.program.clear(1, &arrays, &raised)?;
            client.session.write("clearing a bank", updates, batch).await?;
            let ports = before.zip(after).map(|(before, after)| SwitchPorts::new(before, after));
            // Without banked arrays there may be persistent ones.
            let latest = persistent.last().filter(|_| cells.is_empty());
            let latest = latest.map(std::slice::from_ref).unwrap_or_default();
            let others = client.read_arrays(latest, 0).await?;
            Ok(Begun { pipes: cells.iter().chain(&others).next().map_or(0, Vec::len), ports })
        });
        let begun = begun.await?;
        self.samples.iter_mut().for_each(Samples::restart);
        self.alarms.iter_mut().for_each(Alarms::next_window);
        self.staggered.iter_mut().for_each(Staggered::restart);
        Ok(begun)
    }

    /// Returns the arrays of staggered registers.
    fn persistent(&self) -> impl Iterator<Item = Array> {
        self.staggered
            .iter()
            .flat_map(|staggered| [staggered.registers.clone(), staggered.latest.clone()])
    }

    pub(super) async fn install(&mut self, tables: &Tables) -> Result<(), Failure> {
        let began = Instant::now();
        let desired = DesiredState {
            tables: tables.clone(),
            admissions: Default::default(),
            filters: std::array::from_fn(|_| tables.filter.clone()),
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
            filter: tables.filter.clone(),
            is_filter_unknown: false,
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

    /// Reads the port counters. If that fails, only the ledger of the closed window is missing.
    async fn read_ports(&mut self, closed: bool) {
        let ports = |counting: &Counting| {
            counting.ports.as_ref().is_some_and(|ports| closed || ports.are_due())
        };
        if !self.counting.as_ref().is_some_and(ports) {
            return;
        }
        let counters = match self.with(async |client| client.read_ports().await).await {
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

    /// Sets the request admission of the inactive bank.
    pub(super) async fn admit(
        &mut self,
        admissions: &[(DelayKind, Admission)],
    ) -> Result<(), Failure> {
        self.change(|desired, active| desired.admissions[active & 1 ^ 1] = admissions.to_vec())
            .await
    }

    /// Changes the desired state while the switch counts, given the active bank.
    async fn change(
        &mut self,
        change: impl FnOnce(&mut DesiredState, usize),
    ) -> Result<(), Failure> {
        self.restored().await?;
        let batch = self.options.batch;
        let counting = self.counting()?;
        let before = counting.desired.clone();
        let mut desired = before.clone();
        change(&mut desired, counting.active);
        self.with(async |client| client.set_changing(Some(&before), &desired, batch).await).await?;
        self.counting()?.desired = desired;
        Ok(())
    }

    /// Checks that the program can match a filter.
    pub(super) fn check_filter(&self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        filter.map_or(Ok(()), |filter| filter::check(filter, &self.capabilities))
    }

    /// Sets the filter of the windows from the next rotation on.
    pub(super) fn set_filter(&mut self, filter: Option<Arc<Filter>>) -> Result<(), Failure> {
        self.counting()?.filter = filter;
        Ok(())
    }

    /// Gives the inactive bank the filter of the next window, if it has another one.
    async fn prepare_filter(&mut self) -> Result<(), Failure> {
        let batch = self.options.batch;
        let counting = self.counting()?;
        let next = counting.active & 1 ^ 1;
        let filter = counting.filter.clone();
        if counting.desired.filters[next] == filter && !counting.is_filter_unknown {
            return Ok(());
        }
        counting.desired.filters[next] = filter;
        counting.is_filter_unknown = true;
        let desired = counting.desired.clone();
        self.with(async |client| client.set_filter(&desired, next, batch).await).await?;
        self.counting()?.is_filter_unknown = false;
        Ok(())
    }

    /// Sets the usual range of the entropy that the switch watches.
    pub(super) async fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Failure> {
        let key = self.alarms.as_ref().map(|alarms| alarms.key);
        let Some(bounds) = bounds.iter().find(|bounds| Some(bounds.key) == key) else {
            return Ok(());
        };
        let thresholds = measurement::thresholds(bounds.lowest, bounds.highest);
        self.change(|desired, _| desired.thresholds = thresholds).await
    }

    /// Returns the delays received since the last call.
    pub(super) async fn delay_samples(&mut self) -> Vec<DelaySample> {
        if self.counting.is_some() && self.samples.is_some() {
            self.receive().await;
        }
        self.samples.as_mut().map_or_else(Vec::new, Samples::take)
    }

    /// Returns whether it receives digests.
    fn learns(&self) -> bool {
        self.samples.is_some() || self.alarms.is_some()
    }

    /// Processes the digests that have arrived, for a limited time. Returns whether there were any.
    async fn receive(&mut self) -> bool {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        const MAX_DURATION: Duration = Duration::from_millis(50);
        if !self.learns() {
            return false;
        }
        // A window that is being closed is evaluated as a whole when it is.
        let is_open = |counting: &&Counting| matches!(counting.rotation, Rotation::None);
        let open = self.counting.as_ref().filter(is_open).map(|counting| counting.active);
        let Some(session) = &mut self.session else { return false };
        let began = Instant::now();
        let mut has_any = false;
        while began.elapsed() < MAX_DURATION
            && let Ok(Some(digests)) =
                tokio::time::timeout(POLL_INTERVAL, session.subscription.digests.recv()).await
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
}
