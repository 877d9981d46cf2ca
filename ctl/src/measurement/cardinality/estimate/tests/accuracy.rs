//! Errors and coverage of the estimators, by seeded simulation, and errors on realistic address
//! plans, where the hash must be as accurate as on random numbers.

use super::super::flajolet::alpha;
use super::super::model::{information, moments};
use super::super::{Estimator, StaggeredEstimator, estimate, staggered};
use super::{Source, Summary, large_sketch, scatter, sketch, staggered_sketch, summarise};
use flowgauge_core::{
    Arrival, Bank, Context, HashMode, KeyKind, Link, Settings, Shared, Sharing, State, Zeroed,
};
use flowgauge_dataplane::Tables;
use flowgauge_testing::chance::{binomial, of_mean};
use flowgauge_traffic::frame::{Ip, TCP};

/// Maximum bias of asymptotically unbiased estimators, of the order of one over the number of
/// registers, here 2048.
const BIAS: f64 = 1.0 / 2048.0;

/// Number of hash seeds on which a plan is estimated.
const SEEDS: u64 = 40;
/// Numbers of flows of a plan.
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

fn simulate(flows: u64, p: u8, trials: u64) -> [(Estimator, Summary); 3] {
    let sketches: Vec<Vec<u8>> = (0..trials)
        .map(|trial| {
            let mut source = Source::new(trial * 7919 + flows + u64::from(p) * 1_000_003);
            if flows <= 200_000 {
                sketch(flows, p, &mut source)
            } else {
                large_sketch(flows as f64, p, &mut source)
            }
        })
        .collect();
    Estimator::ALL.map(|estimator| {
        let trials: Vec<_> =
            sketches.iter().map(|levels| estimate(levels, estimator).unwrap()).collect();
        (estimator, summarise(flows as f64, &trials))
    })
}

/// Returns the relative error of linear counting at `per_register` flows per register (Whang et al.
/// 1990).
fn linear_counting_error(per_register: f64, p: u8) -> f64 {
    ((per_register.exp_m1() - per_register) / f64::from(1_u32 << p)).sqrt() / per_register
}

fn assert_honest(flows: u64, p: u8, trials: u64) {
    for (estimator, summary) in simulate(flows, p, trials) {
        let case = format!("{estimator}, 2^{p} registers, {flows} flows: {summary:?}");
        assert!(summary.is_honest(), "{case}");
        // At about 2.5 flows per register `flajolet` is one of two estimates, with the interval of
        // the chosen one. Linear counting has the larger error of the two, and the mixture of both
        // scatters less.
        let hands_over = estimator == Estimator::Flajolet && flows == 5 << p >> 1;
        let spread =
            summary.spread.max(if hands_over { linear_counting_error(2.5, p) } else { 0.0 });
        assert!(Summary { spread, ..summary }.is_narrow(), "{case}");
    }
}

#[test]
fn intervals_hold_the_truth_with_2048_registers() {
    for flows in [1, 2, 5, 10, 20, 50, 100, 500, 1000, 2000, 5120, 10_000, 50_000] {
        assert_honest(flows, 11, 500);
    }
    assert_honest(200_000, 11, 300);
    assert_honest(10_000_000, 11, 500);
    assert_honest(100_000_000, 11, 500);
}

#[test]
fn intervals_hold_the_truth_with_256_registers() {
    for flows in [1, 2, 5, 10, 20, 50, 100, 500, 640, 2000, 50_000, 100_000_000] {
        assert_honest(flows, 8, 600);
    }
}

#[test]
fn intervals_hold_the_truth_with_16_registers() {
    for flows in [1, 2, 5, 10, 20, 40, 100, 1000, 50_000, 100_000_000] {
        assert_honest(flows, 4, 1000);
    }
}

#[test]
fn intervals_hold_the_truth_with_16384_and_65536_registers() {
    for flows in [1, 20, 500, 5000, 41_000, 10_000_000] {
        assert_honest(flows, 14, 300);
    }
    for flows in [1, 20, 500, 5000, 164_000, 100_000_000] {
        assert_honest(flows, 16, 100);
    }
}

