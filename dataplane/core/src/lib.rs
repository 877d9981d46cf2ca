//! What one packet does to a flowgauge state: parsing, flow keys, hashing and sketch updates.
//!
//! Every software dataplane runs this code: a poll-mode worker calls it on its own [`State`], and the kernel runs it as
//! eBPF. It is therefore `no_std`, never allocates, never panics on the packet path and uses no floating point. Estimators
//! that turn registers into numbers live in the controller.
//!
//! ```
//! use flowgauge_core::{Context, Link, Settings, State, Tabulation};
//!
//! let tabulation = Tabulation::from_seed(1);
//! let context = Context { settings: Settings::default(), tabulation: &tabulation };
//! let mut state = Box::new(State::new());
//! let frame: &[u8] = &[0; 60];
//! state.record(0, &context, Link::Ethernet, frame, 60, 0);
//! assert_eq!(state.banks[0].counters.non_ip, 1);
//! ```
#![no_std]
#![deny(clippy::indexing_slicing, clippy::float_arithmetic, clippy::panic, clippy::arithmetic_side_effects)]

pub mod cardinality;
pub mod counters;
pub mod frame;
pub mod hash;
pub mod key;
pub mod link;
pub mod parse;
pub mod state;

pub use cardinality::{Cardinality, Precision};
pub use counters::Counters;
pub use frame::Frame;
pub use hash::{HashIdentity, HashMode, Tabulation};
pub use key::{FlowKey, KeyKind};
pub use link::Link;
pub use state::{BANKS, Bank, Context, Core, Settings, State};
