use super::*;
use std::sync::OnceLock;

/// Two windows of every kind of traffic; made once for all tests.
fn findings() -> &'static Findings {
    static FINDINGS: OnceLock<Findings> = OnceLock::new();
    FINDINGS.get_or_init(|| run(&Options { seeds: 2, figures: false, ..Options::default() }, &|_, _| {}).unwrap())
}

fn mean_error(alpha: f64, kind: SketchKind, method: Method) -> f64 {
    findings().errors(alpha, kind, method).unwrap().mean
}

#[test]
fn count_sketch_is_within_one_percent() {
    for alpha in ALPHAS {
        let errors = findings().errors(alpha, SketchKind::CountSketch, Method::Floating).unwrap();
        assert!(errors.high < 1.0, "{alpha}: {errors:?}");
    }
}

/// From a simulation of this protocol by another program, which has a scatter as well.
#[test]
fn all_methods_have_the_known_errors() {
    let known = [
        (SketchKind::CountSketch, Method::FourBits, [2.1, 4.6, 4.8], 1.0),
        (SketchKind::CountSketch, Method::SevenBits, [1.04, 0.94, 0.97], 0.5),
        (SketchKind::CountSketch, Method::Floating, [0.76, 0.15, 0.07], 0.45),
        (SketchKind::CountSketch, Method::Lapolli, [0.8, 0.13, 0.19], 0.5),
        (SketchKind::CountMin, Method::FourBits, [31.0, 20.0, 7.7], 1.0),
    ];
    for (kind, method, errors, allowed) in known {
        for (alpha, known) in ALPHAS.into_iter().zip(errors) {
            let error = mean_error(alpha, kind, method);
            assert!(
                (error - known).abs() <= allowed,
                "{}, {}, Zipf {alpha}: {error:.2} %, known {known}",
                kind.name(),
                method.name()
            );
        }
    }
}

#[test]
fn algorithm_3_to_the_letter_is_of_no_use() {
    for alpha in ALPHAS {
        let error = mean_error(alpha, SketchKind::CountSketch, Method::Literal);
        assert!((30.0..170.0).contains(&error), "{alpha}: {error}");
    }
}

#[test]
fn intervals_hold_the_truth() {
    let (held, all) = findings().held();
    assert_eq!(all, 12);
    assert_eq!(held, all);
}

#[test]
fn a_report_has_its_tables_plots_and_windows() {
    let options = Options { seeds: 1, packets_bits: 12, flows: 500, figures: true };
    let findings = run(&options, &|_, _| {}).unwrap();
    let directory = std::env::temp_dir().join(format!("flowgauge-p4entropy-{}", std::process::id()));
    let page = std::fs::read_to_string(findings.write(&directory).unwrap()).unwrap();
    for part in ["Figure 7a", "Figure 7b", "<svg", "around 20", "flowgauge reproduce p4entropy --seeds 1"] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    assert!(!page.contains("NaN"));
    let windows = std::fs::read_to_string(directory.join("windows.csv")).unwrap();
    // Three exponents with one shape, one of them with eight more; two sketches and five methods each.
    assert_eq!(windows.lines().count(), 1 + (3 + 8) * 2 * Method::ALL.len());
    std::fs::remove_dir_all(directory).unwrap();
}
