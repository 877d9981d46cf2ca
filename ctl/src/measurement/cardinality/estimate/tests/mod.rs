//! Seeded simulations and properties of the estimators.

mod accuracy;
mod formulas;
mod input;
mod joint;
mod properties;
mod sampling;
mod staggered;
