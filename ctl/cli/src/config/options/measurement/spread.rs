//! Options of spread: the keys with the most distinct others.

use super::Measurement;
use crate::config::Traffic;
use crate::config::options::Options;
use crate::config::value;
use clap::Args;
use flowgauge_core::spread::{self, CELL_REGISTERS, MAX_CELLS, MAX_ROWS, OtherKind};
use flowgauge_core::{KeyKind, SPREADS, Settings};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_dataplane::MeasurementKind;

/// Least number of rows: a row's noise shows in the registers of the others.
const MIN_ROWS: usize = 2;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct SpreadArgs {
    /// Key whose distinct others to count, and these: by=src, dst, src-dst; of=src, dst, dst-port,
    /// five-tuple; may be given twice [default: by=dst,of=src]
    ///
    /// by=dst,of=src finds the victims of floods, by=src,of=dst hosts that scan a network,
    /// by=src,of=dst-port and by=src-dst,of=dst-port those that scan ports.
    #[arg(long, value_name = "by=KEY,of=OTHERS", value_parser = part, value_delimiter = ',', help_heading = "Measurement")]
    spread: Vec<SpreadPair>,

    /// Rows of a sketch of spread, 2 to 4 [default: 3]
    #[arg(long, value_name = "N", value_parser = rows, help_heading = "Measurement")]
    spread_rows: Option<usize>,

    /// Cells in a row of spread, a power of two from 16 [default: 512]
    #[arg(long, value_name = "N", value_parser = columns, help_heading = "Measurement")]
    spread_columns: Option<usize>,

    /// Registers of a cell of spread, a power of two from 16 to 256 [default: 64]
    #[arg(long, value_name = "N", value_parser = registers, help_heading = "Measurement")]
    spread_registers: Option<usize>,

    /// Number of keys with the most distinct others to show [default: 10]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    spread_top: Option<usize>,
}

/// Key and others of a sketch, as far as they are given.
type SpreadPair = (Option<KeyKind>, Option<OtherKind>);

/// Parses a part of a value of `--spread`. Configuration files and the environment separate parts as
/// they separate values.
fn part(text: &str) -> Result<SpreadPair, String> {
    match text.trim().split_once('=') {
        Some(("by", key)) => Ok((Some(value::key_kind(key.trim())?), None)),
        Some(("of", others)) => Ok((None, Some(value::other_kind(others.trim())?))),
        _ => Err("give by=KEY,of=OTHERS, such as by=dst,of=src".to_owned()),
    }
}

fn rows(text: &str) -> Result<usize, String> {
    let rows = text.parse::<usize>().ok().filter(|rows| (MIN_ROWS..=MAX_ROWS).contains(rows));
    rows.ok_or_else(|| format!("give a number from {MIN_ROWS} to {MAX_ROWS}"))
}

fn columns(text: &str) -> Result<usize, String> {
    let fits = |columns: &usize| spread::Settings::DEFAULT.sized(1, *columns, 16).is_some();
    let columns = text.parse::<usize>().ok().filter(fits);
    columns.ok_or_else(|| format!("give a power of two from 16 to {MAX_CELLS}"))
}

fn registers(text: &str) -> Result<usize, String> {
    value::power_of_two(text, CELL_REGISTERS).map(|bits| 1 << bits)
}

impl SpreadArgs {
    /// Returns the key and the others of each sketch, as far as they are given.
    fn given(&self) -> Vec<SpreadPair> {
        let mut sketches: Vec<SpreadPair> = Vec::new();
        for (by, of) in self.spread.iter().copied() {
            match sketches.last_mut() {
                Some((key @ None, _)) if by.is_some() => *key = by,
                Some((_, others @ None)) if of.is_some() => *others = of,
                _ => sketches.push((by, of)),
            }
        }
        sketches
    }

    /// Returns the size that all sketches have; `None` if it is too large.
    fn sized(&self) -> Option<spread::Settings> {
        let spread::Settings { shape, registers, .. } = spread::Settings::DEFAULT;
        spread::Settings { on: true, ..spread::Settings::DEFAULT }.sized(
            self.spread_rows.unwrap_or(shape.rows()),
            self.spread_columns.unwrap_or(shape.columns()),
            self.spread_registers.unwrap_or(registers.registers()),
        )
    }

