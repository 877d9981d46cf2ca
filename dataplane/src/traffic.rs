//! Synthetic traffic: frames that are a function of their number.
//!
//! # Two kinds of traffic
//! Packet `i` of a [`Profile`] depends only on the profile and on `i`. So traffic is the same in
//! every run, however many workers share it, and a frame is generated in place in a few nanoseconds
//! ([`Generator`]). Workers count such traffic directly, through the
//! [memory port](crate::poll::port).
//!
//! Traffic with round trips ([`delay`]) or out of order ([`reorder`]) is a sequence instead: its
//! packets depend on earlier ones, and it is written to captures with the truth about it, to
//! compare measurements with.
//!
//! # Where to look
//! [`Sources`], [`Attack`] and [`Burst`]: options of a profile; [`Layout`] and `frames`: headers
//! and checksums; `reader`: an independent parser of generated frames, for tests.

pub mod delay;
mod frames;
#[cfg(test)]
mod reader;
pub mod reorder;

pub use frames::Layout;
use rand::{RngExt, TryRng};
use rand_distr::Zipf;
use std::convert::Infallible;
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
    fn is_on(&self, at: u64) -> bool {
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
    /// [destinations](Generator::destination).
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
const MAX_FRAME: usize = 9018;
/// Sources of [`Sources::Unique`] per leading octet: the last octet is never zero.
const UNIQUE_PER_OCTET: u64 = 256 * 256 * 255;

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
            "delay" | "reorder" => return Err(ProfileError::Sequence(name.to_owned())),
            _ => return Err(ProfileError::Name(name.to_owned())),
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
            if !(attack.share > 0.0 && attack.share <= 1.0) {
                return Err(ProfileError::value(
                    "share",
                    &attack.share.to_string(),
                    "a share of the packets in (0, 1], such as 0.3",
                ));
            }
            if attack.lasting_ns > attack.every_ns {
                let lasting = format!("{:?}", Duration::from_nanos(attack.lasting_ns));
                return Err(ProfileError::value(
                    "lasting",
                    &lasting,
                    "a time that is at most that of every=TIME",
                ));
            }
            if profile.rate.is_none() {
                return Err(ProfileError::value(
                    "rate",
                    "max",
                    "packets per second: without them there are no times of an attack",
                ));
            }
        }
        if let Some(burst) = profile.burst
            && (!(burst.duty > 0.0 && burst.duty <= 1.0) || burst.period_ns == 0)
        {
            return Err(ProfileError::value(
                "burst",
                &burst.duty.to_string(),
                "a share of the period in (0, 1], such as 0.1",
            ));
        }
        let smallest = Generator::new(Profile { size: 0, ..profile.clone() }).frame_length();
        if profile.size < smallest || profile.size > MAX_FRAME {
            let range = format!("{smallest} to {MAX_FRAME} bytes for these headers");
            return Err(ProfileError::value("size", &profile.size.to_string(), &range));
        }
        Ok(profile)
    }
}

