//! Laws of lake rows: what holds for every row that was counted, whatever the traffic was.
//!
//! A row that breaks a law was forged or written by a defective program, and nothing of it may
//! count: sums, minima and intervals would be wrong without a mark. Each measurement lists the laws
//! of its columns in [`Measurement::check`](super::Measurement::check), next to the code that
//! stores them; this module has the laws of packets and bytes, on which those depend.

use crate::row::{Row, RowDefect};

/// Maximum of a number of packets or rows in a window: 174 days at 600 million packets a second, as
/// of 400 Gbit/s.
pub(crate) const MAX_COUNT: u64 = 1 << 53;
/// Maximum of a number of bytes in a window: 66 days at 400 Gbit/s.
pub(crate) const MAX_BYTES: u64 = 1 << 58;

/// Packets and bytes of a row, which its measurements cannot exceed.
pub(crate) struct RowTotals {
    /// Number of packets that have a flow, which sketches and tables count.
    pub(crate) flow_packets: u64,
    pub(crate) bytes: u64,
    /// Whether nothing is missing, so that each measurement counted all packets that have a flow.
    pub(crate) is_complete: bool,
}

impl RowTotals {
    /// Returns the totals of a row, after checking their laws.
    pub(crate) fn of(row: &Row) -> Result<Self, RowDefect> {
        let kinds = ["ipv4_packets", "ipv6_packets", "non_ip", "truncated", "bad_header"];
        let kinds = kinds.map(|column| count(row, column));
        let [ipv4, ipv6, non_ip, truncated, bad_header] = kinds;
        let flow_packets = ipv4? + ipv6?;
        let sum = flow_packets + non_ip? + truncated? + bad_header?;
        let (packets, bytes) = (count(row, "packets")?, count(row, "bytes")?);
        require(packets == sum, || {
            format!("column packets has {packets}, and those of all kinds {sum}")
        })?;
        require(bytes == 0 || packets > 0, || format!("{bytes} bytes without a packet"))?;
        let unmatched = count_if_any(row, "unmatched")?;
        let unmatched_bytes = count_if_any(row, "unmatched_bytes")?;
        require(unmatched_bytes == 0 || unmatched > 0, || {
            format!("{unmatched_bytes} bytes that do not match, without a packet")
        })?;
        let merged = count_if_any(row, "merged")?;
        require(merged == 0 || merged < packets + unmatched, || {
            format!("{merged} packets beyond the first of super-packets, of {packets}")
        })?;
        count(row, "late")?;
        Ok(RowTotals { flow_packets, bytes, is_complete: row.flag("complete")? })
    }
}

/// Returns a number of packets or rows, or one of bytes, by the column's name.
pub(crate) fn count(row: &Row, column: &str) -> Result<u64, RowDefect> {
    let most = if column.ends_with("bytes") { MAX_BYTES } else { MAX_COUNT };
    let count = row.number(column)?;
    require(count <= most, || format!("column {column} has {count}, more than a window can hold"))?;
    Ok(count)
}

/// As [`count`], of a column that only some rows have.
pub(crate) fn count_if_any(row: &Row, column: &str) -> Result<u64, RowDefect> {
    if row.maybe_number(column).is_some() { count(row, column) } else { Ok(0) }
}

/// Fails with the description of a broken law.
pub(crate) fn require(holds: bool, broken: impl FnOnce() -> RowDefect) -> Result<(), RowDefect> {
    if holds { Ok(()) } else { Err(broken()) }
}

/// Returns the sum of a list's numbers. A number that is not from 0 to `most` is an error.
pub(crate) fn sum(column: &str, numbers: &[i64], most: u64) -> Result<u64, RowDefect> {
    numbers.iter().try_fold(0_u64, |sum, number| {
        let fits = u64::try_from(*number).ok().filter(|number| *number <= most);
        fits.map(|number| sum.saturating_add(number))
            .ok_or_else(|| format!("column {column} has {number}, which is not from 0 to {most}"))
    })
}

/// Checks that numbers are finite and from 0 to `most`, each at least as large as the one before.
pub(crate) fn ascending(column: &str, numbers: &[f64], most: f64) -> Result<(), RowDefect> {
    let is_ordered = numbers.is_sorted_by(|one, next| one <= next);
    let is_within = numbers.iter().all(|number| (0.0..=most).contains(number));
    require(is_ordered && is_within, || {
        format!("column {column}: {numbers:?} are not in order from 0 to {most}")
    })
}
