//! Batched counting, for configurations that measure only distinct flows in windows.
//!
//! Keys of packets are buffered; once there are enough, [`Instructions`] of the CPU compute the
//! registers and levels of all of them. The code that parses frames is the same for all CPUs, and
//! small enough to stay in registers. Registers take the maximum, so late updates in another order
//! give the same result, provided that the bank is not read before its [`BatchWriter`] is finished.

use super::lot::KeyColumns;
use super::matcher::Matcher;
use super::port_frame::PortFrame;
use super::vector::{CAPACITY, Instructions, RegisterUpdates};
use flowgauge_core::cardinality::Mode;
use flowgauge_core::filter::PacketFilter;
use flowgauge_core::packet::Ipv4;
use flowgauge_core::parse::{
    Packet, Reject, network, plain_ipv4, plain_ipv6, tagged_ipv4, unopened,
};
use flowgauge_core::{
    Active, Bank, Context, Frame as _, HashMode, KeyKind, Link, Precision, Settings, Tabulation,
    tunnel,
};

/// Length of the longest key of an IPv4 packet (a five-tuple, whose last word is the protocol), in
/// words of four bytes.
const WORDS: usize = 4;
/// Length of the longest key of an IPv6 packet, in words of four bytes.
const WORDS_OVER_IPV6: usize = 10;

/// Buffers for batched counting.
pub struct Batch {
    ipv4: KeyColumns<WORDS>,
    ipv6: KeyColumns<WORDS_OVER_IPV6>,
    /// Buffered keys of IPv6 packets, fewer than [`CAPACITY`].
    waiting_ipv6: usize,
    /// Non-IP frames not yet added to the bank.
    run: Run,
    updates: RegisterUpdates,
    key: KeyKind,
    hashed: (HashMode, Precision),
}

/// Writer of packets into a bank, which contains all of them once this is [finished](Self::finish).
///
/// The state that changes with every packet is a part of this type, not of the bank or the batch,
/// so that it stays in registers.
#[must_use = "packets are missing until it is finished"]
pub struct BatchWriter<'a> {
    batch: &'a mut Batch,
    active: Active<'a>,
    context: &'a Context<'a>,
    /// Buffered keys of IPv4 packets, fewer than [`CAPACITY`].
    waiting: usize,
    /// Bytes on the wire not yet added to the bank.
    bytes: u64,
}

impl Batch {
    /// Creates an empty batch; `None` if packets must be counted one by one because other
    /// measurements than windowed distinct flows are on. If the CPU lacks `instructions`, keys are
    /// hashed one by one.
    #[must_use]
    pub fn new(
        settings: &Settings,
        tabulation: &Tabulation,
        instructions: Instructions,
    ) -> Option<Box<Self>> {
        let cardinality = settings.cardinality;
        if cardinality.mode != Mode::Windowed || settings.beyond_cardinality() {
            return None;
        }
        let hashed = (settings.hash, cardinality.precision);
        let [bytes, bytes_over_ipv6] = cardinality.key.lengths();
        Some(Box::new(Batch {
            ipv4: KeyColumns::new(bytes, hashed, tabulation, instructions),
            ipv6: KeyColumns::new(bytes_over_ipv6, hashed, tabulation, instructions),
            waiting_ipv6: 0,
            run: Run::default(),
            updates: RegisterUpdates::EMPTY,
            key: cardinality.key,
            hashed,
        }))
    }

    /// Starts to count in a bank, with the settings and tables that the batch was created for.
    #[inline(always)]
    pub fn fill<'a>(&'a mut self, active: Active<'a>, context: &'a Context<'a>) -> BatchWriter<'a> {
        self.waiting_ipv6 = 0;
        self.run.frames = 0;
        BatchWriter { batch: self, active, context, waiting: 0, bytes: 0 }
    }

    /// Adds the first `keys` keys of IPv4 packets to a bank.
    #[inline(never)]
    fn flush(&mut self, keys: usize, bank: &mut Bank, tabulation: &Tabulation) {
        bank.counters.ipv4 = bank.counters.ipv4.wrapping_add(keys as u64);
        self.ipv4.raise(keys, &mut self.updates, self.hashed, &mut bank.cardinality, tabulation);
    }

    /// Adds the current run of non-IP frames to a bank. The bank's result depends on the order of
    /// EtherTypes, but not on that of other frames.
    #[inline(always)]
    fn end_run(&mut self, bank: &mut Bank) {
        let Run { ethertype, frames } = &mut self.run;
        if *frames > 0 {
            reject(bank, Reject::NonIp(*ethertype), *frames);
            *frames = 0;
        }
    }

    /// Adds all buffered keys of IPv6 packets to a bank.
    #[inline(never)]
    fn flush_ipv6(&mut self, bank: &mut Bank, tabulation: &Tabulation) {
        bank.counters.ipv6 = bank.counters.ipv6.wrapping_add(self.waiting_ipv6 as u64);
        self.ipv6.raise(
            self.waiting_ipv6,
            &mut self.updates,
            self.hashed,
            &mut bank.cardinality,
            tabulation,
        );
        self.waiting_ipv6 = 0;
    }
}

