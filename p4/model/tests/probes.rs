//! Programs with one construct each that the chip or its compiler treats specially. The compiler's
//! verdict is listed next to the model's.
//!
//! The programs are not part of this repository: `TEST_P4_PROBES` names a directory with them.
//! `chip.rs` has constructs of our own for each of the limits.

use crate::p4c::{self, COLLIDE, LEFT_OUT, UNPROVEN, UNUSED};
use flowgauge_p4_model::{Model, Options, SourceError};
use flowgauge_testing::skip;
use std::fs;
use std::path::PathBuf;

/// Verdict of the model, and by it the compiler's.
enum Verdict {
    /// Accepted by both.
    Loads,
    /// Rejected like by the compiler, with these words.
    RefusedBy(&'static str),
    /// Rejected with these words although the compiler accepts it, and the reason.
    RefusedAlone(&'static str, &'static str),
}

use Verdict::{Loads, RefusedAlone, RefusedBy};

const PROBES: &[(&str, Verdict)] = &[
    ("01-two-accesses-one-pass", RefusedAlone("is reached twice", COLLIDE)),
    ("02-two-actions-of-one-register-in-sequence", RefusedAlone("is reached twice", COLLIDE)),
    ("03-salu-3-conditions", RefusedBy("3 comparisons in a register action")),
    ("04-salu-4-conditions-nested", RefusedBy("4 comparisons in a register action")),
    ("05-salu-multiply", RefusedBy("multiplication")),
    ("06-salu-shift", RefusedBy("a shift in a register action")),
    ("07-salu-3-operand-add", RefusedBy("an operation of more than two operands")),
    ("08-salu-4-phv-operands", RefusedBy("4 operands from the packet")),
    ("09-salu-output-arithmetic", RefusedBy("an operation of more than two operands")),
    ("10-five-register-actions-of-one-register", RefusedBy("has more than 4 register actions")),
    ("11-add-64", Loads),
    ("12-add-128", RefusedAlone("an addition of 128 bits", UNUSED)),
    ("13-division", RefusedBy("division is unsupported")),
    ("14-modulo", RefusedBy("division is unsupported")),
    ("15-variable-shift", RefusedBy("a shift by a variable")),
    ("16-multiply-variables", RefusedBy("a multiplication of two variables")),
    ("17-key-2048-wide", RefusedBy("unsupported key of 2048 bits")),
    ("18-key-160-wide", RefusedAlone("unsupported key of 160 bits", LEFT_OUT)),
    ("19-compare-two-fields-less", RefusedBy("which of two fields is less")),
    ("20-if-on-sum", RefusedBy("a condition on a result of arithmetic")),
    ("21-table-applied-twice", RefusedBy("is applied twice")),
    ("22-table-of-4-million-entries", RefusedBy("268435456 bits of SRAM")),
    ("23-tcam-of-100k", RefusedBy("588 blocks of TCAM")),
    ("24-register-of-16M", RefusedBy("536870912 bits of SRAM")),
    ("25-forty-dependent-tables", RefusedBy("40 look-ups and registers depend on one another")),
    ("26-fifty-registers-chained", RefusedBy("50 registers")),
    ("27-action-needs-two-steps", RefusedBy("an operation on the result of another one")),
    ("28-two-hashes-in-one-action", RefusedBy("64 bits of hashes in one action")),
    ("29-hash-of-1024-bits", Loads),
    ("30-crc-poly-even", Loads),
    ("31-digest-64-bytes", RefusedBy("a digest of 64 bytes")),
    ("32-digest-unconditional", RefusedBy("a digest without a condition")),
    ("33-digest-two-in-one-pass", Loads),
    ("34-deparser-if-on-header-field", Loads),
    ("35-resubmit-without-type", Loads),
    ("36-parser-lookahead-256-then-extract-512", Loads),
    ("37-parser-select-on-128-bits", Loads),
    ("38-parser-arithmetic", RefusedBy("arithmetic in a parser")),
    ("39-parser-multiply-shift", RefusedBy("multiplication")),
    ("40-counter-in-two-tables", RefusedBy("has the default action")),
    ("41-index-wider-than-array", Loads),
    ("42-index-width-mismatch", RefusedBy("bit<32> where bit<8> is needed")),
    ("43-saturating-in-salu", Loads),
    ("44-salu-signed-compare", Loads),
    ("45-salu-difference-compare", Loads),
    ("46-uninitialised-metadata-read", Loads),
    ("47-uninitialised-action-param-copy", Loads),
    ("48-header-field-of-invalid-header", Loads),
    ("49-register-of-3-fields", RefusedAlone("a register element is", UNUSED)),
    ("50-register-64", RefusedAlone("a register element is", UNUSED)),
    ("51-register-pair-64-bit-arith", Loads),
    ("52-emit-twice", Loads),
    ("53-execute-in-condition-arith", RefusedBy("a multiplication by a constant")),
    ("54-ternary-table-priorities-const-order", Loads),
    ("55-two-lpm", RefusedBy("at most one lpm field")),
    (
        "56-salu-read-other-md-bit-slices",
        RefusedBy("a part of an element or of a result is assigned to"),
    ),
    ("57-extract-in-loop-next", Loads),
    ("58-checksum-extern", RefusedBy("unsupported extern Checksum")),
    ("59-mirror-extern", RefusedBy("unsupported extern Mirror")),
    ("60-meter", RefusedAlone("unsupported extern Meter", LEFT_OUT)),
    ("61-random", RefusedAlone("unsupported extern Random", LEFT_OUT)),
    ("62-selector-actionprofile", RefusedBy("unsupported table property implementation")),
    ("63-egress-nonempty", RefusedAlone("unsupported egress", LEFT_OUT)),
    ("64-idle-timeout", RefusedAlone("unsupported table property idle_timeout", LEFT_OUT)),
    ("65-max3", RefusedBy("an operation on the result of another one")),
    (
        "66-dead-register-actions-share-state-from-two-ifs",
        RefusedAlone("is reached twice", UNPROVEN),
    ),
];

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TEST_P4_PROBES").map(PathBuf::from);
    if folder.is_none() {
        skip("TEST_P4_PROBES, a folder with the 66 probe programs");
    }
    folder
}

