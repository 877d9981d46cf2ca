//! Tests of the program: each runs it as a user would.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod adversary;
#[cfg(target_os = "linux")]
mod af_xdp;
mod agent;
mod common;
mod csv;
mod damage;
mod deploy;
mod doctor;
#[cfg(feature = "dpdk")]
mod dpdk;
mod encapsulations;
#[cfg(target_os = "linux")]
mod faults;
mod generate;
mod grpc;
#[cfg(target_os = "linux")]
mod interface;
mod inventory;
mod lake;
mod lake_damage;
mod lake_forged;
mod lake_hostile;
mod lake_signed;
mod live;
mod measurements;
mod names;
mod otlp;
mod outputs;
mod pages;
mod programs;
mod rates;
mod replay;
mod report;
mod serve;
mod spread;
mod status;
#[cfg(feature = "object-store")]
mod store;
mod tofino;
mod truth;
mod tshark;
mod usage;
