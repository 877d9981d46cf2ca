//! Port tables of a server: configured ports, their counters, and names of front panels.

use super::target::{Fault, PortCounters, Query, Source, Target, Write};
use crate::entry::{Data, Entry, EntryTarget, Key, Match, Value};
use crate::fixed;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Front-panel ports of a pipe.
const FRONT_PORTS_PER_PIPE: u32 = 16;
const CHANNELS_PER_PORT: u32 = 4;
/// Device port number of the first channel to the switch's own CPU.
const CPU_PORT: u32 = 64;

/// Ports of a switch, by device port number.
pub(super) struct Ports {
    pipes: u32,
    /// Fields of the configured ports.
    configured: Mutex<BTreeMap<u32, Vec<(String, Value)>>>,
    /// Counters as of the last read from the chip.
    counters: Mutex<BTreeMap<u32, PortCounters>>,
}

impl Ports {
    pub(super) fn new(pipes: u32) -> Self {
        Ports { pipes, configured: Mutex::default(), counters: Mutex::default() }
    }

    fn configured(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<(String, Value)>>> {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name and the device port number of each channel. Front panels count ports from
    /// 1; the last one is the CPU port.
    fn names(&self) -> impl Iterator<Item = (String, u32)> {
        let panel = (0..self.pipes * FRONT_PORTS_PER_PIPE).map(|port| {
            let (pipe, port) = (port / FRONT_PORTS_PER_PIPE, port % FRONT_PORTS_PER_PIPE);
            pipe << 7 | (port * CHANNELS_PER_PORT)
        });
        let first_channels = panel.chain([CPU_PORT]).zip(1..);
        first_channels.flat_map(|(first, port)| {
            (0..CHANNELS_PER_PORT)
                .map(move |channel| (format!("{port}/{channel}"), first + channel))
        })
    }

    /// Returns the counters of all ports that are configured or have counted something.
    fn counter_entries(&self, target: &dyn Target, source: Source) -> Vec<Entry> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if source == Source::Hardware {
            *counters = target.port_counters();
        }
        let mut all: BTreeMap<u32, PortCounters> =
            self.configured().keys().map(|port| (*port, PortCounters::default())).collect();
        all.extend(counters.iter());
        all.into_iter().map(|(port, counters)| counter_entry(port, counters)).collect()
    }

    /// Reads one of the port tables.
    pub(super) fn read(
        &self,
        target: &dyn Target,
        table: &str,
        query: &Query,
        source: Source,
    ) -> Result<Vec<Entry>, Fault> {
        let all: Vec<Entry> = match table {
            fixed::PORT_COUNTERS => self.counter_entries(target, source),
            fixed::PORT => self
                .configured()
                .iter()
                .map(|(port, data)| self.configured_entry(*port, data))
                .collect(),
            _ => self.names().map(|(name, port)| name_entry(&name, port)).collect(),
        };
        match query {
            Query::All => Ok(all),
            Query::Default => Err(Fault::invalid(format!("{table} has no default entry"))),
            Query::Entry(key) => {
                let found = all.into_iter().find(
                    |entry| matches!(&entry.place, EntryTarget::Key(entry_key) if entry_key == key),
                );
                Ok(vec![found.ok_or_else(|| Fault::not_found(format!("{table}: no such port")))?])
            }
        }
    }

    fn configured_entry(&self, port: u32, data: &[(String, Value)]) -> Entry {
        let mut fields = data.to_vec();
        let name = self
            .names()
            .find(|(_, number)| *number == port)
            .map(|(name, _)| name)
            .unwrap_or_default();
        fields.push((fixed::PORT_NAME.to_owned(), Value::Text(name)));
        fields.push((fixed::PORT_UP.to_owned(), Value::Bool(is_enabled(data))));
        Entry {
            place: EntryTarget::Key(exact(fixed::DEV_PORT, &port.to_be_bytes())),
            data: Data { action: None, fields },
        }
    }

    /// Writes the table of configured ports; a change of a port reaches the target first.
    pub(super) fn write(&self, target: &dyn Target, write: &Write) -> Result<(), Fault> {
        let mut configured = self.configured();
        match write {
            Write::Insert(key, data) => {
                let port = self.device_port(key)?;
                if configured.contains_key(&port) {
                    return Err(Fault::already_exists(format!(
                        "port {port} is configured already"
                    )));
                }
                let mut fields = default_fields();
                set(&mut fields, &data.fields);
                target.configure_port(port, is_enabled(&fields))?;
                configured.insert(port, fields);
            }
            Write::Modify(key, data) => {
                let port = self.device_port(key)?;
                let current = configured
                    .get_mut(&port)
                    .ok_or_else(|| Fault::not_found(format!("port {port} is not configured")))?;
                let mut fields = current.clone();
                set(&mut fields, &data.fields);
                target.configure_port(port, is_enabled(&fields))?;
                *current = fields;
            }
            Write::Delete(key) => {
                let port = self.device_port(key)?;
                if !configured.contains_key(&port) {
                    return Err(Fault::not_found(format!("port {port} is not configured")));
                }
                target.configure_port(port, false)?;
                configured.remove(&port);
            }
            Write::Clear => {
                for port in configured.keys() {
                    target.configure_port(*port, false)?;
                }
                configured.clear();
            }
            Write::SetDefault(_) | Write::ResetDefault => {
                return Err(Fault::invalid("ports have no default entry"));
            }
        }
        Ok(())
    }

    /// Returns the device port number of a key, if the switch has that port.
    fn device_port(&self, key: &Key) -> Result<u32, Fault> {
        let Some(Match::Exact(bytes)) = key.get(fixed::DEV_PORT) else {
            return Err(Fault::invalid("no port given"));
        };
        let port = bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        if !self.names().any(|(_, number)| number == port) {
            return Err(Fault::invalid(format!("the switch has no port {port}")));
        }
        Ok(port)
    }
}

fn is_enabled(fields: &[(String, Value)]) -> bool {
    fields.iter().any(|(name, value)| name == fixed::PORT_ENABLE && *value == Value::Bool(true))
}

/// Returns the fields of a port before any is set.
fn default_fields() -> Vec<(String, Value)> {
    let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.to_owned()));
    vec![
        text("$AUTO_NEGOTIATION", "PM_AN_DEFAULT"),
        text("$LOOPBACK_MODE", "BF_LPBK_NONE"),
        ("$N_LANES".to_owned(), Value::Bytes(vec![0, 0, 0, 1])),
        (fixed::PORT_ENABLE.to_owned(), Value::Bool(false)),
    ]
}

