//! Reference model of a dataplane's answers: written from the definitions, slow, and sharing no
//! code with the implementation.

use flowgauge_core::{
    Counters, HashMode, KeyKind, Link, Precision, Settings, Tabulation, WindowTotals, cardinality,
};
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::{HashKey, HashWords};
use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Returns the CRC-32 with polynomial 0x790900f3, bits in and out reflected, initial value and
/// final XOR all ones.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut remainder = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let feedback = (remainder >> 31) ^ u32::from(byte >> bit & 1);
            remainder = remainder << 1 ^ if feedback == 1 { 0x7909_00f3 } else { 0 };
        }
    }
    !remainder.reverse_bits()
}

/// Returns the four bytes with a given CRC: the register run backwards.
pub fn bytes_with_crc32(crc: u32) -> [u8; 4] {
    let mut remainder = (!crc).reverse_bits();
    let mut message = u32::MAX;
    for _ in 0..32 {
        // The polynomial ends in a one, which shows whether it was added.
        let added = remainder & 1;
        remainder = (remainder ^ if added == 1 { 0x7909_00f3 } else { 0 }) >> 1 | added << 31;
    }
    message ^= remainder;
    message.reverse_bits().to_le_bytes()
}

/// Returns the output of SplitMix64 after skipping `skipped` outputs.
pub fn split_mix(seed: u64, skipped: u64) -> u64 {
    let mut z = seed.wrapping_add((skipped + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns the tabulation words of a seed: the upper halves of successive SplitMix64 outputs.
pub fn tabulation(seed: u64) -> [[u32; 256]; 4] {
    let mut tables = [[0; 256]; 4];
    let mut steps = 0_u64;
    for table in &mut tables {
        for word in table {
            *word = (split_mix(seed, steps) >> 32) as u32;
            steps += 1;
        }
    }
    tables
}

/// Returns register and level of a hash: the upper `p` bits, and the leading zeros of the lower `32
/// - p` plus one.
pub fn register(hash: u32, precision: Precision) -> (usize, u8) {
    let rank_bits = 32 - precision.bits();
    let index = (hash >> rank_bits) as usize;
    let zeros = (0..rank_bits).rev().take_while(|bit| hash >> bit & 1 == 0).count();
    (index, zeros as u8 + 1)
}

/// Returns the keyed signature of a key: pairs of words of four bytes, each word with its own
/// multiplier, added to a constant of the family; the upper half of the lower 64 bits.
pub fn multilinear(words: &[u64], key: &[u8]) -> u32 {
    let constant = words[usize::from(key.len() >= 16)];
    let terms: Vec<(u64, u64)> = (0..key.len().div_ceil(4))
        .map(|index| {
            let value = (0..4)
                .map(|byte| u64::from(*key.get(4 * index + byte).unwrap_or(&0)) << (8 * byte))
                .sum();
            (words[2 + index], value)
        })
        .collect();
    let sum = terms.chunks(2).fold(u128::from(constant), |sum, pair| match pair {
        [(k0, x0), (k1, x1)] => {
            sum + u128::from(k0.wrapping_add(*x0)) % (1 << 64) * u128::from(k1.wrapping_add(*x1))
                % (1 << 64)
        }
        [(k, x)] => sum + u128::from(*k) * u128::from(*x) % (1 << 64),
        _ => unreachable!(),
    });
    (sum >> 32) as u32
}

/// Returns the words of the key of seed 1, which all tests use. ChaCha20's output is not
/// reimplemented here; `hash_key.rs` has known answers.
pub fn keyed() -> &'static Tabulation {
    static WORDS: LazyLock<HashWords> = LazyLock::new(|| HashKey::from_seed(1).tabulation());
    &WORDS
}

/// Mapping of frames to flows and of flows to registers.
#[derive(Clone)]
pub struct Model {
    pub key: KeyKind,
    pub hash: HashMode,
    pub precision: Precision,
    tables: [[u32; 256]; 4],
    words: Vec<u64>,
}

impl Model {
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let (hash, cardinality::Settings { key, precision, .. }) =
            (settings.hash, settings.cardinality);
        let (tables, words) = match hash {
            HashMode::Crc32 | HashMode::Tabulated => (tabulation(seed), Vec::new()),
            HashMode::Keyed => (*keyed().tables(), keyed().multilinear().words().to_vec()),
        };
        Model { key, hash, precision, tables, words }
    }

    pub fn hash(&self, key: &[u8]) -> u32 {
        let signature =
            if self.hash == HashMode::Keyed { multilinear(&self.words, key) } else { crc32(key) };
        match self.hash {
            HashMode::Crc32 => signature,
            HashMode::Tabulated | HashMode::Keyed => (0..4).fold(0, |hash, table| {
                hash ^ self.tables[table][(signature >> (24 - 8 * table) & 0xff) as usize]
            }),
        }
    }

    /// Returns the effect of one frame.
    pub fn effect(&self, frame: &OwnedFrame) -> Effect {
        let verdict = verdict(frame, self.key);
        let register = match &verdict {
            Verdict::V4(key) | Verdict::V6(key) => Some(register(self.hash(key), self.precision)),
            _ => None,
        };
        Effect { bytes: u64::from(frame.wire_length), verdict, register }
    }

    /// Returns the combined effect of these frames.
    pub fn expect<F: Borrow<OwnedFrame>>(&self, frames: impl IntoIterator<Item = F>) -> Expected {
        let mut expected = Expected::nothing(self.precision);
        frames.into_iter().for_each(|frame| expected.add(&self.effect(frame.borrow())));
        expected
    }

    /// Returns the distinct keys of these frames.
    pub fn flows<F: Borrow<OwnedFrame>>(
        &self,
        frames: impl IntoIterator<Item = F>,
    ) -> HashSet<Vec<u8>> {
        let key = |frame: F| match verdict(frame.borrow(), self.key) {
            Verdict::V4(key) | Verdict::V6(key) => Some(key),
            _ => None,
        };
        frames.into_iter().filter_map(key).collect()
    }
}

/// Effect of one frame.
#[derive(Clone, Debug)]
pub struct Effect {
    pub bytes: u64,
    pub verdict: Verdict,
    pub register: Option<(usize, u8)>,
}

/// Counters and registers of a set of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub counters: Counters,
    pub levels: Vec<u8>,
}

