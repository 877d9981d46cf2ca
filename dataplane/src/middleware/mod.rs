//! Dataplanes that wrap a dataplane: the controller cannot tell them apart.

mod fault;
mod record;

pub use fault::{FaultInjector, Faults};
pub use record::Recorder;
