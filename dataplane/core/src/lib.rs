//! Per-packet code of flowgauge: parsing, flow keys, hashing and sketch updates.
//!
//! Every software dataplane runs this code: poll-mode workers call it on a [`State`] per core, and
//! the eBPF programs compile it for the kernel. It is therefore `no_std`, never allocates, never
//! panics on the packet path and uses no floating point. Estimators, which turn registers into
//! results, live in the controller.
//!
//! Data flows from a [`Frame`] and its [`Arrival`] (length, time, direction) to a bank:
//!
//! 1. [`parse`] finds the network header, and [`segment`] reads the transport header. A frame
//!    without a usable network header is counted in [`Counters`] by cause.
//! 2. [`key`] lays out flow keys, and [`hash`] turns each into a signature of 32 bits.
//! 3. An [`Observation`] collects the fields that the configured measurements [need](RequiredFields).
//! 4. Each [`Measurement`] that is on updates its memory in the open [`Bank`].
//!
//! Where to look: [`state`] runs these steps for one frame; [`measurement`] defines what a
//! measurement is, and [`list`] names all of them; [`kernel`] describes the memory that eBPF
//! programs share with user space. `BPF.md` lists the rules that keep the kernel's verifier
//! content.
//!
//! ```
//! use flowgauge_core::{Arrival, Context, Link, Settings, Shared, Sharing, State, Tabulation, Zeroed};
//!
//! let tabulation = Tabulation::from_seed(1);
//! let context = Context::new(Settings::default(), &tabulation, Sharing::Alone);
//! let (mut state, shared) = (State::boxed(), Shared::boxed());
//! let frame: &[u8] = &[0; 60];
//! state.active(&shared, 0).record(&context, Link::Ethernet, frame, Arrival::new(60, 0));
//! assert_eq!(state.banks[0].counters.non_ip, 1);
//! ```
#![no_std]
#![cfg_attr(
    target_arch = "bpf",
    allow(internal_features, reason = "see counter.rs and branchless.rs"),
    allow(dead_code, reason = "user space calls the rest"),
    feature(core_intrinsics, asm_experimental_arch)
)]
#![deny(clippy::indexing_slicing, clippy::float_arithmetic, clippy::panic)]

#[cfg(not(target_arch = "bpf"))]
extern crate alloc;

pub mod arrival;
#[cfg_attr(not(target_arch = "bpf"), allow(dead_code, reason = "for BPF"))]
mod bits;
mod branchless;
pub mod cardinality;
pub mod counter;
pub mod counters;
pub mod delay;
pub mod encapsulation;
pub mod entropy;
pub mod filter;
mod flow_key;
pub mod frame;
pub mod frequency;
pub mod grid;
pub mod hash;
pub mod heavy;
#[cfg(not(target_arch = "bpf"))]
mod host;
pub mod kernel;
pub mod key;
pub mod link;
pub mod list;
pub mod logarithm;
pub mod measurement;
pub mod membership;
pub mod needs;
pub mod observation;
pub mod packet;
pub mod parse;
pub mod reorder;
pub mod segment;
pub mod sizes;
pub mod sketch;
pub mod spread;
pub mod state;
pub mod tunnel;
pub mod unopened;
#[cfg(not(target_arch = "bpf"))]
mod zeroed;

pub use arrival::{Arrival, Packets, Segments, SingleFrame};
pub use cardinality::{Cardinality, Precision};
pub use counter::Sharing;
pub use counters::Counters;
pub use delay::Delay;
pub use entropy::{ENTROPIES, Entropy};
pub use filter::Filter;
pub use flow_key::{FlowKey, KeyConsumer, KeyWordList, MAX_KEY_BYTES};
pub use frame::Frame;
pub use frequency::Frequency;
pub use grid::Grid;
pub use hash::{HashIdentity, HashMode, Tabulation};
pub use heavy::Heavy;
#[cfg(not(target_arch = "bpf"))]
pub use host::{HostMeasurement, MAX_EXACT};
pub use key::KeyKind;
pub use link::Link;
pub use list::{Bank, Listed, Memory, PersistentBank, Settings, SharedBank, SharedPersistentBank};
#[cfg(not(target_arch = "bpf"))]
pub use list::{Exact, MeasurementKind, SETTINGS_WORDS, WindowTotals};
pub use measurement::{Measurement, MeasurementMemory};
pub use membership::Membership;
pub use needs::RequiredFields;
pub use observation::{Observation, Observed};
pub use reorder::Reorder;
pub use segment::Segment;
pub use sketch::SketchTotals;
pub use sketch::{SharedSketch, Sketch, SketchKind};
pub use spread::{SPREADS, Spread};
pub use state::{Active, BANKS, Context, CountFrames, Shared, State};
#[cfg(not(target_arch = "bpf"))]
pub use zeroed::Zeroed;