impl Expected {
    /// Returns what a bank holds.
    pub fn held(bank: &WindowTotals, precision: Precision) -> Self {
        let levels = bank.cardinality.levels(precision).to_vec();
        Expected { counters: bank.counters, levels }
    }

    /// Adds the contents of another window.
    pub fn unite(&mut self, other: &Expected) {
        self.counters.merge(&other.counters);
        let levels = self.levels.iter_mut().zip(&other.levels);
        levels.for_each(|(level, other)| *level = (*level).max(*other));
    }

    pub fn nothing(precision: Precision) -> Self {
        Expected { counters: Counters::default(), levels: vec![0; 1 << precision.bits()] }
    }

    pub fn add(&mut self, effect: &Effect) {
        let counters = &mut self.counters;
        counters.bytes += effect.bytes;
        *match &effect.verdict {
            Verdict::V4(_) => &mut counters.ipv4,
            Verdict::V6(_) => &mut counters.ipv6,
            Verdict::NonIp => &mut counters.non_ip,
            Verdict::Truncated => &mut counters.truncated,
            Verdict::BadHeader => &mut counters.bad_header,
        } += 1;
        if let Some((index, level)) = effect.register {
            self.levels[index] = self.levels[index].max(level);
        }
    }

    pub fn packets(&self) -> u64 {
        let Counters { ipv4, ipv6, non_ip, truncated, bad_header, .. } = self.counters;
        ipv4 + ipv6 + non_ip + truncated + bad_header
    }
}

/// Class of a frame, with its key if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    V4(Vec<u8>),
    V6(Vec<u8>),
    NonIp,
    Truncated,
    BadHeader,
}

/// Returns the class of a frame and its key.
pub fn verdict(frame: &OwnedFrame, key: KeyKind) -> Verdict {
    network(frame, key).unwrap_or_else(|rejected| rejected)
}

/// Takes the first `count` bytes.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Verdict> {
    let (taken, left) = rest.split_at_checked(count).ok_or(Verdict::Truncated)?;
    *rest = left;
    Ok(taken)
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

