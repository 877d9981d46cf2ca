use super::*;
use crate::report::WrittenReport;

/// Value of a figure's parameter, and an error in percent.
type Known = (u64, f64);

/// Largest errors of a figure's selected powers at values of its parameter, in percent, by a program
/// in another language, in both arithmetics.
const LARGEST: [(Arithmetic, &str, &[Known]); 12] = [
    (Arithmetic::Decimals, "4a", &[(2, 89.332), (3, 0.788), (7, 0.788), (8, 0.788)]),
    (Arithmetic::Decimals, "4b", &[(2, 52.297), (6, 3.245), (7, 0.559)]),
    (Arithmetic::Decimals, "5a", &[(1, 60.271), (2, 12.944), (3, 0.788), (4, 0.861)]),
    (Arithmetic::Decimals, "5b", &[(1, 13.111), (2, 0.064), (3, 0.559), (5, 0.506)]),
    (Arithmetic::Decimals, "6a", &[(2, 6.153), (6, 1.136), (7, 0.788), (10, 0.618)]),
    (Arithmetic::Decimals, "6b", &[(3, 0.598), (6, 0.545), (7, 0.559), (10, 0.551)]),
    (Arithmetic::Integers, "4a", &[(2, 89.332), (3, 1.624), (8, 1.624)]),
    (Arithmetic::Integers, "4b", &[(6, 3.698), (7, 0.977)]),
    (Arithmetic::Integers, "5a", &[(2, 14.986), (3, 1.624), (4, 1.817), (5, 2.872)]),
    (Arithmetic::Integers, "5b", &[(1, 13.330), (3, 0.977)]),
    (Arithmetic::Integers, "6a", &[(2, 4.851), (6, 0.882), (7, 1.624), (10, 1.624)]),
    (Arithmetic::Integers, "6b", &[(2, 0.586), (6, 0.928), (7, 0.977), (10, 0.977)]),
];

#[test]
fn figures_4_to_6_have_the_known_errors() {
    let findings = run(20_000, &|_, _| {});
    for (arithmetic, known) in [
        (Arithmetic::Integers, [0.205, 1.624, 1.342, 0.567, 0.763]),
        (Arithmetic::Decimals, [0.072, 0.667, 0.788, 0.731, 0.694]),
    ] {
        for (curve, known) in ["3^39", "5^26", "7^22", "9^19", "11^17"].into_iter().zip(known) {
            for (figure, value) in [("4a", 7), ("5a", 3), ("6a", 7)] {
                let of_figure = findings.figure(arithmetic, figure).unwrap();
                let error = of_figure.error(curve, value).unwrap();
                let is_known = (error - known).abs() <= 0.001;
                assert!(is_known, "{figure}, {arithmetic:?}, {curve}: {error}");
            }
        }
    }
    for (arithmetic, name, known) in LARGEST {
        let figure = findings.figure(arithmetic, name).unwrap();
        for &(value, known) in known {
            let error = figure.largest(value).unwrap();
            let is_known = (error - known).abs() <= 0.001;
            assert!(is_known, "{name}, {arithmetic:?}, {value}: {error:.4}, known {known}");
        }
    }

    // One digit is too few for random powers on the average, three are enough.
    for arithmetic in Arithmetic::ALL {
        let figure = findings.figure(arithmetic, "5a").unwrap();
        assert!(figure.error(RANDOM, 1).unwrap() > 10.0 && figure.error(RANDOM, 3).unwrap() < 1.0);
    }

    // The selected powers of three statements exceed 1 % in integers only, and those of one in
    // both.
    let deviating = |arithmetic| {
        let statements = STATEMENTS.iter().filter(|statement| !statement.random);
        statements
            .filter(|statement| findings.worst(arithmetic, statement) >= 1.0)
            .map(|statement| statement.figure)
            .collect::<Vec<_>>()
    };
    assert_eq!(deviating(Arithmetic::Integers), ["4a", "5a", "5b", "6a"]);
    assert_eq!(deviating(Arithmetic::Decimals), ["5b"]);

    let parts = ["Figure 6b", "in decimals", "in integers", "constants cut to 1/1024"];
    let written = WrittenReport::new(&findings.report(), COMMAND, &parts);
    // A line for each of eleven curves at 7, 5 and 9 values, and the heading.
    for name in ["decimals.csv", "integers.csv"] {
        assert_eq!(written.lines(name), 1 + 2 * 6 * (7 + 5 + 9), "{name}");
    }
}
