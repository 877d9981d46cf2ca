//! Reordering per source prefix: the counts of a bank. The followed flows are persistent and stay
//! on the switch.

use super::{
    Array, BankCells, DesiredState, Failure, Layout, MatchTable, ReadArrays, StatedSettings,
    SwitchMeasurement, TableContents, hash, names,
};
use flowgauge_core::reorder::{self, Algorithm, MAX_PREFIXES, PrefixCounts};
use flowgauge_core::{MeasurementKind, Settings, WindowTotals};

const KIND: MeasurementKind = MeasurementKind::Reorder;
const SWITCH: &str = "FLOWGAUGE_REORDER";
const SLOT_BITS: &str = "FLOWGAUGE_REORDER_SLOT_BITS";
/// Smallest number of slots, as a power of two.
const LEAST_SLOT_BITS: u8 = 4;

/// Hashes of prefixes, and of candidate large flows.
const HASHES: [&str; 2] = ["reorder.places", "reorder.large"];
/// Tables without a key that define the prefix lengths.
const IPV4_PREFIX: &str = "reorder.ipv4_prefix";
const IPV6_PREFIX: &str = "reorder.ipv6_prefix";

/// Upper and lower halves of the stored prefixes, at their first and second candidate indices.
const HALVES: [&str; 4] = ["reorder.upper0", "reorder.lower0", "reorder.upper1", "reorder.lower1"];
const PLACES: usize = MAX_PREFIXES / 2;
/// Address bits in a half; the IP version is below them.
const HALF_BITS: u32 = 28;
const VERSION_BITS: u32 = 4;
/// Counters per index, the second candidates after the first ones.
const FOLLOWED: (&str, [&str; 2]) = ("reorder.followed", ["packets", "flows"]);
const OUT_OF_ORDER: (&str, [&str; 2]) = ("reorder.out_of_order", ["packets", "squares"]);
const OTHERS: (&str, [&str; 2]) = ("reorder.others", ["gaps", "retransmitted"]);
/// Packets without a prefix.
const UNFOLLOWED: &str = "reorder.unfollowed";
const CROWDED: &str = "reorder.crowded";

pub(super) struct Reorder;

impl SwitchMeasurement for Reorder {
    fn kind(&self) -> (MeasurementKind, &'static str) {
        (KIND, SWITCH)
    }

    fn check(&self, Settings { reorder, .. }: &Settings) -> Result<(), Failure> {
        if reorder.algorithm != Algorithm::Off && reorder.slots_log2 < LEAST_SLOT_BITS {
            return Err(Failure::program(format!(
                "it has at least {} buckets for reordering",
                1_u32 << LEAST_SLOT_BITS
            )));
        }
        Ok(())
    }

    fn read(
        &self,
        program: &StatedSettings,
        Settings { reorder, .. }: &mut Settings,
    ) -> Result<(), Failure> {
        reorder.algorithm = program.one_of(SWITCH, Algorithm::ALL, |algorithm| algorithm as u32)?;
        reorder.slots_log2 = program.bits(SLOT_BITS)?;
        if reorder.problem().is_some() || reorder.slots_log2 < LEAST_SLOT_BITS {
            return Err(program.out_of_range(SLOT_BITS));
        }
        Ok(())
    }

    fn value(&self, Settings { reorder, .. }: &Settings) -> u32 {
        reorder.algorithm as u32
    }

    fn layout(&self, Settings { reorder, .. }: &Settings) -> Layout {
        let reorder = *reorder;
        let mut arrays: Vec<Array> = HALVES
            .iter()
            .map(|half| Array::new((*half).to_owned(), PLACES, &names::REGISTER_VALUE))
            .collect();
        for (counters, fields) in [&FOLLOWED, &OUT_OF_ORDER, &OTHERS] {
            arrays.push(Array::new((*counters).to_owned(), MAX_PREFIXES, fields));
        }
        arrays.extend(
            [UNFOLLOWED, CROWDED]
                .map(|count| Array::new(count.to_owned(), 1, &names::REGISTER_VALUE)),
        );
        let hashes =
            if reorder.algorithm == Algorithm::Hybrid { &HASHES[..] } else { &HASHES[..1] };
        let mut tables: Vec<MatchTable> =
            hashes.iter().flat_map(|hash| hash::tabulation((*hash).to_owned())).collect();
        tables.extend(prefixes(reorder));
        let (algorithm, slots) = (reorder.algorithm.name(), 1_u32 << reorder.slots_log2);
        Layout {
            description: format!("{algorithm}, {slots} slots"),
            definitions: vec![(SLOT_BITS, reorder.slots_log2.into())],
            arrays,
            rows: None,
            tables,
        }
    }

