//! `flowgauge tables`: prints the match tables that the controller installs, or the read times of a
//! switch.

#[cfg(feature = "tofino")]
mod read_times;

use crate::config::options::switch::AccessOptions;
use crate::config::secrets;
use crate::config::value;
use crate::error::{CommandFailure, refuse};
use crate::output::print;
#[cfg(feature = "tofino")]
use crate::run::source::switch_options;
use clap::Args;
use flowgauge_core::{HashMode, Precision, Settings};
use flowgauge_ctl::filter::{FamilyEntries, MatchExpression, PortRange};
use flowgauge_ctl::output::Format;
use flowgauge_dataplane::Tables as Installed;
#[cfg(feature = "tofino")]
use flowgauge_dataplane::tofino;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Show the match tables that the controller installs in a dataplane.
///
/// 'rank' maps the lower bits of a hash to a register level by longest-prefix match, for switches
/// that cannot count leading zeros. 'tabulation' has the words of the tabulated hash, which depend
/// on the seed; those of a keyed hash are secret. Software backends compute both, but check what
/// they receive.
///
/// With --read-times, measures instead how long a switch takes to read its registers, and which
/// windows are possible.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge tables
  flowgauge tables --read-times --address switch:50052
  flowgauge tables --match tcp
  flowgauge tables --registers 4096 --seed 7 --format json")]
pub(crate) struct Tables {
    /// Number of registers, a power of two from 16 to 65536
    #[arg(long, value_name = "N", value_parser = value::registers, default_value = "2048")]
    registers: Precision,

    /// Hash: tabulated, crc32, keyed (shows only the fingerprint of the key)
    #[arg(long, value_name = "HASH", value_parser = value::hash, default_value = "tabulated")]
    hash: HashMode,

    /// Seed of the tabulation words
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Secret of --hash keyed
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,

    /// Show the table of a filter expression instead, with the number of its entries
    ///
    /// Each entry is one of a ternary table. The first one that a packet meets decides.
    #[arg(long = "match", value_name = "EXPRESSION", conflicts_with = "read_times")]
    matching: Option<MatchExpression>,

    /// Measure how long it takes to read and clear the registers of the switch at --address; no
    /// other client may count there
    #[arg(long, help_heading = "Switch")]
    read_times: bool,

    #[command(flatten)]
    access: AccessOptions,

    /// Output format: table, csv, json
    #[arg(long, value_name = "FORMAT", value_parser = value::format, default_value = "table")]
    format: Format,
}

/// Returns the entries that an expression takes in each table of a switch, and how many a bank has
/// room for; or why a switch cannot match it.
#[cfg(feature = "tofino")]
fn on_switch(expression: &MatchExpression) -> Result<Vec<(&'static str, usize, usize)>, String> {
    if let Some(what) = tofino::unmatchable(&expression.filter) {
        return Err(format!("it cannot match {what}"));
    }
    let tables = tofino::filter_entries(&expression.filter);
    Ok(tables.map(|table| (table.family, table.entries, table.room)).to_vec())
}

#[cfg(not(feature = "tofino"))]
fn on_switch(_: &MatchExpression) -> Result<Vec<(&'static str, usize, usize)>, String> {
    Err(value::not_built("tofino"))
}

