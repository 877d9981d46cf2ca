//! Hashes of flow keys, shared by measurements: CRCs, and the tables of words that tabulate them.

use super::names;
use super::table::{DesiredState, MatchTable, TableContents};
use crate::error::Failure;
use flowgauge_bfruntime::Match;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::{HashMode, KeyKind, Tabulation};

/// Possible ends of the names of a CRC's field.
type FieldEnds = &'static [&'static str];

const SRC: FieldEnds = &["src_addr"];
const DST: FieldEnds = &["dst_addr"];
const PORTS: FieldEnds = &["ports"];
const DST_PORT: FieldEnds = &["ports[15:0]"];
const PROTOCOL: FieldEnds = &["protocol", "next_header"];

/// Name of a key with the destination port and the protocol.
pub(super) const WITH_PORT: &str = "with_port";

/// Four tables from a byte of the CRC, most significant first, to a word, for the register hash.
const REGISTERS: &str = "hash.tabulation";
const BYTE: &str = "byte";

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

/// Returns the tables of the words of a key, by its name in the program, for sketch rows.
pub(super) fn row_words(key: &str) -> impl Iterator<Item = MatchTable> + use<> {
    tables(format!("hash.{key}_rows.tabulation"), |words, index| {
        let [block, ..] = words.rows();
        block.get(index).into_iter().flatten().copied().collect()
    })
}

/// Returns the four tables of a tabulating control: a 64-bit word for every byte. Some
/// hashes use only the lower halves.
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
            format!("{control}.words{index}"),
            vec![(BYTE, 8)],
            format!("set_words{index}"),
            parameters,
            filling,
        )
    })
}

/// Returns the fields of a key's CRC, in order.
fn fields(key: KeyKind) -> &'static [FieldEnds] {
    match key {
        KeyKind::Src => &[SRC],
        KeyKind::Dst => &[DST],
        KeyKind::SrcDst => &[SRC, DST],
        KeyKind::FiveTuple => &[SRC, DST, PORTS, PROTOCOL],
    }
}

/// Checks that the program's hash units for this key use the key's fields.
pub(super) fn check_key(schema: &Schema, key: KeyKind) -> Result<(), Failure> {
    check_fields(schema, &names::key(key), fields(key), key.name())
}

/// Checks that the program's hash units for this key with the destination port use its fields.
pub(super) fn check_with_port(schema: &Schema, key: KeyKind) -> Result<(), Failure> {
    let fields = [fields(key), &[DST_PORT, PROTOCOL]].concat();
    check_fields(schema, WITH_PORT, &fields, &format!("{} with the destination port", key.name()))
}

fn check_fields(
    schema: &Schema,
    control: &str,
    expected: &[FieldEnds],
    key: &str,
) -> Result<(), Failure> {
    // Tables that could compute a key's CRCs; their key fields are those of the flow key.
    for table in ["ipv4", "ipv6"].map(|family| format!("hash.{control}.{family}_crc.compute")) {
        let table = schema.table(&table).map_err(Failure::lacks)?;
        let has_end = |name: &str, end: &str| {
            name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let found: Vec<&str> = table.keys.iter().map(|key| &*key.name).collect();
        let is_key = found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|(name, ends)| ends.iter().any(|end| has_end(name, end)));
        if !is_key {
            return Err(Failure::program(format!(
                "{} hashes {}, which is not the key {key}",
                table.name,
                found.join(", ")
            )));
        }
    }
    Ok(())
}