/// Sets fields, replacing those of the same names.
fn set(fields: &mut Vec<(String, Value)>, new: &[(String, Value)]) {
    for (name, value) in new {
        fields.retain(|(old, _)| old != name);
        fields.push((name.clone(), value.clone()));
    }
}

/// Returns the entry of a port in the table of names.
fn name_entry(name: &str, port: u32) -> Entry {
    let key = exact(fixed::PORT_NAME, name.as_bytes());
    Entry {
        place: EntryTarget::Key(key),
        data: Data::fields([(fixed::DEV_PORT, port.to_be_bytes().to_vec())]),
    }
}

/// Returns the entry of a port in the table of counters.
fn counter_entry(port: u32, counters: PortCounters) -> Entry {
    let PortCounters { received, wrong_checksum, no_room, pause, sent } = counters;
    let fields = [
        (fixed::RECEIVED_OK, received - wrong_checksum),
        (fixed::RECEIVED, received),
        (fixed::WRONG_CHECKSUM, wrong_checksum),
        (fixed::WITH_ERROR, wrong_checksum),
        (fixed::PAUSE, pause),
        (fixed::PRIORITY_PAUSE, 0),
        (fixed::NO_ROOM, no_room),
        (fixed::SENT_OK, sent),
        (fixed::SENT, sent),
    ];
    let data = Data::fields(fields.map(|(name, value)| (name, value.to_be_bytes().to_vec())));
    Entry { place: EntryTarget::Key(exact(fixed::DEV_PORT, &port.to_be_bytes())), data }
}

/// Returns a key with one exact match.
fn exact(name: &str, value: &[u8]) -> Key {
    [(name.to_owned(), Match::Exact(value.to_vec()))].into()
}
