//! Reports: a page that needs nothing but itself, tables that also print, and plots.
//!
//! - [`html`]: the page; light or dark as the reader has it, legible without scripts;
//! - [`svg`]: plots for it;
//! - [`Table`]: a table on the page and on a terminal;
//! - [`Directory`]: where the files go.

mod directory;
mod escape;
pub mod html;
pub mod svg;
mod table;

pub use directory::Directory;
pub use escape::escape;
pub use table::{Align, Cell, Column, Table};
