//! Banks of a switch: selects the one that counts, and reads one of them.

use super::array::{Array, BankCells};
use super::entries;
use super::measurement::{self, ReadArrays};
use super::names;
use super::program::Program;
use super::session::Client;
use crate::error::Failure;
use crate::hash_key::HashWords;
use flowgauge_core::delay::{Admission, DelayKind};
use flowgauge_core::{Counters, Settings, WindowTotals, Zeroed};
use std::sync::Arc;
use std::time::Duration;

/// Maximum reads of a closed bank until it no longer changes.
const STANDSTILL_TRIES: u32 = 8;

/// A bank, with the parameters needed to read it.
pub(super) struct SwitchBank {
    pub(super) number: usize,
    pub(super) settings: Settings,
    /// Words that the switch hashes with.
    pub(super) words: HashWords,
    /// Requests that it admits.
    pub(super) admissions: Vec<(DelayKind, Admission)>,
    pub(super) arrays: Vec<Array>,
    /// Number of pipes that must answer.
    pub(super) pipes: usize,
}

/// Contents read of a bank.
pub(super) struct Reading {
    pub(super) bank: Arc<WindowTotals>,
    /// Indices of the non-empty elements in any pipe, for each array.
    pub(super) raised: Vec<Vec<usize>>,
    /// Number of elements that changed while they were read, and were left out.
    pub(super) changed: usize,
    /// Number of unmatched packets that the switch could not classify.
    pub(super) undecided: u64,
    /// Inconsistency between the sums of a closed bank and what the switch has derived from them,
    /// if any.
    pub(super) difference: Option<String>,
}

impl Reading {
    /// Merges arrays and counters over all pipes.
    fn of(bank: &SwitchBank, cells: &[BankCells], (counters, undecided): (Counters, u64)) -> Self {
        let SwitchBank { settings, words, admissions, arrays, .. } = bank;
        let mut bank = WindowTotals::counted();
        let changed = Arc::get_mut(&mut bank).map_or(0, |bank| {
            bank.counters = counters;
            let read = ReadArrays { settings, words, arrays: cells };
            let changed = measurement::merge(read, bank);
            measurement::set_shares(settings, admissions, bank);
            changed
        });
        let raised = arrays.iter().zip(cells).map(|(array, cells)| array.raised(cells)).collect();
        Reading {
            bank,
            raised,
            changed,
            undecided,
            difference: measurement::difference(settings, arrays, cells),
        }
    }
}

impl Client<'_> {
    /// Returns the active bank.
    pub(super) async fn active_bank(&mut self) -> Result<usize, Failure> {
        let answer = self.session.read_default(self.program.table(names::BANK)?).await?;
        self.program.bank(&answer)
    }

    /// Makes a bank active, and waits until no packet is counted in the other one.
    pub(super) async fn flip(&mut self, bank: usize, transit: Duration) -> Result<(), Failure> {
        self.session
            .write("changing the bank that counts", vec![self.program.set_bank(bank)?], 1)
            .await?;
        tokio::time::sleep(transit).await;
        Ok(())
    }

    async fn read_counters(&mut self, bank: usize) -> Result<(Counters, u64), Failure> {
        let table = self.program.table(names::FRAMES)?;
        self.session.sync(&[table]).await?;
        let elements = entries::elements(table, names::COUNTER_INDEX, Program::classes(bank))?;
        self.program.counters(bank, &self.session.read_elements(table, elements).await?)
    }

    pub(super) async fn read_arrays(
        &mut self,
        arrays: &[Array],
        bank: usize,
    ) -> Result<Vec<BankCells>, Failure> {
        let program = self.program;
        let tables = arrays
            .iter()
            .map(|array| program.table(&array.table))
            .collect::<Result<Vec<_>, _>>()?;
        self.session.sync(&tables).await?;
        self.read_synced(arrays, bank).await
    }

    /// Reads the chip's last copy.
    pub(super) async fn read_synced(
        &mut self,
        arrays: &[Array],
        bank: usize,
    ) -> Result<Vec<BankCells>, Failure> {
        let mut cells = Vec::with_capacity(arrays.len());
        for array in arrays {
            let table = self.program.table(&array.table)?;
            let elements = entries::elements(table, names::REGISTER_INDEX, array.of_bank(bank))?;
            cells.push(array.read(
                table,
                bank,
                &self.session.read_elements(table, elements).await?,
            )?);
        }
        Ok(cells)
    }

    /// Reads a bank's counters, then the bank with its counters, then the counters again.
    pub(super) async fn read_bank(
        &mut self,
        bank: &SwitchBank,
    ) -> Result<(Counters, Reading, Counters), Failure> {
        let (before, _) = self.read_counters(bank.number).await?;
        let cells = self.read_arrays(&bank.arrays, bank.number).await?;
        check_pipes(&cells, bank.pipes)?;
        let after = self.read_counters(bank.number).await?;
        Ok((before, Reading::of(bank, &cells, after), after.0))
    }

    /// Reads a bank after it has stopped changing.
    pub(super) async fn read_closed(
        &mut self,
        bank: &SwitchBank,
        transit: Duration,
    ) -> Result<Reading, Failure> {
        for _ in 0..STANDSTILL_TRIES {
            let (before, reading, after) = self.read_bank(bank).await?;
            if before == after && reading.changed == 0 {
                return Ok(reading);
            }
            tokio::time::sleep(transit).await;
        }
        Err(Failure::answer(format!(
            "bank {} is closed and counts on; does something else write to the switch?",
            bank.number
        )))
    }
}

/// Checks that each array was read in this many pipes.
pub(super) fn check_pipes(cells: &[BankCells], pipes: usize) -> Result<(), Failure> {
    match cells.iter().map(Vec::len).find(|read| *read != pipes) {
        Some(other) => {
            Err(Failure::answer(format!("registers of {other} pipes, of {pipes} before")))
        }
        None => Ok(()),
    }
}
