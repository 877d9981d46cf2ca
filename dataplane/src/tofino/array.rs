//! Register arrays of measurements, as they are read.

use super::{entries, names};
use crate::error::Failure;
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::{SYNC, Schema, Table, TableKind};
use flowgauge_core::BANKS;
use std::ops::Range;

/// A register array with both banks, or a persistent one without banks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) table: String,
    /// Number of banks.
    pub(super) banks: usize,
    /// Elements of a bank.
    pub(super) per_bank: usize,
    /// Names of an element's values.
    pub(super) fields: &'static [&'static str],
    /// Width of each value, in bits.
    pub(super) bits: u32,
    /// Largest valid value.
    pub(super) highest: u32,
    /// Values of an element before anything was counted.
    pub(super) empty: [u32; 2],
}

/// Contents of a bank of an array: the elements of each pipe. The second value is zero for elements
/// with one value.
pub(super) type BankCells = Vec<Vec<[u32; 2]>>;

/// Checks that a register or counter can be copied at once.
pub(super) fn check_syncs(table: &Table) -> Result<(), Failure> {
    match table.offers(SYNC) {
        true => Ok(()),
        false => Err(Failure::lacks(format!(
            "{} has no operation {SYNC}, by which it is read",
            table.name
        ))),
    }
}

impl Array {
    /// Creates an array of 32-bit values, initially zero.
    pub(super) fn new(table: String, per_bank: usize, fields: &'static [&'static str]) -> Self {
        Array { table, banks: BANKS, per_bank, fields, bits: 32, highest: u32::MAX, empty: [0, 0] }
    }

    /// Creates a persistent array, without banks.
    pub(super) fn persistent(
        table: String,
        elements: usize,
        fields: &'static [&'static str],
    ) -> Self {
        Array { banks: 1, ..Self::new(table, elements, fields) }
    }

    /// Checks that the program has this array.
    pub(super) fn check(&self, schema: &Schema) -> Result<(), Failure> {
        let table = schema.table(&self.table).map_err(Failure::lacks)?;
        table.key(names::REGISTER_INDEX).map_err(Failure::lacks)?;
        let size = (self.per_bank * self.banks) as u64;
        if table.size != size {
            return Err(Failure::mismatch(
                &table.name,
                format!("{:?} of {}", table.kind, table.size),
                format!("a register of {size}"),
            ));
        }
        for field in self.fields {
            let field = table.field(field).map_err(Failure::lacks)?;
            let bits = field.kind.bits().map_err(Failure::program)?;
            if table.kind != TableKind::Register || bits != self.bits {
                let (is, must) = (
                    format!("{:?} of {bits} bits", table.kind),
                    format!("a register of {} bits", self.bits),
                );
                return Err(Failure::mismatch(&table.name, is, must));
            }
        }
        check_syncs(table)
    }

    /// Returns the indices of a bank's elements.
    pub(super) fn of_bank(&self, bank: usize) -> Range<usize> {
        bank * self.per_bank..(bank + 1) * self.per_bank
    }

    /// Decodes a bank from an answer.
    ///
    /// The answer is rejected unless it has each element of each pipe once, with the right width
    /// and, for levels, a value that the hash can produce.
    pub(super) fn read(
        &self,
        table: &Table,
        bank: usize,
        answer: &[proto::TableEntry],
    ) -> Result<BankCells, Failure> {
        let values = self
            .fields
            .iter()
            .map(|field| table.field(field).map_err(Failure::program))
            .collect::<Result<Vec<_>, _>>()?;
        let mut cells = BankCells::new();
        let mut halves = [Vec::new(), Vec::new()];
        let elements = entries::indexed(table, names::REGISTER_INDEX, self.of_bank(bank), answer)?;
        for (index, message) in self.of_bank(bank).zip(elements) {
            let name = || format!("{}[{index}]", table.name);
            let fields = message.data.as_ref().map(|data| &data.fields[..]).unwrap_or_default();
            halves.iter_mut().for_each(Vec::clear);
            for field in fields {
                let mut known = values.iter().zip(&mut halves);
                let known = known.find_map(|(value, half)| {
                    entries::number(field, value.id).map(|bytes| (value, half, bytes))
                });
                let (value, half, bytes) = known
                    .ok_or_else(|| Failure::answer(format!("{} has another field", name())))?;
                let number = value
                    .kind
                    .decode(bytes)
                    .map_err(|error| Failure::answer(format!("{}: {error}", name())))?;
                let highest = self.highest;
                let fitting = u32::try_from(number).ok().filter(|number| *number <= highest);
                half.push(fitting.ok_or_else(|| {
                    Failure::answer(format!(
                        "{} is {number}, no hash gives more than {highest}",
                        name()
                    ))
                })?);
            }
            let [lower, upper] = &halves;
            let some = lower.len();
            let is_whole = some != 0 && some * values.len() == fields.len();
            if is_whole && cells.is_empty() {
                cells.resize_with(some, || Vec::with_capacity(self.per_bank));
            }
            if !is_whole || cells.len() != some {
                return Err(Failure::answer(format!(
                    "{} has values of {some} pipes, others of {}",
                    name(),
                    cells.len()
                )));
            }
            let values = lower.iter().zip(upper.iter().chain(std::iter::repeat(&0)));
            cells
                .iter_mut()
                .zip(values)
                .for_each(|(pipe, (lower, upper))| pipe.push([*lower, *upper]));
        }
        Ok(cells)
    }

    /// Returns the non-empty elements in any pipe.
    pub(super) fn raised(&self, cells: &BankCells) -> Vec<usize> {
        let is_raised = |index: &usize| {
            cells.iter().filter_map(|pipe| pipe.get(*index)).any(|values| *values != self.empty)
        };
        (0..self.per_bank).filter(is_raised).collect()
    }
}
