//! The cases, by subject.

pub mod counting;
pub mod delay;
pub mod filtering;
pub mod heavy;
pub mod lifecycle;
pub mod middleware;
pub mod reorder;
pub mod rotation;
pub mod sampling;
pub mod sizes;
pub mod sketches;
pub mod spread;
pub mod staggered;
pub mod vectors;
