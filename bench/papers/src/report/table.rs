//! Tables for pages and terminals.

use super::{csv_field, escape};
use std::fmt::{self, Write};

/// Characters between two columns of a group on a terminal.
const GAP: usize = 2;

/// Column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    /// Heading over this column and its neighbours of the same group; empty for none.
    group: String,
    /// Whether it has numbers, which are aligned right, or words.
    is_number: bool,
    source: bool,
}

impl Column {
    /// Returns a column of numbers.
    #[must_use]
    pub fn number(group: &str, title: &str) -> Self {
        Column { title: title.to_owned(), group: group.to_owned(), is_number: true, source: false }
    }

    /// Returns a column of words.
    #[must_use]
    pub fn text(group: &str, title: &str) -> Self {
        Column { is_number: false, ..Column::number(group, title) }
    }

    /// Marks the column as printed in the source, not measured.
    #[must_use]
    pub fn from_source(self) -> Self {
        Column { source: true, ..self }
    }

    fn class(&self) -> String {
        let kind = if self.is_number { "number" } else { "text" };
        format!("{kind}{}", if self.source { " source" } else { "" })
    }
}

/// Cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    details: Vec<String>,
}

impl Cell {
    /// Returns a cell with a text or number.
    #[must_use]
    pub fn new(text: impl fmt::Display) -> Self {
        Cell { text: text.to_string(), details: Vec::new() }
    }

    /// Adds a smaller line below on a page, such as a spread. It is omitted on a terminal.
    #[must_use]
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.details.push(detail.to_string());
        self
    }
}

