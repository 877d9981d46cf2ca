//! Lines below a row of the table.

use super::wrapped;
use anstyle::Style;

/// Writes lines that are indented, and broken where they do not fit.
pub(crate) struct Below<'a> {
    text: &'a mut String,
    indent: usize,
    width: usize,
    colours: bool,
}

impl<'a> Below<'a> {
    pub(crate) fn new(text: &'a mut String, indent: usize, width: usize, colours: bool) -> Self {
        Below { text, indent, width, colours }
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A line of phrases with commas between.
    pub(crate) fn line(&mut self, phrases: &[String]) {
        self.push(&wrapped(self.indent, self.indent + 2, self.width, phrases));
    }

    /// A line in this style, where there are colours.
    pub(crate) fn styled(&mut self, style: Style, phrases: &[String]) {
        if !self.colours {
            return self.line(phrases);
        }
        for line in wrapped(self.indent, self.indent + 2, self.width, phrases).lines() {
            self.push(&format!("{style}{line}{style:#}"));
        }
    }

    /// A name and its figures in each line, the figures below each other; a name that leaves no room for them has a line of its own.
    pub(crate) fn rows(&mut self, rows: &[[String; 4]]) {
        let indent = self.indent;
        let longest = |index: usize| rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
        let [first, second, third, fourth] = [0, 1, 2, 3].map(longest);
        if indent + first + second + third + fourth + 6 <= self.width {
            for [name, count, share, interval] in rows {
                self.push(&format!("{:indent$}{name:<first$}  {count:>second$}  {share:>third$}  {interval}", ""));
            }
            return;
        }
        for [name, figures @ ..] in rows {
            self.line(std::slice::from_ref(name));
            self.push(&wrapped(indent + 2, indent + 2, self.width, figures));
        }
    }
}
