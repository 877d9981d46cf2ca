//! Values of options in descriptions of traffic, and the error for invalid ones.

use std::fmt::Display;
use std::str::FromStr;

/// Length of the longest frame, in bytes without frame check sequence.
const MAX_FRAME_BYTES: usize = 9018;

/// Reason why a traffic description is invalid, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(String);

impl ProfileError {
    /// Unknown profile.
    pub(crate) fn name(name: &str) -> Self {
        ProfileError(format!(
            "there is no traffic profile '{name}'; use unique, sequential, subnets, zipf, burst or attack, and in files delay or reorder"
        ))
    }

    /// A profile whose packets depend on earlier ones, where only a function of the number is
    /// possible.
    pub(crate) fn sequence(name: &str) -> Self {
        ProfileError(format!(
            "'{name}' can only be written to a file; read that with `flowgauge replay`, or send it with `flowgauge generate --pcap`"
        ))
    }

    /// Unknown option, or not for this profile. `of` is empty, or names the profile.
    pub(crate) fn option(option: &str, of: &str, options: &str) -> Self {
        ProfileError(format!("unknown or unfitting option '{option}'; options{of} are {options}"))
    }

    /// A value out of range.
    pub(crate) fn value(key: &str, value: impl Display, expected: &str) -> Self {
        ProfileError(format!("{key}={value} is not valid; give {expected}"))
    }
}

/// Fails if a value is not in its range.
pub(crate) fn require(
    is_valid: bool,
    key: &str,
    value: impl Display,
    expected: &str,
) -> Result<(), ProfileError> {
    if is_valid { Ok(()) } else { Err(ProfileError::value(key, value, expected)) }
}

/// Fails if frames cannot have this size, in bytes.
pub(crate) fn require_size(size: usize, smallest: usize) -> Result<(), ProfileError> {
    let range = format!("{smallest} to {MAX_FRAME_BYTES} bytes for these headers");
    require((smallest..=MAX_FRAME_BYTES).contains(&size), "size", size, &range)
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
    require(number.is_finite() && number > 0.0, key, value, expected)?;
    Ok(number)
}

pub(crate) fn parse_count(key: &str, value: &str) -> Result<u64, ProfileError> {
    let number = parse_number(key, value)?;
    let is_whole = number.fract() == 0.0 && number < 9e15;
    require(is_whole, key, value, "a whole number such as 5000, 100k or 1M")?;
    Ok(number as u64)
}

/// Parses the ID of an 802.1Q tag.
pub(crate) fn parse_vlan(key: &str, value: &str) -> Result<u16, ProfileError> {
    let id: u16 = parse(key, value, "1 to 4094")?;
    require((1..=4094).contains(&id), key, value, "1 to 4094")?;
    Ok(id)
}

/// Parses a share, which may be zero.
pub(crate) fn parse_share(key: &str, value: &str) -> Result<f64, ProfileError> {
    let expected = "a share from 0 to 1, such as 0.01";
    let share: f64 = parse(key, value, expected)?;
    require((0.0..=1.0).contains(&share), key, value, expected)?;
    Ok(share)
}

/// Parses a time with its unit, in nanoseconds. `example` is one or two valid ones.
pub(crate) fn parse_duration(key: &str, value: &str, example: &str) -> Result<u64, ProfileError> {
    nanoseconds(value)
        .ok_or_else(|| ProfileError::value(key, value, &format!("a time such as {example}")))
}

fn nanoseconds(value: &str) -> Option<u64> {
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
