//! Details below a row of the table.

use super::wrapped;
use anstyle::Style;
use std::borrow::Cow;

/// Row of details: a name, a value with its unit, and optionally its share of the total and its
/// interval.
#[derive(Default)]
pub(crate) struct DetailRow {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) share: String,
    /// Interval in brackets.
    pub(crate) interval: String,
    /// Notes, which have no column.
    pub(crate) notes: Vec<String>,
}

/// Writer of indented lines, wrapped where they do not fit.
pub(crate) struct IndentedLines<'a> {
    text: &'a mut String,
    indent: usize,
    width: usize,
    colours: bool,
    named: RowNames<'a>,
}

/// Returns the name of a row with the names of its addresses, if they have any.
type RowNames<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

impl<'a> IndentedLines<'a> {
    pub(crate) fn new(text: &'a mut String, indent: usize, width: usize, colours: bool) -> Self {
        IndentedLines { text, indent, width, colours, named: Box::new(|_| None) }
    }

    /// Returns the writer with names for rows.
    pub(crate) fn naming(self, named: impl Fn(&str) -> Option<String> + 'a) -> Self {
        IndentedLines { named: Box::new(named), ..self }
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Writes phrases with commas between them.
    pub(crate) fn line(&mut self, phrases: &[String]) {
        self.push(&wrapped(self.indent, self.indent + 2, self.width, phrases));
    }

    /// Writes phrases in a style, if colours are on.
    pub(crate) fn styled(&mut self, style: Style, phrases: &[String]) {
        if !self.colours {
            return self.line(phrases);
        }
        for line in wrapped(self.indent, self.indent + 2, self.width, phrases).lines() {
            self.push(&format!("{style}{line}{style:#}"));
        }
    }

    /// Writes rows as aligned cells. Notes that do not fit continue on the next line; a name that
    /// leaves no room for its cells has its own line.
    pub(crate) fn rows(&mut self, rows: &[DetailRow]) {
        let (indent, width) = (self.indent, self.width);
        let names: Vec<Cow<'_, str>> = rows
            .iter()
            .map(|row| (self.named)(&row.name).map_or(Cow::Borrowed(&*row.name), Cow::Owned))
            .collect();
        let longest = |cell: fn(&DetailRow) -> &String| {
            rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0)
        };
        let name = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let value = longest(|row| &row.value);
        let [share, interval] = [longest(|row| &row.share), longest(|row| &row.interval)];
        let beside = |cell: usize| if cell > 0 { cell + 2 } else { 0 };
        let cells = indent + name + beside(value) + beside(share) + beside(interval);
        for (row, row_name) in rows.iter().zip(names) {
            if cells > width {
                self.line(&[row_name.into_owned()]);
                let figures = [&row.value, &row.share, &row.interval].into_iter().chain(&row.notes);
                let figures: Vec<String> =
                    figures.filter(|cell| !cell.is_empty()).cloned().collect();
                self.push(&wrapped(indent + 2, indent + 2, width, &figures));
                continue;
            }
            let mut line = format!("{:indent$}{row_name:name$}", "");
            for (cell, width) in [(&row.value, value), (&row.share, share)]
                .into_iter()
                .filter(|(_, width)| *width > 0)
            {
                line += &format!("  {cell:>width$}");
            }
            if interval > 0 {
                line += &format!("  {:interval$}", row.interval);
            }
            match row.notes.first() {
                None => self.push(&line),
                Some(first) if cells + first.chars().count() + 3 <= width => {
                    self.push(&format!(
                        "{line}  {}",
                        wrapped(cells + 2, indent + 2, width, &row.notes).trim_start()
                    ));
                }
                Some(_) => {
                    self.push(&line);
                    self.push(&wrapped(indent + 2, indent + 2, width, &row.notes));
                }
            }
        }
    }
}
