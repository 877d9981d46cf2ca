//! Reports: a self-contained page, tables that can also be printed, and plots.
//!
//! - [`html`]: the page, light or dark as the reader prefers, readable without scripts;
//! - [`svg`]: plots for the page, and for files of their own;
//! - [`Table`]: a table on the page and on a terminal;
//! - [`Directory`]: the directory of the files.

mod directory;
mod escape;
pub mod html;
pub mod svg;
mod table;

pub use directory::Directory;
pub use escape::escape;
pub use table::{Align, Cell, Column, Table};

/// Asserts that each figure of a page has files of its own, which requires that titles differ, and
/// that these have the command.
#[cfg(test)]
pub(crate) fn assert_figures(directory: &std::path::Path, page: &str, command: &str) {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let drawn: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "svg")).collect();
    assert_eq!(drawn.len(), page.matches("<svg class=\"chart\"").count(), "{drawn:?}");
    for svg in drawn {
        let [svg, csv] = [svg.clone(), svg.with_extension("csv")]
            .map(|path| std::fs::read_to_string(path).unwrap());
        assert!(svg.contains(&escape(command)), "{svg}");
        assert!(csv.starts_with(&format!("# {command}\n")) && csv.lines().count() > 2, "{csv}");
    }
}
