//! Reports: a self-contained page, tables that can also be printed, and plots.
//!
//! - [`html`]: the page, light or dark as the reader prefers, readable without scripts;
//! - [`svg`]: plots for the page;
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
