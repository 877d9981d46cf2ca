//! What `p4/flowgauge.p4` calls things. Names are looked up in the schema that the switch reports, where leading parts may
//! differ: a program that includes flowgauge has it under names of its own.

use flowgauge_core::{KeyKind, SketchKind};

/// Table without a key whose default action says which bank counts.
pub(super) const BANK: &str = "flowgauge.bank";
pub(super) const SET_BANK: &str = "set_bank";
pub(super) const BANK_PARAMETER: &str = "bank";

/// Longest-prefix table of distinct flows, from rank bits to level.
pub(super) const RANK: &str = "rank";
pub(super) const RANK_KEY: &str = "rank_bits";
pub(super) const SET_LEVEL: &str = "set_level";
pub(super) const LEVEL_PARAMETER: &str = "level";

/// Registers of both banks, bank by bank.
pub(super) const REGISTERS: &str = "registers";
/// Ends the full name of a register's only datum.
pub(super) const REGISTER_VALUE: &str = "f1";
pub(super) const REGISTER_INDEX: &str = "$REGISTER_INDEX";

/// Longest-prefix table of an entropy, from a flow's count to what it adds to the sum.
pub(super) const LOGARITHM: &str = "logarithm";
pub(super) const LOGARITHM_KEY: &str = "count";
pub(super) const SET_TERM: &str = "set_term";
pub(super) const TERM_PARAMETERS: [&str; 2] = ["value", "inverted"];
/// Sums of both banks, in two halves.
pub(super) const SUM: &str = "sum";
pub(super) const SUM_HALVES: [&str; 2] = ["low", "high"];

/// Ternary table of heavy hitters, from the smaller count and the coin to whether a packet's flow takes the slot.
pub(super) const ADMISSION: &str = "admission";
pub(super) const ADMISSION_KEYS: [&str; 2] = ["count", "coin"];
pub(super) const ADMIT: &str = "admit";
/// Packets among which heavy hitters are found.
pub(super) const HEAVY_PACKETS: &str = "packets";
pub(super) const FLOW: [&str; 2] = ["signature", "count"];
pub(super) const ORIGIN: &str = "origin";
pub(super) const ORIGIN_FIELDS: [&str; 2] = ["inherited", "version"];
const HALF: [&str; 2] = ["high", "low"];
const SERVICE: [&str; 2] = ["ports", "protocol"];

/// Packets and bytes, indexed by bank and, in the lower three bits, class.
pub(super) const FRAMES: &str = "counters.frames";
pub(super) const COUNTER_INDEX: &str = "$COUNTER_INDEX";
pub(super) const PACKETS: &str = "$COUNTER_SPEC_PKTS";
pub(super) const BYTES: &str = "$COUNTER_SPEC_BYTES";
/// Classes that a bank has room for.
pub(super) const CLASSES: usize = 8;

/// Exact table from the port a frame came in at to the one it leaves at.
pub(super) const FORWARD: &str = "forward.ports";
pub(super) const FORWARD_KEY: &str = "ingress_port";
pub(super) const SEND: &str = "send";
pub(super) const SEND_PARAMETER: &str = "port";
/// Bits of a port number.
pub(super) const PORT_BITS: u32 = 9;

/// Tables from a byte of the CRC, most significant first, to a word of the hash of registers.
pub(super) const TABULATION: [&str; 4] =
    ["hash.tabulation.words0", "hash.tabulation.words1", "hash.tabulation.words2", "hash.tabulation.words3"];
pub(super) const TABULATION_KEY: &str = "byte";
pub(super) const SET_WORD: [&str; 4] = ["set_word0", "set_word1", "set_word2", "set_word3"];
pub(super) const WORD_PARAMETER: &str = "word";
/// The same for hashes of rows, in two halves, the lower one first.
pub(super) const SET_WORDS: [&str; 4] = ["set_words0", "set_words1", "set_words2", "set_words3"];
pub(super) const WORDS_PARAMETERS: [&str; 2] = ["rows01", "rows23"];

/// How the fields of CRCs end.
pub(super) const SRC: &str = "src_addr";
pub(super) const DST: &str = "dst_addr";
pub(super) const PORTS: &str = "ports";
pub(super) const PROTOCOL: [&str; 2] = ["protocol", "next_header"];

/// A flow key as part of a name.
fn key(key: KeyKind) -> &'static str {
    match key {
        KeyKind::Src => "src",
        KeyKind::Dst => "dst",
        KeyKind::SrcDst => "src_dst",
        KeyKind::FiveTuple => "five_tuple",
    }
}

/// A part of a measurement by a key.
pub(super) fn of(measurement: &str, by: KeyKind, part: &str) -> String {
    format!("{measurement}_by_{}.{part}", key(by))
}

/// A row of a sketch.
pub(super) fn sketch_row(kind: SketchKind, row: usize) -> String {
    match kind {
        SketchKind::CountSketch => format!("count_sketch{row}"),
        SketchKind::CountMin => format!("count_min{row}"),
    }
}

/// A row of a filter.
pub(super) fn filter_row(row: usize) -> String {
    format!("bits{row}")
}

/// The slots of a stage of heavy hitters.
pub(super) fn flows(stage: usize) -> String {
    format!("flows{stage}")
}

/// Where the slots' keys are: tables, their fields, and which words of a key these hold.
pub(super) fn key_words(by: KeyKind) -> impl Iterator<Item = (&'static str, &'static [&'static str; 2], usize)> {
    let src = [("src_upper", &HALF, 0), ("src_lower", &HALF, 2)];
    let dst = [("dst_upper", &HALF, 4), ("dst_lower", &HALF, 6)];
    let src = src.into_iter().filter(move |_| by != KeyKind::Dst);
    let dst = dst.into_iter().filter(move |_| by != KeyKind::Src);
    src.chain(dst).chain((by == KeyKind::FiveTuple).then_some(("service", &SERVICE, 8)))
}

/// The tables by which a key's CRCs could be computed; their key fields are the flow key's.
pub(super) fn crcs(by: KeyKind) -> [String; 2] {
    ["ipv4", "ipv6"].map(|family| format!("hash.{}.{family}_crc.compute", key(by)))
}

/// The tables of a key's words for rows.
pub(super) fn row_words(by: KeyKind) -> [String; 4] {
    [0, 1, 2, 3].map(|index| format!("hash.{}_rows.words{index}", key(by)))
}