    fn merge(&self, read: ReadArrays<'_>, bank: &mut WindowTotals) -> usize {
        let [upper0, lower0, upper1, lower1, followed, out_of_order, others, unfollowed, crowded] =
            read.arrays
        else {
            return 0;
        };
        let sum = |cells: &BankCells| {
            cells.iter().flatten().map(|[packets, _]| u64::from(*packets)).sum::<u64>()
        };
        bank.reorder.unfollowed += sum(unfollowed);
        bank.reorder.crowded += sum(crowded);
        let mut changed = 0;
        for pipe in 0..followed.len() {
            let cells_of = |cells: &BankCells| cells.get(pipe).cloned().unwrap_or_default();
            let uppers = cells_of(upper0).into_iter().chain(cells_of(upper1));
            let lowers = cells_of(lower0).into_iter().chain(cells_of(lower1));
            let counters =
                cells_of(followed).into_iter().zip(cells_of(out_of_order)).zip(cells_of(others));
            for (([upper, _], [lower, _]), ((followed, out_of_order), others)) in
                uppers.zip(lowers).zip(counters)
            {
                match prefix(upper, lower) {
                    Some(prefix) => {
                        let [packets, flows] = followed.map(u64::from);
                        let [out_of_order, squares] = out_of_order.map(u64::from);
                        let [gaps, retransmitted] = others.map(u64::from);
                        bank.reorder.add(&PrefixCounts {
                            prefix,
                            packets,
                            out_of_order,
                            retransmitted,
                            gaps,
                            flows,
                            squares,
                        });
                    }
                    None => changed += usize::from(upper != lower),
                }
            }
        }
        changed
    }
}

/// Combines a prefix from its halves; `None` if one of them is missing, as it may be during a read.
fn prefix(upper: u32, lower: u32) -> Option<u64> {
    let bits = |half: u32| u64::from(half >> VERSION_BITS);
    let version = upper & ((1 << VERSION_BITS) - 1);
    (upper != 0 && lower != 0)
        .then(|| (bits(upper) << HALF_BITS | bits(lower)) << 8 | u64::from(version))
}

/// Returns the tables of prefix masks.
fn prefixes(reorder: reorder::Settings) -> [MatchTable; 2] {
    let ones =
        |bits: u8, of: u32| u64::MAX.checked_shl(of.saturating_sub(bits.into())).unwrap_or(0);
    let mask = ones(reorder.v4_bits, u32::BITS) as u32;
    let ipv6_mask = ones(reorder.v6_bits, u64::BITS);
    let (high, low) = ((ipv6_mask >> 32) as u32, ipv6_mask as u32 >> 8);
    let default =
        |values: Vec<Vec<u8>>| TableContents { entries: Vec::new(), default: Some(values) };
    let ipv4 = move |_: &DesiredState| default(vec![names::bytes(mask, 32)]);
    let ipv6 = move |_: &DesiredState| default(vec![names::bytes(high, 32), names::bytes(low, 24)]);
    [
        MatchTable::new(
            IPV4_PREFIX.to_owned(),
            Vec::new(),
            "set_ipv4_prefix",
            vec![("mask", 32)],
            ipv4,
        ),
        MatchTable::new(
            IPV6_PREFIX.to_owned(),
            Vec::new(),
            "set_ipv6_prefix",
            vec![("mask", 32), ("lower_mask", 24)],
            ipv6,
        ),
    ]
}
