//! Frames of a profile, written in place.

use crate::frame::TCP;
use crate::layout::internet_sum;
use crate::profile::{Profile, Sources, TCP_HEADER_BYTES};
use crate::random::{CounterRng, DistinctAddresses, mix};
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{self, MemoryPort, NumberedFrames, Ports};
use rand::RngExt;
use rand_distr::Zipf;
use std::sync::Arc;

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
    Permuted(DistinctAddresses),
    Counted { shift: u32 },
    Zipf(DistinctAddresses, Zipf<f64>),
}

const DESTINATION: [u8; 4] = [10, 0, 0, 2];
/// Number of destinations of packets outside attacks, and Zipf exponent.
const DESTINATIONS: (f64, f64) = (1_000.0, 1.0);
const TCP_HEADER: [u8; TCP_HEADER_BYTES] =
    [0, 20, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0, 0, 0, 0];

impl Generator {
    /// Creates a generator for a profile.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let distinct = DistinctAddresses::new(profile.seed);
        let addresses = match profile.sources {
            Sources::Unique => Addresses::Permuted(distinct),
            Sources::Sequential => Addresses::Counted { shift: 0 },
            Sources::Subnets => Addresses::Counted { shift: 8 },
            Sources::Zipf { flows, alpha } => match Zipf::new(flows as f64, alpha) {
                Ok(ranks) => Addresses::Zipf(distinct, ranks),
                // Only a profile that was not parsed can contain numbers that Zipf rejects: no
                // flows, or a negative exponent.
                Err(_) => Addresses::Permuted(distinct),
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
        let frame_length = profile.size.max(profile.headers());
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
            Addresses::Zipf(sources, ranks) => {
                let mut random = CounterRng(mix(self.profile.seed) ^ mix(index));
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

/// Domain separators of the random choices of an attack.
const SPOOFED: u64 = 0x73_706f_6f66;
const FLOOD: u64 = 0x66_6c6f_6f64;
const DESTINED: u64 = 0x64_6573_7473;

/// Creates ports that share the packets of one profile among `workers`.
#[must_use]
pub fn memory(profile: Profile, workers: usize, pace: Pace) -> Ports<MemoryPort> {
    port::memory(Arc::new(Generator::new(profile)), workers, pace)
}

impl NumberedFrames for Generator {
    fn name(&self) -> String {
        format!("memory:{}", self.profile())
    }

    fn packets(&self) -> Option<u64> {
        self.profile().packets
    }

    fn is_timed(&self) -> bool {
        self.profile().rate.is_some()
    }

    fn timestamp(&self, index: u64) -> u64 {
        self.profile().timestamp(index)
    }

    fn template(&self) -> &[u8] {
        Generator::template(self)
    }

    fn fill(&self, first: u64, frames: &mut [u8], timestamps: &mut [u64]) {
        self.fill_all(first, frames);
        (first..)
            .zip(timestamps)
            .for_each(|(index, timestamp)| *timestamp = self.profile().timestamp(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::UNIQUE_PER_OCTET;
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
            // The last octet takes 255 values, and 128 of them have the bit.
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
}