impl Profile {
    fn set(&mut self, option: &str) -> Result<(), ProfileError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "rate" if value == "max" => self.rate = None,
            "rate" => self.rate = Some(parse_number(key, value)?),
            "packets" => self.packets = Some(parse_count(key, value)?),
            "size" => self.size = parse_count(key, value)? as usize,
            "seed" => self.seed = parse(key, value, "a whole number")?,
            "vlan" => self.vlan = Some(parse_vlan(key, value)?),
            "ipv6" if value.is_empty() => self.ipv6 = true,
            "burst" => {
                let period_ns = self.burst.map_or(1_000_000_000, |burst| burst.period_ns);
                self.burst = Some(Burst { period_ns, duty: parse_number(key, value)? });
            }
            "period" => {
                let period_ns = parse_duration(value)
                    .ok_or_else(|| ProfileError::value(key, value, "a time such as 500ms or 2s"))?;
                self.burst =
                    Some(Burst { period_ns, duty: self.burst.map_or(0.1, |burst| burst.duty) });
            }
            "share" | "every" | "lasting" => {
                let Some(attack) = &mut self.attack else {
                    return Err(ProfileError::Option(option.to_owned()));
                };
                let time = || {
                    parse_duration(value).ok_or_else(|| {
                        ProfileError::value(key, value, "a time such as 500ms or 2s")
                    })
                };
                match key {
                    "share" => attack.share = parse_number(key, value)?,
                    "every" => attack.every_ns = time()?,
                    _ => attack.lasting_ns = time()?,
                }
            }
            "flows" | "alpha" => match &mut self.sources {
                Sources::Zipf { flows, .. } if key == "flows" => {
                    *flows = parse_count(key, value)?.max(1)
                }
                Sources::Zipf { alpha, .. } => *alpha = parse_number(key, value)?,
                _ => return Err(ProfileError::Option(option.to_owned())),
            },
            _ => return Err(ProfileError::Option(option.to_owned())),
        }
        Ok(())
    }
}

fn parse<T: FromStr>(key: &str, value: &str, expected: &str) -> Result<T, ProfileError> {
    value.parse().map_err(|_| ProfileError::value(key, value, expected))
}

/// Parses a positive number with an optional suffix k, M or G.
fn parse_number(key: &str, value: &str) -> Result<f64, ProfileError> {
    let expected = "a positive number such as 2.5, 100k or 1M";
    let (digits, factor) = match value.char_indices().last() {
        Some((at, 'k')) => (&value[..at], 1e3),
        Some((at, 'M')) => (&value[..at], 1e6),
        Some((at, 'G')) => (&value[..at], 1e9),
        _ => (value, 1.0),
    };
    let number = parse::<f64>(key, digits, expected)? * factor;
    if number.is_finite() && number > 0.0 {
        Ok(number)
    } else {
        Err(ProfileError::value(key, value, expected))
    }
}

fn parse_count(key: &str, value: &str) -> Result<u64, ProfileError> {
    let number = parse_number(key, value)?;
    if number.fract() == 0.0 && number < 9e15 {
        Ok(number as u64)
    } else {
        Err(ProfileError::value(key, value, "a whole number such as 5000, 100k or 1M"))
    }
}

/// Parses the ID of an 802.1Q tag.
fn parse_vlan(key: &str, value: &str) -> Result<u16, ProfileError> {
    let id = parse(key, value, "1 to 4094")?;
    if (1..=4094).contains(&id) {
        Ok(id)
    } else {
        Err(ProfileError::value(key, value, "1 to 4094"))
    }
}

/// Parses a share, which may be zero.
fn parse_share(key: &str, value: &str) -> Result<f64, ProfileError> {
    let expected = "a share from 0 to 1, such as 0.01";
    let share: f64 = parse(key, value, expected)?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(ProfileError::value(key, value, expected))
    }
}

fn parse_duration(value: &str) -> Option<u64> {
    let (digits, unit) = value.split_at(value.find(char::is_alphabetic)?);
    let unit_ns = match unit {
        "ns" => 1.0,
        // As written by `Duration`.
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    let duration = digits.parse::<f64>().ok()? * unit_ns;
    (1.0..9e18).contains(&duration).then_some(duration as u64)
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

/// An invalid traffic description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Unknown profile.
    #[error(
        "there is no traffic profile '{0}'; use unique, sequential, subnets, zipf, burst or attack, and in files delay or reorder"
    )]
    Name(String),
    /// A profile whose packets depend on earlier ones, where only a function of the number is
    /// possible.
    #[error(
        "'{0}' can only be written to a file; read that with `flowgauge replay`, or send it with `flowgauge generate --pcap`"
    )]
    Sequence(String),
    /// Unknown option, or not for this profile.
    #[error("unknown or unfitting option '{0}'; options are {OPTIONS}")]
    Option(String),
    /// Unknown option of this profile.
    #[error("unknown or unfitting option '{option}'; options of {profile} are {options}")]
    Unfitting {
        /// The option.
        option: String,
        /// The profile.
        profile: &'static str,
        /// Its options.
        options: &'static str,
    },
    /// A value out of range.
    #[error("{key}={value} will not do; give {expected}")]
    Value {
        /// The option.
        key: String,
        /// Its value.
        value: String,
        /// Expected value.
        expected: String,
    },
}

