//! Windows with known numbers of others.

use super::count::{EstimateError, Outcome, Pairs, SIZES, Window};
use crate::trace::mix;
use flowgauge_core::spread::OtherKind;
use flowgauge_core::{FlowKey, HashMode, KeyKind, Tabulation};

/// Sources of the destination with the most in [`Traffic::Zipf`]; the next has half as many.
pub(crate) const ZIPF_FIRST: u32 = 100_000;

/// Destinations in [`Traffic::Zipf`].
pub(crate) const ZIPF_KEYS: u32 = 50_000;

/// Keys beside those that are searched for, in traffic other than [`Traffic::Zipf`] and
/// [`Traffic::Even`].
pub(crate) const USUAL_KEYS: u32 = 300_000;

/// Others of each of these keys.
pub(crate) const USUAL_OTHERS: u32 = 3;

/// Sources of the victim.
pub(crate) const VICTIM_SOURCES: u32 = 100_000;

/// Addresses that the scanner contacts: a /16.
pub(crate) const SCANNED: u32 = 1 << 16;

/// Addresses under carpet bombing, a /24, and the sources of each.
pub(crate) const CARPET: [u32; 2] = [256, 1000];

/// Destinations in [`Traffic::Even`], and the sources of each.
pub(crate) const EVEN: [u32; 2] = [142_858, 7];

/// Traffic of a window. Each pair comes once. Victims and scanners begin when half of the other
/// pairs have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Destinations whose numbers of sources follow Zipf's law.
    Zipf,
    /// One destination with [`VICTIM_SOURCES`] among a million pairs.
    Victim,
    /// One source that contacts all addresses of a /16.
    Scan,
    /// All addresses of a /24, contacted by the same sources.
    Carpet,
    /// Destinations with few sources each.
    Even,
}

impl Traffic {
    /// All kinds of traffic.
    pub(crate) const ALL: [Traffic; 5] =
        [Traffic::Zipf, Traffic::Victim, Traffic::Scan, Traffic::Carpet, Traffic::Even];

    /// Returns its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Traffic::Zipf => "zipf",
            Traffic::Victim => "victim",
            Traffic::Scan => "scan",
            Traffic::Carpet => "carpet",
            Traffic::Even => "even",
        }
    }

    /// Returns its name in tables.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Traffic::Zipf => "Zipf",
            Traffic::Victim => "one victim",
            Traffic::Scan => "scan of a /16",
            Traffic::Carpet => "carpet bombing of a /24",
            Traffic::Even => "even",
        }
    }

    /// Returns the pairs of a window. `divisor` divides the numbers of keys and others.
    pub(super) fn pairs(self, seed: u64, divisor: u32) -> Pairs {
        let scaled = |number: u32| number.div_ceil(divisor);
        let mut contacts = Contacts::new(seed);
        match self {
            Traffic::Zipf => {
                let first = scaled(ZIPF_FIRST);
                (0..scaled(ZIPF_KEYS)).for_each(|key| contacts.usual(key, first.div_ceil(key + 1)));
            }
            Traffic::Victim => {
                contacts.background(divisor);
                contacts.unusual(FIRST_UNUSUAL, contacts.others(0, scaled(VICTIM_SOURCES)));
            }
            Traffic::Scan => {
                contacts.background(divisor);
                let network = contacts.start & 0xffff_0000;
                contacts.unusual(FIRST_UNUSUAL, network..=network + (scaled(SCANNED) - 1));
            }
            Traffic::Carpet => {
                contacts.background(divisor);
                let [addresses, sources] = CARPET;
                for address in 0..addresses {
                    contacts.unusual(FIRST_UNUSUAL + address, contacts.others(0, scaled(sources)));
                }
            }
            Traffic::Even => {
                let [keys, others] = EVEN;
                (0..scaled(keys)).for_each(|key| contacts.usual(key, others));
            }
        }
        let (by, of) = match self {
            Traffic::Scan => (KeyKind::Src, OtherKind::Dst),
            _ => (KeyKind::Dst, OtherKind::Src),
        };
        contacts.pairs(by, of)
    }
}

/// First address of keys that are not usual. Others are below.
pub(super) const FIRST_UNUSUAL: u32 = 1 << 31;

/// Contacts of keys with others, each with its position in the window.
pub(super) struct Contacts {
    start: u32,
    contacts: Vec<(u64, u32, u32)>,
}

impl Contacts {
    pub(super) fn new(seed: u64) -> Self {
        Contacts { start: mix(seed) as u32, contacts: Vec::new() }
    }

    /// Returns distinct addresses in no order.
    fn others(&self, number: u32, others: u32) -> impl Iterator<Item = u32> + use<> {
        let first = mix(u64::from(self.start) << 32 | u64::from(number)) as u32;
        (0..others).map(move |other| scattered(first.wrapping_add(other)))
    }

