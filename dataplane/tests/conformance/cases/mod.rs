//! The cases, by subject.

pub mod counting;
pub mod lifecycle;
pub mod middleware;
pub mod rotation;
pub mod sampling;
pub mod staggered;
pub mod truth;
pub mod vectors;
