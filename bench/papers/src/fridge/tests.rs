use super::*;
use crate::report::WrittenReport;
use flowgauge_testing::extent;

/// Returns reference values, which are not published, so that no report shows them: errors in
/// percent at the median and the 95th and 99th percentiles, and the largest gap, for the log-uniform
/// trace of 1.25 million requests with 2^10 slots. Absolute values, printed with two digits, from a
/// simulation of the definitions by another program; the number of runs is unknown.
fn known(method: Method) -> Option<Errors> {
    let (percentiles, gap) = match method {
        Method::Fridge => ([3.8, 2.9, 0.6], 0.11),
        Method::Overwrite => ([90.0, 98.0, 97.0], 5.5),
        Method::Expiry(0.99) => ([4.0, 5.5, 6.7], 0.10),
        Method::Expiry(0.8) => ([50.0, 73.0, 75.0], 1.9),
        Method::MultiFridge | Method::Expiry(_) => return None,
    };
    Some(Errors { percentiles, gap })
}

/// Standard deviations of one run's errors and gap on the log-uniform trace, over ten runs
/// (`flowgauge reproduce fridge`).
const DEVIATIONS: [([f64; 3], f64); 4] = [
    ([3.53, 3.80, 1.63], 0.026),
    ([0.02, 0.01, 0.03], 0.007),
    ([4.26, 1.89, 1.14], 0.029),
    ([0.56, 0.17, 0.08], 0.009),
];

fn findings(seeds: u64, requests: u64, recipes: &[Recipe], setups: &[Setup]) -> Findings {
    let runs: Vec<Run> = recipes
        .iter()
        .flat_map(|recipe| (1..=seeds).map(|seed| Run { recipe: *recipe, requests, seed }))
        .collect();
    let outcomes =
        parallel::run(&runs, 2, parallel::equal_cost, &|_, _| {}, |run| run.execute(setups));
    Findings { seeds, outcomes, sizes: Vec::new() }
}

#[test]
fn errors_are_the_known_ones() {
    let seeds = extent(2, 4);
    let recipe = Recipe::LogUniform;
    let findings = findings(seeds, REQUESTS, &[recipe], &Setup::COMPARED);
    // Compare the reference values, taken as those of one run, with our mean. They are printed with
    // two digits.
    for ((setup, (deviations, gap_deviation)), digit) in
        Setup::COMPARED.into_iter().zip(DEVIATIONS).zip([0.1, 1.0, 0.1, 1.0])
    {
        let allowed = |deviation: f64, digit: f64| {
            3.0 * deviation * (1.0 + 1.0 / seeds as f64).sqrt() + digit / 2.0
        };
        let (name, known) = (setup.method.name(), known(setup.method).unwrap());
        for (index, deviation) in deviations.into_iter().enumerate() {
            let ours =
                findings.mean(recipe, setup, |errors| errors.percentiles[index]).unwrap().mean;
            let (known, allowed) = (known.percentiles[index], allowed(deviation, digit));
            // The sign of the reference value is unknown.
            let difference = (ours - known).abs().min((ours + known).abs());
            let is_near = difference <= allowed;
            assert!(is_near, "{name} {index}: {ours:.2}, known {known} ±{allowed:.2}");
        }
        let ours = findings.mean(recipe, setup, |errors| errors.gap).unwrap().mean;
        let (known, allowed) = (known.gap, allowed(gap_deviation, digit / 10.0));
        let difference = (ours - known).abs();
        assert!(difference <= allowed, "{name}: {ours:.3}, known {known} ±{allowed:.3}");
    }
}

#[test]
fn overwriting_loses_the_longer_group_and_fridges_do_not() {
    let setups =
        [Setup::COMPARED[0], Setup::COMPARED[1], Setup::best(Method::MultiFridge, 10).unwrap()];
    let findings = findings(2, 600_000, &[Recipe::Bimodal], &setups);
    let gap = |setup| findings.combined(Recipe::Bimodal, setup).unwrap().gap;
    // A bucket is 3 % wide, 0.045 in logarithms; ten runs of 1.25 million requests have gaps of
    // 0.03 on average.
    assert!(gap(setups[0]) < 0.1 && gap(setups[2]) < 0.1, "{} {}", gap(setups[0]), gap(setups[2]));
    // Only the shorter group is left: 50 ms and more are reported as 0.2 ms at most.
    assert!(gap(setups[1]) > 7.9, "{}", gap(setups[1]));
}

#[test]
fn when_requests_stop_one_fridge_is_right_and_four_are_not() {
    let findings = findings(3, 600_000, &[Recipe::LogUniform], &Setup::stopping());
    let gap = |setup| findings.gap_after_all(Recipe::LogUniform, setup).unwrap().mean;
    let [one, four] = Setup::stopping()[..] else { panic!() };
    // Half as many requests as in the ten runs, whose gaps had a mean of 0.10 and a deviation of
    // 0.026.
    assert!(gap(one) < 0.1 * 2_f64.sqrt() + 3.0 * 0.026, "{}", gap(one));
    // The report says so. New weights of several fridges may invalidate this.
    assert!(gap(four) > 2.0 * gap(one), "{} {}", gap(four), gap(one));
}

#[test]
fn runs_repeat() {
    let run = Run { recipe: Recipe::LogUniform, requests: 50_000, seed: 3 };
    let errors = |run: &Run| {
        run.execute(&Setup::COMPARED).results.iter().map(|result| result.errors).collect::<Vec<_>>()
    };
    assert_eq!(errors(&run), errors(&run));
    assert_ne!(errors(&run), errors(&Run { seed: 4, ..run }));
}

#[test]
fn tables_that_cannot_be_are_left_out() {
    assert_eq!(Setup::best(Method::MultiFridge, 8), None);
    let all = Setup::all();
    // One of nine shares is in the comparison, and so is one of the seven sizes of three methods;
    // the fourth has six sizes.
    assert_eq!(all.len(), 4 + 8 + 3 * 6 + 6);
    assert!(all.iter().enumerate().all(|(index, setup)| !all[..index].contains(setup)));
}

#[test]
fn a_report_has_its_tables_plots_and_lines() {
    let findings = execute(1, 200_000, &Setup::all(), &|_, _| {});
    let parts = ["expiry at p80", "four fridges", "1/4,096", "16,384"];
    let written =
        WrittenReport::new(&findings.report(), "flowgauge reproduce fridge --seeds 1", &parts);
    assert!(!written.page.contains("inf") && !written.page.contains("known, |error|"));
    assert_eq!(written.page.matches("<svg class").count(), 6);
    assert_eq!(written.lines("errors.csv"), 1 + 2 * (Setup::all().len() + 2));
    assert_eq!(written.lines("percentiles.csv"), 1 + 2 * 4 * 95);
}
