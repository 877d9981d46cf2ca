//! Distinct flows of a union without each of its hosts: who raises it, and by how much.
//!
//! For each register, the maximum of all hosts is stored with its host, and the maximum of all
//! other hosts. The registers without a host follow from these, so memory does not depend on the
//! number of hosts, and time is linear in it.

use crate::measurement::cardinality::estimate::{EstimateError, Estimator, estimate};
use crate::united::LeaveOneOut;
use flowgauge_core::KeyKind;
use std::collections::BTreeMap;

/// Level of a register.
#[derive(Clone, Copy, Default)]
struct Register {
    /// Host with the maximum level.
    host: u32,
    level: u8,
    /// Maximum of the other hosts.
    others: u8,
}

/// Registers of a union, with and without each host.
#[derive(Default)]
pub(super) struct Registers {
    registers: Vec<Register>,
    hosts: BTreeMap<String, u32>,
}

impl Registers {
    /// Adds the registers of a row. All rows have the same number of them.
    pub(super) fn add(&mut self, host: &str, levels: &[u8]) {
        let next = self.hosts.len() as u32;
        let host = *self.hosts.entry(host.to_owned()).or_insert(next);
        self.registers.resize(levels.len(), Register::default());
        for (register, level) in self.registers.iter_mut().zip(levels.iter().copied()) {
            if host == register.host {
                register.level = register.level.max(level);
            } else if level > register.level {
                *register = Register { host, level, others: register.level };
            } else {
                register.others = register.others.max(level);
            }
        }
    }

    /// Estimates the distinct flows of all hosts, and of all but each one; `None` without a row.
    pub(super) fn estimates(
        &self,
        key: KeyKind,
        estimator: Estimator,
    ) -> Result<Option<LeaveOneOut>, EstimateError> {
        if self.registers.is_empty() {
            return Ok(None);
        }
        let estimate_of = |level: &dyn Fn(&Register) -> u8| {
            let levels: Vec<u8> = self.registers.iter().map(level).collect();
            estimate(&levels, estimator)
        };
        let all = estimate_of(&|register| register.level)?;
        let without = self.hosts.iter().map(|(name, host)| {
            let others = estimate_of(&|register| {
                if register.host == *host { register.others } else { register.level }
            })?;
            Ok((name.clone(), others))
        });
        Ok(Some(LeaveOneOut { key, all, without: without.collect::<Result<_, _>>()? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of hosts alternate, and levels repeat.
    #[test]
    fn registers_without_a_host_are_those_of_the_union_of_the_others() {
        let hosts = ["a", "b", "c", "d"];
        let mut seed = 1_u64;
        let mut level = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33).leading_zeros().saturating_sub(32) as u8
        };
        let rows: Vec<(&str, Vec<u8>)> = (0..60)
            .map(|row| (hosts[row * 7 % 11 % 4], (0..64).map(|_| level()).collect()))
            .collect();
        let mut registers = Registers::default();
        rows.iter().for_each(|(host, levels)| registers.add(host, levels));
        let union = |excluded: &str| {
            let mut union = vec![0; 64];
            for (_, levels) in rows.iter().filter(|(host, _)| *host != excluded) {
                union.iter_mut().zip(levels).for_each(|(one, other)| *one = (*one).max(*other));
            }
            estimate(&union, Estimator::Ertl).unwrap()
        };
        let found = registers.estimates(KeyKind::Src, Estimator::Ertl).unwrap().unwrap();
        assert_eq!(found.all, union(""));
        assert_eq!(found.without, hosts.map(|host| (host.to_owned(), union(host))));
        assert!(found.without.iter().any(|(_, others)| *others != found.all));
    }
}
