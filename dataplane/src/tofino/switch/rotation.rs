//! Samples and rotations of a switch's banks.

use super::{Counting, Switch};
use crate::error::Failure;
use crate::snapshot::Snapshot;
use crate::tofino::array::Array;
use crate::tofino::bank::{self, Reading, SwitchBank};
use crate::tofino::filter;
use crate::tofino::measurement::{Alarms, Samples, Staggered};
use crate::tofino::ports::SwitchPorts;
use flowgauge_core::PersistentBank;
use flowgauge_core::delay::DelaySample;
use std::time::Instant;

/// Progress of a rotation.
pub(super) enum Rotation {
    /// No rotation is in progress.
    None,
    /// The switch to the other bank was requested; its result is unknown.
    Flipping,
    /// The other bank is active.
    Flipped,
    /// The closed bank was read, and may not be cleared yet.
    Read(Box<Closed>),
    /// The closed bank was read, and the switch no longer contains its counts.
    Cleared(Box<Closed>),
}

pub(super) struct Closed {
    reading: Reading,
    delay_samples: Vec<DelaySample>,
    complete: bool,
}

impl Switch {
    /// Returns a bank with the parameters needed to read it.
    fn bank(&mut self, number: usize) -> Result<SwitchBank, Failure> {
        let (settings, arrays) = (self.program.settings, self.arrays.clone());
        let Counting { pipes, desired, .. } = self.counting()?;
        let admissions = desired.admissions.get(number).cloned().unwrap_or_default();
        let words = desired.tables.tabulation.clone();
        Ok(SwitchBank { number, settings, words, admissions, arrays, pipes: *pipes })
    }

    /// Reads the active bank's number from the switch. An unexpected number leads to a restart of
    /// counting.
    async fn checked_bank(&mut self) -> Result<usize, Failure> {
        let bank = self.with(async |client| client.active_bank().await).await?;
        let counting = self.counting()?;
        let expected = match counting.rotation {
            Rotation::None | Rotation::Cleared(_) => Some(counting.active),
            Rotation::Flipping => None,
            Rotation::Flipped | Rotation::Read(_) => Some(counting.active ^ 1),
        };
        if expected.is_none_or(|expected| bank == expected) {
            return Ok(bank);
        }
        self.warn(format!(
            "bank {bank} counts and should not: something else writes to the switch"
        ));
        let desired = self.counting()?.desired.clone();
        self.restart(&desired).await?;
        Ok(0)
    }

    pub(in crate::tofino) async fn sample(&mut self) -> Result<Snapshot, Failure> {
        self.restored().await?;
        let bank_number = self.checked_bank().await?;
        let bank = self.bank(bank_number)?;
        let (before, reading, after) =
            self.with(async |client| client.read_bank(&bank).await).await?;
        let (persistent, slot_time) = self.read_staggered().await?.unzip();
        let counting = self.counting()?;
        let snapshot = counting.snapshot(
            reading,
            Vec::new(),
            before.packets(),
            after.packets(),
            !counting.gap,
        );
        Ok(Snapshot { persistent, slot_time, ..snapshot })
    }

    /// Reads staggered registers, if there are any, with the time of their clock.
    async fn read_staggered(&mut self) -> Result<Option<(Box<PersistentBank>, u64)>, Failure> {
        let arrays: Vec<Array> = self.persistent().collect();
        if arrays.is_empty() {
            return Ok(None);
        }
        if let Some(elapsed) = self.staggered.as_ref().and_then(Staggered::overdue) {
            // The clock is cleared too: it may contain the time of the last packet before the gap,
            // and later packets would appear to be older than that.
            self.with(async |client| {
                for array in &arrays {
                    client.empty(&array.table).await?;
                }
                Ok(())
            })
            .await?;
            self.staggered.iter_mut().for_each(Staggered::restart);
            self.warn(format!(
                "registers were not read for {elapsed:.0?}, so their slots are ambiguous; they were cleared and count from now on"
            ));
        }
        let read = self.with(async |client| {
            // The clock is read after the registers, so that none of them is later.
            for array in &arrays {
                client.session.sync(&[client.program.table(&array.table)?]).await?;
            }
            let at = Instant::now();
            Ok((client.read_synced(&arrays, 0).await?, at))
        });
        let (cells, at) = read.await?;
        bank::check_pipes(&cells, self.counting()?.pipes)?;
        let (Some(staggered), [registers, latest]) = (&mut self.staggered, &cells[..]) else {
            return Ok(None);
        };
        staggered.persistent(registers, latest, at).map(Some)
    }

    pub(in crate::tofino) async fn rotate(&mut self) -> Result<Snapshot, Failure> {
        self.restored().await?;
        self.checked_bank().await?;
        let (batch, transit) = (self.options.batch, self.options.transit);
        loop {
            let counting = self.counting()?;
            let closed = counting.active;
            match &mut counting.rotation {
                Rotation::None => {
                    self.prepare_filter().await?;
                    let counting = self.counting()?;
                    counting.rotation = Rotation::Flipping;
                    counting.ports.iter_mut().for_each(SwitchPorts::closing);
                    // Digests received by now belong to the window that ends.
                    self.receive().await;
                    self.samples.iter_mut().for_each(Samples::closing);
                    self.alarms.iter_mut().for_each(Alarms::next_window);
                }
                Rotation::Flipping => {
                    self.with(async |client| client.flip(closed ^ 1, transit).await).await?;
                    self.counting()?.rotation = Rotation::Flipped;
                }
                Rotation::Flipped => {
                    let bank = self.bank(closed)?;
                    let read = self.with(async |client| client.read_closed(&bank, transit).await);
                    let mut reading = read.await?;
                    if let Some(difference) = reading.difference.take() {
                        self.warn(difference);
                    }
                    if reading.undecided > 0 {
                        self.warn(filter::undecided(reading.undecided));
                    }
                    let delay_samples = self.close_samples(&mut reading).await;
                    let counting = self.counting()?;
                    // A gap belongs to the window that ends here.
                    let complete = !std::mem::take(&mut counting.gap);
                    counting.rotation =
                        Rotation::Read(Box::new(Closed { reading, delay_samples, complete }));
                }
                Rotation::Read(read) => {
                    // Empty elements need no write.
                    let raised = read.reading.raised.clone();
                    let updates = self.program.clear(closed, &self.arrays, &raised)?;
                    self.with(async |client| {
                        client.session.write("clearing a bank", updates, batch).await
                    })
                    .await?;
                    let counting = self.counting()?;
                    counting.active = closed ^ 1;
                    counting.rotation =
                        match std::mem::replace(&mut counting.rotation, Rotation::None) {
                            Rotation::Read(closed) => Rotation::Cleared(closed),
                            other => other,
                        };
                }
                Rotation::Cleared(_) => {
                    self.read_ports(true).await;
                    let counting = self.counting()?;
                    if let Rotation::Cleared(closed) =
                        std::mem::replace(&mut counting.rotation, Rotation::None)
                    {
                        let Closed { reading, delay_samples, complete } = *closed;
                        let packets = reading.bank.counters.packets();
                        return Ok(counting.snapshot(
                            reading,
                            delay_samples,
                            packets,
                            packets,
                            complete,
                        ));
                    }
                }
            }
        }
    }
}

impl Counting {
    fn snapshot(
        &self,
        reading: Reading,
        delay_samples: Vec<DelaySample>,
        packets_before: u64,
        packets_after: u64,
        complete: bool,
    ) -> Snapshot {
        Snapshot {
            delay_samples,
            packets_before,
            packets_after,
            complete,
            ..Snapshot::of(reading.bank, self.desired.tables.hash)
        }
    }
}
