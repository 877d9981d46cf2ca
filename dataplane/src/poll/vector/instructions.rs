//! CPU instruction sets for counting packets.

use std::sync::OnceLock;
use std::{env, fmt};

/// Environment variable that selects [`Instructions`].
pub const VARIABLE: &str = "FLOWGAUGE_CPU";

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
        super::has(self)
    }

    /// Returns those that this CPU has, slowest first.
    pub fn available() -> impl Iterator<Item = Instructions> {
        Self::ALL.into_iter().filter(|instructions| instructions.is_available())
    }

    /// Returns those that [`VARIABLE`] selects; without it, the fastest that this CPU has.
    ///
    /// # Errors
    /// A description: the value is unknown, or this CPU lacks the instructions.
    pub fn chosen() -> Result<Self, String> {
        match env::var_os(VARIABLE) {
            Some(word) if !word.is_empty() => Self::named(&word.to_string_lossy()),
            _ => Ok(Self::fastest()),
        }
    }

    fn named(word: &str) -> Result<Self, String> {
        let named = Self::available().find(|instructions| instructions.name() == word);
        named.ok_or_else(|| {
            let names: Vec<&str> = Self::available().map(Self::name).collect();
            let names = names.join(", ");
            format!("{VARIABLE}={word:?} in the environment: expected one of {names}, which this CPU has")
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
