//! Number of trials, of 20, whose report is crowded, and number of those in which a true delay is
//! outside of its interval, by kind, algorithm and load.
//!
//! `cargo run --release -p flowgauge-bench --example delay_loads`

use flowgauge_bench::delay_loads::{LOADS, LoadTrial, Outcomes};
use flowgauge_core::delay::{Algorithm, DelayKind};

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(20);
    for kind in DelayKind::ALL {
        for algorithm in [Algorithm::Fridge, Algorithm::MultiFridge] {
            for load in LOADS {
                let trial = LoadTrial { kind, algorithm, load, seconds: 2, seed: 0 };
                let outcomes = Outcomes::of(trial, seeds);
                println!(
                    "{:14} {:12} {:26} {outcomes} missed {}",
                    kind.name(),
                    algorithm.name(),
                    load.name,
                    outcomes.missed()
                );
            }
        }
    }
}