/// Consecutive frames of one EtherType that is not parsed further.
#[derive(Default)]
struct Run {
    ethertype: u16,
    frames: u32,
}

impl Run {
    /// Counts the frame if it belongs to this run.
    #[inline(always)]
    fn extend(&mut self, bytes: &[u8]) -> bool {
        if self.frames == 0 || bytes.number(12) != Some(self.ethertype) {
            return false;
        }
        self.frames += 1;
        true
    }
}

/// Counts an Ethernet frame, except for its bytes, unless it is IPv4, which it returns. The
/// parameters fit into registers: passing the writer or the frame by reference would force them
/// into memory. With `INNER` the innermost network header counts, not the outermost.
#[inline(never)]
fn record_other<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
) -> Option<Ipv4<'a>> {
    // The rest needs few registers, and the final call is a tail call.
    if plain_ipv6(bytes).is_none() {
        if let Some(ip) = tagged_ipv4(bytes)
            && !(INNER && tunnel::may_be(bytes, &Packet::V4(ip)))
        {
            return Some(ip);
        }
        if let Some(ethertype) = unopened(bytes) {
            batch.end_run(bank);
            batch.run = Run { ethertype, frames: 1 };
            return None;
        }
    }
    record_rest::<INNER>(batch, bank, tabulation, bytes)
}

/// Handles the frames that [`record_other`] leaves. Separate from [`record_unlikely`], so that IPv6
/// is found without checking the link layer.
#[inline(never)]
fn record_rest<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
) -> Option<Ipv4<'a>> {
    let packet = match plain_ipv6(bytes) {
        Some(ip) => Ok(Packet::V6(ip)),
        None => network(bytes, Link::Ethernet),
    };
    record_packet(batch, bank, tabulation, bytes, selected::<INNER>(bytes, packet))
}

/// Does the same as [`record_other`] for other link layers.
#[inline(never)]
fn record_unlikely<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
    link: Link,
) -> Option<Ipv4<'a>> {
    let packet = selected::<INNER>(bytes, network(bytes, link));
    record_packet(batch, bank, tabulation, bytes, packet)
}

/// Counts the innermost network header of an IPv4 packet, unless it is IPv4, which it returns.
#[inline(never)]
fn record_innermost<'a>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
    ip: Ipv4<'a>,
) -> Option<Ipv4<'a>> {
    let packet = selected::<true>(bytes, Ok(Packet::V4(ip)));
    record_packet(batch, bank, tabulation, bytes, packet)
}

/// Returns the packet whose header counts, given the outermost one.
#[inline(always)]
fn selected<'a, const INNER: bool>(
    bytes: &'a [u8],
    outermost: Result<Packet<'a>, Reject>,
) -> Result<Packet<'a>, Reject> {
    match outermost {
        Ok(packet) if INNER && tunnel::may_be(bytes, &packet) => {
            Ok(tunnel::innermost(bytes, packet))
        }
        packet => packet,
    }
}

/// Counts a packet, unless it is IPv4, which it returns.
#[inline(always)]
fn record_packet<'a>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    bytes: &'a [u8],
    packet: Result<Packet<'a>, Reject>,
) -> Option<Ipv4<'a>> {
    match packet {
        Ok(Packet::V4(ip)) => return Some(ip),
        Ok(packet @ Packet::V6(_)) => {
            let (key, (hash, _)) = (batch.key, batch.hashed);
            let (at, transport) = (batch.waiting_ipv6, key.transport(bytes, &packet));
            let is_keyed = hash == HashMode::Keyed;
            batch.ipv6.put(at, key, is_keyed, tabulation, &packet, transport);
            batch.waiting_ipv6 += 1;
            if batch.waiting_ipv6 == CAPACITY {
                batch.flush_ipv6(bank, tabulation);
            }
        }
        Err(cause) => {
            batch.end_run(bank);
            reject(bank, cause, 1);
        }
    }
    None
}

/// Parses a frame that is not plain IPv4 and, if the filter admits it, counts its bytes and the
/// packet, unless it is IPv4, which it returns. A reference to the frame would force every frame
/// into memory, as in [`record_other`].
#[inline(never)]
fn record_admitted<'a, const INNER: bool>(
    batch: &mut Batch,
    bank: &mut Bank,
    tabulation: &Tabulation,
    filter: &Matcher,
    bytes: &'a [u8],
    link: Link,
    wire_length: u32,
) -> Option<Ipv4<'a>> {
    let outermost = match plain_ipv6(bytes) {
        Some(ip) if link == Link::Ethernet => Ok(Packet::V6(ip)),
        _ => network(bytes, link),
    };
    let packet = selected::<INNER>(bytes, outermost);
    if !filter.admits(link, bytes, &packet, wire_length) {
        bank.counters.leave_out(1, wire_length.into());
        return None;
    }
    bank.counters.bytes = bank.counters.bytes.wrapping_add(wire_length.into());
    record_packet(batch, bank, tabulation, bytes, packet)
}