    /// Adds a key and its others, at any position.
    fn usual(&mut self, number: u32, others: u32) {
        let key = scattered(self.start.wrapping_add(number)) & (FIRST_UNUSUAL - 1);
        let others = self.others(number, others);
        self.contacts.extend(others.map(|other| (mixed(key, other), key, other)));
    }

    /// Adds many keys with few others each.
    pub(super) fn background(&mut self, divisor: u32) {
        (0..USUAL_KEYS.div_ceil(divisor)).for_each(|number| self.usual(number, USUAL_OTHERS));
    }

    /// Adds the others of a key from [`FIRST_UNUSUAL`] on, when half of the usual pairs have come.
    pub(super) fn unusual(&mut self, key: u32, others: impl Iterator<Item = u32>) {
        self.contacts.extend(others.map(|other| (mixed(key, other) | 1 << 63, key, other)));
    }

    /// Returns the pairs of the window.
    pub(super) fn pairs(mut self, by: KeyKind, of: OtherKind) -> Pairs {
        self.contacts.sort_unstable();
        let pairs: Vec<FlowKey> =
            self.contacts.iter().map(|&(_, key, other)| pair(by, key, other)).collect();
        let packets = pairs.len() as u64;
        Pairs { by, of, pairs, packets }
    }
}

/// Returns source and destination of a contact.
pub(super) fn pair(by: KeyKind, key: u32, other: u32) -> FlowKey {
    let [key, other] = [key, other].map(u32::to_be_bytes);
    let addresses = if by == KeyKind::Src { [key, other] } else { [other, key] };
    FlowKey::new(addresses.as_flattened())
}

/// Scatters successive numbers: multiplication by an odd number is a bijection of 32 bits, and of
/// the lower 31.
fn scattered(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1)
}

fn mixed(key: u32, other: u32) -> u64 {
    mix(u64::from(key) << 32 | u64::from(other))
}

/// Counts a window of this traffic in each of [`SIZES`].
pub(super) fn run(
    traffic: Traffic,
    seed: u64,
    divisor: u32,
) -> Result<Vec<Outcome>, EstimateError> {
    let pairs = traffic.pairs(seed, divisor);
    let tabulation = Tabulation::from_seed(seed);
    let window = Window::new(&pairs, HashMode::Tabulated, &tabulation);
    SIZES.iter().map(|size| window.count(*size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashSet;

    /// Returns the numbers of others of the first keys, in falling order.
    fn numbers(pairs: &Pairs) -> Vec<usize> {
        let mut keys: hashbrown::HashMap<FlowKey, usize> = hashbrown::HashMap::new();
        pairs.pairs.iter().for_each(|pair| *keys.entry(pairs.by.within(pair)).or_default() += 1);
        let mut numbers: Vec<usize> = keys.into_values().collect();
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        numbers
    }

    #[test]
    fn traffic_has_the_numbers_that_it_promises() {
        for traffic in Traffic::ALL {
            let pairs = traffic.pairs(1, 10);
            let distinct: HashSet<&FlowKey> = pairs.pairs.iter().collect();
            assert_eq!(distinct.len(), pairs.pairs.len(), "{traffic:?}");
            assert_eq!(pairs.packets, pairs.pairs.len() as u64);
            let numbers = numbers(&pairs);
            match traffic {
                Traffic::Zipf => {
                    assert_eq!(numbers[..4], [10_000, 5_000, 3_334, 2_500]);
                    assert_eq!(numbers.len(), 5_000);
                }
                Traffic::Victim => {
                    assert_eq!((numbers[0], numbers[1], numbers.len()), (10_000, 3, 30_001));
                }
                Traffic::Scan => {
                    assert_eq!((numbers[0], numbers[1], numbers.len()), (6_554, 3, 30_001));
                }
                Traffic::Carpet => {
                    assert_eq!((numbers[255], numbers[256], numbers.len()), (100, 3, 30_256));
                }
                Traffic::Even => assert_eq!((numbers[0], numbers.len()), (7, 14_286)),
            }
            // They begin with 45,000 usual pairs before them, of at most 115,600.
            let key = pair(pairs.by, FIRST_UNUSUAL, 0);
            let key = pairs.by.within(&key);
            let first = pairs.pairs.iter().position(|pair| pairs.by.within(pair) == key);
            let begins_late = first.is_some_and(|first| first > pairs.pairs.len() / 3);
            assert_eq!(begins_late, !matches!(traffic, Traffic::Zipf | Traffic::Even));
        }
    }

    #[test]
    fn a_million_pairs_in_all() {
        let pairs = Traffic::Victim.pairs(2, 1);
        assert_eq!(pairs.packets, 1_000_000);
    }
}