impl ProfileError {
    fn value(key: &str, value: &str, expected: &str) -> Self {
        ProfileError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }

    fn unfitting(option: &str, profile: &'static str, options: &'static str) -> Self {
        ProfileError::Unfitting { option: option.to_owned(), profile, options }
    }
}

/// Generator of the frames of a profile.
#[derive(Clone, Debug)]
pub struct Generator {
    profile: Profile,
    template: Vec<u8>,
    source_offset: usize,
    /// Offsets of the checksums that cover the addresses, each with its value for zero in place of
    /// the variable addresses.
    checksums: Vec<(usize, u16)>,
    addresses: Addresses,
    /// Distribution of destinations that are not under attack, for profiles with an attack.
    destinations: Option<Zipf<f64>>,
}

#[derive(Clone, Debug)]
enum Addresses {
    Permuted(Permuted),
    Counted { shift: u32 },
    Zipf { seed: u64, sources: Permuted, ranks: Zipf<f64> },
}

const DESTINATION: [u8; 4] = [10, 0, 0, 2];
/// Number of destinations of packets outside attacks, and Zipf exponent.
const DESTINATIONS: (f64, f64) = (1_000.0, 1.0);
const TCP_HEADER: [u8; 20] =
    [0, 20, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0, 0, 0, 0];
const TCP: u8 = 6;