/// Table with a caption. Its [`Display`](fmt::Display) is for terminals.
#[derive(Clone, Debug)]
pub struct Table {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Returns a table without rows.
    #[must_use]
    pub fn new(caption: impl Into<String>, columns: Vec<Column>) -> Self {
        Table { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// Appends a row with a cell for every column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the headings of groups of adjacent columns, and their numbers of columns.
    fn groups(&self) -> Vec<(&str, usize)> {
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for column in &self.columns {
            match groups.last_mut() {
                Some((group, columns)) if *group == column.group => *columns += 1,
                _ => groups.push((&column.group, 1)),
            }
        }
        groups
    }

    /// Returns whether a column is the first of its group.
    fn begins_group(&self, index: usize) -> bool {
        let group = |index: usize| self.columns.get(index).map(|column| &column.group);
        index > 0 && group(index) != group(index - 1)
    }

    /// Returns the width of each column on a terminal, in characters.
    fn widths(&self) -> Vec<usize> {
        let length = |text: &str| text.chars().count();
        let mut widths: Vec<usize> =
            self.columns.iter().map(|column| length(&column.title)).collect();
        for row in &self.rows {
            widths
                .iter_mut()
                .zip(row)
                .for_each(|(width, cell)| *width = length(&cell.text).max(*width));
        }
        let mut first = 0;
        for (group, columns) in self.groups() {
            let taken: usize = widths.iter().skip(first).take(columns).sum();
            first += columns;
            if let Some(last) = widths.get_mut(first - 1) {
                *last += length(group).saturating_sub(taken + GAP * (columns - 1));
            }
        }
        widths
    }

    /// Returns the table as an HTML element.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = String::from("<div class=\"table\"><table>");
        html += &format!("<caption>{}</caption><thead>", escape(&self.caption));
        if self.columns.iter().any(|column| !column.group.is_empty()) {
            html += "<tr class=\"groups\">";
            for (group, columns) in self.groups() {
                let scope = if group.is_empty() { "" } else { " scope=\"colgroup\"" };
                html += &format!("<th colspan=\"{columns}\"{scope}>{}</th>", escape(group));
            }
            html += "</tr>";
        }
        html += "<tr>";
        for (index, column) in self.columns.iter().enumerate() {
            html += &format!(
                "<th scope=\"col\" class=\"{}\">{}</th>",
                self.class(index),
                escape(&column.title)
            );
        }
        html += "</tr></thead><tbody>";
        for row in &self.rows {
            html += "<tr>";
            for (index, cell) in row.iter().enumerate() {
                html += &format!("<td class=\"{}\">{}", self.class(index), escape(&cell.text));
                for detail in &cell.details {
                    html += &format!("<small>{}</small>", escape(detail));
                }
                html += "</td>";
            }
            html += "</tr>";
        }
        html += "</tbody></table></div>";
        html
    }

    /// Returns the table in Markdown. Groups precede the titles of their columns; details are
    /// omitted.
    #[must_use]
    pub fn markdown(&self) -> String {
        let titles = self.columns.iter().map(|column| format!("{} {}", column.group, column.title));
        let rules = self.columns.iter().map(|column| if column.is_number { "---:" } else { "---" });
        let mut markdown = format!("**{}**\n\n", self.caption);
        markdown += &markdown_row(titles);
        markdown += &markdown_row(rules);
        for row in &self.rows {
            markdown += &markdown_row(row.iter().map(|cell| &cell.text));
        }
        markdown
    }

    /// Returns the table as CSV, with the command that made it as a comment in the first line. Groups
    /// precede the titles of their columns; numbers have no separators, and details are omitted.
    #[must_use]
    pub fn csv(&self, command: &str) -> String {
        let title =
            |column: &Column| format!("{} {}", column.group, column.title).trim().to_owned();
        let mut csv = format!("# {command}\n");
        csv += &csv_row(self.columns.iter().map(title));
        for row in &self.rows {
            let plain = |cell: &Cell| {
                let number = cell.text.replace(',', "");
                if number.parse::<f64>().is_ok() { number } else { cell.text.clone() }
            };
            csv += &csv_row(row.iter().map(plain));
        }
        csv
    }

    fn class(&self, index: usize) -> String {
        let class = self.columns.get(index).map(Column::class).unwrap_or_default();
        if self.begins_group(index) { class + " first" } else { class }
    }
}

fn csv_row(fields: impl Iterator<Item = String>) -> String {
    let fields: Vec<String> = fields.map(|field| csv_field(&field)).collect();
    format!("{}\n", fields.join(","))
}

fn markdown_row(cells: impl Iterator<Item = impl AsRef<str>>) -> String {
    let cells: Vec<String> = cells.map(|text| text.as_ref().trim().replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let gap = |index: usize| match index {
            0 => "",
            _ if self.begins_group(index) => "  | ",
            _ => "  ",
        };
        writeln!(f, "{}", self.caption)?;
        if self.columns.iter().any(|column| !column.group.is_empty()) {
            let mut line = String::new();
            let mut first = 0;
            for (group, columns) in self.groups() {
                let width: usize = widths.iter().skip(first).take(columns).sum();
                let width = width + GAP * (columns - 1);
                write!(line, "{}{group:<width$}", gap(first))?;
                first += columns;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        let titles = self.columns.iter().map(|column| Cell::new(&column.title)).collect();
        for row in [titles].iter().chain(&self.rows) {
            let mut line = String::new();
            for (index, ((cell, column), width)) in
                row.iter().zip(&self.columns).zip(&widths).enumerate()
            {
                let (gap, text) = (gap(index), &cell.text);
                if column.is_number {
                    write!(line, "{gap}{text:>width$}")?;
                } else {
                    write!(line, "{gap}{text:<width$}")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![
            Column::text("", "what"),
            Column::number("paper", "error").from_source(),
            Column::number("ours", "error"),
            Column::number("ours", "n"),
        ];
        let mut table = Table::new("Errors <in percent>", columns);
        table.row(vec![
            Cell::new("short"),
            Cell::new(3.42),
            Cell::new("3.10").detail("2.9…3.3"),
            Cell::new(10),
        ]);
        table.row(vec![Cell::new("a & b"), Cell::new(12.5), Cell::new("1.00"), Cell::new(1000)]);
        table
    }

    #[test]
    fn a_terminal_gets_aligned_columns() {
        let expected = "\
Errors <in percent>
       | paper  | ours
what   | error  | error     n
short  |  3.42  |  3.10    10
a & b  |  12.5  |  1.00  1000
";
        assert_eq!(table().to_string(), expected);
    }

    #[test]
    fn a_page_of_the_documentation_gets_markdown() {
        let expected = "\
**Errors <in percent>**

| what | paper error | ours error | ours n |
| --- | ---: | ---: | ---: |
| short | 3.42 | 3.10 | 10 |
| a & b | 12.5 | 1.00 | 1000 |
";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn a_file_gets_plain_numbers_and_the_command() {
        let mut table = table();
        let row = ["a, b", "", "1,234.5", "-"].map(Cell::new).to_vec();
        table.row(row);
        let expected = "\
# flowgauge reproduce
what,paper error,ours error,ours n
short,3.42,3.10,10
a & b,12.5,1.00,1000
\"a, b\",,1234.5,-
";
        assert_eq!(table.csv("flowgauge reproduce"), expected);
    }

    #[test]
    fn a_page_gets_groups_details_and_escapes() {
        let html = table().html();
        for part in [
            "<caption>Errors &lt;in percent&gt;</caption>",
            "<th colspan=\"1\"></th><th colspan=\"1\" scope=\"colgroup\">paper</th><th colspan=\"2\" scope=\"colgroup\">ours</th>",
            "<td class=\"number source first\">3.42</td><td class=\"number first\">3.10<small>2.9…3.3</small></td>",
            "a &amp; b",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }
}