fn network(frame: &OwnedFrame, key: KeyKind) -> Result<Verdict, Verdict> {
    let mut rest = &frame.bytes[..];
    match frame.link {
        Link::Ethernet => {
            take(&mut rest, 12)?;
            behind_ethertype(rest, 0, key)
        }
        Link::LinuxSll => {
            take(&mut rest, 14)?;
            behind_ethertype(rest, 0, key)
        }
        Link::LinuxSll2 => {
            let protocol = number(take(&mut rest, 2)?);
            layer(protocol, rest.get(18..).unwrap_or_default(), 0, key)
        }
        Link::EtherType => behind_ethertype(rest, 0, key),
        Link::PaddedEtherType => {
            let protocol = number(take(&mut rest, 2)?);
            layer(protocol, rest.get(2..).unwrap_or_default(), 0, key)
        }
        Link::Llc => llc(rest, 0, key),
        Link::Snap => snap(rest, 0, key),
        Link::Ppp => match rest {
            [0xff, 3, ppp @ ..] => point_to_point(ppp, 0, key),
            [0x0f | 0x8f, 0, ethertype @ ..] => behind_ethertype(ethertype, 0, key),
            _ => point_to_point(rest, 0, key),
        },
        // Without its first word it is truncated, whatever version it claims.
        Link::Ip => match rest.first_chunk::<4>().ok_or(Verdict::Truncated)?[0] >> 4 {
            4 => ipv4(rest, key),
            6 => ipv6(rest, key),
            _ => Err(Verdict::BadHeader),
        },
        Link::Null => {
            let family = take(&mut rest, 4)?;
            let family = number(family).min(number(&[family[3], family[2], family[1], family[0]]));
            match family {
                2 => ipv4(rest, key),
                10 | 23 | 24 | 28 | 30 => ipv6(rest, key),
                _ => Err(Verdict::NonIp),
            }
        }
        Link::Unsupported => Err(Verdict::NonIp),
    }
}

fn behind_ethertype(mut rest: &[u8], opened: usize, key: KeyKind) -> Result<Verdict, Verdict> {
    let ethertype = number(take(&mut rest, 2)?);
    layer(ethertype, rest, opened, key)
}

/// Parses the bytes after an EtherType, given the number of headers parsed before.
fn layer(
    ethertype: usize,
    mut rest: &[u8],
    mut opened: usize,
    key: KeyKind,
) -> Result<Verdict, Verdict> {
    match ethertype {
        0x0800 => return ipv4(rest, key),
        0x86dd => return ipv6(rest, key),
        _ if opened == 16 => return Err(Verdict::NonIp),
        _ => opened += 1,
    }
    let skipped = match ethertype {
        1..=1500 | 0x8870 => return llc(rest, opened, key),
        0x8864 => {
            take(&mut rest, 6)?;
            return point_to_point(rest, opened, key);
        }
        0x8847 | 0x8848 => {
            let label = number(take(&mut rest, 4)?);
            if label >> 8 & 1 == 0 {
                return layer(ethertype, rest, opened, key);
            }
            match rest.first().ok_or(Verdict::Truncated)? >> 4 {
                4 => return ipv4(rest, key),
                6 => return ipv6(rest, key),
                1 => {
                    take(&mut rest, 2)?;
                    return by_protocol(number(take(&mut rest, 2)?), rest, opened, key);
                }
                0 => {
                    let ethernet = match rest.get(12..15) {
                        Some([8, 0, version]) => version >> 4 == 4,
                        Some([0x86, 0xdd, version]) => version >> 4 == 6,
                        Some([0x81 | 0x91, 0, _] | [0x88, 0xa8, _]) => true,
                        _ => false,
                    };
                    if ethernet { 12 } else { 16 }
                }
                _ => return Err(Verdict::NonIp),
            }
        }
        0x894f => {
            let (words, metadata, next) = match rest.first_chunk().ok_or(Verdict::Truncated)? {
                [_, words, metadata, next] => (usize::from(words & 63), *metadata, *next),
            };
            let ethertype = *[0x0800, 0x86dd, 0x6558, 0x894f, 0x8847]
                .get(usize::from(next).wrapping_sub(1))
                .ok_or(Verdict::NonIp)?;
            let words = if metadata == 1 { 6 } else { words.max(2) };
            return layer(ethertype, rest.get(words * 4..).unwrap_or_default(), opened, key);
        }
        0x8100 | 0x88a8 | 0x9100 => 2,
        0x892f | 0xf1c1 | 0x8926 => 4,
        0x893f | 0x8909 => 6,
        0x6558 => 12,
        0x8903 => 14,
        0x88e7 => 16,
        0x22f3 => 18 + (number(rest.get(..2).ok_or(Verdict::Truncated)?) >> 6 & 31) * 4,
        0x88e5 => {
            let control = rest.first().ok_or(Verdict::Truncated)?;
            match (control >> 7, control >> 2 & 3, control >> 5 & 1) {
                (0, 0, channel) => 6 + 8 * usize::from(channel),
                _ => return Err(Verdict::NonIp),
            }
        }
        _ => return Err(Verdict::NonIp),
    };
    take(&mut rest, skipped)?;
    behind_ethertype(rest, opened, key)
}

