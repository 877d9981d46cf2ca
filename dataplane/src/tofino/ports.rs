//! Ports of a switch: their configuration, and the frames that they received, by the counters of
//! their MACs.

use super::entries;
use super::options::PortConfig;
use super::session::Client;
use crate::error::Failure;
use crate::losses::{LossCause, Losses};
use crate::tally::{CountRange, Odometer};
use flowgauge_bfruntime::{Data, Entry, EntryTarget, Key, Match, Value, codec, fixed, proto};
use std::time::{Duration, Instant};

/// Interval of port reads within a window. A driver queries all MACs one after the other.
const INTERVAL: Duration = Duration::from_secs(1);

/// Counters summed over all ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortTotals {
    /// Frames that arrived, except those that end in a MAC (pause frames).
    arrived: u64,
    with_error: u64,
    no_room: u64,
}

/// Counters of a switch's ports over time.
#[derive(Debug)]
pub(super) struct SwitchPorts {
    odometer: Odometer,
    /// Counters when counting began, or after the switch was restarted.
    before: PortTotals,
    /// Losses before that.
    losses_earlier: Losses,
    /// Losses at the last read.
    pub(super) losses: Losses,
    /// Frames received when the last bank was closed.
    pub(super) tally: Option<CountRange>,
    last_read: Instant,
}

impl SwitchPorts {
    /// Creates the counters; counting began between these readings.
    pub(super) fn new(before: PortTotals, after: PortTotals) -> Self {
        let odometer = Odometer::new(before.arrived, after.arrived);
        let mut ports = SwitchPorts {
            odometer,
            before,
            losses_earlier: Losses::default(),
            losses: Losses::default(),
            tally: None,
            last_read: Instant::now(),
        };
        ports.take(after);
        ports
    }

    /// Continues with the ports of a restarted switch; what it received before is unknown.
    pub(super) fn followed_by(self, new: SwitchPorts) -> SwitchPorts {
        SwitchPorts {
            odometer: Odometer::later(),
            losses_earlier: self.losses.clone(),
            losses: self.losses,
            ..new
        }
    }

    /// Returns whether the next read is due.
    pub(super) fn are_due(&self) -> bool {
        self.last_read.elapsed() >= INTERVAL
    }

    /// Adds a reading.
    pub(super) fn take(&mut self, now: PortTotals) {
        self.last_read = Instant::now();
        self.odometer.read(self.last_read, now.arrived);
        // A counter below its earlier value was reset and counts from zero.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        self.losses = self.losses_earlier.clone();
        self.losses.add(LossCause::DeviceError, since(now.with_error, self.before.with_error));
        self.losses.add(LossCause::Device, since(now.no_room, self.before.no_room));
    }

    /// Prepares for the closing of a bank.
    pub(super) fn closing(&mut self) {
        self.odometer.rotate(Instant::now(), 0);
    }

    /// Updates the tally after a bank was closed; `now` is a reading since then, `None` if it
    /// failed.
    pub(super) fn closed(&mut self, now: Option<PortTotals>) {
        let Some(now) = now else {
            self.tally = None;
            self.odometer = Odometer::later();
            return;
        };
        self.take(now);
        self.tally = self.odometer.tally(now.arrived);
    }
}

/// Fields read of a port.
const FIELDS: [&str; 5] =
    [fixed::RECEIVED, fixed::WITH_ERROR, fixed::NO_ROOM, fixed::PAUSE, fixed::PRIORITY_PAUSE];

