//! Distinct flows of realistic address plans, on which the hash must be as accurate as on random
//! numbers.

use flowgauge_core::{
    Arrival, Bank, Context, HashMode, KeyKind, Link, Settings, Shared, Sharing, State, Zeroed,
};
use flowgauge_ctl::measurement::cardinality::estimate::{Estimator, estimate};
use flowgauge_dataplane::Tables;
use flowgauge_traffic::frame::{Ip, TCP};

const SEEDS: u64 = 40;
const FLOWS: [u32; 3] = [300, 5_000, 60_000];
/// Error of 2048 registers (1.04 over the root of their number), and the root mean square that 40
/// such errors exceed in one of a thousand cases: the root of a chi-square quantile, 73.4, over 40.
const ERROR: f64 = 0.0230;
const QUANTILE: f64 = 1.355;

/// Name and source addresses of a plan, by number.
type Plan = (&'static str, fn(u32) -> Vec<u8>);

const PLANS: [Plan; 5] = [
    ("sequential", |number| (0x0a00_0000 + number).to_be_bytes().to_vec()),
    ("one host of each /24", |number| (0x0a00_0001 + (number << 8)).to_be_bytes().to_vec()),
    ("ten hosts of each /24", |number| {
        (0xac10_0001 + ((number / 10) << 8) + number % 10).to_be_bytes().to_vec()
    }),
    ("IPv6, sequential hosts", |number| {
        [0x2001_0db8_u32, 0, 0, 1 + number].iter().flat_map(|word| word.to_be_bytes()).collect()
    }),
    ("IPv6, one host of each /64", |number| {
        [0x2001_0db8_u32, number, 0, 1].iter().flat_map(|word| word.to_be_bytes()).collect()
    }),
];

/// Next header of an IPv6 packet that ends with its header.
const NO_NEXT_HEADER: u8 = 59;

fn frame(source: &[u8]) -> Vec<u8> {
    match source.first_chunk::<16>() {
        Some(source) => Ip::new(*source, [0; 16], NO_NEXT_HEADER).frame(&[]),
        None => {
            let source = [source[0], source[1], source[2], source[3]];
            Ip::new(source, [192, 0, 2, 1], TCP).frame(&[])
        }
    }
}

/// Returns the relative error of one seed.
fn error_of(hash: HashMode, (_, source): Plan, flows: u32, seed: u64) -> f64 {
    let mut settings = Settings::default();
    (settings.cardinality.key, settings.hash) = (KeyKind::Src, hash);
    let tables = Tables::new(&settings, seed);
    let context = Context::new(settings, &tables.tabulation, Sharing::Alone);
    let mut state = State::boxed();
    let shared = Shared::boxed();
    let mut active = state.active(&shared, 0);
    for number in 0..flows {
        let frame = frame(&source(number));
        active.record(&context, Link::Ethernet, frame.as_slice(), Arrival::new(64, 0));
    }
    let levels: &Bank = &state.banks[0];
    let levels = levels.cardinality.levels(settings.cardinality.precision);
    estimate(levels, Estimator::Ertl).unwrap().value / f64::from(flows) - 1.0
}

#[test]
fn tabulated_and_keyed_hashes_err_as_random_ones_do_on_every_plan() {
    for plan in PLANS {
        for flows in FLOWS {
            for hash in [HashMode::Tabulated, HashMode::Keyed] {
                let squares: f64 =
                    (1..=SEEDS).map(|seed| error_of(hash, plan, flows, seed).powi(2)).sum();
                let error = (squares / SEEDS as f64).sqrt();
                println!("{}, {flows} flows, {}: {:.2} %", plan.0, hash.name(), 100.0 * error);
                assert!(
                    error < ERROR * QUANTILE,
                    "{}, {flows} flows, {}: {error}",
                    plan.0,
                    hash.name()
                );
            }
        }
    }
}
