//! Estimators, one module a measurement.

pub mod cardinality;
