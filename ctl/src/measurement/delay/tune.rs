//! Share of requests to admit, and size of the table, adapted to the traffic.
//!
//! A share `p` of `r` requests per second is put in a table of `M` slots. A delay `D` is seen if
//! its request is admitted and not overwritten, which has a probability of `p e^(-p r D / M)`. The
//! maximum is at `p = M / (r D)`: during `D`, the table receives as many requests as it has slots.
//! Half of that share sees 82 % as many delays of this length, twice that share 74 %. `D` is the
//! 99th percentile: shorter delays are lost less often, and a table has room for several times the
//! requests that arrive during a typical one. Shares are powers of two: the largest one up to
//! `M / (r D)` is chosen.
//!
//! A smaller share is free of bias at once, so it applies as soon as it is needed. The share grows
//! by one step per window, and only if the table has room for the larger one and a quarter of a
//! doubling more, because results for the same traffic differ from window to window. [`Admission`]
//! explains why answers under a larger share count later; [`Tuner`] determines when.

use super::Delays;
use flowgauge_core::delay::{Admission, DelayKind, MAX_ADMIT_BITS, MAX_SLOTS, SLOT_BITS, Settings};
use std::collections::VecDeque;

/// Minimum number of answers for an estimate of the 99th percentile.
const ANSWERS: u64 = 100;
/// Index of the percentile that tables are sized for: the 99th.
const LONG: usize = 3;
/// Additional room that a table needs for a larger share, in doublings.
const MARGIN: f64 = 0.25;
/// Maximum number of windows in the history of a kind.
const WINDOWS: usize = 64;

/// Load that one kind's requests of both directions cause in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestLoad {
    /// Requests per table in the window, admitted or not.
    pub requests: f64,
    /// Length of the window, in nanoseconds.
    pub span_ns: u64,
    /// Delay that the table is sized for, in nanoseconds; `None` if too few answers were seen.
    pub long_ns: Option<f64>,
    /// Upper bound of the delays seen, in nanoseconds.
    pub longest_ns: f64,
}

impl RequestLoad {
    /// Derives the load from the reports of a window; `None` if the window has no length or the
    /// kind no report.
    #[must_use]
    pub fn of(delays: &Delays, kind: DelayKind, span_ns: u64) -> Option<Self> {
        let of_kind = || delays.together().filter(|delay| delay.kind == kind);
        let distributions = || of_kind().filter_map(|delay| delay.distribution.as_ref());
        // Each direction of requests has a table; requests that begin connections share one.
        let tables = if kind == DelayKind::TcpDuration { 1.0 } else { 2.0 };
        let known = distributions().filter(|it| it.samples >= ANSWERS);
        (span_ns > 0 && of_kind().next().is_some()).then(|| RequestLoad {
            requests: of_kind().map(super::Delay::requests).sum::<f64>() / tables,
            span_ns,
            long_ns: known.map(|it| it.corrected[LONG].value).reduce(f64::max),
            longest_ns: distributions().map(|it| it.longest).fold(0.0, f64::max),
        })
    }

    /// Returns the binary logarithm of the requests that arrive at a table during a long delay.
    fn log2(&self) -> Option<f64> {
        let during = self.requests / self.span_ns as f64 * self.long_ns?;
        Some(during.max(1.0).log2())
    }

    /// Returns the next share for tables of `2^slots_log2` slots if the last one was `admit_log2`:
    /// one request in two to this power.
    #[must_use]
    pub fn share(&self, slots_log2: u8, admit_log2: u8) -> u8 {
        let slots = f64::from(slots_log2);
        let next = match self.log2().map(|requests| requests - slots) {
            Some(wanted) if wanted > f64::from(admit_log2) => wanted.ceil() as u8,
            Some(wanted) if wanted + MARGIN <= f64::from(admit_log2) - 1.0 => {
                admit_log2.saturating_sub(1)
            }
            Some(_) => admit_log2,
            None => {
                // Too few answers. Either hardly any requests are admitted, and the table has room
                // for a whole window, or they are overwritten before their answers arrive.
                let admitted = self.requests.max(1.0).log2() - f64::from(admit_log2) - slots;
                match admitted {
                    it if it <= 0.0 => admit_log2.saturating_sub(1),
                    it if it > 3.0 => admit_log2.saturating_add(1),
                    _ => admit_log2,
                }
            }
        };
        next.min(MAX_ADMIT_BITS)
    }

