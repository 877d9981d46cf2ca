//! Values of options in descriptions of traffic, and the error for invalid ones.

use std::str::FromStr;

/// Option names of a [`Profile`](crate::Profile), for messages.
const OPTIONS: &str = "rate=PPS|max, packets=N, size=BYTES, seed=N, vlan=ID, ipv6, burst=DUTY, period=TIME, for zipf flows=N, alpha=A, \
     and for attack flows=N, alpha=A, share=SHARE, every=TIME, lasting=TIME";

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
    #[error("{key}={value} is not valid; give {expected}")]
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
    pub(crate) fn value(key: &str, value: &str, expected: &str) -> Self {
        ProfileError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        }
    }

    pub(crate) fn unfitting(option: &str, profile: &'static str, options: &'static str) -> Self {
        ProfileError::Unfitting { option: option.to_owned(), profile, options }
    }
}

pub(crate) fn parse<T: FromStr>(key: &str, value: &str, expected: &str) -> Result<T, ProfileError> {
    value.parse().map_err(|_| ProfileError::value(key, value, expected))
}

/// Parses a positive number with an optional suffix k, M or G.
pub(crate) fn parse_number(key: &str, value: &str) -> Result<f64, ProfileError> {
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

pub(crate) fn parse_count(key: &str, value: &str) -> Result<u64, ProfileError> {
    let number = parse_number(key, value)?;
    if number.fract() == 0.0 && number < 9e15 {
        Ok(number as u64)
    } else {
        Err(ProfileError::value(key, value, "a whole number such as 5000, 100k or 1M"))
    }
}

/// Parses the ID of an 802.1Q tag.
pub(crate) fn parse_vlan(key: &str, value: &str) -> Result<u16, ProfileError> {
    let id = parse(key, value, "1 to 4094")?;
    if (1..=4094).contains(&id) {
        Ok(id)
    } else {
        Err(ProfileError::value(key, value, "1 to 4094"))
    }
}

/// Parses a share, which may be zero.
pub(crate) fn parse_share(key: &str, value: &str) -> Result<f64, ProfileError> {
    let expected = "a share from 0 to 1, such as 0.01";
    let share: f64 = parse(key, value, expected)?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(ProfileError::value(key, value, expected))
    }
}

pub(crate) fn parse_duration(value: &str) -> Option<u64> {
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
