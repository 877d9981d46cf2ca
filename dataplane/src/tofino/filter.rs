//! Filters (`--match`) on a switch: ternary entries, one for each rule.
//!
//! A program that was compiled with [`DEFINITION`] has a table for IPv4, one for IPv6 and one for
//! all other frames. Entries name their bank: before a window is closed, the inactive bank gets the
//! filter of the next one. Only what a rule can compare differs from software: an ingress pipeline
//! does not know the length of a frame, and the parser does not follow all chains of IPv6 extension
//! headers. The transport header after such a chain is unknown. Packets whose verdict depends on it
//! are counted in a class of their own, as a part of the unmatched ones.

use super::limits::unmatchable;
use super::names;
use super::statement::StatedSettings;
use super::table::{DesiredState, MatchTable, TableContents};
use crate::capabilities::Capabilities;
use crate::error::{Error, Failure};
use flowgauge_bfruntime::schema::Schema;
use flowgauge_bfruntime::{Entry, Match, codec};
use flowgauge_core::filter::MatchRules;
use flowgauge_core::filter::fields::{
    ADDRESSES, FLAGS_SHIFT, FRAME, HAS_FLAGS, HAS_PORTS, IPV4_WORDS, IPV6_WORDS, PORTS, PROTOCOL,
    PROTOCOL_SHIFT, TAGGED, VLAN_MASK, VLAN_SHIFT,
};
use flowgauge_core::{BANKS, Filter};
use std::sync::Arc;

/// Compiler definition of a program that filters.
const DEFINITION: &str = "FLOWGAUGE_MATCH";
const IPV4: &str = "counters.match.ipv4";
const IPV6: &str = "counters.match.ipv6";
const OTHERS: &str = "counters.match.others";
/// Entries that the tables have room for, in both banks.
const ROOM: [(&str, u64); 3] = [(IPV4, 512), (IPV6, 1024), (OTHERS, 512)];
const SET_CLASS: &str = "set_class";
const BANK: &str = "bank";
const BANK_BITS: u32 = 1;
const CLASS: &str = "class";
const CLASS_BITS: u32 = 3;
/// Bits of an address.
const IPV4_BITS: u32 = 32;
const IPV6_BITS: u32 = 128;
const IS_KNOWN: &str = "is_known";
/// Parameters of [`SET_CLASS`].
const PARAMETERS: [(&str, u32); 2] = [(CLASS, CLASS_BITS), ("sound", 1)];

/// Classes of frames, as the program counts them.
const CLASS_IPV4: u32 = 0;
const CLASS_IPV6: u32 = 1;
const CLASS_NON_IP: u32 = 2;
const CLASS_TRUNCATED: u32 = 3;
const CLASS_BAD_HEADER: u32 = 4;
const CLASS_UNMATCHED: u32 = 5;
const CLASS_UNDECIDED: u32 = 6;

/// Classes of frames that the filter leaves out, as indices.
pub(super) const IS_LEFT_OUT: [usize; 2] = [CLASS_UNMATCHED as usize, CLASS_UNDECIDED as usize];

/// Field of a table's key: its name and width, and where the rules have it.
#[derive(Clone, Copy)]
struct KeyField {
    name: &'static str,
    bits: u32,
    word: usize,
    shift: u32,
}

const fn field(name: &'static str, bits: u32, word: usize, shift: u32) -> KeyField {
    KeyField { name, bits, word, shift }
}

const FRAME_FIELDS: [KeyField; 2] = [
    field("tagged", 1, FRAME, TAGGED.trailing_zeros()),
    field("vlan", VLAN_MASK.count_ones(), FRAME, VLAN_SHIFT),
];
const TRANSPORT_FIELDS: [KeyField; 5] = [
    field("protocol", 8, PROTOCOL, PROTOCOL_SHIFT),
    field("flags", 8, PROTOCOL, FLAGS_SHIFT),
    field("has_flags", 1, PROTOCOL, HAS_FLAGS.trailing_zeros()),
    field("has_ports", 1, PROTOCOL, HAS_PORTS.trailing_zeros()),
    field("ports", 32, PORTS, 0),
];

/// Returns the key fields of a table for packets whose addresses have this width.
fn packet_fields(address_bits: u32) -> Vec<KeyField> {
    let words = (address_bits / u32::BITS) as usize;
    let addresses = [
        field("src", address_bits, ADDRESSES, 0),
        field("dst", address_bits, ADDRESSES + words, 0),
    ];
    [&FRAME_FIELDS[..], &TRANSPORT_FIELDS, &addresses].concat()
}

impl KeyField {
    /// Returns the field in the words of a rule, as big-endian bytes.
    fn of(&self, words: &[u32]) -> Vec<u8> {
        if self.bits > u32::BITS {
            let words = words.iter().skip(self.word).take((self.bits / u32::BITS) as usize);
            return words.flat_map(|word| word.to_be_bytes()).collect();
        }
        let word = words.get(self.word).copied().unwrap_or_default() >> self.shift;
        names::bytes(word & (u32::MAX >> (u32::BITS - self.bits)), self.bits)
    }
}