    /// Suggests the smallest table that has room for all requests, or else the largest one and a
    /// share; `None` if too few answers were seen. `kinds`: number of measured kinds, each with
    /// tables of that size.
    #[must_use]
    pub fn suggested(&self, kinds: usize) -> Option<Suggestion> {
        let requests = self.log2()?;
        let most = (MAX_SLOTS / kinds.max(1) / 2).max(1).ilog2() as u8;
        let slots_log2 =
            (requests.ceil() as u8).clamp(*SLOT_BITS.start(), most.min(*SLOT_BITS.end()));
        let admit_log2 =
            ((requests - f64::from(slots_log2)).max(0.0).ceil() as u8).min(MAX_ADMIT_BITS);
        Some(Suggestion { slots_log2, admit_log2 })
    }
}

/// Slots and a share that fit the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Slots of a table, as a power of two.
    pub slots_log2: u8,
    /// One request in two to this power.
    pub admit_log2: u8,
}

impl Suggestion {
    /// Returns the number of slots of a table.
    #[must_use]
    pub fn slots(&self) -> u32 {
        1 << self.slots_log2
    }

    /// Returns the share in the notation of options, such as `1/16`.
    #[must_use]
    pub fn share(&self) -> String {
        if self.admit_log2 == 0 {
            "1".to_owned()
        } else {
            format!("1/{}", 1_u32 << self.admit_log2)
        }
    }
}

/// Adapts the shares to the traffic, from window to window.
pub struct Tuner {
    settings: Settings,
    /// Length of a window, in nanoseconds.
    window_ns: u64,
    kinds: Vec<ShareHistory>,
}

/// History of one kind's shares.
struct ShareHistory {
    kind: DelayKind,
    /// Shares of recent windows, the last one for the window after the open one, and the longest
    /// delay of the window that closed when each was set, in nanoseconds.
    windows: VecDeque<(Admission, f64)>,
}

impl Tuner {
    /// Returns a tuner for windows of this length; `None` if shares do not follow the traffic, no
    /// kind is measured, or the length is zero.
    #[must_use]
    pub fn new(settings: Settings, window_ns: u64) -> Option<Self> {
        let first = Admission { kept: settings.admit_log2, counted: settings.admit_log2 };
        let followed = |kind| ShareHistory { kind, windows: VecDeque::from([(first, 0.0); 2]) };
        let kinds = settings.kinds.each().map(followed).collect();
        (settings.follows && settings.kinds.any() && window_ns > 0).then_some(Tuner {
            settings,
            window_ns,
            kinds,
        })
    }

    /// Evaluates a closed window and returns the shares for the window after the open one.
    pub fn look(&mut self, delays: &Delays, span_ns: u64) -> Vec<(DelayKind, Admission)> {
        let (slots_log2, window_ns) = (self.settings.slots_log2, self.window_ns);
        let next = |followed: &mut ShareHistory| {
            let load = RequestLoad::of(delays, followed.kind, span_ns);
            let counted = delays
                .together()
                .filter(|delay| delay.kind == followed.kind && delay.counts.requests > 0);
            followed.take_over(counted.map(|delay| delay.settings.admit_log2).next());
            (followed.kind, followed.next(load, slots_log2, window_ns))
        };
        self.kinds.iter_mut().map(next).collect()
    }
}

impl ShareHistory {
    /// Adopts the share that the closed window was counted with, if it is not the one set here: an
    /// earlier process set it, and that of the open window.
    fn take_over(&mut self, counted: Option<u8>) {
        let closed = self.windows.iter().rev().nth(1).map(|(admission, _)| admission.counted);
        if let Some(counted) = counted.filter(|counted| Some(*counted) != closed) {
            let taken = Admission { kept: counted, counted };
            self.windows.iter_mut().for_each(|(admission, _)| *admission = taken);
        }
    }

