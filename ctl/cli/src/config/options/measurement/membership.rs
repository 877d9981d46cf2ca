//! Options of membership.

use super::Measurement;
use crate::config::options::Options;
use crate::config::value::rows_and_columns;
use crate::config::{CountingPart, Traffic};
use clap::Args;
use flowgauge_core::Grid;
use flowgauge_core::Settings;
use flowgauge_core::hash::MAX_ROWS;
use flowgauge_core::membership::{self, MAX_FILTER_BITS};
use flowgauge_dataplane::MeasurementKind;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct MembershipArgs {
    /// Bloom filter of membership: rows, and bits per row [default: 4x65536; 3x65536 on a switch]
    #[arg(long, value_name = "ROWSxBITS", value_parser = filter, help_heading = "Measurement")]
    filter: Option<Grid>,
}

fn filter(text: &str) -> Result<Grid, String> {
    let shape = rows_and_columns(text).and_then(|(rows, bits)| Grid::of_bits(rows, bits));
    shape.ok_or_else(|| {
        format!("give ROWSxBITS: 1 to {MAX_ROWS} rows, bits a power of two from 64 to 65536, at most {MAX_FILTER_BITS} in total")
    })
}

impl Measurement for MembershipArgs {
    const KIND: MeasurementKind = MeasurementKind::Membership;

    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
        let usual =
            if traffic.counter == CountingPart::Switch { Grid::of_bits(3, 1 << 16) } else { None };
        let shape = self.filter.or(usual).unwrap_or(Grid::BITS);
        settings.membership =
            membership::Settings { on: true, key: options.key(Self::KIND), shape };
    }
}
