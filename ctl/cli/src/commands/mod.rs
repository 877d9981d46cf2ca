//! The commands of `flowgauge`: a file or folder for each, or for two that belong together (`man`
//! and `completions`, `merge` and `diff`).
//!
//! A command is a struct with its options and a function `execute`. Those that count (`run`,
//! `replay`, `report`, `demo`) read their options from more places, in [`crate::config`], and count
//! in [`crate::run`]. `bench` and `reproduce` only declare options: another program executes them.

pub mod bench;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod generate;
#[cfg(feature = "lake")]
pub(crate) mod lake;
pub(crate) mod man;
#[cfg(feature = "lake")]
pub(crate) mod merge;
pub(crate) mod replay;
#[cfg(feature = "report")]
pub(crate) mod report;
pub mod reproduce;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod tables;
pub(crate) mod top;

/// Output format of a command without CSV.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum TextFormat {
    #[default]
    Table,
    Json,
}
