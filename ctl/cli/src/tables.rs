//! `flowgauge tables`: what the controller installs.

use crate::error::Failure;
use crate::value;
use clap::Args;
use flowgauge_core::{HashMode, Precision, Settings};
use flowgauge_ctl::output::Format;
use flowgauge_dataplane::{HashKey, Tables as Installed};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Show the match tables that the controller installs in a dataplane.
///
/// 'rank' turns the lower bits of a hash into a register level by longest prefix match, for switches that cannot count leading
/// zeros. 'tabulation' holds the words of the tabulated hash, a function of the seed; those of a keyed hash are a secret. Software backends compute both but
/// check what they are given.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge tables
  flowgauge tables --registers 4096 --seed 7 --format json")]
pub(crate) struct Tables {
    /// Registers, a power of two from 16 to 65536
    #[arg(long, value_name = "N", value_parser = value::registers, default_value = "2048")]
    registers: Precision,

    /// The hash: tabulated, crc32 or keyed, of which only the fingerprint of the key is shown
    #[arg(long, value_name = "HASH", value_parser = value::hash, default_value = "tabulated")]
    hash: HashMode,

    /// Seed of the tabulation words
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The secret of --hash keyed
    #[arg(long, value_name = "FILE")]
    hash_key: Option<PathBuf>,

    /// table, csv or json
    #[arg(long, value_name = "FORMAT", value_parser = value::format, default_value = "table")]
    format: Format,
}

impl Tables {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let mut settings = Settings::default();
        settings.cardinality.precision = self.registers;
        settings.cardinality.hash = self.hash;
        let tables = match (self.hash, &self.hash_key) {
            (HashMode::Keyed, Some(path)) => Installed::keyed(&settings, self.seed, &HashKey::read(path)?),
            (HashMode::Keyed, None) => {
                return Err(Failure::Usage("a keyed hash has its tables from a secret; give it with --hash-key FILE".to_owned()));
            }
            (_, Some(_)) => return Err(Failure::Usage("--hash-key is for --hash keyed; leave out one or the other".to_owned())),
            (HashMode::Crc32 | HashMode::Tabulated, None) => Installed::new(&settings, self.seed),
        };
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = match self.format {
            Format::Table => self.print(&tables, &mut out),
            Format::Csv => self.csv(&tables, &mut out),
            Format::Json => self.json(&tables, &mut out),
        };
        written.and_then(|()| out.flush()).map_err(Failure::output)
    }

    fn words<'a>(&self, tables: &'a Installed) -> impl Iterator<Item = (usize, usize, u32)> + 'a {
        let used = if self.hash == HashMode::Tabulated { 4 } else { 0 };
        let tables = tables.tabulation.tables().iter().enumerate().take(used);
        tables.flat_map(|(table, words)| words.iter().enumerate().map(move |(byte, word)| (table, byte, *word)))
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
            writeln!(out, "  {:0bits$b}/{:<2} -> {}", entry.value, entry.prefix_length, entry.level)?;
        }
        let mut previous = None;
        for (table, byte, word) in self.words(tables) {
            if previous != Some(table) {
                previous = Some(table);
                writeln!(out, "\ntabulation T{table}, seed {}: 256 words for byte {} of the CRC", self.seed, 3 - table)?;
            }
            let end = if byte % 8 == 7 { "\n" } else { "" };
            write!(out, "  {word:08x}{end}")?;
        }
        if self.hash == HashMode::Keyed {
            writeln!(out, "\nkeyed: the words are a secret, of fingerprint {:016x}", tables.hash.fingerprint)?;
        }
        Ok(())
    }

    fn csv(&self, tables: &Installed, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "table,key,prefix_length,value")?;
        for entry in &tables.rank {
            writeln!(out, "rank,{},{},{}", entry.value, entry.prefix_length, entry.level)?;
        }
        writeln!(out, "rank,,0,{}", self.registers.max_level())?;
        self.words(tables).try_for_each(|(table, byte, word)| writeln!(out, "tabulation{table},{byte},,{word}"))
    }

    fn json(&self, tables: &Installed, out: &mut impl Write) -> io::Result<()> {
        let rank: Vec<_> =
            tables.rank.iter().map(|e| json!({"value": e.value, "prefix_length": e.prefix_length, "level": e.level})).collect();
        let tabulation: Vec<_> = tables.tabulation.tables().iter().map(|words| words.to_vec()).collect();
        let used = self.hash == HashMode::Tabulated;
        let hash = match self.hash {
            HashMode::Crc32 | HashMode::Tabulated => {
                json!({ "mode": self.hash.name(), "seed": tables.hash.seed, "polynomial": format!("{:#010x}", tables.hash.polynomial) })
            }
            HashMode::Keyed => json!({ "mode": self.hash.name(), "fingerprint": format!("{:016x}", tables.hash.fingerprint) }),
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
