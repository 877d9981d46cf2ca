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
    undelivered_sample: Option<Snapshot>,
    undelivered_window: Option<Snapshot>,
    injected: u64,
}

impl<D: Dataplane> FaultInjector<D> {
    /// Wraps a dataplane.
    #[must_use]
    pub fn new(inner: D, faults: Faults, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        FaultInjector {
            inner,
            faults,
            random,
            undelivered_sample: None,
            undelivered_window: None,
            injected: 0,
        }
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

    /// Calls the dataplane, unless an earlier call's result is still undelivered.
    fn call(
        &mut self,
        operation: &'static str,
        undelivered: fn(&mut Self) -> &mut Option<Snapshot>,
        call: fn(&mut D) -> Result<Snapshot, Error>,
    ) -> Result<Snapshot, Error> {
        self.strike(operation, self.faults.request_lost, "request lost")?;
        let snapshot = match undelivered(self).take() {
            Some(snapshot) => snapshot,
            None => call(&mut self.inner)?,
        };
        if let Err(error) = self.strike(operation, self.faults.answer_lost, "answer lost") {
            *undelivered(self) = Some(snapshot);
            return Err(error);
        }
        Ok(snapshot)
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
        self.strike("install", self.faults.request_lost, "request lost")?;
        self.inner.install(tables)
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.inner.begin()
    }

    fn sample(&mut self) -> Result<Snapshot, Error> {
        // Only the result of the last attempt is worth delivering: an old sample would be wrong.
        self.undelivered_sample = None;
        self.call("sample", |this| &mut this.undelivered_sample, D::sample)
    }

    fn rotate(&mut self) -> Result<Snapshot, Error> {
        self.call("rotate", |this| &mut this.undelivered_window, D::rotate)
    }

    fn published(&mut self, window: u64) -> Result<(), Error> {
        self.strike("acknowledge a window", self.faults.request_lost, "request lost")?;
        self.inner.published(window)
    }

    fn events(&mut self) -> Result<Vec<Event>, Error> {
        self.strike("read events", self.faults.request_lost, "request lost")?;
        self.inner.events()
    }

    fn received(&mut self) -> Result<Option<CountRange>, Error> {
        self.inner.received()
    }

    fn losses(&mut self) -> Result<Losses, Error> {
        self.strike("read losses", self.faults.request_lost, "request lost")?;
        self.inner.losses()
    }

    fn delay_samples(&mut self) -> Result<Vec<DelaySample>, Error> {
        self.strike("read delays", self.faults.request_lost, "request lost")?;
        self.inner.delay_samples()
    }

    fn admit(&mut self, admissions: &[(DelayKind, Admission)]) -> Result<(), Error> {
        self.strike("set shares", self.faults.request_lost, "request lost")?;
        self.inner.admit(admissions)
    }

    fn watch(&mut self, bounds: &[Bounds]) -> Result<(), Error> {
        self.strike("set bounds", self.faults.request_lost, "request lost")?;
        self.inner.watch(bounds)
    }

    fn set_filter(&mut self, filter: Option<&Arc<Filter>>) -> Result<(), Error> {
        self.strike("set the filter", self.faults.request_lost, "request lost")?;
        self.inner.set_filter(filter)
    }

    fn status(&self) -> Status {
        self.inner.status()
    }
}
