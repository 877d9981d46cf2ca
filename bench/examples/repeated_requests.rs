//! Number of trials, of 20, whose intervals contain the true delays among repeated packets, for each
//! kind, number of different requests, and rate. Fails if fewer than 92 % do and are not reported as
//! crowded.
//!
//! `cargo run --release -p flowgauge-bench --example repeated_requests`

use flowgauge_bench::repeated::{Outcomes, Repeated, RepetitionTrial};
use std::process::ExitCode;

const SEEDS: u64 = 20;
const SECONDS: u64 = 4;
/// Numbers of different requests. The largest exceeds the number of packets of a trial.
const DIFFERENT: [u32; 11] = [0, 1, 4, 8, 16, 30, 100, 300, 1024, 4096, 1_000_000];
const RATES: [u64; 3] = [10_000, 30_000, 100_000];
const EXCHANGES: [u64; 2] = [500, 5000];

fn main() -> ExitCode {
    let mut failed = 0;
    for repeated in Repeated::ALL {
        for exchanges in EXCHANGES {
            let all = if repeated == Repeated::Guess { &DIFFERENT[..1] } else { &DIFFERENT[..] };
            for &different in all {
                for rate in RATES {
                    let trial = RepetitionTrial {
                        repeated,
                        different,
                        rate,
                        exchanges,
                        seconds: SECONDS,
                        seed: 0,
                    };
                    let outcomes = Outcomes::of(trial, SEEDS);
                    let holds = outcomes.hold();
                    failed += u32::from(!holds);
                    println!(
                        "{repeated:?} {exchanges:>5}/s {different:>5} at {rate:>6}/s: {outcomes}{}",
                        if holds { "" } else { "  too few" }
                    );
                }
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
