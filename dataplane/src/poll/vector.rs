//! Vectorised hashing of many keys, and measurements of many packets, with instructions that not
//! every CPU has: the sets of instructions, and the choice among them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod changes;
#[cfg(target_arch = "aarch64")]
mod neon;

use flowgauge_core::{
    Active, Context, CountFrames as _, HashMode, Listed, Observation, Precision, RequiredFields,
    SingleFrame, Tabulation, measurements,
};
use std::sync::OnceLock;
use std::{env, fmt};

/// Buffered keys; a power of two. The more keys, the less the wait for the last store matters.
pub(super) const CAPACITY: usize = 256;

/// One word of four bytes of each key, as it is in memory.
pub(super) type KeyWords = [u32; CAPACITY];

/// Register updates of a batch of keys.
#[repr(C, align(64))]
pub(super) struct RegisterUpdates {
    /// Register indices.
    pub(super) indices: [u16; CAPACITY],
    /// Levels that the registers are raised to.
    pub(super) levels: [u8; CAPACITY],
    /// Hashes, where all of them are computed before they are split into register and level.
    #[allow(dead_code, reason = "of AVX2 and NEON, which other architectures lack")]
    hashes: [u32; CAPACITY],
    /// Lower and upper halves of signatures, for tabulated hashes.
    #[allow(dead_code, reason = "of AVX2, which other architectures lack")]
    halves: [[u16; CAPACITY]; 2],
}

impl RegisterUpdates {
    pub(super) const EMPTY: RegisterUpdates = RegisterUpdates {
        indices: [0; CAPACITY],
        levels: [0; CAPACITY],
        hashes: [0; CAPACITY],
        halves: [[0; CAPACITY]; 2],
    };
}

/// Hash of keys of one length, computed for groups of keys.
pub(super) trait Vectors: Send {
    /// Computes the updates of the keys of the first `groups` groups, in any order within a group.
    /// The tables are those that it was created for.
    fn split(
        &self,
        columns: &[KeyWords],
        groups: usize,
        tabulation: &Tabulation,
        updates: &mut RegisterUpdates,
    );
}

/// Returns whether this CPU has some instructions.
fn has(instructions: Instructions) -> bool {
    match instructions {
        Instructions::Scalar => true,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => avx2::is_available(),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => avx512::is_available(),
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => neon::is_available(),
        _ => false,
    }
}

/// Creates the hash of keys of `key_bytes` bytes with some instructions, and returns the keys per
/// group and the hash. `None` where keys are hashed one by one, or where this CPU lacks the
/// instructions.
#[allow(unused_variables, reason = "some instructions need them, of some architectures")]
pub(super) fn vectors(
    instructions: Instructions,
    key_bytes: usize,
    hash: HashMode,
    precision: Precision,
    tables: &Tabulation,
) -> Option<(usize, Box<dyn Vectors>)> {
    match instructions {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => {
            Some((avx2::GROUP, Box::new(avx2::Avx2::new(key_bytes, hash, precision)?)))
        }
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => {
            let hash = avx512::Avx512::new(key_bytes, hash, precision, tables)?;
            Some((avx512::GROUP, Box::new(hash)))
        }
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => {
            Some((neon::GROUP, Box::new(neon::Neon::new(key_bytes, hash, precision)?)))
        }
        _ => None,
    }
}