impl Generator {
    /// Creates a generator for a profile.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let addresses = match profile.sources {
            Sources::Unique => Addresses::Permuted(Permuted::new(profile.seed)),
            Sources::Sequential => Addresses::Counted { shift: 0 },
            Sources::Subnets => Addresses::Counted { shift: 8 },
            Sources::Zipf { flows, alpha } => match Zipf::new(flows as f64, alpha) {
                Ok(ranks) => Addresses::Zipf {
                    seed: profile.seed,
                    sources: Permuted::new(profile.seed),
                    ranks,
                },
                // Only a profile that was not parsed can contain numbers that Zipf rejects: no
                // flows, or a negative exponent.
                Err(_) => Addresses::Permuted(Permuted::new(profile.seed)),
            },
        };
        let destinations =
            profile.attack.and_then(|_| Zipf::new(DESTINATIONS.0, DESTINATIONS.1).ok());
        let destination = if destinations.is_some() { [0; 4] } else { DESTINATION };
        let mut template =
            vec![0xf6, 0x22, 0x3b, 0xa1, 0x3a, 0xfb, 0xf6, 0xe9, 0xbe, 0x5f, 0x4f, 0x0b];
        if let Some(id) = profile.vlan {
            template.extend([0x81, 0x00]);
            template.extend(id.to_be_bytes());
        }
        template.extend(if profile.ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let network = template.len();
        let header_length = if profile.ipv6 { 40 } else { 20 };
        let frame_length = profile.size.max(network + header_length + TCP_HEADER.len());
        let payload_length = (frame_length - network - header_length) as u16;
        let (source_offset, pseudo_header) = if profile.ipv6 {
            template.extend([0x60, 0, 0, 0]);
            template.extend(payload_length.to_be_bytes());
            template.extend([TCP, 64]);
            template.extend([0; 16]);
            template.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
            template.extend(destination);
            (network + 8, network + 8..network + 40)
        } else {
            template.extend([0x45, 0]);
            template.extend((payload_length + 20).to_be_bytes());
            template.extend([0, 1, 0, 0, 64, TCP, 0, 0, 0, 0, 0, 0]);
            template.extend(destination);
            (network + 12, network + 12..network + 20)
        };
        let transport = template.len();
        template.extend(TCP_HEADER);
        template.resize(frame_length, 0);
        let mut tcp_input = template[pseudo_header].to_vec();
        tcp_input.extend([0, TCP]);
        tcp_input.extend(payload_length.to_be_bytes());
        tcp_input.extend(&template[transport..]);
        let mut checksums = vec![(transport + 16, internet_sum(&tcp_input))];
        if !profile.ipv6 {
            checksums.push((network + 10, internet_sum(&template[network..transport])));
        }
        Generator { profile, template, source_offset, checksums, addresses, destinations }
    }

    /// Returns the profile.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the length of every frame, in bytes.
    #[must_use]
    pub fn frame_length(&self) -> usize {
        self.template.len()
    }

    /// Returns a frame for [`fill`](Self::fill).
    #[must_use]
    pub fn template(&self) -> &[u8] {
        &self.template
    }

    /// Returns the source address of packet `index` as a number; for IPv6, the last 32 bits in
    /// 2001:db8::/96.
    #[must_use]
    pub fn source(&self, index: u64) -> u32 {
        if self.floods(index) {
            // Any unicast address, except for first and last octets that are not spoofed.
            let random = mix(mix(self.profile.seed ^ SPOOFED) ^ index);
            return ((random % 223) as u32 + 1) << 24 | (random >> 40) as u32;
        }
        match &self.addresses {
            Addresses::Permuted(sources) => sources.at(index),
            Addresses::Counted { shift } => 0x0a00_0001_u32.wrapping_add((index as u32) << shift),
            Addresses::Zipf { seed, sources, ranks } => {
                let mut random = CounterRng(mix(*seed) ^ mix(index));
                let rank: f64 = random.sample(*ranks);
                sources.at(rank as u64 - 1)
            }
        }
    }

    /// Returns whether a packet belongs to an attack.
    #[must_use]
    pub fn floods(&self, index: u64) -> bool {
        let Some(attack) = &self.profile.attack else { return false };
        attack.is_on(self.profile.timestamp(index))
            && CounterRng(mix(self.profile.seed ^ FLOOD) ^ mix(index)).random_bool(attack.share)
    }

    /// Returns the destination address of packet `index` as a number; for IPv6, the last 32 bits in
    /// 2001:db8::/96. All packets of an attack go to 10.0.0.2, the destination of profiles without
    /// an attack.
    #[must_use]
    pub fn destination(&self, index: u64) -> u32 {
        match self.destinations {
            Some(ranks) if !self.floods(index) => {
                let mut random = CounterRng(mix(self.profile.seed ^ DESTINED) ^ mix(index));
                let rank: f64 = random.sample(ranks);
                0x0b00_0000 + rank as u32
            }
            _ => u32::from_be_bytes(DESTINATION),
        }
    }

    /// Turns a template, or any earlier frame of this generator, into packet `index`.
    pub fn fill(&self, index: u64, frame: &mut [u8]) {
        self.write(index, self.source(index), frame);
    }

    /// Fills consecutive frames with packet `first` and the following ones. Each must start as a
    /// [`template`](Self::template). Equivalent to [`fill`](Self::fill) of each, but faster.
    pub fn fill_all(&self, first: u64, frames: &mut [u8]) {
        const GROUP: usize = 64;
        let mut sources = [0; GROUP];
        let length = self.frame_length();
        for (first, group) in (first..).step_by(GROUP).zip(frames.chunks_mut(GROUP * length)) {
            let sources = &mut sources[..group.len() / length];
            match &self.addresses {
                Addresses::Permuted(permuted) if self.profile.attack.is_none() => {
                    permuted.fill(first, sources)
                }
                _ => (first..)
                    .zip(&mut *sources)
                    .for_each(|(index, source)| *source = self.source(index)),
            }
            for ((index, source), frame) in
                (first..).zip(sources).zip(group.chunks_exact_mut(length))
            {
                self.write(index, *source, frame);
            }
        }
    }

    #[inline]
    fn write(&self, index: u64, source: u32, frame: &mut [u8]) {
        let source = source.to_be_bytes();
        let offset = self.source_offset;
        if self.profile.ipv6 {
            frame[offset..offset + 4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
            frame[offset + 12..offset + 16].copy_from_slice(&source);
        } else {
            frame[offset..offset + 4].copy_from_slice(&source);
        }
        let words = |address: [u8; 4]| {
            let [a0, a1, a2, a3] = address.map(u32::from);
            (a0 << 8) + a1 + (a2 << 8) + a3
        };
        let prefix = if self.profile.ipv6 { 0x2001 + 0x0db8 } else { 0 };
        let mut addresses = words(source) + prefix;
        if self.destinations.is_some() {
            let destination = self.destination(index).to_be_bytes();
            let offset = offset + if self.profile.ipv6 { 28 } else { 4 };
            frame[offset..offset + 4].copy_from_slice(&destination);
            addresses += words(destination);
        }
        for &(offset, rest) in &self.checksums {
            let sum = addresses + u32::from(rest);
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            frame[offset..offset + 2].copy_from_slice(&(!sum as u16).to_be_bytes());
        }
    }
}

