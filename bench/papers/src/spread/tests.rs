use super::*;
use crate::report::WrittenReport;
use flowgauge_testing::chance::binomial;
use std::sync::OnceLock;

/// Returns the results of a small run, computed once for all tests.
fn findings() -> &'static Findings {
    static FINDINGS: OnceLock<Findings> = OnceLock::new();
    FINDINGS.get_or_init(small)
}

fn recall(traffic: Traffic, size: Size, method: Method, top: usize) -> f64 {
    let name =
        format!("spread/{}/{}kib/{}/recall-{top}", traffic.name(), size.kib(), method.name());
    let name = name.to_lowercase().replace(' ', "-");
    findings().numbers().get(&name).map_or_else(|| panic!("no {name}"), |found| found.mean)
}

#[test]
fn victims_and_scanners_are_found_where_a_full_table_has_no_room() {
    let [smallest, ..] = SIZES;
    for traffic in [Traffic::Victim, Traffic::Scan] {
        for size in SIZES {
            assert_eq!(recall(traffic, size, Method::Likelihood, 10), 100.0, "{traffic:?}");
        }
        // A table with 512 of 15,001 keys is full before the first contact of the attack.
        assert_eq!(recall(traffic, smallest, Method::Table, 10), 0.0, "{traffic:?}");
    }
}

#[test]
fn more_memory_finds_more_keys() {
    let [smallest, .., largest] = SIZES;
    for method in [Method::Likelihood, Method::MinimumOfRows] {
        let [few, many] = [smallest, largest].map(|size| recall(Traffic::Zipf, size, method, 100));
        assert!(few < many, "{method:?}: {few} and {many}");
    }
}

#[test]
fn no_key_is_listed_in_even_traffic() {
    // Cells have hundreds of pairs of other keys. In larger sketches they have as few as keys have
    // others, so that keys with seven stand out from them.
    for outcome in experiment::run(Traffic::Even, 1, 7).unwrap().iter().take(2) {
        let [ours, minimum, _] = &outcome.scores;
        assert!(ours.found.iter().all(|found| found.listed == 0), "{outcome:?}");
        // The paper's estimate does not know the noise.
        assert!(minimum.found.iter().all(|found| found.precision() == Some(0.0)));
        assert!(outcome.rest_holds, "{outcome:?}");
    }
}

#[test]
fn intervals_of_the_found_contain_the_true_number() {
    let (mut inside, mut all) = (0, 0);
    // One key of each window, so that no two share their noise.
    for seed in 1..=40 {
        for outcome in experiment::run(Traffic::Victim, seed, 50).unwrap().iter().take(1) {
            let [ours, ..] = &outcome.scores;
            (inside, all) = (inside + ours.inside, all + ours.intervals);
        }
    }
    // Intervals are promised to contain the true number in 93 to 98 of 100 cases.
    assert!(all >= 40, "{all}");
    let (least, most) = (binomial(all as u64, 0.93), binomial(all as u64, 0.98));
    assert!((*least.start()..=*most.end()).contains(&(inside as u64)), "{inside} of {all}");
}

#[test]
fn runs_repeat() {
    let once = experiment::run(Traffic::Zipf, 3, 100).unwrap();
    assert_eq!(once, experiment::run(Traffic::Zipf, 3, 100).unwrap());
    assert_ne!(once, experiment::run(Traffic::Zipf, 4, 100).unwrap());
}

#[test]
fn a_report_has_its_tables_plots_and_lines() {
    let parts = ["carpet bombing of a /24", "hidden scan", "keyed", "prefers-color-scheme"];
    let written =
        WrittenReport::new(&findings().report(), "flowgauge reproduce spread --seeds 1", &parts);
    assert_eq!(written.page.matches("<svg class").count(), 6);
    let windows = Traffic::ALL.len() * SIZES.len();
    assert_eq!(written.lines("found.csv"), 1 + windows * Method::ALL.len());
    assert_eq!(written.lines("attacks.csv"), 1 + Attack::ALL.len() * HASHES.len());
}
