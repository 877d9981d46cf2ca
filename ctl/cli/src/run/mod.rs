//! A run, from its configuration to its end.
//!
//! `source` opens the dataplane of one source of packets, and `controller` drives it until the
//! source or the run ends, with the outputs that `sinks` connects. `agent` starts several sources, a
//! thread each, and reloads the configuration. What a source shares with the run that started it is
//! in `handle`. `signals` ends a run, and `service` notifies the service manager.
//!
//! `capture_files` reads captures before they are counted, and `demo_traffic` generates the packets
//! of `flowgauge demo`.

pub(crate) mod agent;
pub(crate) mod capture_files;
pub(crate) mod controller;
pub(crate) mod demo_traffic;
pub(crate) mod handle;
pub(crate) mod service;
pub(crate) mod signals;
mod sinks;
pub(crate) mod source;
