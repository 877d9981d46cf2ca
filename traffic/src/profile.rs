//! Descriptions of traffic whose packets are a function of their number.

use crate::option::{
    ProfileError, parse, parse_count, parse_duration, parse_number, parse_vlan, require,
    require_size,
};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Distribution of source addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Sources {
    /// A unique source for every packet, at random in 10.0.0.0/8 with a last octet of 1 to 255
    /// (W-HLL thesis §4.3.1).
    Unique,
    /// 10.0.0.1, 10.0.0.2, …: an address plan that linear hashes fail on.
    Sequential,
    /// 10.0.0.1, 10.0.1.1, …: one host in every /24.
    Subnets,
    /// Source of rank `r` among `flows` with a probability proportional to `r^-alpha`.
    Zipf {
        /// Number of sources.
        flows: u64,
        /// Exponent, positive.
        alpha: f64,
    },
}

/// A periodic flood: packets from random spoofed sources to one destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attack {
    /// Share of the packets of a phase that belong to the flood, in (0, 1].
    pub share: f64,
    /// Period in nanoseconds: a phase ends, and the next period begins, at every multiple of it
    /// after the first packet.
    pub every_ns: u64,
    /// Length of a phase in nanoseconds; at most a period.
    pub lasting_ns: u64,
}

impl Attack {
    /// Three packets in ten, in the last ten seconds of every minute.
    const DEFAULT: Attack =
        Attack { share: 0.3, every_ns: 60_000_000_000, lasting_ns: 10_000_000_000 };

    /// Returns whether a phase is on at this time after the first packet, in nanoseconds.
    pub(crate) fn is_on(&self, at: u64) -> bool {
        at % self.every_ns >= self.every_ns - self.lasting_ns
    }
}

/// Packets in bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Period in nanoseconds; one burst starts every period.
    pub period_ns: u64,
    /// Share of the period that a burst lasts, in (0, 1].
    pub duty: f64,
}

/// A description of traffic: `NAME[,OPTION=VALUE]…`, for example
/// `zipf,flows=100k,alpha=1.2,rate=1M`.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Distribution of source addresses.
    pub sources: Sources,
    /// Mean packets per second; `None` for as many as can be counted.
    pub rate: Option<f64>,
    /// Total packets; `None` for no end.
    pub packets: Option<u64>,
    /// Bytes of a frame, without frame check sequence.
    pub size: usize,
    /// Bursts, if any.
    pub burst: Option<Burst>,
    /// Flood, if any. With a flood, all other packets have varying
    /// [destinations](crate::Generator::destination).
    pub attack: Option<Attack>,
    /// Whether to use IPv6 instead of IPv4.
    pub ipv6: bool,
    /// ID of an 802.1Q tag.
    pub vlan: Option<u16>,
    /// Seed of random choices.
    pub seed: u64,
}

/// Option names, for messages.
const OPTIONS: &str = "rate=PPS|max, packets=N, size=BYTES, seed=N, vlan=ID, ipv6, burst=DUTY, period=TIME, for zipf flows=N, alpha=A, \
     and for attack flows=N, alpha=A, share=SHARE, every=TIME, lasting=TIME";
/// Length of a TCP header without options, in bytes.
pub(crate) const TCP_HEADER_BYTES: usize = 20;

impl Profile {
    /// Creates a profile with these sources: 100 packets per second of 64 bytes without end.
    #[must_use]
    pub fn new(sources: Sources) -> Self {
        Profile {
            sources,
            rate: Some(100.0),
            packets: None,
            size: 64,
            burst: None,
            attack: None,
            ipv6: false,
            vlan: None,
            seed: 1,
        }
    }

    /// Returns the time at which packet `index` is due, in nanoseconds after the first.
    #[must_use]
    pub fn timestamp(&self, index: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let even = index as f64 * 1e9 / rate;
        match self.burst {
            None => even as u64,
            Some(Burst { period_ns, duty }) => {
                let period = (even / period_ns as f64).floor();
                let within = even - period * period_ns as f64;
                (period * period_ns as f64 + within * duty) as u64
            }
        }
    }

    /// Returns the length of all headers, in bytes.
    pub(crate) fn headers(&self) -> usize {
        let link = if self.vlan.is_some() { 18 } else { 14 };
        link + if self.ipv6 { 40 } else { 20 } + TCP_HEADER_BYTES
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let sources = match name {
            "unique" => Sources::Unique,
            "sequential" => Sources::Sequential,
            "subnets" => Sources::Subnets,
            "zipf" | "burst" => Sources::Zipf { flows: 100_000, alpha: 1.1 },
            "attack" => Sources::Zipf { flows: 5_000, alpha: 1.0 },
            "delay" | "reorder" => return Err(ProfileError::sequence(name)),
            _ => return Err(ProfileError::name(name)),
        };
        let mut profile = Profile::new(sources);
        if name == "burst" {
            profile.burst = Some(Burst { period_ns: 1_000_000_000, duty: 0.1 });
        }
        if name == "attack" {
            (profile.attack, profile.rate) = (Some(Attack::DEFAULT), Some(10_000.0));
        }
        for part in parts {
            profile.set(part)?;
        }
        if let Some(attack) = profile.attack {
            let Attack { share, every_ns, lasting_ns } = attack;
            let expected = "a share of the packets in (0, 1], such as 0.3";
            require(share > 0.0 && share <= 1.0, "share", share, expected)?;
            let lasting = format!("{:?}", Duration::from_nanos(lasting_ns));
            let expected = "a time that is at most that of every=TIME";
            require(lasting_ns <= every_ns, "lasting", lasting, expected)?;
            let expected = "packets per second: without them there are no times of an attack";
            require(profile.rate.is_some(), "rate", "max", expected)?;
        }
        if let Some(Burst { period_ns, duty }) = profile.burst {
            let is_valid = duty > 0.0 && duty <= 1.0 && period_ns > 0;
            require(is_valid, "burst", duty, "a share of the period in (0, 1], such as 0.1")?;
        }
        require_size(profile.size, profile.headers())?;
        Ok(profile)
    }
}

