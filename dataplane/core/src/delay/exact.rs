//! Requests and answers of all packets, matched without the limits of a table, for comparison.

use super::exchange::Exchange;
use super::kind::Roles;
use super::{DelayKind, Label, Requests, Settings, table};
use crate::arrival::SingleFrame;
use crate::counter::Sharing;
use crate::observation::Observation;
use crate::state::BANKS;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Ticks from which on a time is no delay, as in a table: an answer that came so much later cannot
/// be distinguished from one that came before its request.
const MAX_TICKS: u64 = 1 << 31;

/// Number of waiting requests below which none are looked through for old ones.
const FEW: usize = 1 << 16;

/// Kind of a request, the hashes of both ends, and the token.
type RequestKey = (u8, u32, u32, u32);

/// Request whose answer may still come.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Time of the request, in nanoseconds.
    time: u64,
    /// Whether an answer gives a delay: not if a repeated token was answered before, or if the edge
    /// of a spin bit was not seen.
    counts: bool,
    /// Spin bit.
    bit: u8,
}

impl Waiting {
    fn new(time: u64) -> Self {
        Waiting { time, counts: true, bit: 0 }
    }

    /// Returns the nanoseconds since the request; `None` if they are no delay.
    fn delay(&self, kind: DelayKind, now: u64) -> Option<u64> {
        let bits = kind.tick_bits();
        let ticks = (now >> bits).checked_sub(self.time >> bits)?;
        (ticks < MAX_TICKS).then(|| now.saturating_sub(self.time))
    }

    /// Returns whether no later packet can give a delay.
    fn is_old(&self, kind: DelayKind, now: u64) -> bool {
        let bits = kind.tick_bits();
        (now >> bits).saturating_sub(self.time >> bits) >= MAX_TICKS
    }
}

/// Exact requests and delays of one kind, group and direction in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelDelays {
    /// Requests, including repeated ones. For [timestamps](DelayKind::TcpTimestamps) and the
    /// [spin bit](DelayKind::QuicSpin) those that are no repetition of a token.
    pub requests: u64,
    /// Delays of all answers, in nanoseconds, in ascending order.
    pub delays: Vec<u64>,
}

/// Exact requests and delays of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowDelays {
    /// Counts by kind, group and direction, in the order of [`Delay::counts`](super::Delay::counts).
    rows: BTreeMap<usize, LabelDelays>,
    /// Number of delays.
    number: usize,
    /// Whether there were more than are counted.
    is_over: bool,
}

impl WindowDelays {
    /// Returns the counts of a kind and label; `None` without a request or an answer.
    #[must_use]
    pub fn of(
        &self,
        settings: &Settings,
        kind: DelayKind,
        label: impl Into<Label>,
    ) -> Option<&LabelDelays> {
        let row = settings.kinds.rank(kind) * settings.labels() + settings.label(label.into());
        self.rows.get(&row)
    }
}

/// Requests of all packets that wait for their answers, and the delays of the open windows.
///
/// Requests and answers are those of the measurement, but each request waits until it is answered
/// or too old for a delay. Ends are identified by their hashes, 64 bits for both.
#[derive(Clone, Debug)]
pub struct ExactDelays {
    /// Maximum number of waiting requests, and of delays of a window.
    limit: usize,
    waiting: BTreeMap<RequestKey, Waiting>,
    /// Number of waiting requests at which old ones are removed.
    purge_at: usize,
    banks: [WindowDelays; BANKS],
    /// Whether too many requests waited, so that answers no longer find theirs.
    is_over: bool,
    has_ended: bool,
}

