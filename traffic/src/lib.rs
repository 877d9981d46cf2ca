//! Generated packets, for users who try flowgauge, for tests and for benchmarks.
//!
//! # Two kinds of traffic
//! Packet `i` of a [`Profile`] depends only on the profile and on `i`. So traffic is the same in
//! every run, however many workers share it, and a [`Generator`] writes a frame in place in a few
//! nanoseconds. Workers count such traffic directly, through the [`memory`] port.
//!
//! Traffic with round trips ([`delay`]) or out of order ([`reorder`]) is a sequence instead: its
//! packets depend on earlier ones, and it is written to captures with the truth about it, to
//! compare measurements with.
//!
//! The packets of a profile and a seed are the same bytes in every release: documentation and
//! tests rely on it.
//!
//! # Where to look
//! - [`Sources`], [`Attack`] and [`Burst`]: parts of a profile; `option`: values in its text;
//! - [`HeaderLayout`]: TCP and UDP frames of sequences; `reader`: a parser of them that shares no
//!   code with it, for tests;
//! - [`frame`]: builders of single frames, for tests;
//! - `kernel`: senders in the kernel (Linux);
//! - [`send`]: transmission through an interface, at a rate;
//! - `veth`: isolated networks to send in, for tests and benchmarks (Linux).

pub mod delay;
pub mod frame;
mod generator;
#[cfg(target_os = "linux")]
pub mod kernel;
mod layout;
mod option;
mod profile;
mod random;
#[cfg(test)]
mod reader;
pub mod reorder;
pub mod send;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
pub mod veth;

pub use generator::{Generator, memory};
pub use layout::HeaderLayout;
pub use option::ProfileError;
pub use profile::{Attack, Burst, Profile, Sources};
pub use random::mix;