    /// Returns the sketches. A backend refuses those that it cannot count.
    fn sketches(&self) -> [spread::Settings; SPREADS] {
        let mut sketches = [spread::Settings::DEFAULT; SPREADS];
        let Some(sized) = self.sized() else { return sketches };
        let given = self.given();
        let usual = if given.is_empty() { vec![(None, None)] } else { given };
        for (sketch, (by, of)) in sketches.iter_mut().zip(usual) {
            let by = by.unwrap_or(sized.by);
            let of = of.unwrap_or(if by == KeyKind::Src { OtherKind::Dst } else { OtherKind::Src });
            *sketch = spread::Settings { by, of, ..sized };
        }
        sketches
    }
}

impl Measurement for SpreadArgs {
    const KIND: MeasurementKind = MeasurementKind::Spread;

    fn settings(&self, _: &Options, _: &Traffic, settings: &mut Settings) {
        settings.spread = self.sketches();
    }

    fn estimation(&self, _: &Options, estimation: &mut Estimation) {
        estimation.spread.top = self.spread_top.unwrap_or(estimation.spread.top);
    }

    fn problem(&self, _: &Options, _: &Traffic) -> Option<&'static str> {
        let given = self.given();
        if given.len() > SPREADS {
            return Some(
                "--spread can be given twice, each with one by= and one of=; remove the others",
            );
        }
        if given.iter().any(|(by, _)| by.is_none()) {
            return Some("--spread needs the key: give by=KEY,of=OTHERS, such as by=dst,of=src");
        }
        if self.sized().is_none() {
            return Some(
                "--spread-rows, --spread-columns and --spread-registers: at most 4096 cells and 524288 registers, three rows count as four; make them smaller",
            );
        }
        let sketches = self.sketches();
        let [first, second] = &sketches;
        if second.on && (first.by, first.of) == (second.by, second.of) {
            return Some(
                "--spread counts the same twice; remove one, or give it another by= or of=",
            );
        }
        let is_constant = |sketch: &spread::Settings| sketch.on && sketch.pair().is_none();
        sketches.iter().any(is_constant).then_some(
            "--spread: a key has at most one such other; give an of= that the key does not contain, such as by=dst,of=src",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(parts: &[&str]) -> SpreadArgs {
        let parts = parts.iter().flat_map(|text| text.split(','));
        SpreadArgs {
            spread: parts.map(|text| part(text).unwrap()).collect(),
            ..SpreadArgs::default()
        }
    }

    fn counted(parts: &[&str]) -> Vec<(KeyKind, OtherKind)> {
        let sketches = args(parts).sketches();
        sketches.iter().filter(|sketch| sketch.on).map(|sketch| (sketch.by, sketch.of)).collect()
    }

    #[test]
    fn parts_belong_to_a_sketch_until_it_has_both() {
        use KeyKind::{Dst, Src, SrcDst};
        assert_eq!(counted(&[]), [(Dst, OtherKind::Src)]);
        assert_eq!(counted(&["by=src"]), [(Src, OtherKind::Dst)]);
        assert_eq!(counted(&["of=dst-port,by=src-dst"]), [(SrcDst, OtherKind::DstPort)]);
        let both = [(Dst, OtherKind::Src), (Src, OtherKind::DstPort)];
        assert_eq!(counted(&["by=dst,of=src", "by=src,of=dst-port"]), both);
        assert_eq!(counted(&["by=dst", "by=src,of=dst-port"]), both);
    }

    #[test]
    fn contradictions_are_refused() {
        let problem = |parts: &[&str]| {
            args(parts).problem(&Options::default(), &Traffic::GENERATED).unwrap_or_default()
        };
        assert_eq!(problem(&["by=dst,of=src", "by=src,of=dst"]), "");
        assert!(problem(&["by=src", "by=dst", "by=src-dst"]).contains("given twice"));
        assert!(problem(&["of=src"]).contains("needs the key"));
        assert!(problem(&["by=src,of=dst", "by=src"]).contains("the same twice"));
        assert!(problem(&["by=src,of=src"]).contains("at most one such other"));
        let large = SpreadArgs { spread_columns: Some(4096), ..args(&[]) };
        let problem = large.problem(&Options::default(), &Traffic::GENERATED);
        assert!(problem.unwrap().contains("at most 4096 cells"));
    }
}
