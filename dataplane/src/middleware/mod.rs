//! Dataplanes that wrap another dataplane, transparently for the controller.
//!
//! [`Recorder`] logs every call and its result, for bug reports; [`FaultInjector`] makes calls fail
//! at random, for tests.

mod fault;
mod record;

pub use fault::{FaultInjector, Faults};
pub use record::Recorder;
