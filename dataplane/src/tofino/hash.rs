//! Hashes of flow keys, shared by measurements: CRCs, and the tables of words that tabulate them.

use super::names;
use super::table::{DesiredState, MatchTable, TableContents};
use crate::error::Failure;
use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::{HashMode, KeyKind, Tabulation};

/// Suffixes of the fields of CRCs.
const SRC: &str = "src_addr";
const DST: &str = "dst_addr";
const PORTS: &str = "ports";
const PROTOCOL: [&str; 2] = ["protocol", "next_header"];

/// Four tables from a byte of the CRC, most significant first, to a word, for the register hash.
const REGISTERS: &str = "hash.tabulation";
const BYTE: &str = "byte";

fn name(tabulation: &str, index: usize) -> String {
    format!("{tabulation}.words{index}")
}

/// Returns the tables of the register hash.
pub(super) fn words(hash: HashMode) -> impl Iterator<Item = MatchTable> {
    tabulation(REGISTERS.to_owned()).filter(move |_| hash == HashMode::Tabulated)
}

/// Returns the tables of a tabulating control, with the words of the register hash.
pub(super) fn tabulation(control: String) -> impl Iterator<Item = MatchTable> {
    tables(control, |words, index| {
        words.tables().get(index).into_iter().flatten().map(|word| u64::from(*word)).collect()
    })
}

/// Returns the tables of a key's words for sketch rows.
pub(super) fn row_words(by: KeyKind) -> impl Iterator<Item = MatchTable> {
    tables(format!("hash.{}_rows.tabulation", names::key(by)), |words, index| {
        let [block, ..] = words.rows();
        block.get(index).into_iter().flatten().copied().collect()
    })
}

/// Returns the four tables of a tabulating control: a 64-bit word for every byte, of which some
/// hashes use only the lower half.
fn tables(
    control: String,
    words: fn(&Tabulation, usize) -> Vec<u64>,
) -> impl Iterator<Item = MatchTable> {
    (0..4).map(move |index| {
        let filling = move |desired: &DesiredState| {
            let entries =
                (0..=u8::MAX).zip(words(&desired.tables.tabulation, index)).map(|(byte, word)| {
                    let halves =
                        [word as u32, (word >> 32) as u32].map(|half| half.to_be_bytes().to_vec());
                    (vec![(BYTE, Match::Exact(vec![byte]))], halves.to_vec())
                });
            TableContents { entries: entries.collect(), default: None }
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

/// Checks that the program's hash units for this key use the key's fields.
pub(super) fn check_key(schema: &Schema, key: KeyKind) -> Result<(), Failure> {
    // Tables that could compute a key's CRCs; their key fields are those of the flow key.
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