#[test]
fn what_the_compiler_refuses_the_model_refuses() {
    let Some(folder) = folder() else { return };
    for (name, expected) in PROBES {
        let file = folder.join(format!("{name}.p4"));
        match (expected, Model::from_file(&file, &Options::default())) {
            (Loads, Ok(_)) => {}
            (
                RefusedBy(words) | RefusedAlone(words, _),
                Err(SourceError::Invalid { place, problem }),
            ) => {
                assert!(problem.contains(words), "{name}: {problem}");
                assert!(file.ends_with(place.file.as_ref()), "{name}: {place}");
                if let RefusedAlone(_, why) = expected {
                    println!("{name}: {problem} ({why})");
                }
            }
            (_, Ok(_)) => panic!("{name} is not refused"),
            (_, Err(error)) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn the_compiler_does_what_the_table_says() {
    let (Some(folder), Some(compiler)) = (folder(), p4c::compiler()) else { return };
    // For this compiler `bit` is a keyword.
    let text = |name: &str| {
        fs::read_to_string(folder.join(format!("{name}.p4")))
            .unwrap()
            .replace("bit<1> bit;", "bit<1> single;")
    };
    let texts: Vec<String> = PROBES.iter().map(|(name, ..)| text(name)).collect();
    let taken = p4c::takes(&compiler, "probes", &texts);
    for ((name, expected), taken) in PROBES.iter().zip(taken) {
        assert_eq!(taken, !matches!(expected, RefusedBy(_)), "{name}");
    }
}
