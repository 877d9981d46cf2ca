//! How many requests to admit, and how large a table to take, for the traffic that there is.
//!
//! Of `r` requests a second a share `p` is put in a table of `M` slots. A delay `D` is seen if its
//! request is admitted and not overwritten, which has a probability of `p e^(-p r D / M)`. That is
//! largest for `p = M / (r D)`: as many requests are put in the table during `D` as it has slots.
//! With half of that share 82 % as many delays of this length are seen, with twice as much 74 %.
//! `D` is the 99th percentile: of shorter delays a smaller part is lost, and a table holds several
//! times as many requests as come during a typical one. Shares are powers of two, and the largest
//! one is taken that is no larger than that.
//!
//! A smaller share is free of bias at once, so that it is taken as soon as it is needed. A larger
//! one is taken one step a window, and only if the table has room for it and a quarter of a
//! doubling more: what is seen of the same traffic differs from window to window. [`Admission`]
//! says why answers of a larger share count later; [`Tuner`] finds out when.

use super::Delays;
use flowgauge_core::delay::{Admission, Kind, MAX_ADMIT_BITS, MAX_SLOTS, SLOT_BITS, Settings};
use std::collections::VecDeque;

/// Answers without which nothing is known of the 99th percentile.
const ANSWERS: u64 = 100;
/// Which percentile a table is made for: the place of the 99th.
const LONG: usize = 3;
/// What a table has to have room for, beyond a larger share, in doublings.
const MARGIN: f64 = 0.25;
/// Windows that are remembered.
const WINDOWS: usize = 64;

/// What a window says of a kind's requests, whatever their direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests of the window that have the same table, admitted or not.
    pub requests: f64,
    /// How long the window was, in nanoseconds.
    pub span_ns: u64,
    /// The delay that a table is made for, in nanoseconds, if enough answers were seen.
    pub long_ns: Option<f64>,
    /// No delay that was seen is longer, in nanoseconds.
    pub longest_ns: f64,
}

impl Load {
    /// What the reports of a window say; nothing of one that took no time.
    #[must_use]
    pub fn of(delays: &Delays, kind: Kind, span_ns: u64) -> Option<Self> {
        let of_kind = || delays.together().filter(|delay| delay.kind == kind);
        let distributions = || of_kind().filter_map(|delay| delay.distribution.as_ref());
        // Requests of the two directions have a table each; those that begin connections have one.
        let tables = if kind == Kind::TcpDuration { 1.0 } else { 2.0 };
        let known = distributions().filter(|it| it.samples >= ANSWERS);
        (span_ns > 0 && of_kind().next().is_some()).then(|| Load {
            requests: of_kind().map(super::Delay::requests).sum::<f64>() / tables,
            span_ns,
            long_ns: known.map(|it| it.corrected[LONG].value).reduce(f64::max),
            longest_ns: distributions().map(|it| it.longest).fold(0.0, f64::max),
        })
    }

    /// Requests that come to a table during a long delay, as a power of two.
    fn log2(&self) -> Option<f64> {
        let during = self.requests / self.span_ns as f64 * self.long_ns?;
        Some(during.max(1.0).log2())
    }

    /// The share, as a power of two, for tables of so many slots, if the last one was `admit_log2`.
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
                // Too few answers. Either hardly a request is admitted, and those of a whole window
                // find room in the table, or they are overwritten before their answers come.
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

    /// The smallest table that has room for all requests, or else the largest one and a share;
    /// nothing if too few answers were seen. `kinds`: how many of them are measured, each of which
    /// has such tables.
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
    /// Slots of a table.
    #[must_use]
    pub fn slots(&self) -> u32 {
        1 << self.slots_log2
    }

    /// The share, as options take it.
    #[must_use]
    pub fn share(&self) -> String {
        if self.admit_log2 == 0 {
            "1".to_owned()
        } else {
            format!("1/{}", 1_u32 << self.admit_log2)
        }
    }
}

/// Has shares follow the traffic, from window to window.
pub struct Tuner {
    settings: Settings,
    /// Length of a window, in nanoseconds.
    window_ns: u64,
    kinds: Vec<Followed>,
}

/// The shares of a kind.
struct Followed {
    kind: Kind,
    /// Those of the windows of late; the last one is of the window after the open one.
    admissions: VecDeque<Admission>,
    /// The longest delays of the windows of late, in nanoseconds.
    longest: VecDeque<f64>,
}