/// Returns whether a program has the tables.
pub(super) fn is_possible(program: &StatedSettings) -> Result<bool, Failure> {
    program.is_on(DEFINITION)
}

/// Checks that the tables of a program have room for the rules of both banks.
pub(super) fn check_room(schema: &Schema) -> Result<(), Failure> {
    ROOM.iter().try_for_each(|(name, room)| {
        let table = schema.table(name).map_err(Failure::program)?;
        if table.size == *room {
            return Ok(());
        }
        Err(Failure::mismatch(&table.name, format!("of {} entries", table.size), room.to_string()))
    })
}

/// Number of entries that a filter takes in one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterEntries {
    /// Packets that the table is for.
    pub family: &'static str,
    /// Entries of the filter.
    pub entries: usize,
    /// Entries that a bank has room for.
    pub room: usize,
}

/// Returns the number of entries that a filter takes on a switch.
#[must_use]
pub fn filter_entries(filter: &Filter) -> [FilterEntries; 3] {
    let entries = [
        ("IPv4", ipv4_entries(filter).len()),
        ("IPv6", ipv6_entries(filter).len()),
        ("other frames", other_entries(filter).len()),
    ];
    let mut rooms = ROOM.into_iter().map(|(_, room)| room as usize / BANKS);
    entries.map(|(family, entries)| {
        let room = rooms.next().unwrap_or_default();
        FilterEntries { family, entries, room }
    })
}

/// Returns whether a table is one of a filter's.
pub(super) fn is_table(name: &str) -> bool {
    [IPV4, IPV6, OTHERS].contains(&name)
}

/// Returns whether an entry of a filter's table is for a bank.
pub(super) fn is_of_bank(entry: &Entry, bank: usize) -> bool {
    let key = entry.place.key().and_then(|key| key.get(BANK));
    matches!(key, Some(Match::Ternary { value, .. }) if *value == names::bytes(bank as u32, BANK_BITS))
}

/// Checks that a program with these capabilities can filter so.
pub(super) fn check(filter: &Filter, capabilities: &Capabilities) -> Result<(), Error> {
    let refuse = |what: &str, advice: String| {
        Err(Error::Unsupported { backend: capabilities.backend, what: what.to_owned(), advice })
    };
    if !capabilities.filter {
        let advice = format!(
            "compile the switch's program with -D{DEFINITION}=1 too, leave out --match, or count with --backend poll"
        );
        return refuse("filter packets (--match) with this program", advice);
    }
    match unmatchable(filter) {
        Some(what) => refuse(
            &format!("match {what}"),
            "leave this condition out, or count with --backend poll".to_owned(),
        ),
        None => Ok(()),
    }
}

/// Describes packets that the switch could not classify.
pub(super) fn undecided(packets: u64) -> String {
    format!(
        "{packets} packets of the window are behind IPv6 extension headers that the switch does not follow, and whether they match depends on \
         what is behind them; they are counted as unmatched"
    )
}

