//! Measurement of the time that reads of a switch take.

use super::measurement::Staggered;
use super::options::Options;
use super::program::Program;
use super::session::{self, Session};
use super::{bank, entries, names};
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
    let idle = bank::active(&mut session, &program).await? & 1 ^ 1;
    let mut reader = Reader { session: &mut session, batch: options.batch, tables: Vec::new() };
    let frames = program.table(names::FRAMES)?;
    let elements = entries::elements(frames, names::COUNTER_INDEX, Program::classes(idle))?;
    reader.measure(frames, elements, Some(program.clear_counters(idle)?)).await?;
    for array in program.arrays(&program.settings)? {
        let table = program.table(&array.table)?;
        let elements = entries::elements(table, names::REGISTER_INDEX, array.of_bank(idle))?;
        reader
            .measure(table, elements, Some(program.clear_array(idle, &array, 0..array.per_bank)?))
            .await?;
    }
    if program.settings.cardinality.mode == Mode::Staggered {
        let staggered = Staggered::built(program.schema(), program.statement(), &program.settings)?;
        for array in [staggered.registers, staggered.latest] {
            let table = program.table(&array.table)?;
            reader
                .measure(
                    table,
                    entries::elements(table, names::REGISTER_INDEX, array.of_bank(0))?,
                    None,
                )
                .await?;
        }
    }
    Ok(ReadTimes { tables: reader.tables, transit: options.transit })
}

struct Reader<'a> {
    session: &'a mut Session,
    batch: usize,
    tables: Vec<TableTimes>,
}

impl Reader<'_> {
    async fn measure(
        &mut self,
        table: &Table,
        elements: Vec<proto::TableEntry>,
        updates: Option<Vec<proto::Update>>,
    ) -> Result<(), Failure> {
        let (number, begin) = (elements.len(), Instant::now());
        self.session.sync(&[table]).await?;
        let synced = Instant::now();
        self.session.read_elements(table, elements).await?;
        let read = Instant::now();
        let is_cleared = updates.is_some();
        if let Some(updates) = updates {
            self.session.write(&format!("clearing {}", table.name), updates, self.batch).await?;
        }
        self.tables.push(TableTimes {
            table: table.name.clone(),
            elements: number,
            sync: synced - begin,
            read: read - synced,
            clear: is_cleared.then(|| read.elapsed()),
        });
        Ok(())
    }
}