#[inline(always)]
fn reject(bank: &mut Bank, cause: Reject, frames: u32) {
    bank.counters.reject(cause, frames.into());
    if let Reject::NonIp(ethertype) = cause {
        bank.unopened.vote(ethertype, frames);
    }
}

impl BatchWriter<'_> {
    /// Counts a frame as [`Active::record`] does. `key` is that of the settings; passed as a
    /// constant, it lets the compiler specialise the code, like `KEYED` (whether the hash of the
    /// settings is [`HashMode::Keyed`]) and `INNER` (whether the innermost network header counts).
    /// The remaining settings stay out of the hot code.
    #[inline(always)]
    pub fn record<const KEYED: bool, const INNER: bool>(
        &mut self,
        key: KeyKind,
        frame: &PortFrame<'_>,
    ) {
        let PortFrame { bytes, wire_length, link, .. } = *frame;
        let tabulation = self.context.tabulation;
        let (batch, bank) = (&mut *self.batch, &mut *self.active.bank);
        self.bytes = self.bytes.wrapping_add(u64::from(wire_length));
        let found = match link {
            Link::Ethernet => match plain_ipv4(bytes) {
                None if batch.run.extend(bytes) => return,
                None => record_other::<INNER>(batch, bank, tabulation, bytes),
                Some(ip) if INNER && tunnel::may_be(bytes, &Packet::V4(ip)) => {
                    record_innermost(batch, bank, tabulation, bytes, ip)
                }
                found => found,
            },
            _ => record_unlikely::<INNER>(batch, bank, tabulation, bytes, link),
        };
        let Some(ip) = found else { return };
        self.put::<KEYED>(key, bytes, ip);
    }

    /// Buffers the key of an IPv4 packet.
    #[inline(always)]
    fn put<const KEYED: bool>(&mut self, key: KeyKind, bytes: &[u8], ip: Ipv4<'_>) {
        let packet = Packet::V4(ip);
        let (transport, tabulation) = (key.transport(bytes, &packet), self.context.tabulation);
        self.batch.ipv4.put(self.waiting, key, KEYED, tabulation, &packet, transport);
        self.advance(1);
    }

    /// As [`record`](Self::record), if the filter admits the frame. A frame is parsed once.
    #[inline(always)]
    pub fn record_matching<const KEYED: bool, const INNER: bool>(
        &mut self,
        filter: &Matcher,
        key: KeyKind,
        frame: &PortFrame<'_>,
    ) {
        let PortFrame { bytes, wire_length, link, .. } = *frame;
        let tabulation = self.context.tabulation;
        let (batch, bank) = (&mut *self.batch, &mut *self.active.bank);
        let plain = if link == Link::Ethernet { plain_ipv4(bytes) } else { None };
        let found = match plain {
            Some(ip) if !(INNER && tunnel::may_be(bytes, &Packet::V4(ip))) => {
                if !filter.admits_plain(bytes, ip, wire_length) {
                    return bank.counters.leave_out(1, wire_length.into());
                }
                self.bytes = self.bytes.wrapping_add(u64::from(wire_length));
                Some(ip)
            }
            _ => {
                record_admitted::<INNER>(batch, bank, tabulation, filter, bytes, link, wire_length)
            }
        };
        let Some(ip) = found else { return };
        self.put::<KEYED>(key, bytes, ip);
    }

    /// Counts keys of IPv4 packets without frames or bytes. Each key has the words of
    /// [`KeyKind::lay_out`], whose first byte is the lowest.
    ///
    /// # Panics
    /// If a key of the settings does not have `N` words.
    pub fn extend<const N: usize>(&mut self, mut keys: &[[u32; N]]) {
        let (key, (hash, _)) = (self.batch.key, self.batch.hashed);
        let [bytes, _] = key.lengths();
        assert!(bytes.div_ceil(4) == N, "keys of {bytes} bytes, and not of {N} words");
        while !keys.is_empty() {
            let (now, later) = keys.split_at(keys.len().min(CAPACITY - self.waiting));
            self.batch.ipv4.put_all(self.waiting, hash, self.context.tabulation, now);
            self.advance(now.len());
            keys = later;
        }
    }

    /// Buffers `keys` more keys, which must fit, and flushes a full buffer.
    #[inline(always)]
    fn advance(&mut self, keys: usize) {
        self.waiting += keys;
        if self.waiting == CAPACITY {
            self.batch.flush(CAPACITY, self.active.bank, self.context.tabulation);
            self.waiting = 0;
        }
    }

    /// Adds the rest to the bank. Not done in `drop`: a value that is dropped during unwinding
    /// would have to be in memory.
    #[inline(always)]
    pub fn finish(self) {
        let counters = &mut self.active.bank.counters;
        counters.bytes = counters.bytes.wrapping_add(self.bytes);
        if self.waiting > 0 {
            self.batch.flush(self.waiting, self.active.bank, self.context.tabulation);
        }
        if self.batch.waiting_ipv6 > 0 {
            self.batch.flush_ipv6(self.active.bank, self.context.tabulation);
        }
        self.batch.end_run(self.active.bank);
    }
}

#[cfg(test)]
pub(super) mod tests;