#[test]
fn errors_at_the_switch_to_linear_counting() {
    let [(_, ertl), (_, flajolet), (_, mle)] = simulate(5120, 11, 4000);
    // To the last digit of the bias in SPECIFICATION.md and of the standard error in
    // docs/reproductions.md.
    assert!((flajolet.bias - 0.022).abs() <= flajolet.chance() + 0.0005, "{flajolet:?}");
    for summary in [ertl, mle] {
        assert!(summary.bias.abs() <= summary.chance() + BIAS, "{summary:?}");
        let most = 0.019 * scatter(summary.trials) + 0.0005;
        assert!((summary.rmse - 0.019).abs() <= most, "{summary:?}");
    }
}

#[test]
fn ertl_and_mle_are_unbiased_over_the_range() {
    for flows in [50, 2000, 5120, 20_000, 1_000_000, 100_000_000] {
        let [(_, ertl), _, (_, mle)] = simulate(flows, 11, 1000);
        for summary in [ertl, mle] {
            assert!(summary.bias.abs() <= summary.chance() + BIAS, "{flows}: {summary:?}");
            let most = 1.04 / 2048.0_f64.sqrt() * (1.0 + scatter(summary.trials));
            assert!(summary.rmse < most, "{flows}: {summary:?}");
        }
    }
}

#[test]
fn ertl_and_mle_count_on_where_most_registers_are_at_the_last_level() {
    let flows = 10_000_000_000;
    let [(_, ertl), _, (_, mle)] = simulate(flows, 11, 1000);
    for summary in [ertl, mle] {
        assert!(summary.bias.abs() <= summary.chance() + BIAS, "{summary:?}");
        assert!(binomial(summary.trials, 0.95).contains(&summary.held), "{summary:?}");
    }
}

/// A guarantee rather than a matter of chance: both use the same registers.
#[test]
fn ertl_and_mle_agree_within_a_percent() {
    let mut source = Source::new(21);
    for step in 0..400 {
        let flows = 10.0_f64.powf(f64::from(step) * 0.02);
        let levels = large_sketch(flows, 11, &mut source);
        let value = |estimator| estimate(&levels, estimator).unwrap().value;
        let (ertl, mle) = (value(Estimator::Ertl), value(Estimator::Mle));
        assert!((ertl - mle).abs() <= 0.01 * mle, "{flows}: {ertl} {mle}");
    }
}

fn simulate_staggered(flows: f64, p: u8, estimator: StaggeredEstimator, trials: u64) -> Summary {
    let trials: Vec<_> = (0..trials)
        .map(|trial| {
            let mut source = Source::new(trial * 7919 + flows as u64);
            let (levels, ages) = staggered_sketch(flows, p, &mut source);
            staggered(&levels, &ages, estimator).unwrap()
        })
        .collect();
    summarise(flows, &trials)
}

#[test]
fn likelihood_is_unbiased_and_honest_from_a_hundred_flows() {
    for (flows, trials) in [(100.0, 2000), (1000.0, 500), (20_000.0, 300), (1e6, 300)] {
        let summary = simulate_staggered(flows, 11, StaggeredEstimator::Mle, trials);
        assert!(summary.bias.abs() <= summary.chance(), "{flows}: {summary:?}");
        assert!(summary.is_honest(), "{flows}: {summary:?}");
        assert!(summary.is_narrow(), "{flows}: {summary:?}");
    }
}

#[test]
fn likelihood_intervals_hold_a_handful_of_flows() {
    for flows in [1.0, 3.0, 10.0, 30.0] {
        for p in [4, 11] {
            let summary = simulate_staggered(flows, p, StaggeredEstimator::Mle, 400);
            assert!(summary.is_honest(), "{flows} {p}: {summary:?}");
        }
    }
}

#[test]
fn harmonic_has_no_bias_at_many_flows() {
    for flows in [20_000.0, 100_000.0] {
        let summary = simulate_staggered(flows, 11, StaggeredEstimator::Harmonic, 300);
        assert!(summary.bias.abs() <= summary.chance(), "{flows}: {summary:?}");
        assert!(summary.is_honest(), "{flows}: {summary:?}");
        assert!(summary.is_narrow(), "{flows}: {summary:?}");
    }
    let summary = simulate_staggered(1e7, 11, StaggeredEstimator::Harmonic, 200);
    assert!(summary.is_honest(), "{summary:?}");
}