impl ExactDelays {
    /// Creates the counts; `limit` is the maximum number of waiting requests, and of the delays of
    /// a window.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        ExactDelays {
            limit,
            waiting: BTreeMap::new(),
            purge_at: limit.min(FEW),
            banks: Default::default(),
            is_over: false,
            has_ended: false,
        }
    }

    /// Returns whether a limit was exceeded so far.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Counts a packet in a bank. `requests` has the owners of addresses.
    pub fn count(
        &mut self,
        bank: usize,
        settings: &Settings,
        requests: &Requests,
        packet: &Observation,
    ) {
        let mut packet = *packet;
        if settings.asks_addresses() {
            packet.find_owners(&requests.ranges);
        }
        let (first, end) = DelayKind::range(packet.segment.speaks);
        let other = DelayKind::other(&packet.segment);
        let takes_part =
            |kind: &DelayKind| (first..end).contains(&(*kind as usize)) && *kind as usize != other;
        for kind in settings.kinds.each().filter(takes_part) {
            self.exchange(
                bank,
                &Exchange { settings, kind, requests, sharing: Sharing::Alone, packet: &packet },
            );
            if self.is_over {
                self.banks.get_mut(bank).into_iter().for_each(WindowDelays::end);
            }
        }
    }

    /// Returns the counts of a bank with delays in ascending order, and clears it. `None` if there
    /// was more than is counted.
    pub fn take(&mut self, bank: usize) -> Option<WindowDelays> {
        let mut taken = core::mem::take(self.banks.get_mut(bank)?);
        taken.rows.values_mut().for_each(|row| row.delays.sort_unstable());
        (!taken.is_over).then_some(taken)
    }

    fn exchange(&mut self, bank: usize, exchange: &Exchange<'_, SingleFrame>) {
        let Exchange { settings, kind, packet, .. } = *exchange;
        let Roles { asks, request, answers, answer } = kind.roles(&packet.segment);
        let (number, rank) = (kind as u8, settings.kinds.rank(kind));
        let (source, destination) = packet.ends;
        let (forth, back) = (table(source, destination), table(destination, source));
        // As in the measurement: either side may end a connection.
        let ((from, to), (back_from, back_to)) = match (kind != DelayKind::TcpDuration, forth) {
            (true, _) => ((source, destination), (destination, source)),
            (false, 0) => ((source, destination), (source, destination)),
            (false, _) => ((destination, source), (destination, source)),
        };
        let now = packet.time();
        if answers && (!asks || forth != back) {
            let delay = self.answer(kind, (number, back_from, back_to, answer), now);
            self.add(bank, exchange.row(rank, false), 0, delay);
        }
        if asks {
            let key = (number, from, to, request);
            let (is_request, delay) = if kind == DelayKind::QuicSpin {
                self.spin(key, packet.segment.flags, now)
            } else {
                (self.ask(kind, key, now) || !kind.is_known_if_kept(), None)
            };
            self.add(bank, exchange.row(rank, true), u64::from(is_request), delay);
        }
    }

    fn add(&mut self, bank: usize, row: usize, requests: u64, delay: Option<u64>) {
        let Some(window) = self.banks.get_mut(bank).filter(|window| !window.is_over) else {
            return;
        };
        if requests == 0 && delay.is_none() {
            return;
        }
        window.number += usize::from(delay.is_some());
        if window.number > self.limit {
            window.end();
            self.has_ended = true;
            return;
        }
        let row = window.rows.entry(row).or_default();
        row.requests += requests;
        row.delays.extend(delay);
    }

    /// Removes the request that waits for an answer, and returns its delay. A token that packets
    /// repeat is remembered.
    fn answer(&mut self, kind: DelayKind, key: RequestKey, now: u64) -> Option<u64> {
        let waiting = *self.waiting.get(&key).filter(|waiting| waiting.counts)?;
        if kind.repeats() {
            self.waiting.insert(key, Waiting { counts: false, ..waiting });
        } else {
            self.waiting.remove(&key);
        }
        waiting.delay(kind, now)
    }

    /// Stores a request, and returns whether none with the same token was stored.
    fn ask(&mut self, kind: DelayKind, key: RequestKey, now: u64) -> bool {
        let is_new = self.waiting.get(&key).is_none_or(|waiting| waiting.is_old(kind, now));
        if is_new || !kind.keeps_first() {
            self.store(key, Waiting::new(now), now);
        }
        is_new
    }

    /// Stores a spin bit. Returns whether it has changed, and the time since it changed before.
    fn spin(&mut self, key: RequestKey, bit: u8, now: u64) -> (bool, Option<u64>) {
        let kind = DelayKind::QuicSpin;
        let known = self.waiting.get(&key).copied();
        match known.filter(|waiting| !waiting.is_old(kind, now)) {
            Some(waiting) if waiting.bit == bit => (false, None),
            Some(waiting) => {
                self.store(key, Waiting { bit, ..Waiting::new(now) }, now);
                (true, waiting.delay(kind, now).filter(|_| waiting.counts))
            }
            None => {
                self.store(key, Waiting { bit, counts: false, ..Waiting::new(now) }, now);
                (false, None)
            }
        }
    }

    fn store(&mut self, key: RequestKey, request: Waiting, now: u64) {
        if self.is_over {
            return;
        }
        self.waiting.insert(key, request);
        if self.waiting.len() <= self.purge_at {
            return;
        }
        self.waiting.retain(|(number, ..), waiting| {
            DelayKind::of(usize::from(*number)).is_some_and(|kind| !waiting.is_old(kind, now))
        });
        let rest = self.waiting.len();
        // If few are old, the next ones that are would be looked for too soon.
        self.is_over = self.purge_at == self.limit && rest > self.limit / 2;
        self.purge_at = (2 * rest).max(FEW).min(self.limit);
        if self.is_over {
            self.waiting.clear();
            self.has_ended = true;
        }
    }
}

impl WindowDelays {
    fn end(&mut self) {
        self.is_over = true;
        self.rows.clear();
    }
}
