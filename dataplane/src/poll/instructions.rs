//! The instructions that packets are counted with.

use super::vector;
use std::sync::OnceLock;
use std::{env, fmt};

/// The variable of the environment that chooses [`Instructions`].
pub const VARIABLE: &str = "FLOWGAUGE_CPU";

/// Instructions of the CPU that distinct flows are counted with. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// Those of every CPU: keys are hashed one by one.
    Scalar,
    /// NEON, of all aarch64 CPUs: 16 keys at once.
    Neon,
    /// AVX2, of x86 CPUs since 2013: 32 keys at once.
    Avx2,
    /// AVX-512 (F, BW, CD, VBMI) and GFNI, of x86 CPUs since Ice Lake and Zen 4: 64 keys at once.
    Avx512,
}

/// Why [`VARIABLE`] cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}={word:?} in the environment: expected one of {}, which this CPU has",
    names(Instructions::available())
)]
pub struct NotAvailable {
    word: String,
}

fn names(instructions: impl Iterator<Item = Instructions>) -> String {
    instructions.map(Instructions::name).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Instructions {
    /// All of them, the slowest first.
    pub const ALL: [Instructions; 4] =
        [Instructions::Scalar, Instructions::Neon, Instructions::Avx2, Instructions::Avx512];

    /// The name used in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Instructions::Scalar => "scalar",
            Instructions::Neon => "neon",
            Instructions::Avx2 => "avx2",
            Instructions::Avx512 => "avx512",
        }
    }

    /// Whether this CPU has them.
    #[must_use]
    pub fn is_available(self) -> bool {
        vector::has(self)
    }

    /// Those that this CPU has, the slowest first.
    pub fn available() -> impl Iterator<Item = Instructions> {
        Self::ALL.into_iter().filter(|instructions| instructions.is_available())
    }

    /// Those that [`VARIABLE`] asks for; the fastest that this CPU has, if it asks for none.
    ///
    /// # Errors
    /// The variable names none, or some that this CPU lacks.
    pub fn chosen() -> Result<Self, NotAvailable> {
        match env::var_os(VARIABLE) {
            Some(word) if !word.is_empty() => Self::named(&word.to_string_lossy()),
            _ => Ok(Self::fastest()),
        }
    }

    fn named(word: &str) -> Result<Self, NotAvailable> {
        let named = Self::available().find(|instructions| instructions.name() == word);
        named.ok_or_else(|| NotAvailable { word: word.to_owned() })
    }

    fn fastest() -> Self {
        Self::available().last().unwrap_or(Instructions::Scalar)
    }

    /// Those that workers count with: as [`chosen`](Self::chosen), and the fastest where that
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
        let error = Instructions::named("AVX2").unwrap_err().to_string();
        assert!(
            error.starts_with("FLOWGAUGE_CPU=\"AVX2\" in the environment: expected one of scalar"),
            "{error}"
        );
    }
}
