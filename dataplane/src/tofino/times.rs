//! Measurement of the time that reads of a switch take.

use super::array::Array;
use super::measurement::Staggered;
use super::options::Options;
use super::program::Program;
use super::session::{self, Client, Session};
use super::{entries, names};
use crate::error::{Error, Failure};
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::Table;
use flowgauge_core::cardinality::Mode;
use std::time::{Duration, Instant};

/// Times to read and clear an inactive bank, and to read arrays without banks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadTimes {
    /// Tables that a rotation or a sample reads. The first one contains the packet counters, which
    /// are read twice.
    pub tables: Vec<TableTimes>,
    /// Wait before a closed bank is read.
    pub transit: Duration,
}

/// Times for one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableTimes {
    /// Its full name.
    pub table: String,
    /// Elements of a bank, or of a table without banks.
    pub elements: usize,
    /// Time for the chip to copy it.
    pub sync: Duration,
    /// Time to read a bank of the copy.
    pub read: Duration,
    /// Time to write every element of a bank (a rotation writes only the non-empty ones). `None`
    /// for staggered registers, which have no banks and are not cleared.
    pub clear: Option<Duration>,
}

impl ReadTimes {
    /// Returns the maximum duration of a rotation, with every element to be cleared.
    #[must_use]
    pub fn rotation(&self) -> Duration {
        let of_banks =
            self.tables.iter().filter_map(|times| Some(times.sync + times.read + times.clear?));
        self.transit + of_banks.sum::<Duration>() + self.again()
    }

    /// Returns the duration of a sample.
    #[must_use]
    pub fn sample(&self) -> Duration {
        self.tables.iter().map(|times| times.sync + times.read).sum::<Duration>() + self.again()
    }

    /// Returns whether there are staggered registers.
    #[must_use]
    pub fn is_staggered(&self) -> bool {
        self.tables.iter().any(|times| times.clear.is_none())
    }

    fn again(&self) -> Duration {
        self.tables.first().map_or(Duration::ZERO, |counters| counters.sync + counters.read)
    }
}

/// Measures the read times, using the inactive bank, whose contents are lost. While this process
/// has bound the program, no other client can count with it.
///
/// # Errors
/// [`Error::Switch`] if the switch cannot be reached, another client has bound its program, or the
/// program is not flowgauge's.
pub fn read_times(options: &Options) -> Result<ReadTimes, Error> {
    session::runtime().and_then(|runtime| runtime.block_on(measure(options))).map_err(|failure| {
        Error::Switch { operation: "measure reads", target: options.address.clone(), failure }
    })
}

async fn measure(options: &Options) -> Result<ReadTimes, Failure> {
    let (mut session, schema) = Session::open(options, false).await?;
    let program = Program::new(schema)?;
    let mut client = Client { session: &mut session, program: &program };
    let idle = client.active_bank().await? & 1 ^ 1;
    let frames = program.table(names::FRAMES)?;
    let elements = entries::elements(frames, names::COUNTER_INDEX, Program::classes(idle))?;
    let clear = Some(program.clear_counters(idle)?);
    let mut tables = vec![time(&mut session, frames, elements, clear, options.batch).await?];
    let mut arrays: Vec<(Array, Option<usize>)> =
        program.arrays()?.into_iter().map(|array| (array, Some(idle))).collect();
    if program.compiled.cardinality.mode == Mode::Staggered {
        let staggered = Staggered::built(&program.schema, &program.statement, &program.compiled)?;
        arrays.extend([(staggered.registers, None), (staggered.latest, None)]);
    }
    for (array, bank) in arrays {
        let table = program.table(&array.table)?;
        let range = array.of_bank(bank.unwrap_or_default());
        let elements = entries::elements(table, names::REGISTER_INDEX, range)?;
        let clear = bank.map(|bank| program.clear_array(bank, &array, 0..array.per_bank));
        let clear = clear.transpose()?;
        tables.push(time(&mut session, table, elements, clear, options.batch).await?);
    }
    Ok(ReadTimes { tables, transit: options.transit })
}

/// Measures one table, given the requests for its elements, and the updates that clear them.
async fn time(
    session: &mut Session,
    table: &Table,
    elements: Vec<proto::TableEntry>,
    clear: Option<Vec<proto::Update>>,
    batch: usize,
) -> Result<TableTimes, Failure> {
    let (number, begin) = (elements.len(), Instant::now());
    session.sync(&[table]).await?;
    let synced = Instant::now();
    session.read_elements(table, elements).await?;
    let read = Instant::now();
    let is_cleared = clear.is_some();
    if let Some(updates) = clear {
        session.write(&format!("clearing {}", table.name), updates, batch).await?;
    }
    Ok(TableTimes {
        table: table.name.clone(),
        elements: number,
        sync: synced - begin,
        read: read - synced,
        clear: is_cleared.then(|| read.elapsed()),
    })
}
