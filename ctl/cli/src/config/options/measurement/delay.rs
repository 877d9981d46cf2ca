//! Options of round-trip times.

use super::Measurement;
use crate::config::Traffic;
use crate::config::options::Options;
use crate::config::value;
use clap::Args;
use flowgauge_core::Settings;
use flowgauge_core::delay::prefixes::{MAX_GROUPS, MAX_PREFIXES, Prefix, PrefixOwner, fingerprint};
use flowgauge_core::delay::{self, Algorithm, DelayKind, Kinds, SLOT_BITS};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_ctl::measurement::delay::OTHERS;
use flowgauge_dataplane::MeasurementKind;
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use std::sync::Arc;
use std::time::Duration;

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct DelayArgs {
    /// Round-trip times to measure: tcp-handshake, tcp-data, tcp-duration, tcp-timestamps, dns,
    /// icmp, quic-spin [default: tcp-handshake,tcp-data,dns]
    #[arg(long, value_name = "KINDS", value_parser = kinds, help_heading = "Measurement")]
    delay: Option<Kinds>,

    /// Algorithm that corrects the bias against long delays: fridge, multi-fridge, overwrite,
    /// expiry [default: fridge]
    ///
    /// Requests wait for their answers in a small table. A fridge overwrites old requests and
    /// corrects for those lost. The others are for comparison.
    #[arg(long, value_name = "NAME", value_parser = algorithm, help_heading = "Measurement")]
    delay_algorithm: Option<Algorithm>,

    /// Slots for requests that wait for answers, per kind and direction, a power of two from 64 to
    /// 65536 [default: 1024]
    #[arg(long, value_name = "N", value_parser = slots, help_heading = "Measurement")]
    delay_slots: Option<u8>,

    /// Share of requests to track: 1, 1/2, 1/4, … 1/65536, or auto [default: 1]
    ///
    /// With too many requests, some are overwritten before their answers arrive; then reduce the
    /// share. Each measured delay also represents requests that were not tracked. With 'auto', the
    /// share of each kind starts at 1 and follows the traffic from window to window.
    #[arg(long, value_name = "SHARE", value_parser = admit, help_heading = "Measurement")]
    delay_admit: Option<Admit>,

    /// Count delays per group of prefixes as well: file with lines 'NAME PREFIX PREFIX ...'
    ///
    /// A delay belongs to the group with the longest prefix of the address that answered, else to
    /// 'others'. At most 63 groups and 1023 prefixes, IPv6 up to /64. A name may have several
    /// lines; # starts a comment.
    #[arg(long, value_name = "FILE", value_parser = groups, help_heading = "Measurement")]
    delay_groups: Option<Groups>,

    /// Local prefixes: requests from them count as egress, all others as ingress
    ///
    /// By default the direction of the hook decides: --direction egress counts egress.
    #[arg(long, value_name = "PREFIX", value_parser = value::prefix, value_delimiter = ',', help_heading = "Measurement")]
    delay_local: Vec<Prefix>,

    /// Suggest --delay-slots and --delay-admit for the traffic of each window
    ///
    /// A suggestion changes nothing. '--delay-admit auto' adjusts the share; the number of slots is
    /// fixed.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Measurement")]
    tune: Option<bool>,

    /// Age after which --delay-algorithm expiry may replace a request [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = expiry, help_heading = "Measurement")]
    delay_expiry: Option<Duration>,
}

/// Named groups of prefixes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Groups {
    names: Vec<Arc<str>>,
    /// Prefixes with the number of their group.
    prefixes: Vec<(Prefix, u8)>,
}

fn groups(path: &str) -> Result<Groups, String> {
    let text = files::read_text(path.as_ref(), MAX_SETTINGS_BYTES)
        .map_err(|error| format!("cannot read it: {error}"))?;
    let mut groups = Groups::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        groups.add(line).map_err(|problem| format!("line {number}: {problem}"))?;
    }
    if groups.prefixes.is_empty() {
        return Err("no prefixes; write a line 'NAME PREFIX PREFIX ...' for each group".to_owned());
    }
    Ok(groups)
}

impl Groups {
    /// Adds the prefixes of a line.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { return Ok(()) };
        if name == OTHERS {
            return Err(format!(
                "'{OTHERS}' is reserved for addresses in no group; rename the group"
            ));
        }
        let mut words = words.peekable();
        if words.peek().is_none() {
            return Err(format!("'{name}' has no prefix; write a line 'NAME PREFIX PREFIX ...'"));
        }
        let index = self.names.iter().position(|known| **known == *name).unwrap_or_else(|| {
            self.names.push(Arc::from(name));
            self.names.len() - 1
        });
        if index + 1 >= MAX_GROUPS {
            return Err(format!(
                "'{name}' is one group too many; at most {} are supported",
                MAX_GROUPS - 1
            ));
        }
        for word in words {
            let prefix = value::prefix(word)?;
            if let Some((_, other)) = self.prefixes.iter().find(|(other, _)| *other == prefix) {
                let other = self.names.get(usize::from(*other) - 1).map_or("", |name| name);
                return Err(format!("{word} is already in {other}"));
            }
            self.prefixes.push((prefix, index as u8 + 1));
        }
        Ok(())
    }
}

