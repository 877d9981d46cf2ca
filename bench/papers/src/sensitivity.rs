//! Errors as functions of a parameter: the figures of the P4Entropy paper.

use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Part, Table};
use crate::statistics;

/// Line of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    /// Name of the quantity whose error it is.
    pub name: String,
    /// Relative errors in percent, one for each value of the parameter.
    pub errors: Vec<f64>,
}

/// Name of the line that is an average over random numbers.
pub(crate) const RANDOM: &str = "random";

/// Figure: lines over a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sensitivity {
    /// Number of the figure in the paper.
    pub figure: &'static str,
    /// Title.
    pub title: String,
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Values of the parameter.
    pub values: Vec<u64>,
    /// The lines.
    pub curves: Vec<Curve>,
}

impl Curve {
    /// Returns curves by their indices and names. `columns` has the errors of all curves at each
    /// value of the parameter.
    pub(crate) fn from_columns(
        columns: &[Vec<f64>],
        names: impl Iterator<Item = (usize, String)>,
    ) -> Vec<Curve> {
        let errors =
            |index: usize| columns.iter().filter_map(move |errors| errors.get(index).copied());
        names.map(|(index, name)| Curve { name, errors: errors(index).collect() }).collect()
    }
}

impl Sensitivity {
    /// Returns the error of a line at a value of the parameter, in percent.
    pub(crate) fn error(&self, curve: &str, value: u64) -> Option<f64> {
        let index = self.values.iter().position(|other| *other == value)?;
        self.curves.iter().find(|other| other.name == curve)?.errors.get(index).copied()
    }

    /// Returns the largest error of all selected numbers at a value of the parameter, in percent,
    /// without the average over random ones.
    pub(crate) fn largest(&self, value: u64) -> Option<f64> {
        let index = self.values.iter().position(|other| *other == value)?;
        let chosen = self.curves.iter().filter(|curve| curve.name != RANDOM);
        chosen.filter_map(|curve| curve.errors.get(index).copied()).max_by(f64::total_cmp)
    }

    /// Returns the figure as a table.
    pub(crate) fn table(&self) -> Table {
        let mut columns = vec![Column::text("", self.parameter)];
        columns.extend(self.curves.iter().map(|curve| Column::number("", &curve.name)));
        let mut table =
            Table::new(format!("Figure {}, {}: |error| in %", self.figure, self.title), columns);
        for (index, value) in self.values.iter().enumerate() {
            let errors = self.curves.iter().map(|curve| {
                curve.errors.get(index).map_or_else(Cell::default, |error| percent(*error))
            });
            table.row([Cell::new(value)].into_iter().chain(errors).collect());
        }
        table
    }

    /// Returns the figure as a chart. Errors above `most` percent are outside of it.
    fn chart(&self, most: f64) -> Chart {
        let low = self.values.first().map_or(0.0, |low| *low as f64);
        let high = self.values.last().map_or(1.0, |high| *high as f64);
        let largest =
            self.curves.iter().flat_map(|curve| &curve.errors).copied().fold(0.0, f64::max);
        let (x, y) = (
            Axis::linear(self.parameter, low, high),
            Axis::linear("relative error, %", 0.0, (largest * 1.05).clamp(0.1, most)),
        );
        let chart = Chart::new(&format!("Figure {}: {}", self.figure, self.title), x, y);
        self.curves.iter().zip(Tone::ALL.into_iter().cycle()).fold(chart, |chart, (curve, tone)| {
            let values = self.values.iter().map(|value| *value as f64);
            chart.line(&curve.name, tone, values.zip(curve.errors.iter().copied()))
        })
    }
}

/// Returns the charts of figures. Errors above `most` percent are outside of them.
pub(crate) fn charts(figures: &[Sensitivity], most: f64) -> Part {
    Part::Charts(figures.iter().map(|figure| figure.chart(most)).collect())
}

/// Returns the tables of figures.
pub(crate) fn tables(figures: &[Sensitivity]) -> Part {
    Part::Tables(figures.iter().map(Sensitivity::table).collect())
}

/// Returns all figures as CSV, one line per point.
pub(crate) fn csv(figures: &[Sensitivity]) -> String {
    let mut lines = Vec::new();
    for Sensitivity { figure, parameter, values, curves, .. } in figures {
        for Curve { name, errors } in curves {
            for (value, error) in values.iter().zip(errors) {
                lines.push(format!("{figure},{parameter},{value},{name},{error:.5}"));
            }
        }
    }
    statistics::csv("figure,parameter,value,curve,error_percent", lines)
}

/// Formats an error with its significant digits.
pub(crate) fn percent(error: f64) -> Cell {
    Cell::new(if error < 0.1 { format!("{error:.3}") } else { format!("{error:.2}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_value_and_written_by_point() {
        let curves = vec![
            Curve { name: "a".to_owned(), errors: vec![3.0, 0.05] },
            Curve { name: "b".to_owned(), errors: vec![1.0, 0.5] },
        ];
        let figure = Sensitivity {
            figure: "3a",
            title: "title".to_owned(),
            parameter: "Nbits",
            values: vec![1, 4],
            curves,
        };
        assert_eq!(
            (figure.error("b", 4), figure.error("b", 2), figure.error("c", 4)),
            (Some(0.5), None, None)
        );
        assert_eq!(
            (figure.largest(1), figure.largest(4), figure.largest(5)),
            (Some(3.0), Some(0.5), None)
        );
        let text = csv(std::slice::from_ref(&figure));
        assert_eq!(
            text.lines().collect::<Vec<_>>()[1..3],
            ["3a,Nbits,1,a,3.00000", "3a,Nbits,4,a,0.05000"]
        );
        assert!(figure.table().to_string().contains("0.050"));
        assert!(figure.chart(10.0).svg("").contains("line tone-2"));
    }
}
