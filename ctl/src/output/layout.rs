//! Selects the columns of a table for a width in characters.

/// Column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableColumn {
    Time,
    Window,
    Place,
    Packets,
    Bytes,
    PacketRate,
    BitRate,
    /// The headline number, with half of its interval unless that has a column.
    Estimate,
    Interval,
    Truth,
    Error,
    Lost,
}

/// Content to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownContent {
    /// Whether there are several places.
    pub(super) places: bool,
    /// Title of the headline number, if there is one.
    pub(super) headline: Option<&'static str>,
    /// Whether its exact value is known.
    pub(super) truth: bool,
    /// Width of a time, in characters.
    pub(super) time: usize,
}

/// Columns with their widths, in order, separated by one blank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableLayout(pub(super) Vec<(TableColumn, usize)>);

/// Width of a place: `eth0 out`, with an interface name of maximum length.
const PLACE: usize = 19;
const SHORTEST_PLACE: usize = 7;
/// Width of the number with half of its interval.
const ESTIMATE: usize = ESTIMATE_ALONE + 9;
pub(super) const ESTIMATE_ALONE: usize = 11;
const INTERVAL: usize = 25;

impl TableColumn {
    /// Returns the title of the column.
    pub(super) fn title(self, shown: &ShownContent) -> &'static str {
        match self {
            TableColumn::Time => "time",
            TableColumn::Window => "window",
            TableColumn::Place => "where",
            TableColumn::Packets => "packets",
            TableColumn::Bytes => "bytes",
            TableColumn::PacketRate => "packets/s",
            TableColumn::BitRate => "bits/s",
            TableColumn::Estimate => shown.headline.unwrap_or_default(),
            TableColumn::Interval => "95 % interval",
            TableColumn::Truth => "truth",
            TableColumn::Error => "error",
            TableColumn::Lost => "lost",
        }
    }
}

impl TableLayout {
    /// Returns the columns that fit in `width`: the required ones, then others by importance.
    pub(super) fn new(shown: &ShownContent, width: usize) -> Self {
        let mut columns = vec![
            (TableColumn::Time, shown.time),
            (TableColumn::Window, 6),
            (TableColumn::Packets, 12),
        ];
        let estimate = shown.headline.map(|title| ESTIMATE.max(title.len()));
        columns.extend(estimate.map(|estimate| (TableColumn::Estimate, estimate)));
        if shown.places {
            let left = width.saturating_sub(taken(&columns) + 1);
            columns.push((TableColumn::Place, left.clamp(SHORTEST_PLACE, PLACE)));
        }
        let beyond = taken(&columns).saturating_sub(width);
        columns
            .iter_mut()
            .filter(|(column, _)| *column == TableColumn::Packets)
            .for_each(|(_, width)| *width -= beyond.min(4));
        if shown.truth && shown.headline.is_some() {
            add(&mut columns, width, (TableColumn::Error, 8));
            add(&mut columns, width, (TableColumn::Truth, 10));
        }
        add(&mut columns, width, (TableColumn::PacketRate, 9));
        if shown.headline.is_none() {
            add(&mut columns, width, (TableColumn::Bytes, 19));
        }
        add(&mut columns, width, (TableColumn::Lost, 8));
        add(&mut columns, width, (TableColumn::BitRate, 8));
        let alone = shown.headline.map(|title| ESTIMATE_ALONE.max(title.len()));
        if let (Some(alone), Some(estimate)) = (alone, estimate)
            && taken(&columns) + alone + INTERVAL < width + estimate
        {
            columns.retain(|(column, _)| *column != TableColumn::Estimate);
            columns.extend([(TableColumn::Estimate, alone), (TableColumn::Interval, INTERVAL)]);
        }
        columns.sort_by_key(|(column, _)| *column as u8);
        TableLayout(columns)
    }

    pub(super) fn has(&self, wanted: TableColumn) -> bool {
        self.0.iter().any(|(column, _)| *column == wanted)
    }
}

/// Returns the width of columns with the blanks between them.
fn taken(columns: &[(TableColumn, usize)]) -> usize {
    columns.iter().map(|(_, width)| width + 1).sum::<usize>().saturating_sub(1)
}

fn add(columns: &mut Vec<(TableColumn, usize)>, width: usize, column: (TableColumn, usize)) {
    if taken(columns) + 1 + column.1 <= width {
        columns.push(column);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::cardinality::distinct;
    use flowgauge_core::KeyKind;

    fn all() -> impl Iterator<Item = ShownContent> {
        let titles = std::iter::once(None).chain(KeyKind::ALL.map(distinct).map(Some));
        let flags = [
            [false; 3],
            [true, false, false],
            [false, true, false],
            [false, false, true],
            [true; 3],
        ];
        titles.flat_map(move |headline| {
            flags.map(|[places, truth, fine]| ShownContent {
                places,
                headline,
                truth,
                time: if fine { 12 } else { 8 },
            })
        })
    }

    #[test]
    fn every_layout_fits_from_60_columns_on() {
        for shown in all() {
            for width in 60..200 {
                let TableLayout(columns) = TableLayout::new(&shown, width);
                assert!(taken(&columns) <= width, "{width}: {shown:?}: {columns:?}");
                for must in [TableColumn::Time, TableColumn::Window, TableColumn::Packets] {
                    assert!(
                        columns.iter().any(|(column, _)| *column == must),
                        "{width}: {shown:?}"
                    );
                }
                assert_eq!(
                    columns.iter().any(|(column, _)| *column == TableColumn::Estimate),
                    shown.headline.is_some()
                );
                for (column, width) in columns {
                    assert!(column.title(&shown).len() <= width.max(5), "{column:?}: {width}");
                }
            }
        }
    }

    #[test]
    fn eighty_columns_hold_what_matters() {
        let at = |shown, width| {
            TableLayout::new(&shown, width)
                .0
                .into_iter()
                .map(|(column, _)| column)
                .collect::<Vec<_>>()
        };
        use TableColumn::*;
        let shown = ShownContent {
            places: false,
            headline: Some(distinct(KeyKind::Src)),
            truth: false,
            time: 8,
        };
        assert_eq!(at(shown, 80), [Time, Window, Packets, PacketRate, BitRate, Estimate, Lost]);
        assert_eq!(
            at(ShownContent { truth: true, ..shown }, 80),
            [Time, Window, Packets, PacketRate, Estimate, Truth, Error]
        );
        assert_eq!(
            at(ShownContent { places: true, ..shown }, 80),
            [Time, Window, Place, Packets, PacketRate, Estimate]
        );
        assert_eq!(
            at(ShownContent { headline: None, ..shown }, 80),
            [Time, Window, Packets, Bytes, PacketRate, BitRate, Lost]
        );
        let wide =
            [Time, Window, Packets, PacketRate, BitRate, Estimate, Interval, Truth, Error, Lost];
        assert_eq!(at(ShownContent { truth: true, ..shown }, 140), wide);
    }
}
