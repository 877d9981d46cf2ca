//! Entropy: a sketch of flows' counts, and the sum that a table of logarithms makes of them.

use super::{Array, Capabilities, Cells, Failure, Filling, Held, Layout, MatchTable, OnSwitch, names, rows};
use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::entropy::DERIVATIVE_OF_LOG;
use flowgauge_core::logarithm::{LogarithmEntry, PER_PACKET};
use flowgauge_core::{MeasurementKind, Settings, WideBank, sketch};

const KIND: MeasurementKind = MeasurementKind::Entropy;
const DEFINITIONS: [&str; 3] = ["FLOWGAUGE_ENTROPY_KEY", "FLOWGAUGE_ENTROPY_SKETCH", "FLOWGAUGE_ENTROPY_COLUMN_BITS"];
/// Longest-prefix table from a flow's count to what it adds to the sum.
const LOGARITHM: &str = "logarithm";
const COUNT: &str = "count";
const SET_TERM: &str = "set_term";
const TERM: [&str; 2] = ["value", "inverted"];
/// Sums of both banks, in two halves.
const SUM: &str = "sum";
const HALVES: [&str; 2] = ["low", "high"];

pub(super) struct Entropy;

impl OnSwitch for Entropy {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, "FLOWGAUGE_ENTROPY")
    }

    fn check(&self, Settings { entropy: [_, second], .. }: &Settings) -> Result<(), Failure> {
        if second.is_on() {
            return Err(Failure::program("it measures one entropy, the first"));
        }
        Ok(())
    }

    fn find(&self, schema: &Schema, Settings { entropy: [entropy, _], .. }: &mut Settings) -> Result<(), Failure> {
        *entropy = rows::find(schema, KIND)?;
        Ok(())
    }

    fn layout(&self, Settings { entropy: [entropy, _], .. }: &Settings) -> Layout {
        let mut layout = rows::layout(KIND, DEFINITIONS, entropy);
        layout.arrays.push(Array::new(names::of(KIND, entropy.key, SUM), 1, &HALVES));
        layout.tables.push(logarithm(entropy));
        layout
    }

    fn merge(&self, Settings { entropy: [entropy, _], .. }: &Settings, arrays: &[Cells], bank: &mut WideBank) -> usize {
        let ([sketch, ..], [total, ..]) = (&mut bank.entropy.sketches, &mut bank.entropy.sums);
        let Some((sums, sketch_rows)) = arrays.split_last() else { return 0 };
        rows::merge(entropy, sketch_rows, sketch);
        for [low, high] in sums.iter().flatten() {
            total.sum = total.sum.saturating_add(u64::from(*high) << 32 | u64::from(*low));
        }
        0
    }

    fn capabilities(&self, settings: &Settings, capabilities: &mut Capabilities) {
        capabilities.entropies = KIND.keys(settings).count();
    }
}

/// From a flow's count to what it adds to the sum; a count of one adds nothing.
fn logarithm(settings: &sketch::Settings) -> MatchTable {
    // Counters of Count-Min that are negative, were they signed, stand for the largest that is not.
    let largest = LogarithmEntry { value: 1 << 31, prefix_length: 1, log2: PER_PACKET.log2((1 << 31) - 1) };
    let largest = (settings.mode == sketch::Mode::CountMin).then_some(largest);
    let data = |term: u32| [term, !term].map(|value| value.to_be_bytes().to_vec()).to_vec();
    let filling = move |held: &Held| {
        let entries = held.tables.logarithm.iter().chain(&largest).map(|logarithm| {
            let value = logarithm.value.to_be_bytes().to_vec();
            let key = (COUNT, Match::Lpm { value, prefix_length: logarithm.prefix_length });
            (vec![key], data(logarithm.log2.wrapping_add(DERIVATIVE_OF_LOG)))
        });
        Filling { entries: entries.collect(), default: Some(data(0)) }
    };
    let parameters = TERM.map(|name| (name, 32)).to_vec();
    MatchTable::new(names::of(KIND, settings.key, LOGARITHM), vec![(COUNT, 32)], SET_TERM, parameters, filling)
}
