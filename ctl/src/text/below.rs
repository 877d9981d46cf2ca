//! Details below a row of the table.

use super::wrapped;
use anstyle::Style;

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
}

impl<'a> IndentedLines<'a> {
    pub(crate) fn new(text: &'a mut String, indent: usize, width: usize, colours: bool) -> Self {
        IndentedLines { text, indent, width, colours }
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
        let longest = |cell: fn(&DetailRow) -> &String| {
            rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0)
        };
        let [name, value] = [longest(|row| &row.name), longest(|row| &row.value)];
        let [share, interval] = [longest(|row| &row.share), longest(|row| &row.interval)];
        let beside = |cell: usize| if cell > 0 { cell + 2 } else { 0 };
        let cells = indent + name + beside(value) + beside(share) + beside(interval);
        for row in rows {
            if cells > width {
                self.line(std::slice::from_ref(&row.name));
                let figures = [&row.value, &row.share, &row.interval].into_iter().chain(&row.notes);
                let figures: Vec<String> =
                    figures.filter(|cell| !cell.is_empty()).cloned().collect();
                self.push(&wrapped(indent + 2, indent + 2, width, &figures));
                continue;
            }
            let mut line = format!("{:indent$}{:name$}", "", row.name);
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
