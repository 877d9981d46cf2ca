//! Options of packet reordering.

use super::Measurement;
use crate::config::Traffic;
use crate::config::options::Options;
use crate::config::value;
use clap::Args;
use flowgauge_core::Settings;
use flowgauge_core::reorder::{self, Algorithm, MAX_SLOTS_LOG2};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_dataplane::MeasurementKind;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct ReorderArgs {
    /// Prefix lengths by which to report reordering sources, IPv4,IPv6 [default: 24,48]
    #[arg(long, value_name = "BITS,BITS", value_parser = prefix, help_heading = "Measurement")]
    prefix: Option<(u8, u8)>,

    /// Algorithm that selects the flows to track: hybrid, sampling [default: hybrid]
    ///
    /// Both track some flows of each prefix. hybrid also tracks large flows, for longer, in half of
    /// the buckets.
    #[arg(long, value_name = "NAME", value_parser = algorithm, help_heading = "Measurement")]
    reorder_algorithm: Option<Algorithm>,

    /// Number of flows to track at a time, a power of two from 2 to 65536 [default: 4096]
    #[arg(long, value_name = "N", value_parser = buckets, help_heading = "Measurement")]
    reorder_buckets: Option<u8>,

    /// Number of reordering prefixes to show [default: 10]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    reorder_top: Option<usize>,
}

fn prefix(text: &str) -> Result<(u8, u8), String> {
    let bits = |text: &str| text.trim().trim_start_matches('/').parse::<u8>().ok();
    let (v4, v6) = text
        .split_once(',')
        .map_or((bits(text), Some(reorder::Settings::DEFAULT.v6_bits)), |(v4, v6)| {
            (bits(v4), bits(v6))
        });
    let both = v4.zip(v6).filter(|(v4, v6)| {
        reorder::Settings { v4_bits: *v4, v6_bits: *v6, ..reorder::Settings::DEFAULT }
            .problem()
            .is_none()
    });
    both.ok_or_else(|| {
        "give prefix lengths of 1 to 32 (IPv4) and 1 to 56 (IPv6), such as 24,48".to_owned()
    })
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    let all = || Algorithm::ALL.map(Algorithm::name).join(", ");
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| algorithm.name() == text)
        .ok_or_else(|| format!("give one of {}", all()))
}

fn buckets(text: &str) -> Result<u8, String> {
    value::power_of_two(text, 2..=1 << MAX_SLOTS_LOG2)
}

impl Measurement for ReorderArgs {
    const KIND: MeasurementKind = MeasurementKind::Reorder;

    fn settings(&self, _: &Options, _: &Traffic, settings: &mut Settings) {
        let usual = reorder::Settings::DEFAULT;
        let (v4_bits, v6_bits) = self.prefix.unwrap_or((usual.v4_bits, usual.v6_bits));
        settings.reorder = reorder::Settings {
            algorithm: self.reorder_algorithm.unwrap_or(Algorithm::Hybrid),
            slots_log2: self.reorder_buckets.unwrap_or(usual.slots_log2),
            v4_bits,
            v6_bits,
        };
    }

    fn estimation(&self, _: &Options, estimation: &mut Estimation) {
        estimation.reorder.top = self.reorder_top.unwrap_or(estimation.reorder.top);
    }
}