/// Returns the match tables.
pub(super) fn tables() -> Vec<MatchTable> {
    let keys = |others: &[(&'static str, u32)], fields: &[KeyField]| {
        let fields = fields.iter().map(|field| (field.name, field.bits));
        [(BANK, BANK_BITS)].into_iter().chain(others.iter().copied()).chain(fields).collect()
    };
    let table = |name: &str, keys, filling: fn(&Filter) -> Vec<FilterEntry>| {
        let filling = move |desired: &DesiredState| {
            let of_bank = |(bank, filter): (u32, &Option<Arc<Filter>>)| {
                let entries = filter.as_ref().map(|filter| filling(filter)).unwrap_or_default();
                (0_u32..).zip(entries).map(move |(priority, entry)| entry.of_bank(bank, priority))
            };
            let entries = (0_u32..).zip(&desired.filters).flat_map(of_bank).collect();
            TableContents { entries, default: None }
        };
        MatchTable::new(name.to_owned(), keys, SET_CLASS, PARAMETERS.to_vec(), filling)
    };
    vec![
        table(IPV4, keys(&[], &packet_fields(IPV4_BITS)), ipv4_entries),
        table(IPV6, keys(&[(IS_KNOWN, 1)], &packet_fields(IPV6_BITS)), ipv6_entries),
        table(OTHERS, keys(&[(CLASS, CLASS_BITS)], &FRAME_FIELDS), other_entries),
    ]
}

/// Entry of a filter's table: what it compares, in order of the key, and the class that it gives.
struct FilterEntry {
    parts: Vec<(&'static str, Match)>,
    class: u32,
}

impl FilterEntry {
    /// Creates an entry that compares these fields with words of a rule.
    fn new(fields: &[KeyField], value: &[u32], mask: &[u32], class: u32) -> Self {
        let part = |field: &KeyField| {
            (field.name, Match::Ternary { value: field.of(value), mask: field.of(mask) })
        };
        FilterEntry { parts: fields.iter().map(part).collect(), class }
    }

    /// Returns the entry, with a condition on a number that is in no rule; a mask of zero means
    /// any.
    fn with(mut self, name: &'static str, value: u32, mask: u32, bits: u32) -> Self {
        let [value, mask] = [value, mask].map(|number| names::bytes(number, bits));
        self.parts.push((name, Match::Ternary { value, mask }));
        self
    }

    /// Returns the key and the parameters of the entry for a bank. The first entry that a packet
    /// meets decides.
    fn of_bank(self, bank: u32, priority: u32) -> (Vec<(&'static str, Match)>, Vec<Vec<u8>>) {
        let is_counted = matches!(self.class, CLASS_IPV4 | CLASS_IPV6);
        let values = vec![names::bytes(self.class, CLASS_BITS), vec![is_counted.into()]];
        let mut parts = self.with(BANK, bank, 1, BANK_BITS).parts;
        parts.push((codec::PRIORITY, Match::Exact(priority.to_be_bytes().to_vec())));
        (parts, values)
    }
}

/// Returns the class of each rule's packets, and of those that meet no rule.
fn verdicts<const WORDS: usize>(
    rules: &MatchRules<WORDS>,
    class: u32,
) -> impl Iterator<Item = ([u32; WORDS], [u32; WORDS], u32)> {
    let class_if = move |is_match: bool| if is_match { class } else { CLASS_UNMATCHED };
    let each =
        rules.rules().iter().map(move |rule| (rule.value, rule.mask, class_if(rule.verdict != 0)));
    each.chain([([0; WORDS], [0; WORDS], class_if(rules.otherwise()))])
}

fn ipv4_entries(filter: &Filter) -> Vec<FilterEntry> {
    let fields = packet_fields(IPV4_BITS);
    let entry = |(value, mask, class): ([u32; IPV4_WORDS], [u32; IPV4_WORDS], u32)| {
        FilterEntry::new(&fields, &value, &mask, class)
    };
    verdicts(&filter.ipv4, CLASS_IPV4).map(entry).collect()
}

/// Returns the entries for IPv6. A rule that looks at the transport header is for packets that have
/// a known one. It is followed by an entry for the others that may meet it, unless an earlier one
/// covers them.
fn ipv6_entries(filter: &Filter) -> Vec<FilterEntry> {
    let fields = packet_fields(IPV6_BITS);
    let mut entries = Vec::new();
    let mut covered: Vec<([u32; IPV6_WORDS], [u32; IPV6_WORDS])> = Vec::new();
    for (value, mask, class) in verdicts(&filter.ipv6, CLASS_IPV6) {
        let (mut known_value, mut known_mask) = (value, mask);
        for word in [PROTOCOL, PORTS] {
            (known_value[word], known_mask[word]) = (0, 0);
        }
        let reads_transport = u32::from(known_mask != mask);
        let entry = FilterEntry::new(&fields, &value, &mask, class);
        entries.push(entry.with(IS_KNOWN, reads_transport, reads_transport, 1));
        let is_covered =
            || covered.iter().any(|(value, mask)| covers(value, mask, &known_value, &known_mask));
        if reads_transport != 0 && !is_covered() {
            let undecided = FilterEntry::new(&fields, &known_value, &known_mask, CLASS_UNDECIDED);
            entries.push(undecided.with(IS_KNOWN, 0, 1, 1));
            covered.push((known_value, known_mask));
        }
    }
    entries
}

/// Returns the entries for frames without an IP packet: those that carry none, and those that
/// cannot be read.
fn other_entries(filter: &Filter) -> Vec<FilterEntry> {
    let entries = |rules, class| {
        verdicts(rules, class).map(move |(value, mask, verdict)| {
            let entry = FilterEntry::new(&FRAME_FIELDS, &value, &mask, verdict);
            entry.with(CLASS, class, (1 << CLASS_BITS) - 1, CLASS_BITS)
        })
    };
    let unreadable = &filter.unreadable;
    let lists = [
        entries(&filter.non_ip, CLASS_NON_IP),
        entries(unreadable, CLASS_TRUNCATED),
        entries(unreadable, CLASS_BAD_HEADER),
    ];
    lists.into_iter().flatten().collect()
}

/// Returns whether a condition holds for all packets of another one.
fn covers(value: &[u32], mask: &[u32], other_value: &[u32], other_mask: &[u32]) -> bool {
    value.iter().zip(mask).zip(other_value.iter().zip(other_mask)).all(
        |((value, mask), (other_value, other_mask))| {
            mask & !other_mask == 0 && (value ^ other_value) & mask == 0
        },
    )
}
