//! The true top flows of a capture's windows that few slots hold.

use super::experiment::{SETTINGS, SLOTS, TableContent, content};
use crate::error::ReproduceError;
use crate::report::{Cell, Column, Table, number_cell};
use crate::statistics::Spread;
use crate::trace::{Trace, Window};
use flowgauge_core::Heavy;
use flowgauge_core::hash::crc32;
use flowgauge_core::heavy::{Algorithm, Item, Settings};
use flowgauge_ctl::output::grouped;
use std::cmp::Reverse;

/// Counts a window with an algorithm.
fn count(window: &Window, algorithm: Algorithm) -> TableContent {
    let settings = Settings { algorithm, ..SETTINGS };
    let signatures: Vec<u32> = window.keys.iter().map(|key| crc32(key.as_bytes())).collect();
    let mut table = Box::new(Heavy::new());
    for flow in &window.order {
        let flow = *flow as usize;
        if let (Some(key), Some(signature)) = (window.keys.get(flow), signatures.get(flow)) {
            table.update(&settings, Item { signature: *signature, packets: 1, bytes: 64, key });
        }
    }
    let mut top: Vec<(u32, u64)> =
        signatures.into_iter().zip(window.counts.iter().copied()).collect();
    top.sort_by_key(|&(signature, count)| (Reverse(count), signature));
    top.truncate(SLOTS);
    content(&table, &settings, &top)
}

/// Counts the windows of a trace with every algorithm.
///
/// # Errors
/// As [`Trace::windows`].
pub(crate) fn replay(trace: &Trace) -> Result<Vec<Table>, ReproduceError> {
    let windows = trace.windows(|window| {
        let contents = Algorithm::ALL.map(|algorithm| count(window, algorithm));
        (window.packets(), window.keys.len() as u64, contents)
    })?;
    let packets: Vec<u64> = windows.iter().map(|(packets, ..)| *packets).collect();
    let flows = windows.iter().map(|(_, flows, _)| *flows).sum::<u64>() / windows.len() as u64;
    let caption = format!(
        "Share of the true top {SLOTS} flows by source and destination in {SLOTS} slots, {} with {} flows in the mean",
        trace.describe(&packets),
        grouped(flows)
    );
    let mut columns = vec![Column::text("", "algorithm")];
    columns.extend(["mean", "lowest", "highest"].map(|name| Column::number("share", name)));
    columns.push(Column::number("", "error of counts, %"));
    let mut table = Table::new(caption, columns);
    for (index, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let spread = |value: fn(&TableContent) -> f64| {
            let values = windows.iter().filter_map(|(.., contents)| contents.get(index).map(value));
            Spread::from_values(values)
        };
        let mut row = vec![Cell::new(algorithm.name())];
        let share = spread(TableContent::share);
        row.extend(share.map_or_else(Default::default, |Spread { mean, low, high, .. }| {
            [mean, low, high].map(|share| Cell::new(format!("{share:.2}")))
        }));
        let error = spread(|content| content.count_error);
        row.push(number_cell(error.map(|error| error.mean), 1));
        table.row(row);
    }
    Ok(vec![table])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::CaptureFile;
    use flowgauge_core::FlowKey;

    #[test]
    fn few_flows_are_all_held_and_counted_exactly() {
        let mut window = Window::default();
        (0..3_000_u32).for_each(|packet| window.add(FlowKey::new(&(packet % 30).to_be_bytes())));
        // Algorithms that give a flow any of 256 slots lose none of 30.
        for algorithm in [Algorithm::Rap, Algorithm::SpaceSaving] {
            let content = count(&window, algorithm);
            assert_eq!((content.share(), content.count_error), (1.0, 0.0), "{content:?}");
            assert_eq!(content.ranks.len(), 30);
        }
    }

    #[test]
    fn a_capture_has_a_row_for_each_algorithm() {
        let file = CaptureFile::of_sources("rap", 100, 1_000_000, 5);
        let text = replay(&file.trace(50, 10)).unwrap()[0].to_string();
        assert!(text.contains("2 windows of 50 packets with 5 flows"), "{text}");
        assert!(Algorithm::ALL.iter().all(|algorithm| text.contains(algorithm.name())), "{text}");
    }
}
