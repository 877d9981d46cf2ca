//! Tests of the P4 program in the model, and of the model itself.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(unreachable_pub, reason = "nothing is reachable in a test program")]

mod chip;
mod common;
mod compiler;
mod control_plane;
mod damaged;
mod delay;
mod equivalence;
mod heavy;
mod in_integers;
mod include;
mod lab;
mod language;
mod operator;
mod p4c;
mod probes;
mod refused;
mod reorder;
mod schema;
mod staggered;
mod switch;
