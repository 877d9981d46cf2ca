//! Estimators, one module a measurement.

pub mod cardinality;
pub mod entropy;
pub mod frequency;
pub mod heavy;
pub mod membership;