impl Tuner {
    /// For windows of this length; nothing if shares do not change.
    #[must_use]
    pub fn new(settings: Settings, window_ns: u64) -> Option<Self> {
        let first = Admission { kept: settings.admit_log2, counted: settings.admit_log2 };
        let followed = |kind| Followed {
            kind,
            admissions: VecDeque::from([first; 2]),
            longest: VecDeque::new(),
        };
        let kinds = settings.kinds.each().map(followed).collect();
        (settings.follows && settings.kinds.any() && window_ns > 0).then_some(Tuner {
            settings,
            window_ns,
            kinds,
        })
    }

    /// Looks at a window that was closed, and says what the window after the open one is to admit.
    pub fn look(&mut self, delays: &Delays, span_ns: u64) -> Vec<(Kind, Admission)> {
        let (slots_log2, window_ns) = (self.settings.slots_log2, self.window_ns);
        let next = |followed: &mut Followed| {
            let load = Load::of(delays, followed.kind, span_ns);
            let counted = delays
                .together()
                .filter(|delay| delay.kind == followed.kind && delay.counts.requests > 0);
            followed.take_over(counted.map(|delay| delay.settings.admit_log2).next());
            (followed.kind, followed.next(load, slots_log2, window_ns))
        };
        self.kinds.iter_mut().map(next).collect()
    }
}

impl Followed {
    /// The window that was closed was counted with this share: if with another one than was set, an
    /// earlier process has set it, and that of the open window.
    fn take_over(&mut self, counted: Option<u8>) {
        let closed = self.admissions.iter().rev().nth(1).map(|admission| admission.counted);
        if let Some(counted) = counted.filter(|counted| Some(*counted) != closed) {
            self.admissions
                .iter_mut()
                .for_each(|admission| *admission = Admission { kept: counted, counted });
        }
    }

    fn next(&mut self, load: Option<Load>, slots_log2: u8, window_ns: u64) -> Admission {
        let last = self.admissions.back().map_or(0, |admission| admission.kept);
        let kept = load.map_or(last, |load| load.share(slots_log2, last));
        self.longest.push_back(load.map_or(0.0, |load| load.longest_ns));
        // Requests that are answered in a window came in it, or so many windows before. It is one
        // that has not begun.
        let longest = self.longest.iter().copied().fold(0.0, f64::max);
        let before = ((longest / window_ns as f64).ceil() as usize).clamp(1, WINDOWS);
        let earlier = self.admissions.iter().rev().take(before).map(|admission| admission.kept);
        let admission = Admission { kept, counted: earlier.fold(kept, u8::max) };
        self.admissions.push_back(admission);
        if self.admissions.len() > WINDOWS {
            self.admissions.pop_front();
        }
        if self.longest.len() > WINDOWS {
            self.longest.pop_front();
        }
        admission
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A second with so many requests to a table, and a long delay of so many milliseconds.
    fn load(requests: f64, long_ms: Option<f64>) -> Load {
        let long_ns = long_ms.map(|long| long * 1e6);
        Load { requests, span_ns: SECOND, long_ns, longest_ns: long_ns.unwrap_or(0.0) * 2.0 }
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
        // 2^13 requests during the delay take 1/8, which is taken when there are a quarter of a
        // doubling less.
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
        // All tables together have 262,144 slots.
        assert_eq!(suggested(1e7, 3), of(32_768, "1/32"));
        assert_eq!(load(1e7, None).suggested(1), None);
    }

    #[test]
    fn answers_count_of_a_larger_share_once_no_older_request_waits() {
        let first = Admission { kept: 3, counted: 3 };
        let mut followed = Followed {
            kind: Kind::Icmp,
            admissions: VecDeque::from([first; 2]),
            longest: VecDeque::new(),
        };
        // The longest delays, of 2.4 windows, reach into three earlier ones.
        let mut next = |requests| {
            followed.next(
                Some(Load { longest_ns: 2.4e9, ..load(requests, Some(100.0)) }),
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
        let mut followed = Followed {
            kind: Kind::Icmp,
            admissions: VecDeque::from([first; 2]),
            longest: VecDeque::new(),
        };
        followed.take_over(None);
        followed.take_over(Some(0));
        assert!(followed.admissions.iter().all(|admission| *admission == first));
        followed.take_over(Some(5));
        assert_eq!(followed.next(None, 10, SECOND), Admission { kept: 5, counted: 5 });
    }
}