impl Client<'_> {
    /// Configures a port. An existing port with the same configuration is only enabled or disabled;
    /// one with another speed or error correction is an error, since a port that is removed and
    /// added again loses its link.
    pub(super) async fn configure_port(&mut self, port: &PortConfig) -> Result<(), Failure> {
        let what = format!("configuring {} {}", fixed::PORT, port.dev_port);
        let table = self.program.table(fixed::PORT)?;
        let number = Match::Exact(port.dev_port.to_be_bytes().to_vec());
        let key: Key = [(fixed::DEV_PORT.to_owned(), number)].into();
        let fields = vec![
            (fixed::SPEED.to_owned(), Value::Text(port.speed.on_switch())),
            (fixed::FEC.to_owned(), Value::Text(port.fec.on_switch().to_owned())),
            (fixed::PORT_ENABLE.to_owned(), Value::Bool(port.enable)),
        ];
        let entry =
            Entry { place: EntryTarget::Key(key.clone()), data: Data { action: None, fields } };
        let insertion = entries::update(table, proto::update::Type::Insert, &entry)?;
        match self.session.write(&what, vec![insertion], 1).await {
            Err(failure) if failure.is_there() => {}
            done => return done,
        }
        let request = Entry { place: EntryTarget::Key(key), data: Data::default() };
        let request = codec::encode_entry(table, &request).map_err(Failure::program)?;
        let request = proto::TableEntry { data: None, ..request };
        let answer = self.session.read_elements(table, vec![request]).await?;
        let [message] = &answer[..] else {
            let (entries, number) = (answer.len(), port.dev_port);
            return Err(Failure::answer(format!("{entries} entries of port {number}")));
        };
        if is_as_wanted(port, &entries::decode(table, message)?)? {
            return Ok(());
        }
        let change = entries::update(table, proto::update::Type::Modify, &entry)?;
        self.session.write(&what, vec![change], 1).await
    }

    /// Reads the counters of all ports; `None` if the switch does not report them.
    pub(super) async fn read_ports(&mut self) -> Result<Option<PortTotals>, Failure> {
        let table = self
            .program
            .table(fixed::PORT_COUNTERS)
            .ok()
            .filter(|table| FIELDS.iter().all(|name| table.field(name).is_ok()));
        let Some(table) = table else { return Ok(None) };
        let answer = match self.session.read_from_chip(table).await {
            Err(failure @ Failure::Refused { transient: false, .. }) => {
                tracing::debug!("the switch does not tell what came to its ports: {failure}");
                return Ok(None);
            }
            answer => answer?,
        };
        let mut all = PortTotals::default();
        for message in &answer {
            let entry = entries::decode(table, message)?;
            let number = |name| {
                number(&entry.data, name)
                    .ok_or_else(|| Failure::answer(format!("{}: no {name}", table.name)))
            };
            let [received, with_error, no_room, pause, priority_pause] = FIELDS.map(number);
            all.arrived = all
                .arrived
                .wrapping_add(received?)
                .wrapping_sub(pause?)
                .wrapping_sub(priority_pause?);
            all.with_error = all.with_error.wrapping_add(with_error?);
            all.no_room = all.no_room.wrapping_add(no_room?);
        }
        Ok(Some(all))
    }
}

/// Returns whether an existing port is up or down as desired. A different speed or error correction
/// is an error.
fn is_as_wanted(port: &PortConfig, entry: &Entry) -> Result<bool, Failure> {
    let wanted =
        [(fixed::SPEED, port.speed.on_switch()), (fixed::FEC, port.fec.on_switch().to_owned())];
    let mut differences = Vec::new();
    for (name, wanted) in wanted {
        match entry.data.values(name).next() {
            Some(Value::Text(is)) if *is == wanted => {}
            Some(Value::Text(is)) => differences.push(format!("{name} {is} and not {wanted}")),
            _ => return Err(Failure::answer(format!("port {} has no {name}", port.dev_port))),
        }
    }
    if !differences.is_empty() {
        let (number, differences) = (port.dev_port, differences.join(" and "));
        let advice = format!(
            "remove it on the switch (`bfrt.port.port.delete({number})`), or give --switch-port what it has"
        );
        let problem = format!(
            "port {number} is there with {differences}; a change would take its link down: {advice}"
        );
        return Err(Failure::options(problem));
    }
    Ok(entry.data.values(fixed::PORT_ENABLE).next() == Some(&Value::Bool(port.enable)))
}

fn number(data: &Data, name: &str) -> Option<u64> {
    Some(data.bytes(name)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
