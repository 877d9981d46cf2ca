//! Hashes of flow keys, which measurements share: CRCs, and the tables of words by which these are
//! tabulated.

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

/// Four tables from a byte of the CRC, most significant first, to a word: those of the hash of
/// registers.
const REGISTERS: &str = "hash.tabulation";
const BYTE: &str = "byte";

/// The hash of registers that a program has.
pub(super) fn find(schema: &Schema) -> Result<HashMode, Failure> {
    match schema.table(&name(REGISTERS, 0)) {
        Ok(_) => Ok(HashMode::Tabulated),
        Err(SchemaError::Missing { .. }) => Ok(HashMode::Crc32),
        Err(error) => Err(Failure::program(error)),
    }
}

fn name(tabulation: &str, index: usize) -> String {
    format!("{tabulation}.words{index}")
}

/// The tables of the hash of registers.
pub(super) fn words(hash: HashMode) -> impl Iterator<Item = MatchTable> {
    tabulation(REGISTERS.to_owned()).filter(move |_| hash == HashMode::Tabulated)
}

/// The tables of a control that tabulates, with the words of the hash of registers.
pub(super) fn tabulation(control: String) -> impl Iterator<Item = MatchTable> {
    tables(control, |words, index| {
        words.tables().get(index).into_iter().flatten().map(|word| u64::from(*word)).collect()
    })
}

/// The tables of a key's words for rows.
pub(super) fn row_words(by: KeyKind) -> impl Iterator<Item = MatchTable> {
    tables(format!("hash.{}_rows.tabulation", names::key(by)), |words, index| {
        let [block, ..] = words.rows();
        block.get(index).into_iter().flatten().copied().collect()
    })
}

/// The four tables of a control that tabulates: a word of 64 bits for every byte, of which some
/// hashes take the lower half alone.
fn tables(
    control: String,
    words: fn(&Tabulation, usize) -> Vec<u64>,
) -> impl Iterator<Item = MatchTable> {
    (0..4).map(move |index| {
        let filling = move |held: &Held| {
            let entries =
                (0..=u8::MAX).zip(words(&held.tables.tabulation, index)).map(|(byte, word)| {
                    let halves =
                        [word as u32, (word >> 32) as u32].map(|half| half.to_be_bytes().to_vec());
                    (vec![(BYTE, Match::Exact(vec![byte]))], halves.to_vec())
                });
            Filling { entries: entries.collect(), default: None }
        };
        let parameters = ["low", "high"].map(|half| (half, 32)).to_vec();
        MatchTable::new(
            name(&control, index),
            vec![(BYTE, 8)],
            format!("set_words{index}"),
            parameters,
            filling,
        )
    })
}

/// Checks that what is said to be by this key is: by what the program's hash units take.
pub(super) fn check_key(schema: &Schema, key: KeyKind) -> Result<(), Failure> {
    // The tables by which a key's CRCs could be computed; their key fields are the flow key's.
    for table in
        ["ipv4", "ipv6"].map(|family| format!("hash.{}.{family}_crc.compute", names::key(key)))
    {
        let table = schema
            .table(&table)
            .map_err(|error| Failure::program(format!("{error}; is it p4/flowgauge.p4?")))?;
        let ends = |name: &str, end: &str| {
            name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let fields: Vec<&str> = table.keys.iter().map(|key| &*key.name).collect();
        let found = match fields[..] {
            [src] if ends(src, SRC) => Some(KeyKind::Src),
            [dst] if ends(dst, DST) => Some(KeyKind::Dst),
            [src, dst] if ends(src, SRC) && ends(dst, DST) => Some(KeyKind::SrcDst),
            [src, dst, ports, protocol]
                if ends(src, SRC)
                    && ends(dst, DST)
                    && ends(ports, PORTS)
                    && PROTOCOL.iter().any(|name| ends(protocol, name)) =>
            {
                Some(KeyKind::FiveTuple)
            }
            _ => None,
        };
        if found != Some(key) {
            let fields = fields.join(", ");
            return Err(Failure::program(format!(
                "{} hashes {fields}, which is not the key {}",
                table.name,
                key.name()
            )));
        }
    }
    Ok(())
}