/// If most registers are empty the harmonic mean is far too high, as the model of a register
/// predicts. The error of the likelihood is the minimum for any unbiased estimator: the inverse of
/// the information in all registers.
#[test]
fn likelihood_is_better_than_the_harmonic_mean_at_few_flows() {
    const FLOWS: f64 = 1000.0;
    let (p, q, m) = (11, 21, 2048.0);
    let (_, ages) = staggered_sketch(FLOWS, p, &mut Source::new(0));
    let exposures = || ages.iter().map(|age| 2.0 * age / m);
    // Without the youngest eighth.
    let mature = || exposures().filter(|exposure| *exposure > 0.25);
    let sum: f64 = mature().map(|exposure| exposure * moments(FLOWS / m * exposure, q).mean).sum();
    let expected = alpha(2048) * m * mature().count() as f64 / sum / FLOWS - 1.0;
    let all: f64 = exposures().map(|exposure| information(FLOWS / m * exposure, q)).sum();
    let least = all.sqrt().recip();

    let harmonic = simulate_staggered(FLOWS, p, StaggeredEstimator::Harmonic, 100);
    let likelihood = simulate_staggered(FLOWS, p, StaggeredEstimator::Mle, 100);
    assert!(harmonic.is_honest(), "{harmonic:?}");
    let deviation = (harmonic.rmse.powi(2) - harmonic.bias.powi(2)).sqrt();
    // Both formulas are asymptotic: the remainder is of the order of one over the number of
    // registers.
    let (allowed, rest) = (of_mean(deviation, harmonic.trials), 1.0 / m);
    assert!((harmonic.bias - expected).abs() <= allowed + rest, "{expected}: {harmonic:?}");
    let allowed = scatter(likelihood.trials) + rest;
    assert!((likelihood.rmse / least - 1.0).abs() <= allowed, "{least}: {likelihood:?}");
    assert!(likelihood.rmse < expected, "{likelihood:?} {harmonic:?}");
}

/// Largest number of flows that leaves no trace in 2.5 % of all cases: `exp(-n) = 0.025` if all
/// registers are exposed for one window each in total.
#[test]
fn no_flow_leaves_room_for_three() {
    let ages: Vec<f64> = (1..=2048).map(f64::from).collect();
    let mean = |youngest: f64| {
        let ages = ages.iter().filter(|age| **age > youngest);
        ages.map(|age| 2.0 * age / 2048.0).sum::<f64>() / 2048.0
    };
    let estimators = [(StaggeredEstimator::Mle, 0.0), (StaggeredEstimator::Harmonic, 256.0)];
    for (estimator, youngest) in estimators {
        let none = staggered(&[0; 2048], &ages, estimator).unwrap();
        assert_eq!((none.value, none.low), (0.0, 0.0));
        let most = -0.025_f64.ln() / mean(youngest);
        assert!((none.high / most - 1.0).abs() < 1e-12, "{none:?}, {most}");
    }
}

/// Next header of an IPv6 packet that ends with its header.
const NO_NEXT_HEADER: u8 = 59;

fn frame(source: &[u8]) -> Vec<u8> {
    match source.first_chunk::<16>() {
        Some(source) => Ip::new(*source, [0; 16], NO_NEXT_HEADER).frame(&[]),
        None => Ip::new(*source.first_chunk::<4>().unwrap(), [192, 0, 2, 1], TCP).frame(&[]),
    }
}

/// Returns the relative error of one seed.
fn error_of(hash: HashMode, (_, source): Plan, flows: u32, seed: u64) -> f64 {
    let mut settings = Settings::default();
    (settings.cardinality.key, settings.hash) = (KeyKind::Src, hash);
    let tables = Tables::new(&settings, seed);
    let context = Context::new(settings, &tables.tabulation, Sharing::Alone);
    let (mut state, shared) = (State::boxed(), Shared::boxed());
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
                let what = format!("{}, {flows} flows, {}", plan.0, hash.name());
                println!("{what}: {:.2} %", 100.0 * error);
                assert!(error < ERROR * QUANTILE, "{what}: {error}");
            }
        }
    }
}