impl Profile {
    fn set(&mut self, option: &str) -> Result<(), ProfileError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let time = || parse_duration(key, value, "500ms or 2s");
        match (key, &mut self.attack, &mut self.sources) {
            ("rate", ..) if value == "max" => self.rate = None,
            ("rate", ..) => self.rate = Some(parse_number(key, value)?),
            ("packets", ..) => self.packets = Some(parse_count(key, value)?),
            ("size", ..) => self.size = parse_count(key, value)? as usize,
            ("seed", ..) => self.seed = parse(key, value, "a whole number")?,
            ("vlan", ..) => self.vlan = Some(parse_vlan(key, value)?),
            ("ipv6", ..) if value.is_empty() => self.ipv6 = true,
            ("burst", ..) => {
                let period_ns = self.burst.map_or(1_000_000_000, |burst| burst.period_ns);
                self.burst = Some(Burst { period_ns, duty: parse_number(key, value)? });
            }
            ("period", ..) => {
                let duty = self.burst.map_or(0.1, |burst| burst.duty);
                self.burst = Some(Burst { period_ns: time()?, duty });
            }
            ("share", Some(attack), _) => attack.share = parse_number(key, value)?,
            ("every", Some(attack), _) => attack.every_ns = time()?,
            ("lasting", Some(attack), _) => attack.lasting_ns = time()?,
            ("flows", _, Sources::Zipf { flows, .. }) => *flows = parse_count(key, value)?.max(1),
            ("alpha", _, Sources::Zipf { alpha, .. }) => *alpha = parse_number(key, value)?,
            _ => return Err(ProfileError::option(option, "", OPTIONS)),
        }
        Ok(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sources {
            Sources::Unique => f.write_str("unique")?,
            Sources::Sequential => f.write_str("sequential")?,
            Sources::Subnets => f.write_str("subnets")?,
            Sources::Zipf { flows, alpha } => {
                let name = if self.attack.is_some() { "attack" } else { "zipf" };
                write!(f, "{name},flows={flows},alpha={alpha}")?;
            }
        }
        match self.rate {
            Some(rate) => write!(f, ",rate={rate}")?,
            None => f.write_str(",rate=max")?,
        }
        if let Some(packets) = self.packets {
            write!(f, ",packets={packets}")?;
        }
        if let Some(Burst { period_ns, duty }) = self.burst {
            write!(f, ",burst={duty},period={:?}", Duration::from_nanos(period_ns))?;
        }
        if let Some(Attack { share, every_ns, lasting_ns }) = self.attack {
            let [every, lasting] = [every_ns, lasting_ns].map(Duration::from_nanos);
            write!(f, ",share={share},every={every:?},lasting={lasting:?}")?;
        }
        if let Some(id) = self.vlan {
            write!(f, ",vlan={id}")?;
        }
        if self.ipv6 {
            f.write_str(",ipv6")?;
        }
        write!(f, ",size={},seed={}", self.size, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_rate_and_bursts() {
        let even: Profile = "unique,rate=100".parse().unwrap();
        assert_eq!(
            (even.timestamp(0), even.timestamp(1), even.timestamp(132_000)),
            (0, 10_000_000, 1_320_000_000_000)
        );
        let burst: Profile = "burst,rate=100,burst=0.1,period=1s".parse().unwrap();
        assert_eq!((burst.timestamp(99), burst.timestamp(100)), (99_000_000, 1_000_000_000));
        assert!((1..10_000).all(|i| burst.timestamp(i) >= burst.timestamp(i - 1)));
    }

    #[test]
    fn descriptions_round_trip_and_bad_ones_say_why() {
        for text in [
            "unique,rate=max,packets=1M",
            "zipf,flows=10k,alpha=0.8,size=1500,seed=7",
            "burst,burst=0.5,period=20ms",
            "burst,period=20us",
            "subnets,vlan=4094",
            "sequential,ipv6,size=74,rate=2.5k",
            "attack,share=0.1,every=2s,lasting=500ms,flows=300",
        ] {
            let profile: Profile = text.parse().unwrap();
            assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile, "{text}");
        }
        for (text, part) in [
            ("uniq", "use unique"),
            ("unique,flows=5", "unfitting"),
            ("zipf,alpha=-1", "positive"),
            ("unique,rate=0", "positive"),
            ("unique,rate=nan", "positive"),
            ("unique,packets=1.5", "whole"),
            ("unique,size=40", "54 to 9018"),
            ("unique,ipv6,size=70", "74 to 9018"),
            ("unique,vlan=4095", "4094"),
            ("burst,burst=2", "(0, 1]"),
            ("unique,period=5", "500ms"),
            ("unique,speed=3", "options are"),
            ("unique,share=0.3", "unfitting"),
            ("attack,share=2", "(0, 1]"),
            ("attack,every=1s,lasting=2s", "at most that of every"),
            ("attack,rate=max", "packets per second"),
            ("attack,every=5", "500ms"),
        ] {
            let message = text.parse::<Profile>().unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