impl Tables {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        match (self.access.resolve()?, self.read_times) {
            #[cfg(not(feature = "tofino"))]
            (Some(_), true) => {
                return refuse(format!("--read-times: {}", value::not_built("tofino")));
            }
            #[cfg(feature = "tofino")]
            (Some(switch), true) => {
                let switch = switch_options(&switch)?;
                return read_times::execute(&switch, self.format);
            }
            (None, true) => {
                return refuse(
                    "--read-times needs the address of a switch; give it with --address HOST:PORT",
                );
            }
            (Some(_), false) => {
                return refuse("--address is for --read-times; add it");
            }
            (None, false) => {}
        }
        if let Some(expression) = &self.matching {
            return print(|out| self.print_filter(expression, out));
        }
        let mut settings = Settings::default();
        settings.cardinality.precision = self.registers;
        settings.hash = self.hash;
        let tables = match (self.hash, &self.hash_key) {
            (HashMode::Keyed, Some(path)) => {
                Installed::keyed(&settings, self.seed, &secrets::hash_key(path)?)
            }
            (HashMode::Keyed, None) => {
                return refuse(
                    "the tables of a keyed hash depend on a secret; give it with --hash-key FILE",
                );
            }
            (_, Some(_)) => {
                return refuse("--hash-key is for --hash keyed; remove one of them");
            }
            (HashMode::Crc32 | HashMode::Tabulated, None) => Installed::new(&settings, self.seed),
        };
        print(|out| match self.format {
            Format::Table => self.print(&tables, out),
            Format::Csv => self.csv(&tables, out),
            Format::Json => self.json(&tables, out),
        })
    }

    /// Prints the table of a filter.
    fn print_filter(&self, expression: &MatchExpression, out: &mut impl Write) -> io::Result<()> {
        let verdict = |is_match: bool| if is_match { "count" } else { "leave out" };
        let families = expression.entries();
        match self.format {
            Format::Table => {
                for (index, FamilyEntries { family, entries, otherwise }) in
                    families.iter().enumerate()
                {
                    let gap = if index == 0 { "" } else { "\n" };
                    let (number, otherwise) = (entries.len(), verdict(*otherwise));
                    writeln!(out, "{gap}{family}: ternary entries {number}, default {otherwise}")?;
                    for (conditions, is_match) in entries {
                        writeln!(out, "  {conditions} -> {}", verdict(*is_match))?;
                    }
                }
                writeln!(out)?;
                for PortRange { ports, prefixes } in &*expression.port_ranges {
                    let (first, last) = (ports.start(), ports.end());
                    writeln!(out, "Ports {first}-{last} take {prefixes} prefixes")?;
                }
                match on_switch(expression) {
                    Ok(tables) => {
                        let room = |(family, entries, room): &(&str, usize, usize)| {
                            format!("{family} {entries} of {room}")
                        };
                        let tables: Vec<String> = tables.iter().map(room).collect();
                        writeln!(out, "Switch, entries of a bank: {}", tables.join(", "))
                    }
                    Err(why) => writeln!(out, "Switch: {why}"),
                }
            }
            Format::Csv => {
                writeln!(out, "family,entry,conditions,verdict")?;
                for FamilyEntries { family, entries, otherwise } in &families {
                    for (number, (conditions, is_match)) in entries.iter().enumerate() {
                        writeln!(out, "{family},{number},\"{conditions}\",{}", verdict(*is_match))?;
                    }
                    writeln!(out, "{family},,,{}", verdict(*otherwise))?;
                }
                Ok(())
            }
            Format::Json => {
                let family = |family: &FamilyEntries| {
                    let entry = |(conditions, is_match): &(String, bool)| json!({ "conditions": conditions, "match": is_match });
                    json!({
                        "family": family.family.to_string(),
                        "entries": family.entries.iter().map(entry).collect::<Vec<_>>(),
                        "default_match": family.otherwise,
                    })
                };
                let tables: Vec<_> = families.iter().map(family).collect();
                let range = |PortRange { ports, prefixes }: &PortRange| json!({ "first": ports.start(), "last": ports.end(), "prefixes": prefixes });
                let on_switch = match on_switch(expression) {
                    Ok(tables) => {
                        let table = |(family, entries, room): &(&str, usize, usize)| json!({ "family": family, "entries": entries, "room": room });
                        json!({ "tables": tables.iter().map(table).collect::<Vec<_>>() })
                    }
                    Err(why) => json!({ "refused": why }),
                };
                writeln!(
                    out,
                    "{}",
                    json!({
                        "match": expression.text.as_ref(),
                        "tables": tables,
                        "port_ranges": expression.port_ranges.iter().map(range).collect::<Vec<_>>(),
                        "switch": on_switch,
                    })
                )
            }
        }
    }

    fn words<'a>(&self, tables: &'a Installed) -> impl Iterator<Item = (usize, usize, u32)> + 'a {
        let used = if self.hash == HashMode::Tabulated { 4 } else { 0 };
        let tables = tables.tabulation.tables().iter().enumerate().take(used);
        tables.flat_map(|(table, words)| {
            words.iter().enumerate().map(move |(byte, word)| (table, byte, *word))
        })
    }

    fn print(&self, tables: &Installed, out: &mut impl Write) -> io::Result<()> {
        let bits = self.registers.rank_bits() as usize;
        writeln!(
            out,
            "rank: {} longest-prefix-match entries on {bits} bits, default level {}",
            tables.rank.len(),
            self.registers.max_level()
        )?;
        for entry in &tables.rank {
            writeln!(
                out,
                "  {:0bits$b}/{:<2} -> {}",
                entry.value, entry.prefix_length, entry.level
            )?;
        }
        let mut previous = None;
        for (table, byte, word) in self.words(tables) {
            if previous != Some(table) {
                previous = Some(table);
                writeln!(
                    out,
                    "\ntabulation T{table}, seed {}: 256 words for byte {} of the CRC",
                    self.seed,
                    3 - table
                )?;
            }
            let end = if byte % 8 == 7 { "\n" } else { "" };
            write!(out, "  {word:08x}{end}")?;
        }
        if self.hash == HashMode::Keyed {
            writeln!(
                out,
                "\nkeyed: the words are a secret, of fingerprint {:016x}",
                tables.hash.fingerprint
            )?;
        }
        Ok(())
    }

    fn csv(&self, tables: &Installed, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "table,key,prefix_length,value")?;
        for entry in &tables.rank {
            writeln!(out, "rank,{},{},{}", entry.value, entry.prefix_length, entry.level)?;
        }
        writeln!(out, "rank,,0,{}", self.registers.max_level())?;
        self.words(tables)
            .try_for_each(|(table, byte, word)| writeln!(out, "tabulation{table},{byte},,{word}"))
    }

    fn json(&self, tables: &Installed, out: &mut impl Write) -> io::Result<()> {
        let rank: Vec<_> = tables
            .rank
            .iter()
            .map(|e| json!({"value": e.value, "prefix_length": e.prefix_length, "level": e.level}))
            .collect();
        let tabulation: Vec<_> =
            tables.tabulation.tables().iter().map(|words| words.to_vec()).collect();
        let used = self.hash == HashMode::Tabulated;
        let hash = match self.hash {
            HashMode::Crc32 | HashMode::Tabulated => {
                json!({ "mode": self.hash.name(), "seed": tables.hash.seed, "polynomial": format!("{:#010x}", tables.hash.polynomial) })
            }
            HashMode::Keyed => {
                json!({ "mode": self.hash.name(), "fingerprint": format!("{:016x}", tables.hash.fingerprint) })
            }
        };
        let all = json!({
            "registers": self.registers.registers(),
            "hash": hash,
            "rank": { "bits": self.registers.rank_bits(), "default_level": self.registers.max_level(), "entries": rank },
            "tabulation": used.then_some(tabulation),
        });
        writeln!(out, "{all}")
    }
}
