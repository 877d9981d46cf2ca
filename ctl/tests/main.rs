//! Tests of the controller and of estimates on captures.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod address_plans;
mod clock;
mod controller;
mod delay;
mod delay_loads;
mod entropy;
mod rates;
mod tcpdump;