    fn next(&mut self, load: Option<RequestLoad>, slots_log2: u8, window_ns: u64) -> Admission {
        let last = self.windows.back().map_or(0, |(admission, _)| admission.kept);
        let kept = load.map_or(last, |load| load.share(slots_log2, last));
        let closed = load.map_or(0.0, |load| load.longest_ns);
        // Requests that are answered in the window of this share, which has not begun, arrive in it
        // or in one of the `before` windows ahead of it.
        let longest = self.windows.iter().map(|(_, longest)| *longest).fold(closed, f64::max);
        let before = ((longest / window_ns as f64).ceil() as usize).clamp(1, WINDOWS);
        let earlier = self.windows.iter().rev().take(before).map(|(admission, _)| admission.kept);
        let admission = Admission { kept, counted: earlier.fold(kept, u8::max) };
        self.windows.push_back((admission, closed));
        if self.windows.len() > WINDOWS {
            self.windows.pop_front();
        }
        admission
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the load of a second with `requests` per table and a long delay of `long_ms`.
    fn load(requests: f64, long_ms: Option<f64>) -> RequestLoad {
        let long_ns = long_ms.map(|long| long * 1e6);
        RequestLoad { requests, span_ns: SECOND, long_ns, longest_ns: long_ns.unwrap_or(0.0) * 2.0 }
    }

    #[test]
    fn as_many_requests_are_admitted_during_a_long_delay_as_there_are_slots() {
        for (requests, share) in [
            (1.0, 0),
            (10_240.0, 0),
            (10_241.0, 1),
            (20_480.0, 1),
            (1e6, 7),
            (1e12, MAX_ADMIT_BITS),
        ] {
            assert_eq!(load(requests, Some(100.0)).share(10, 0), share, "{requests}");
        }
    }

    #[test]
    fn a_share_grows_by_a_step_and_with_room_to_spare() {
        let share = |requests| load(requests, Some(100.0)).share(10, 4);
        // 2^13 requests during the delay fit a share of 1/8, which is chosen once there are fewer
        // by a quarter of a doubling.
        let during = |log2: f64| 2_f64.powf(log2) * 10.0;
        assert_eq!([share(during(13.9)), share(during(13.0)), share(during(12.8))], [4, 4, 4]);
        assert_eq!([share(during(12.74)), share(during(5.0))], [3, 3]);
        assert_eq!(load(1.0, Some(100.0)).share(10, 0), 0);
    }

    #[test]
    fn without_answers_the_table_is_neither_empty_nor_overrun() {
        let share = |requests: f64| load(requests, None).share(10, 4);
        assert_eq!([share(0.0), share(16_384.0), share(16_385.0)], [3, 3, 4]);
        assert_eq!([share(131_071.0), share(131_073.0), share(1e12)], [4, 5, 5]);
        assert_eq!(load(1e12, None).share(10, MAX_ADMIT_BITS), MAX_ADMIT_BITS);
    }

    #[test]
    fn a_suggestion_has_room_for_all_requests_or_is_the_largest_table() {
        let suggested = |requests, kinds| {
            load(requests, Some(100.0)).suggested(kinds).map(|it| (it.slots(), it.share()))
        };
        let of = |slots, share: &str| Some((slots, share.to_owned()));
        assert_eq!(suggested(10.0, 1), of(64, "1"));
        assert_eq!(suggested(10_241.0, 1), of(2048, "1"));
        assert_eq!(suggested(1e7, 1), of(65_536, "1/16"));
        // The limit for all tables is 262,144 slots.
        assert_eq!(suggested(1e7, 3), of(32_768, "1/32"));
        assert_eq!(load(1e7, None).suggested(1), None);
    }

    #[test]
    fn answers_count_of_a_larger_share_once_no_older_request_waits() {
        let first = Admission { kept: 3, counted: 3 };
        let mut followed =
            ShareHistory { kind: DelayKind::Icmp, windows: VecDeque::from([(first, 0.0); 2]) };
        // The longest delays take 2.4 windows, so their requests are up to three windows older.
        let mut next = |requests| {
            followed.next(
                Some(RequestLoad { longest_ns: 2.4e9, ..load(requests, Some(100.0)) }),
                10,
                SECOND,
            )
        };
        let shares = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 40_000.0, 1.0].map(|requests| {
            let Admission { kept, counted } = next(requests);
            (kept, counted)
        });
        assert_eq!(shares, [(2, 3), (1, 3), (0, 3), (0, 2), (0, 1), (0, 0), (2, 2), (1, 2)]);
    }

    #[test]
    fn shares_that_an_earlier_process_has_set_are_taken_over() {
        let first = Admission::default();
        let mut followed =
            ShareHistory { kind: DelayKind::Icmp, windows: VecDeque::from([(first, 0.0); 2]) };
        followed.take_over(None);
        followed.take_over(Some(0));
        assert!(followed.windows.iter().all(|(admission, _)| *admission == first));
        followed.take_over(Some(5));
        assert_eq!(followed.next(None, 10, SECOND), Admission { kept: 5, counted: 5 });
    }
}
