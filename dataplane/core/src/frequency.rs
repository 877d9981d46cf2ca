//! How many packets a flow has: a sketch that can be asked for any key (W-HLL thesis, chapter 5: future work).
//!
//! Count Sketch has no bias, and an error that grows with the root of the sum of squares of the flows' packets; Count-Min is never too
//! low, and its error grows with the number of packets.

pub use crate::sketch::{Mode, Settings, Sketch as Frequency};