fn llc(mut rest: &[u8], opened: usize, key: KeyKind) -> Result<Verdict, Verdict> {
    match take(&mut rest, 3)? {
        [0xaa, 0xaa, 3] => snap(rest, opened, key),
        [6, _, 3] => match rest.first().ok_or(Verdict::Truncated)? >> 4 {
            4 => ipv4(rest, key),
            6 => ipv6(rest, key),
            _ => Err(Verdict::NonIp),
        },
        _ => Err(Verdict::NonIp),
    }
}

fn snap(mut rest: &[u8], opened: usize, key: KeyKind) -> Result<Verdict, Verdict> {
    match number(take(&mut rest, 3)?) {
        0 | 0xf8 => behind_ethertype(rest, opened, key),
        _ => Err(Verdict::NonIp),
    }
}

fn point_to_point(mut rest: &[u8], opened: usize, key: KeyKind) -> Result<Verdict, Verdict> {
    let long = rest.first().ok_or(Verdict::Truncated)? % 2 == 0;
    let protocol = number(take(&mut rest, if long { 2 } else { 1 })?);
    by_protocol(protocol, rest, opened, key)
}

fn by_protocol(
    protocol: usize,
    rest: &[u8],
    opened: usize,
    key: KeyKind,
) -> Result<Verdict, Verdict> {
    match protocol {
        0x21 => ipv4(rest, key),
        0x57 => ipv6(rest, key),
        0x281 => layer(0x8847, rest, opened, key),
        0x283 => layer(0x8848, rest, opened, key),
        _ => Err(Verdict::NonIp),
    }
}

fn ipv4(packet: &[u8], key: KeyKind) -> Result<Verdict, Verdict> {
    let header = packet.get(..20).ok_or(Verdict::Truncated)?;
    let header_length = usize::from(header[0] & 0xf) * 4;
    let total_length = number(&header[2..4]);
    if header[0] >> 4 != 4
        || header_length < 20
        || (total_length != 0 && total_length < header_length)
    {
        return Err(Verdict::BadHeader);
    }
    let later_fragment = number(&header[6..8]) & 0x1fff != 0;
    let transport =
        if later_fragment { &[] } else { packet.get(header_length..).unwrap_or_default() };
    Ok(Verdict::V4(key_bytes(key, &header[12..16], &header[16..20], header[9], transport)))
}

fn ipv6(packet: &[u8], key: KeyKind) -> Result<Verdict, Verdict> {
    let header = packet.get(..40).ok_or(Verdict::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(Verdict::BadHeader);
    }
    let (protocol, transport) = behind_extensions(header[6], &packet[40..]);
    Ok(Verdict::V6(key_bytes(key, &header[8..24], &header[24..40], protocol, transport)))
}

fn behind_extensions(mut protocol: u8, mut rest: &[u8]) -> (u8, &[u8]) {
    for _ in 0..8 {
        if ![0, 43, 44, 51, 60, 135, 139, 140].contains(&protocol) {
            return (protocol, rest);
        }
        let Some(header) = rest.get(..4) else { return (protocol, &[]) };
        let length = match protocol {
            44 => 8,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if protocol == 44 && number(&header[2..4]) >> 3 != 0 {
            return (header[0], &[]);
        }
        protocol = header[0];
        rest = rest.get(length..).unwrap_or_default();
    }
    (protocol, &[])
}

fn key_bytes(key: KeyKind, src: &[u8], dst: &[u8], protocol: u8, transport: &[u8]) -> Vec<u8> {
    let has_ports = [6, 17, 132, 136].contains(&protocol);
    let ports = transport.get(..4).filter(|_| has_ports).unwrap_or(&[0; 4]);
    match key {
        KeyKind::Src => src.to_vec(),
        KeyKind::Dst => dst.to_vec(),
        KeyKind::SrcDst => [src, dst].concat(),
        KeyKind::FiveTuple => [src, dst, ports, &[protocol]].concat(),
    }
}
