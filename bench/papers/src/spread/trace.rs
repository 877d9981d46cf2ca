//! The keys with the most others in a capture's windows.

use super::count::{EstimateError, Outcome, Pairs, SIZES, TOPS, Window};
use super::page::{Row, error_rows, found_rows};
use crate::error::ReproduceError;
use crate::report::Table;
use crate::trace::{self, Trace};
use flowgauge_core::spread::OtherKind;
use flowgauge_core::{HashMode, KeyKind, Tabulation};
use flowgauge_ctl::output::grouped;

/// Seed of the hash.
const SEED: u64 = 1;

/// Keys and others that are counted.
const DIRECTIONS: [(&str, KeyKind, OtherKind); 2] = [
    ("destinations by sources", KeyKind::Dst, OtherKind::Src),
    ("sources by destinations", KeyKind::Src, OtherKind::Dst),
];

/// A window counted by one of [`DIRECTIONS`]: the number of keys, and the result in each size.
type Counted = (u64, Vec<Outcome>);

/// Counts a window in both directions.
fn count(window: &trace::Window) -> Result<Vec<Counted>, EstimateError> {
    let tabulation = Tabulation::from_seed(SEED);
    let mut counted = Vec::new();
    for (_, by, of) in DIRECTIONS {
        let pairs = Pairs { by, of, pairs: window.keys.clone(), packets: window.packets() };
        let window = Window::new(&pairs, HashMode::Tabulated, &tabulation);
        let outcomes: Result<Vec<Outcome>, EstimateError> =
            SIZES.iter().map(|size| window.count(*size)).collect();
        counted.push((window.keys() as u64, outcomes?));
    }
    Ok(counted)
}

/// Counts the windows of a trace with every method and size.
///
/// # Errors
/// As [`Trace::windows`], and [`ReproduceError::Registers`].
pub(crate) fn replay(trace: &Trace) -> Result<Vec<Table>, ReproduceError> {
    let windows = trace.windows(|window| (window.packets(), count(window)))?;
    let (mut packets, mut counted) = (Vec::new(), Vec::new());
    for (of_window, outcomes) in windows {
        packets.push(of_window);
        counted.push(outcomes?);
    }
    let mut rows = Vec::new();
    let mut keys = Vec::new();
    for (direction, (name, ..)) in DIRECTIONS.into_iter().enumerate() {
        let windows = || counted.iter().filter_map(move |window| window.get(direction));
        let mean = windows().map(|(keys, _)| *keys).sum::<u64>() / counted.len() as u64;
        keys.push(format!("{} {}", grouped(mean), name));
        for (index, size) in SIZES.into_iter().enumerate() {
            let outcomes = windows().filter_map(move |(_, outcomes)| outcomes.get(index));
            rows.push(Row { name, size, outcomes: outcomes.collect() });
        }
    }
    let (described, keys, [_, most]) = (trace.describe(&packets), keys.join(", "), TOPS);
    Ok(vec![
        found_rows(
            format!(
                "Keys with the most others: recall and precision in %, {described}, {keys} in the mean"
            ),
            &rows,
        ),
        error_rows(
            format!(
                "The first {most} listed keys: |error| of those that are right in %, intervals with the true number in %, and rests that no other key exceeds in %"
            ),
            &rows,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::CaptureFile;
    use flowgauge_core::FlowKey;

    /// Returns a window with a destination of many sources, over IPv4 or IPv6.
    fn window(address: impl Fn(u32) -> Vec<u8>) -> trace::Window {
        let mut window = trace::Window::default();
        for source in 0..2_000_u32 {
            // Twice, so that packets are more than pairs.
            for destination in [0, 1 + source % 500, 0] {
                let addresses = [address(1 << 20 | source), address(destination)].concat();
                window.add(FlowKey::new(&addresses));
            }
        }
        window
    }

    #[test]
    fn a_victim_is_found_whatever_its_addresses() {
        let ipv4 = window(|number| number.to_be_bytes().to_vec());
        let ipv6 = window(|number| [&[0x20; 12][..], &number.to_be_bytes()].concat());
        for window in [ipv4, ipv6] {
            let counted = count(&window).unwrap();
            let [(destinations, outcomes), (sources, _)] = counted.as_slice() else {
                panic!("{} directions", counted.len())
            };
            assert_eq!((*destinations, *sources), (501, 2_000));
            for outcome in outcomes {
                let [ours, ..] = outcome.scores;
                // Other destinations have four sources, so that it is the only one to find.
                assert_eq!(ours.found[0].wanted, 1);
                assert_eq!(ours.found[0].recall(), Some(1.0), "{outcome:?}");
                assert!(outcome.rest_holds, "{outcome:?}");
            }
        }
    }

    #[test]
    fn a_capture_has_rows_of_both_directions() {
        let file = CaptureFile::of_sources("spread", 200, 1_000_000, 100);
        let tables = replay(&file.trace(100, 10)).unwrap();
        let text = tables[0].to_string();
        let described =
            "2 windows of 100 packets, 1 destinations by sources, 100 sources by destinations";
        assert!(text.contains(described), "{text}");
        for (name, ..) in DIRECTIONS {
            let rows = text.lines().filter(|line| line.starts_with(name));
            assert_eq!(rows.count(), SIZES.len(), "{text}");
        }
        assert!(tables[1].to_string().contains("intervals"));
    }
}
