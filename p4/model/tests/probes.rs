//! Programs with one construct each that the chip or its compiler treats specially. The compiler's
//! verdict is listed next to the model's.
//!
//! The programs are not part of this repository: `TEST_P4_PROBES` names a directory with them.
//! `chip.rs` has constructs of our own for each of the limits.

use crate::p4c;
use flowgauge_p4_model::{Model, Options, SourceError};
use flowgauge_testing::skip;
use std::fs;
use std::path::PathBuf;

/// Verdict of the chip's compiler on a program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Compiler {
    Takes,
    Refuses,
}

/// Verdict of the model.
enum Verdict {
    Loads,
    /// Rejected like by the compiler, with these words.
    RefusedBy(&'static str),
    /// Rejected with these words although the compiler accepts it, and the reason.
    RefusedAlone(&'static str, &'static str),
}

use Compiler::{Refuses, Takes};
use Verdict::{Loads, RefusedAlone, RefusedBy};

/// Both accesses are placed in one stateful ALU of one stage, so that one packet puts two addresses
/// on its only bus. The assembler only warns.
const COLLIDE: &str = "the compiler makes a wrong program: two addresses on one bus";
/// No packet meets both conditions, which neither the compiler nor the model can prove.
const UNPROVEN: &str = "the conditions exclude each other: put both into branches of one if";
/// The compiler omits what is not used. If it is used, it rejects it (`chip.rs`).
const UNUSED: &str = "the compiler refuses it if it is used";
/// The model supports less than the chip here, and reports `unsupported`.
const LEFT_OUT: &str = "the model does not execute it";

const PROBES: &[(&str, Compiler, Verdict)] = &[
    ("01-two-accesses-one-pass", Takes, RefusedAlone("is reached twice", COLLIDE)),
    (
        "02-two-actions-of-one-register-in-sequence",
        Takes,
        RefusedAlone("is reached twice", COLLIDE),
    ),
    ("03-salu-3-conditions", Refuses, RefusedBy("3 comparisons in a register action")),
    ("04-salu-4-conditions-nested", Refuses, RefusedBy("4 comparisons in a register action")),
    ("05-salu-multiply", Refuses, RefusedBy("multiplication")),
    ("06-salu-shift", Refuses, RefusedBy("a shift in a register action")),
    ("07-salu-3-operand-add", Refuses, RefusedBy("an operation of more than two operands")),
    ("08-salu-4-phv-operands", Refuses, RefusedBy("4 operands from the packet")),
    ("09-salu-output-arithmetic", Refuses, RefusedBy("an operation of more than two operands")),
    (
        "10-five-register-actions-of-one-register",
        Refuses,
        RefusedBy("has more than 4 register actions"),
    ),
    ("11-add-64", Takes, Loads),
    ("12-add-128", Takes, RefusedAlone("an addition of 128 bits", UNUSED)),
    ("13-division", Refuses, RefusedBy("division is unsupported")),
    ("14-modulo", Refuses, RefusedBy("division is unsupported")),
    ("15-variable-shift", Refuses, RefusedBy("a shift by a variable")),
    ("16-multiply-variables", Refuses, RefusedBy("a multiplication of two variables")),
    ("17-key-2048-wide", Refuses, RefusedBy("unsupported key of 2048 bits")),
    ("18-key-160-wide", Takes, RefusedAlone("unsupported key of 160 bits", LEFT_OUT)),
    ("19-compare-two-fields-less", Refuses, RefusedBy("which of two fields is less")),
    ("20-if-on-sum", Refuses, RefusedBy("a condition on a result of arithmetic")),
    ("21-table-applied-twice", Refuses, RefusedBy("is applied twice")),
    ("22-table-of-4-million-entries", Refuses, RefusedBy("268435456 bits of SRAM")),
    ("23-tcam-of-100k", Refuses, RefusedBy("588 blocks of TCAM")),
    ("24-register-of-16M", Refuses, RefusedBy("536870912 bits of SRAM")),
    (
        "25-forty-dependent-tables",
        Refuses,
        RefusedBy("40 look-ups and registers depend on one another"),
    ),
    ("26-fifty-registers-chained", Refuses, RefusedBy("50 registers")),
    ("27-action-needs-two-steps", Refuses, RefusedBy("an operation on the result of another one")),
    ("28-two-hashes-in-one-action", Refuses, RefusedBy("64 bits of hashes in one action")),
    ("29-hash-of-1024-bits", Takes, Loads),
    ("30-crc-poly-even", Takes, Loads),
    ("31-digest-64-bytes", Refuses, RefusedBy("a digest of 64 bytes")),
    ("32-digest-unconditional", Refuses, RefusedBy("a digest without a condition")),
    ("33-digest-two-in-one-pass", Takes, Loads),
    ("34-deparser-if-on-header-field", Takes, Loads),
    ("35-resubmit-without-type", Takes, Loads),
    ("36-parser-lookahead-256-then-extract-512", Takes, Loads),
    ("37-parser-select-on-128-bits", Takes, Loads),
    ("38-parser-arithmetic", Refuses, RefusedBy("arithmetic in a parser")),
    ("39-parser-multiply-shift", Refuses, RefusedBy("multiplication")),
    ("40-counter-in-two-tables", Refuses, RefusedBy("has the default action")),
    ("41-index-wider-than-array", Takes, Loads),
    ("42-index-width-mismatch", Refuses, RefusedBy("bit<32> where bit<8> is needed")),
    ("43-saturating-in-salu", Takes, Loads),
    ("44-salu-signed-compare", Takes, Loads),
    ("45-salu-difference-compare", Takes, Loads),
    ("46-uninitialised-metadata-read", Takes, Loads),
    ("47-uninitialised-action-param-copy", Takes, Loads),
    ("48-header-field-of-invalid-header", Takes, Loads),
    ("49-register-of-3-fields", Takes, RefusedAlone("a register element is", UNUSED)),
    ("50-register-64", Takes, RefusedAlone("a register element is", UNUSED)),
    ("51-register-pair-64-bit-arith", Takes, Loads),
    ("52-emit-twice", Takes, Loads),
    ("53-execute-in-condition-arith", Refuses, RefusedBy("a multiplication by a constant")),
    ("54-ternary-table-priorities-const-order", Takes, Loads),
    ("55-two-lpm", Refuses, RefusedBy("at most one lpm field")),
    (
        "56-salu-read-other-md-bit-slices",
        Refuses,
        RefusedBy("a part of an element or of a result is assigned to"),
    ),
    ("57-extract-in-loop-next", Takes, Loads),
    ("58-checksum-extern", Refuses, RefusedBy("unsupported extern Checksum")),
    ("59-mirror-extern", Refuses, RefusedBy("unsupported extern Mirror")),
    ("60-meter", Takes, RefusedAlone("unsupported extern Meter", LEFT_OUT)),
    ("61-random", Takes, RefusedAlone("unsupported extern Random", LEFT_OUT)),
    ("62-selector-actionprofile", Refuses, RefusedBy("unsupported table property implementation")),
    ("63-egress-nonempty", Takes, RefusedAlone("unsupported egress", LEFT_OUT)),
    ("64-idle-timeout", Takes, RefusedAlone("unsupported table property idle_timeout", LEFT_OUT)),
    ("65-max3", Refuses, RefusedBy("an operation on the result of another one")),
    (
        "66-dead-register-actions-share-state-from-two-ifs",
        Takes,
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
    for (name, compiler, model) in PROBES {
        let is_as_said = match model {
            Loads | RefusedAlone(..) => *compiler == Takes,
            RefusedBy(_) => *compiler == Refuses,
        };
        assert!(is_as_said, "{name}");
    }
    let Some(folder) = folder() else {
        return;
    };
    for (name, _, expected) in PROBES {
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
    let (Some(folder), Some(compiler)) = (folder(), p4c::compiler()) else {
        return;
    };
    // For this compiler `bit` is a keyword.
    let text = |name: &str| {
        fs::read_to_string(folder.join(format!("{name}.p4")))
            .unwrap()
            .replace("bit<1> bit;", "bit<1> single;")
    };
    let texts: Vec<String> = PROBES.iter().map(|(name, ..)| text(name)).collect();
    let taken = p4c::takes(&compiler, "probes", &texts);
    for ((name, expected, _), taken) in PROBES.iter().zip(taken) {
        assert_eq!(if taken { Takes } else { Refuses }, *expected, "{name}");
    }
}
