//! Tiles of the first screen: the numbers that a run is judged by, as on the live page.

use super::figure::{Figure, Shape};

/// Content of a tile.
pub(super) struct Tile {
    pub(super) title: &'static str,
    /// Unit of its value; with `/s` a rate.
    pub(super) unit: &'static str,
    /// Option that switches its measurement on.
    pub(super) option: &'static str,
    part: TilePart,
}

enum TilePart {
    /// Counts of these names, added up; bytes in bits.
    Counts(&'static [&'static str]),
    /// First number of a name; of percentiles the 95th.
    Number(&'static str),
    /// Share of segments out of order.
    OutOfOrder,
}

/// Tiles in the order of the screen.
pub(super) const TILES: [Tile; 7] = [
    Tile {
        title: "packets",
        unit: "things/s",
        option: "",
        part: TilePart::Counts(&["packets", "rejected_packets"]),
    },
    Tile { title: "bits", unit: "bits/s", option: "", part: TilePart::Counts(&["traffic"]) },
    Tile {
        title: "distinct",
        unit: "things",
        option: "--measure cardinality",
        part: TilePart::Number("distinct_flows"),
    },
    Tile {
        title: "entropy",
        unit: "bits",
        option: "--measure entropy",
        part: TilePart::Number("entropy"),
    },
    Tile {
        title: "p95",
        unit: "seconds",
        option: "--measure delay",
        part: TilePart::Number("delay"),
    },
    Tile {
        title: "out of order",
        unit: "ratio",
        option: "--measure reorder",
        part: TilePart::OutOfOrder,
    },
    Tile {
        title: "drops",
        unit: "things/s",
        option: "",
        part: TilePart::Counts(&["lost_packets", "unaccounted_packets"]),
    },
];

/// Value of a tile in a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TileValue {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Label that distinguishes the number from others of its name, such as its key.
    pub(super) label: String,
}

impl Tile {
    /// Returns the value in a window of this length; `None` if it is not measured.
    pub(super) fn value(&self, figures: &[Figure], seconds: f64) -> Option<TileValue> {
        let exactly = |value| TileValue { value, low: value, high: value, label: String::new() };
        match self.part {
            TilePart::Counts(names) => {
                let per = if self.unit == "bits/s" { 8.0 } else { 1.0 };
                let sum = figures
                    .iter()
                    .filter(|figure| names.contains(&figure.name.as_str()))
                    .filter_map(Figure::count)
                    // A sum of nothing would be -0.
                    .fold(0.0, |sum, count| sum + count);
                (seconds > 0.0).then(|| exactly(sum * per / seconds))
            }
            TilePart::Number(name) => {
                let is_shown = |figure: &&Figure| {
                    figure.name == name && figure.percentile().is_none_or(|it| it == "95")
                };
                let mut found: Vec<&Figure> = figures.iter().filter(is_shown).collect();
                // Data is more frequent than anything else.
                found.sort_by_key(|figure| !figure.label().contains("tcp-data"));
                let figure = found.first()?;
                let Shape::Number(number) = &figure.shape else { return None };
                let (value, low, high) = (number.value(), number.low(), number.high());
                Some(TileValue { value, low, high, label: figure.label() })
            }
            TilePart::OutOfOrder => {
                let of = |what: &str| {
                    figures
                        .iter()
                        .find(|figure| figure.name == "tcp_segments" && figure.label() == what)
                        .and_then(Figure::count)
                };
                let (all, late) = (of("all")?, of("out-of-order").unwrap_or_default());
                Some(exactly(if all > 0.0 { late / all } else { 0.0 }))
            }
        }
    }
}
