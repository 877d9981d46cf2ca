//! Contacts that an adversary chooses who knows the tables of the hash.

use super::count::{DEFAULT_SIZE, EstimateError, Pairs, Window};
use super::experiment::{Contacts, FIRST_UNUSUAL, SCANNED, pair};
use crate::trace::mix;
use flowgauge_core::spread::OtherKind;
use flowgauge_core::{HashMode, KeyKind, Precision, Tabulation};
use flowgauge_ctl::measurement::Number;

/// Sources from which those of [`Attack::Forged`] are chosen.
pub(crate) const TRIED_SOURCES: u32 = 1 << 20;

/// Hashes under attack: one whose tables are known, and one whose tables are secret. `crc32` and
/// `tabulated` have the same signatures and rows.
pub(crate) const HASHES: [HashMode; 2] = [HashMode::Tabulated, HashMode::Keyed];

/// Attack on the sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// A source contacts as many destinations as a /16 has, those whose pairs have the lowest rank
    /// and the lowest level, to remain unseen.
    Hidden,
    /// A destination is contacted by one source for each register, those with the greatest ranks
    /// among [`TRIED_SOURCES`], and by the one with the greatest level, to appear as a victim.
    Forged,
}

impl Attack {
    /// All attacks.
    pub(crate) const ALL: [Attack; 2] = [Attack::Hidden, Attack::Forged];

    /// Returns its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Attack::Hidden => "hidden",
            Attack::Forged => "forged",
        }
    }

    /// Returns its name in tables.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Attack::Hidden => "hidden scan",
            Attack::Forged => "forged victim",
        }
    }

    /// Returns the pairs of a window, with contacts that are chosen by these tables.
    fn pairs(self, seed: u64, divisor: u32, tabulation: &Tabulation) -> Pairs {
        let mut contacts = Contacts::new(seed);
        contacts.background(divisor);
        let registers = DEFAULT_SIZE.registers();
        match self {
            Attack::Hidden => {
                let (by, of) = (KeyKind::Src, OtherKind::Dst);
                let is_low = |other: &u32| {
                    let chosen = Chosen::of(by, *other, registers, tabulation);
                    (chosen.rank, chosen.level_zeros) == (1, 0)
                };
                let others = (0..=u32::MAX).filter(is_low);
                contacts.unusual(FIRST_UNUSUAL, others.take(SCANNED.div_ceil(divisor) as usize));
                contacts.pairs(by, of)
            }
            Attack::Forged => {
                let (by, of) = (KeyKind::Dst, OtherKind::Src);
                // The rank and the source of each register, and the zeros of a level.
                let mut best = vec![(0, 0); registers.registers()];
                let mut highest = (0, 0);
                for other in 0..TRIED_SOURCES.div_ceil(divisor) {
                    let chosen = Chosen::of(by, other, registers, tabulation);
                    if let Some(best) = best.get_mut(chosen.register) {
                        *best = (chosen.rank, other).max(*best);
                    }
                    highest = (chosen.level_zeros, other).max(highest);
                }
                let mut sources: Vec<u32> = best.into_iter().map(|(_, other)| other).collect();
                sources.push(highest.1);
                sources.sort_unstable();
                sources.dedup();
                contacts.unusual(FIRST_UNUSUAL, sources.into_iter());
                contacts.pairs(by, of)
            }
        }
    }
}

/// Effect of a contact of the attack's key.
struct Chosen {
    register: usize,
    rank: u8,
    /// Leading zeros that give the level of a candidate.
    level_zeros: u32,
}

impl Chosen {
    fn of(by: KeyKind, other: u32, registers: Precision, tabulation: &Tabulation) -> Self {
        let pair = pair(by, FIRST_UNUSUAL, other);
        let hash = tabulation.row_block(HashMode::Tabulated.signature(&pair, tabulation), 0);
        let (register, rank) = registers.split((hash >> 32) as u32);
        Chosen { register, rank, level_zeros: (hash as u32).leading_zeros() }
    }
}

/// Attack on a sketch of the default size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attacked {
    /// Attack.
    pub attack: Attack,
    /// Hash of the sketch.
    pub hash: HashMode,
    /// Seed of addresses and tables.
    pub seed: u64,
    /// Exact number of others of the attack's key.
    pub truth: u64,
    /// Its estimate, if the controller lists it.
    pub listed: Option<Number>,
    /// Number that no other key exceeds, as the controller reports it.
    pub rest: f64,
}

impl Attacked {
    /// Returns whether what the controller reports of the key is true: its interval contains the
    /// number, or it is not listed and does not exceed the rest.
    pub(crate) fn is_true(&self) -> bool {
        let truth = self.truth as f64;
        match self.listed {
            Some(number) => (number.low..=number.high).contains(&truth),
            None => truth <= self.rest,
        }
    }
}

/// Counts contacts that are chosen by the public tables, in a sketch with this hash.
pub(super) fn run(
    attack: Attack,
    hash: HashMode,
    seed: u64,
    divisor: u32,
) -> Result<Attacked, EstimateError> {
    let public = Tabulation::from_seed(seed);
    let pairs = attack.pairs(seed, divisor, &public);
    let mut state = mix(seed);
    let secret = Tabulation::from_stream(|| {
        state = mix(state);
        state
    });
    let tabulation = if hash == HashMode::Keyed { &secret } else { &public };
    let window = Window::new(&pairs, hash, tabulation);
    let top = window.top(DEFAULT_SIZE)?;
    let key = pairs.by.within(&pair(pairs.by, FIRST_UNUSUAL, 0));
    let listed = top.keys.iter().find(|spreader| spreader.key == key);
    Ok(Attacked {
        attack,
        hash,
        seed,
        truth: window.truth(&key),
        listed: listed.map(|spreader| spreader.others),
        rest: top.rest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_tables_hide_a_scan_and_forge_a_victim() {
        for seed in 1..=3 {
            let [known, secret] = HASHES.map(|hash| run(Attack::Hidden, hash, seed, 10).unwrap());
            assert_eq!((known.truth, secret.truth), (6554, 6554));
            assert!(known.listed.is_none() && !known.is_true(), "{known:?}");
            assert!(secret.listed.is_some(), "{secret:?}");
            let [known, secret] = HASHES.map(|hash| run(Attack::Forged, hash, seed, 10).unwrap());
            assert_eq!(known.truth, secret.truth);
            assert!((1..=65).contains(&known.truth), "{known:?}");
            // At least a hundred times as many.
            let least = 100.0 * known.truth as f64;
            assert!(known.listed.is_some_and(|it| it.low > least), "{known:?}");
            assert!(!known.is_true(), "{known:?}");
            assert!(secret.listed.is_none_or(|it| it.value < least), "{secret:?}");
        }
    }
}
