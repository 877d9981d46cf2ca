//! Hashes of flow keys, which measurements share: CRCs, and the tables of words by which these are tabulated.

use super::names;
use super::table::{Filling, Held, MatchTable};
use crate::error::Failure;
use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::schema::{Schema, SchemaError};
use flowgauge_core::{HashMode, KeyKind, Tabulation};

/// How the fields of CRCs end.
const SRC: &str = "src_addr";
const DST: &str = "dst_addr";
const PORTS: &str = "ports";
const PROTOCOL: [&str; 2] = ["protocol", "next_header"];

/// A table from a byte of the CRC, most significant first, to a word of the hash of registers.
fn name(index: usize) -> String {
    format!("hash.tabulation.words{index}")
}
const BYTE: &str = "byte";

/// The hash of registers that a program has.
pub(super) fn find(schema: &Schema) -> Result<HashMode, Failure> {
    match schema.table(&name(0)) {
        Ok(_) => Ok(HashMode::Tabulated),
        Err(SchemaError::Missing { .. }) => Ok(HashMode::Crc32),
        Err(error) => Err(Failure::program(error)),
    }
}

/// The tables of the hash of registers.
pub(super) fn words(hash: HashMode) -> impl Iterator<Item = MatchTable> {
    tabulation(name).filter(move |_| hash == HashMode::Tabulated)
}

/// Four tables with the words of the hash of registers, whatever they are called.
pub(super) fn tabulation(name: impl Fn(usize) -> String) -> impl Iterator<Item = MatchTable> {
    (0..4).map(move |index| {
        let words = move |words: &Tabulation| words.tables().get(index).into_iter().flatten().map(|word| vec![*word]).collect();
        of_bytes(name(index), format!("set_word{index}"), &["word"], words)
    })
}

/// The tables of a key's words for rows: of two halves, the lower one first.
pub(super) fn row_words(by: KeyKind) -> impl Iterator<Item = MatchTable> {
    (0..4).map(move |index| {
        let words = move |words: &Tabulation| {
            let [block, ..] = words.rows();
            block.get(index).into_iter().flatten().map(|word| vec![*word as u32, (*word >> 32) as u32]).collect()
        };
        let name = format!("hash.{}_rows.words{index}", names::key(by));
        of_bytes(name, format!("set_words{index}"), &["rows01", "rows23"], words)
    })
}

/// A table with words for every byte.
fn of_bytes(
    name: String,
    action: String,
    parameters: &[&'static str],
    words: impl Fn(&Tabulation) -> Vec<Vec<u32>> + 'static,
) -> MatchTable {
    let filling = move |held: &Held| {
        let entries = (0..=u8::MAX).zip(words(&held.tables.tabulation)).map(|(byte, words)| {
            let words = words.into_iter().map(|word| word.to_be_bytes().to_vec());
            (vec![(BYTE, Match::Exact(vec![byte]))], words.collect())
        });
        Filling { entries: entries.collect(), default: None }
    };
    let parameters = parameters.iter().map(|name| (*name, 32)).collect();
    MatchTable::new(name, vec![(BYTE, 8)], action, parameters, filling)
}

/// Checks that what is said to be by this key is: by what the program's hash units take.
pub(super) fn check_key(schema: &Schema, key: KeyKind) -> Result<(), Failure> {
    // The tables by which a key's CRCs could be computed; their key fields are the flow key's.
    for table in ["ipv4", "ipv6"].map(|family| format!("hash.{}.{family}_crc.compute", names::key(key))) {
        let table = schema.table(&table).map_err(|error| Failure::program(format!("{error}; is it p4/flowgauge.p4?")))?;
        let ends = |name: &str, end: &str| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        let fields: Vec<&str> = table.keys.iter().map(|key| &*key.name).collect();
        let found = match fields[..] {
            [src] if ends(src, SRC) => Some(KeyKind::Src),
            [dst] if ends(dst, DST) => Some(KeyKind::Dst),
            [src, dst] if ends(src, SRC) && ends(dst, DST) => Some(KeyKind::SrcDst),
            [src, dst, ports, protocol]
                if ends(src, SRC) && ends(dst, DST) && ends(ports, PORTS) && PROTOCOL.iter().any(|name| ends(protocol, name)) =>
            {
                Some(KeyKind::FiveTuple)
            }
            _ => None,
        };
        if found != Some(key) {
            let fields = fields.join(", ");
            return Err(Failure::program(format!("{} hashes {fields}, which is not the key {}", table.name, key.name())));
        }
    }
    Ok(())
}