/// Runs the measurements that are on, one after the other, so that each finds its tables in the
/// nearest cache. Each is compiled by itself, for some instructions; without them for any CPU.
pub(super) fn measure(
    instructions: Instructions,
    active: &mut Active<'_>,
    context: &Context<'_>,
    packets: &[Observation],
) {
    macro_rules! measure_each {
        ($($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {$(
            if context.needs.has(RequiredFields::measurement(flowgauge_core::$name::$Kind::INDEX)) {
                measure_by::<flowgauge_core::$name::$Kind>(instructions, active, context, packets);
            }
        )+};
    }
    measurements!(measure_each);
}

/// Runs one measurement; without the instructions if the CPU lacks them.
fn measure_by<M: Listed>(
    instructions: Instructions,
    active: &mut Active<'_>,
    context: &Context<'_>,
    packets: &[Observation],
) {
    match instructions {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => avx2::measure_by::<M>(active, context, packets),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => avx512::measure_by::<M>(active, context, packets),
        _ => measure_on_any::<M>(active, context, packets),
    }
}

#[inline(never)]
fn measure_on_any<M: Listed>(
    active: &mut Active<'_>,
    context: &Context<'_>,
    packets: &[Observation],
) {
    active.measure_by::<M, SingleFrame>(context, packets);
}

/// Environment variable that selects [`Instructions`].
pub const INSTRUCTIONS_VARIABLE: &str = "FLOWGAUGE_CPU";

/// CPU instructions for counting distinct flows. All give identical results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// Baseline of every CPU: keys are hashed one by one.
    Scalar,
    /// NEON, of all aarch64 CPUs: 16 keys at once.
    Neon,
    /// AVX2, of x86 CPUs since 2013: 32 keys at once.
    Avx2,
    /// AVX-512 (F, BW, CD, VBMI) and GFNI, of x86 CPUs since Ice Lake and Zen 4: 64 keys at once.
    Avx512,
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Instructions {
    /// All variants, slowest first.
    pub const ALL: [Instructions; 4] =
        [Instructions::Scalar, Instructions::Neon, Instructions::Avx2, Instructions::Avx512];

    /// Returns the name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Instructions::Scalar => "scalar",
            Instructions::Neon => "neon",
            Instructions::Avx2 => "avx2",
            Instructions::Avx512 => "avx512",
        }
    }

    /// Returns whether this CPU has them.
    #[must_use]
    pub fn is_available(self) -> bool {
        has(self)
    }

    /// Returns those that this CPU has, slowest first.
    pub fn available() -> impl Iterator<Item = Instructions> {
        Self::ALL.into_iter().filter(|instructions| instructions.is_available())
    }

    /// Returns those that [`INSTRUCTIONS_VARIABLE`] selects; without it, the fastest that this CPU
    /// has.
    ///
    /// # Errors
    /// A description: the value is unknown, or this CPU lacks the instructions.
    pub fn chosen() -> Result<Self, String> {
        match env::var_os(INSTRUCTIONS_VARIABLE) {
            Some(word) if !word.is_empty() => Self::named(&word.to_string_lossy()),
            _ => Ok(Self::fastest()),
        }
    }

    fn named(word: &str) -> Result<Self, String> {
        let named = Self::available().find(|instructions| instructions.name() == word);
        named.ok_or_else(|| {
            let names: Vec<&str> = Self::available().map(Self::name).collect();
            let names = names.join(", ");
            format!(
                "{INSTRUCTIONS_VARIABLE}={word:?} in the environment: expected one of {names}, which this CPU has"
            )
        })
    }

    fn fastest() -> Self {
        Self::available().last().unwrap_or(Instructions::Scalar)
    }

    /// Returns those that workers count with: as [`chosen`](Self::chosen), or the fastest if that
    /// fails.
    #[must_use]
    pub fn in_use() -> Self {
        static IN_USE: OnceLock<Instructions> = OnceLock::new();
        *IN_USE.get_or_init(|| Self::chosen().unwrap_or_else(|_| Self::fastest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cpu_has_is_found_by_name_and_nothing_else_is() {
        let available: Vec<Instructions> = Instructions::available().collect();
        assert_eq!(available.first(), Some(&Instructions::Scalar));
        assert!(available.is_sorted());
        assert_eq!(available.last(), Some(&Instructions::fastest()));
        for instructions in Instructions::ALL {
            assert_eq!(
                Instructions::named(instructions.name()).is_ok(),
                available.contains(&instructions)
            );
        }
        let error = Instructions::named("AVX2").unwrap_err();
        assert!(
            error.starts_with("FLOWGAUGE_CPU=\"AVX2\" in the environment: expected one of scalar"),
            "{error}"
        );
    }
}
