//! Options of round-trip delays.

use super::Measurement;
use crate::options::Options;
use crate::value;
use clap::Args;
use flowgauge_core::Settings;
use flowgauge_core::delay::{self, Algorithm, Kind, Kinds, SLOT_BITS};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_dataplane::MeasurementKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Own {
    /// Delays of what: tcp-handshake, tcp-data, tcp-duration, tcp-timestamps, dns, icmp, quic-spin [default: tcp-handshake,tcp-data,dns]
    #[arg(long, value_name = "KINDS", value_parser = kinds, help_heading = "Measurement")]
    delay: Option<Kinds>,

    /// How the bias against long delays is dealt with: fridge, multi-fridge, overwrite, expiry [default: fridge]
    ///
    /// Requests wait for their answers in a small table. A fridge overwrites them, and makes up for what was lost. The others are for comparison.
    #[arg(long, value_name = "NAME", value_parser = algorithm, help_heading = "Measurement")]
    delay_algorithm: Option<Algorithm>,

    /// Requests that can wait for their answers, of each kind and direction, a power of two from 64 to 65536 [default: 1024]
    #[arg(long, value_name = "N", value_parser = slots, help_heading = "Measurement")]
    delay_slots: Option<u8>,

    /// The share of requests that is looked at: 1, 1/2, 1/4, … 1/65536, or auto [default: 1]
    ///
    /// With too many of them requests are overwritten before their answers come; then admit fewer. Delays stand for those that were not looked at.
    /// With 'auto' each kind has a share of its own, which follows the traffic from window to window, starting at 1. A switch does not do that.
    #[arg(long, value_name = "SHARE", value_parser = admit, help_heading = "Measurement")]
    delay_admit: Option<Admit>,

    /// Suggest --delay-slots and --delay-admit for the traffic of each window
    ///
    /// A suggestion changes nothing. '--delay-admit auto' changes the share; slots are memory, and stay as they are.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    tune: Option<bool>,

    /// When a request of --delay-algorithm expiry may be replaced [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = expiry, help_heading = "Measurement")]
    delay_expiry: Option<Duration>,

    /// Also write every delay to this new file, one JSON object a line
    ///
    /// Each says its kind, when the answer came, how long it took, how many requests it stands for, and between which ends, as hashes. A line a
    /// window says how many there were, and how many are missing because they came faster than they could be written. The kernel and workers do
    /// it, a switch does not.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    delay_samples: Option<PathBuf>,
}

impl Own {
    /// Where delays go one by one.
    pub(crate) fn samples(&self) -> Option<&Path> {
        self.delay_samples.as_deref()
    }
}

/// Which share of requests is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admit {
    /// One in two to this power.
    Share(u8),
    /// What fits the traffic.
    Auto,
}

fn kinds(text: &str) -> Result<Kinds, String> {
    let kind = |name: &str| Kind::ALL.into_iter().find(|kind| kind.name() == name.trim());
    let all = || Kind::ALL.map(Kind::name).join(", ");
    text.split(',').try_fold(Kinds::NONE, |kinds, name| {
        kind(name).map(|kind| kinds.with(kind)).ok_or_else(|| format!("there is no kind {name:?}; there are {}", all()))
    })
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    let all = || Algorithm::ALL.map(Algorithm::name).join(", ");
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text).ok_or_else(|| format!("give one of {}", all()))
}

fn slots(text: &str) -> Result<u8, String> {
    let bits = text.parse::<u32>().ok().filter(|slots| slots.is_power_of_two()).map(|slots| slots.trailing_zeros() as u8);
    bits.filter(|bits| SLOT_BITS.contains(bits)).ok_or_else(|| "give a power of two from 64 to 65536".to_owned())
}

fn admit(text: &str) -> Result<Admit, String> {
    if text.trim() == "auto" {
        return Ok(Admit::Auto);
    }
    let part = match text.trim().split_once('/') {
        None => text.trim().parse::<u32>().ok().filter(|whole| *whole == 1),
        Some((whole, part)) => part.trim().parse().ok().filter(|_| whole.trim() == "1"),
    };
    let part = part.filter(|part| part.is_power_of_two() && *part <= 1 << delay::MAX_ADMIT_BITS);
    part.map(|part| Admit::Share(part.trailing_zeros() as u8))
        .ok_or_else(|| "give 1, or 1/2, 1/4 and so on down to 1/65536, or auto".to_owned())
}

fn expiry(text: &str) -> Result<Duration, String> {
    value::duration(text).and_then(
        |expiry| {
            if expiry <= Duration::from_secs(4) { Ok(expiry) } else { Err("must be at most 4s".to_owned()) }
        },
    )
}

impl Measurement for Own {
    const KIND: MeasurementKind = MeasurementKind::Delay;
    const KEYS: usize = 0;

    fn settings(&self, options: &Options, settings: &mut Settings) {
        let usual = delay::Settings::DEFAULT;
        settings.delay = delay::Settings {
            kinds: self.delay.unwrap_or(Kinds::USUAL),
            algorithm: self.delay_algorithm.unwrap_or(usual.algorithm),
            slots_log2: self.delay_slots.unwrap_or(usual.slots_log2),
            admit_log2: match self.delay_admit {
                Some(Admit::Share(admit_log2)) => admit_log2,
                Some(Admit::Auto) | None => usual.admit_log2,
            },
            follows: self.delay_admit == Some(Admit::Auto),
            directions: if options.knows_direction { delay::Directions::Apart } else { delay::Directions::Together },
            expiry_ns: self.delay_expiry.map_or(usual.expiry_ns, |expiry| expiry.as_nanos() as u32),
            samples: self.delay_samples.is_some(),
            ..usual
        };
    }

    fn estimation(&self, _: &Options, estimation: &mut Estimation) {
        estimation.delay.tune = self.tune == Some(true);
    }

    fn problem(&self, options: &Options) -> Option<&'static str> {
        let mut settings = Settings::default();
        if options.measures(Self::KIND) {
            self.settings(options, &mut settings);
        }
        let is_expiring = self.delay_algorithm == Some(Algorithm::Expiry);
        let is_corrected = matches!(settings.delay.algorithm, Algorithm::Fridge);
        if self.tune == Some(true) && !is_corrected {
            return Some("--tune is for --delay-algorithm fridge; leave out one of them");
        }
        if self.delay_admit == Some(Admit::Auto) && options.staggered.is_some() {
            return Some(
                "--delay-admit auto goes from window to window, and --staggered has none; give a share, or leave out --staggered",
            );
        }
        match self.delay_expiry {
            Some(_) if !is_expiring => Some("--delay-expiry is for --delay-algorithm expiry; leave out one or add the other"),
            _ => settings.delay.problem(),
        }
    }
}
