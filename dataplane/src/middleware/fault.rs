//! A dataplane that fails on purpose.

use crate::tally::CountRange;
use crate::{
    Adopted, Bounds, Capabilities, Dataplane, DelaySample, Error, Event, Losses, Snapshot, Status,
    Tables,
};
use flowgauge_core::delay::{Admission, DelayKind};
use flowgauge_core::{Filter, Settings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

/// Probabilities of faults, in 0..=1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a call fails before it reaches the dataplane.
    pub request_lost: f64,
    /// Probability that a call is carried out but its result is lost. A repeated `rotate` returns
    /// that result; a repeated `sample` takes a new one.
    pub answer_lost: f64,
}

/// Wrapper that makes calls fail with [`Error::Injected`], a transient error, at seeded random
/// times.
///
/// Lost results are the hard case: the banks were swapped, but the caller does not know. As the
/// trait requires, a repeated call completes the first one.
pub struct FaultInjector<D> {
    inner: D,
    faults: Faults,
    random: ChaCha8Rng,
    undelivered_window: Option<Snapshot>,
    injected: u64,
}

impl<D: Dataplane> FaultInjector<D> {
    /// Wraps a dataplane.
    #[must_use]
    pub fn new(inner: D, faults: Faults, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        FaultInjector { inner, faults, random, undelivered_window: None, injected: 0 }
    }

    /// Returns the number of injected failures so far.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.injected
    }

    /// Returns the wrapped dataplane.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Loses a request, perhaps.
    fn request(&mut self, operation: &'static str) -> Result<(), Error> {
        self.strike(operation, self.faults.request_lost, "request lost")
    }

    /// Loses an answer, perhaps.
    fn answer(&mut self, operation: &'static str) -> Result<(), Error> {
        self.strike(operation, self.faults.answer_lost, "answer lost")
    }

    fn strike(
        &mut self,
        operation: &'static str,
        probability: f64,
        fault: &'static str,
    ) -> Result<(), Error> {
        if self.random.random_bool(probability.clamp(0.0, 1.0)) {
            self.injected += 1;
            return Err(Error::Injected { operation, fault });
        }
        Ok(())
    }
}

impl<D: Dataplane> Dataplane for FaultInjector<D> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn settings(&self) -> &Settings {
        self.inner.settings()
    }

    fn install(&mut self, tables: &Tables) -> Result<Option<Adopted>, Error> {
        self.request("install")?;
        self.inner.install(tables)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.inner.begin()
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        self.request("sample")?;
        let snapshot = self.inner.sample()?;
        self.answer("sample")?;
        Ok(snapshot)
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        self.request("rotate")?;
        let snapshot = match self.undelivered_window.take() {
            Some(snapshot) => snapshot,
            None => self.inner.rotate()?,
        };
        if let Err(error) = self.answer("rotate") {
            self.undelivered_window = Some(snapshot);
            return Err(error);
        }
        Ok(snapshot)
    }

    fn published(&mut self, window: u64) -> Result<(), Error> {
        self.request("acknowledge a window")?;
        self.inner.published(window)
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        self.request("read events")?;
        self.inner.events()
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        self.inner.received()
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        self.request("read losses")?;
        self.inner.losses()
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        self.request("read delays")?;
        self.inner.delay_samples()
    }

    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        self.request("set shares")?;
        self.inner.admit(admissions)
    }

    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        self.request("set bounds")?;
        self.inner.watch(bounds)
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        self.request("set the filter")?;
        self.inner.set_filter(filter)
    }

    fn status(&self) -> Status {
        self.inner.status()
    }
}