/// Returns the one's complement sum of RFC 1071, not yet complemented.
fn internet_sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Distinct random addresses: a bijection instead of a set of used addresses.
#[derive(Clone, Debug)]
struct Permuted {
    seed: u64,
    /// Permutation for the first octet 10; further octets follow once its addresses are used up.
    first: Permutation,
}

impl Permuted {
    fn new(seed: u64) -> Self {
        Permuted { seed, first: Permutation::new(seed ^ mix(0)) }
    }

    fn of_octet(&self, octet: u64) -> Permutation {
        if octet == 0 { self.first } else { Permutation::new(self.seed ^ mix(octet)) }
    }

    fn at(&self, index: u64) -> u32 {
        let octet = index / UNIQUE_PER_OCTET;
        let permutation = self.of_octet(octet);
        let host = permutation.of((index % UNIQUE_PER_OCTET) as u32);
        address(octet, permutation.walk(host))
    }

    /// Writes the addresses from `first` on. Several simple loops, which the compiler vectorises.
    fn fill(&self, first: u64, sources: &mut [u32]) {
        let octet = first / UNIQUE_PER_OCTET;
        let host = first % UNIQUE_PER_OCTET;
        if host + sources.len() as u64 > UNIQUE_PER_OCTET {
            (first..).zip(sources).for_each(|(index, source)| *source = self.at(index));
            return;
        }
        let permutation = self.of_octet(octet);
        (host as u32..)
            .zip(&mut *sources)
            .for_each(|(host, source)| *source = permutation.of(host));
        sources.iter_mut().for_each(|source| *source = permutation.walk(*source));
        sources.iter_mut().for_each(|source| *source = address(octet, *source));
    }
}

/// Returns the `index`-th of distinct random addresses.
fn unique_source(seed: u64, index: u64) -> u32 {
    Permuted::new(seed).at(index)
}

/// Returns the address of a host number; the last octet is never 0.
fn address(octet: u64, host: u32) -> u32 {
    let (upper, last) = (host / 255, host % 255 + 1);
    (10_u32.wrapping_add(octet as u32) << 24) | upper << 8 | last
}

/// Keyed bijection on 24 bits: multiplications by odd numbers and xor-shifts are invertible.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    keys: [u32; 3],
}

impl Permutation {
    fn new(seed: u64) -> Self {
        let mut key = mix(seed);
        let keys = std::array::from_fn(|_| {
            let round = key as u32;
            key = key.rotate_left(21).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            round
        });
        Permutation { keys }
    }