/// Share of requests to admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admit {
    /// One in two to this power.
    Share(u8),
    /// Adapted to the traffic.
    Auto,
}

fn kinds(text: &str) -> Result<Kinds, String> {
    let kind = |name: &str| DelayKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
    let all = || DelayKind::ALL.map(DelayKind::name).join(", ");
    text.split(',').try_fold(Kinds::NONE, |kinds, name| {
        kind(name)
            .map(|kind| kinds.with(kind))
            .ok_or_else(|| format!("unknown kind {name:?}; use {}", all()))
    })
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    let all = || Algorithm::ALL.map(Algorithm::name).join(", ");
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| algorithm.name() == text)
        .ok_or_else(|| format!("give one of {}", all()))
}

fn slots(text: &str) -> Result<u8, String> {
    value::power_of_two(text, 1_usize << SLOT_BITS.start()..=1_usize << SLOT_BITS.end())
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
    let expiry = value::duration(text)?;
    if expiry > Duration::from_secs(4) { Err("must be at most 4s".to_owned()) } else { Ok(expiry) }
}

impl DelayArgs {
    /// Returns the group and the locality of each given prefix.
    pub(crate) fn prefixes(&self) -> Vec<PrefixOwner> {
        let groups = self.delay_groups.iter().flat_map(|groups| &groups.prefixes);
        let mut owned: Vec<PrefixOwner> = groups
            .map(|(prefix, group)| PrefixOwner {
                prefix: *prefix,
                group: Some(*group),
                is_local: false,
            })
            .collect();
        for prefix in &self.delay_local {
            match owned.iter_mut().find(|owned| owned.prefix == *prefix) {
                Some(owned) => owned.is_local = true,
                None => owned.push(PrefixOwner { prefix: *prefix, group: None, is_local: true }),
            }
        }
        owned
    }
}

impl Measurement for DelayArgs {
    const KIND: MeasurementKind = MeasurementKind::Delay;

    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
        let usual = delay::Settings::DEFAULT;
        let prefixes = self.prefixes();
        let groups = self.delay_groups.as_ref().map_or(0, |groups| groups.names.len());
        settings.delay = delay::Settings {
            kinds: self.delay.unwrap_or(Kinds::USUAL),
            algorithm: self.delay_algorithm.unwrap_or(usual.algorithm),
            slots_log2: self.delay_slots.unwrap_or(usual.slots_log2),
            admit_log2: match self.delay_admit {
                Some(Admit::Share(admit_log2)) => admit_log2,
                Some(Admit::Auto) | None => usual.admit_log2,
            },
            follows: self.delay_admit == Some(Admit::Auto),
            directions: match self.delay_local.is_empty() {
                false => delay::Directions::Local,
                true if traffic.separates_directions => delay::Directions::Apart,
                true => delay::Directions::Together,
            },
            groups_log2: (groups + 1).next_power_of_two().trailing_zeros() as u8,
            prefixes: if prefixes.is_empty() { 0 } else { fingerprint(&prefixes) },
            expiry_ns: self.delay_expiry.map_or(usual.expiry_ns, |expiry| expiry.as_nanos() as u32),
            samples: options.outputs.delay_samples.is_some(),
        };
    }

    fn estimation(&self, _: &Options, estimation: &mut Estimation) {
        estimation.delay.tune = self.tune == Some(true);
        estimation.delay.groups =
            self.delay_groups.as_ref().map_or_else(Vec::new, |groups| groups.names.clone());
    }

    fn problem(&self, options: &Options, traffic: &Traffic) -> Option<&'static str> {
        let mut settings = Settings::default();
        if options.measures(Self::KIND) {
            self.settings(options, traffic, &mut settings);
        }
        let is_expiring = self.delay_algorithm == Some(Algorithm::Expiry);
        let is_corrected = matches!(settings.delay.algorithm, Algorithm::Fridge);
        if self.tune == Some(true) && !is_corrected {
            return Some("--tune is for --delay-algorithm fridge; remove one of them");
        }
        if self.delay_admit == Some(Admit::Auto) && options.staggered.is_some() {
            return Some(
                "--delay-admit auto needs windows, which --staggered does not have; give a share, or remove --staggered",
            );
        }
        if self.prefixes().len() > MAX_PREFIXES {
            return Some(
                "--delay-groups and --delay-local have more than 1023 prefixes in total; use fewer, or shorter ones",
            );
        }
        match self.delay_expiry {
            Some(_) if !is_expiring => Some(
                "--delay-expiry is for --delay-algorithm expiry; add it, or remove --delay-expiry",
            ),
            _ => settings.delay.problem(),
        }
    }
}
