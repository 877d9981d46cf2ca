//! What `p4/flowgauge.p4` calls things. Names are looked up in the schema that the switch reports, where leading parts may
//! differ: a program that includes flowgauge has it under names of its own.

/// Table without a key whose default action says which bank counts.
pub(super) const BANK: &str = "flowgauge.bank";
pub(super) const SET_BANK: &str = "set_bank";
pub(super) const BANK_PARAMETER: &str = "bank";

/// Longest-prefix table from rank bits to level.
pub(super) const RANK: &str = "cardinality.rank";
pub(super) const RANK_KEY: &str = "rank_bits";
pub(super) const SET_LEVEL: &str = "set_level";
pub(super) const LEVEL_PARAMETER: &str = "level";

/// Registers of both banks, bank by bank.
pub(super) const REGISTERS: &str = "cardinality.registers";
/// Ends the full name of a register's only datum.
pub(super) const REGISTER_VALUE: &str = "f1";
pub(super) const REGISTER_INDEX: &str = "$REGISTER_INDEX";

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

/// Tables from a byte of the CRC, most significant first, to a word.
pub(super) const TABULATION: [&str; 4] = ["hash.tabulation0", "hash.tabulation1", "hash.tabulation2", "hash.tabulation3"];
pub(super) const TABULATION_KEY: &str = "byte";
pub(super) const SET_WORD: [&str; 4] = ["set_word0", "set_word1", "set_word2", "set_word3"];
pub(super) const WORD_PARAMETER: &str = "word";

/// Tables by which a CRC could be computed; their key fields are the flow key's.
pub(super) const KEY_FIELDS: [&str; 2] = ["hash.ipv4_crc.compute", "hash.ipv6_crc.compute"];
/// How those fields' names end, for each key.
pub(super) const SRC: &str = "src_addr";
pub(super) const DST: &str = "dst_addr";
pub(super) const PORTS: &str = "ports";
pub(super) const PROTOCOL: [&str; 2] = ["protocol", "next_header"];