    #[inline(always)]
    fn of(self, value: u32) -> u32 {
        const MASK: u32 = (1 << 24) - 1;
        let mut value = value;
        for key in self.keys {
            value = value.wrapping_add(key) & MASK;
            value = value.wrapping_mul(key >> 7 | 1) & MASK;
            value ^= value >> 11;
            value = value.wrapping_mul(0x00c2_b2ad | 1) & MASK;
            value ^= value >> 13;
        }
        value
    }

    /// Restricts the bijection to addresses with a nonzero last octet, by cycle walking (Black and
    /// Rogaway 2002).
    #[inline(always)]
    fn walk(self, value: u32) -> u32 {
        let mut value = value;
        while u64::from(value) >= UNIQUE_PER_OCTET {
            value = self.of(value);
        }
        value
    }
}

/// Applies the SplitMix64 finaliser.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Domain separators of the random choices of an attack.
const SPOOFED: u64 = 0x73_706f_6f66;
const FLOOD: u64 = 0x66_6c6f_6f64;
const DESTINED: u64 = 0x64_6573_7473;

/// Random numbers for one packet.
#[derive(Debug)]
struct CounterRng(u64);

impl TryRng for CounterRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|word| (word >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0 = self.0.wrapping_add(1);
        Ok(mix(self.0))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_testing::chance::{DEVIATIONS, binomial};
    use std::collections::HashSet;

    fn frame(profile: &str, index: u64) -> Vec<u8> {
        let generator = Generator::new(profile.parse().unwrap());
        let mut frame = generator.template().to_vec();
        generator.fill(index + 1, &mut frame);
        generator.fill(index, &mut frame);
        frame
    }

    #[test]
    fn unique_sources_are_distinct_and_look_random() {
        let generator = Generator::new("unique".parse().unwrap());
        let sources: Vec<u32> = (0..200_000).map(|i| generator.source(i)).collect();
        assert_eq!(sources.iter().collect::<HashSet<_>>().len(), sources.len());
        assert!(sources.iter().all(|s| s >> 24 == 10 && s & 0xff != 0));
        for bit in 0..24 {
            let ones = sources.iter().filter(|s| *s >> bit & 1 == 1).count() as u64;
            // The last octet takes 255 values, of which 128 have the bit.
            let share = if bit < 8 { 128.0 / 255.0 } else { 0.5 };
            assert!(
                binomial(200_000, share).contains(&ones),
                "bit {bit} is set in {ones} of 200000"
            );
        }
        assert_eq!(generator.source(UNIQUE_PER_OCTET) >> 24, 11);
    }

    #[test]
    fn many_frames_at_once_are_the_same_frames() {
        for profile in [
            "unique",
            "unique,ipv6,size=74",
            "unique,vlan=5,seed=7,size=68",
            "sequential",
            "zipf,flows=1000",
            "attack",
        ] {
            let generator = Generator::new(profile.parse().unwrap());
            let length = generator.frame_length();
            // Including the change to another octet.
            for (first, count) in [
                (0, 256),
                (3, 1),
                (70, 65),
                (UNIQUE_PER_OCTET - 100, 256),
                (5 * UNIQUE_PER_OCTET, 64),
            ] {
                let mut frames = generator.template().repeat(count);
                generator.fill_all(first, &mut frames);
                for (index, frame) in (first..).zip(frames.chunks(length)) {
                    let mut one = generator.template().to_vec();
                    generator.fill(index, &mut one);
                    assert_eq!(frame, one, "{profile}, packet {index}");
                }
            }
        }
    }

    #[test]
    fn unique_sources_exhaust_their_network() {
        let mut seen = vec![false; 1 << 24];
        for index in 0..UNIQUE_PER_OCTET {
            let host = (unique_source(9, index) & 0x00ff_ffff) as usize;
            assert!(!seen[host], "packet {index} repeats a source");
            seen[host] = true;
        }
    }

    #[test]
    fn structured_sources_follow_their_plan() {
        let sequential = Generator::new("sequential".parse().unwrap());
        assert_eq!((sequential.source(0), sequential.source(300)), (0x0a00_0001, 0x0a00_012d));
        let subnets = Generator::new("subnets".parse().unwrap());
        assert_eq!((subnets.source(0), subnets.source(300)), (0x0a00_0001, 0x0a01_2c01));
    }

    fn harmonic(ranks: u32) -> f64 {
        (1..=ranks).map(|rank| f64::from(rank).recip()).sum()
    }

    #[test]
    fn zipf_ranks_have_their_shares() {
        let generator = Generator::new("zipf,flows=1000,alpha=1".parse().unwrap());
        let mut counts = std::collections::HashMap::new();
        (0..100_000).for_each(|i| *counts.entry(generator.source(i)).or_insert(0_u64) += 1);
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // Harmonic number of 1000 is 7.485: rank 1 has 13.36 %, rank 2 half of that, and so on. The
        // first ones are well separated.
        let share = |rank: u32| 1.0 / (f64::from(rank) * harmonic(1000));
        for (rank, count) in (1..=4).zip(&counts) {
            assert!(binomial(100_000, share(rank)).contains(count), "rank {rank}: {count}");
        }
        // The last rank has 13 packets on average; a rank is missing in one case of 8,000.
        assert_eq!(counts.len(), 1000);
    }

    #[test]
    fn checksums_hold_whatever_the_source() {
        let profiles = [
            "unique",
            "sequential,size=1500",
            "zipf,vlan=7",
            "unique,ipv6,size=74",
            "unique,ipv6,vlan=9,size=99",
            "attack,share=0.5,every=1s,lasting=1s",
            "attack,share=0.5,every=1s,lasting=1s,ipv6,size=90",
        ];
        for profile in profiles {
            for index in [0, 1, 77_777] {
                let frame = frame(profile, index);
                let network = if profile.contains("vlan") { 18 } else { 14 };
                let (addresses, transport) = if profile.contains("ipv6") {
                    (network + 8..network + 40, network + 40)
                } else {
                    assert_eq!(internet_sum(&frame[network..network + 20]), 0xffff, "{profile}");
                    (network + 12..network + 20, network + 20)
                };
                let length = (frame.len() - transport) as u16;
                let input =
                    [&frame[addresses], &[0, TCP], &length.to_be_bytes(), &frame[transport..]]
                        .concat();
                assert_eq!(internet_sum(&input), 0xffff, "{profile} packet {index}");
            }
        }
    }

    #[test]
    fn an_attack_comes_in_its_phases_from_many_to_one() {
        let generator =
            Generator::new("attack,rate=1000,share=0.2,every=10s,lasting=3s".parse().unwrap());
        let (mut floods, mut sources) = (0, HashSet::new());
        for index in 0..40_000 {
            let phase = index % 10_000 >= 7_000;
            let flood = generator.floods(index);
            assert!(phase || !flood, "packet {index} floods too early");
            assert_eq!(flood, generator.destination(index) == 0x0a00_0002, "packet {index}");
            if flood {
                floods += 1;
                sources.insert(generator.source(index));
            }
        }
        // A fifth of 12,000 packets; two of them share one of 3.7 billion sources with a
        // probability of 1 in 1,300.
        assert!(binomial(12_000, 0.2).contains(&(floods as u64)), "{floods}");
        assert_eq!(sources.len(), floods);
        let destinations: HashSet<u32> =
            (0..5_000).map(|index| generator.destination(index)).collect();
        // Each of a thousand is present unless none of 5,000 packets goes to it.
        let seen =
            || (1..=1000).map(|rank| 1.0 - (-5_000.0 / (f64::from(rank) * harmonic(1000))).exp());
        let deviation = seen().map(|seen| seen * (1.0 - seen)).sum::<f64>().sqrt();
        let difference = (destinations.len() as f64 - seen().sum::<f64>()).abs();
        assert!(
            difference <= DEVIATIONS * deviation,
            "{} destinations, {} expected",
            destinations.len(),
            seen().sum::<f64>()
        );
    }

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
