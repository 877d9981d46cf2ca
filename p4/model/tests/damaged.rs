//! Damaged sources: they are errors, never panics, and those that load can run.

use crate::common::{frame, program};
use flowgauge_p4_model::{Model, Options};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Pieces of the language, with a space between any two.
const PIECES: &str =
    "( ) { } < > ; : , 0 1 128 129 8w255 0xffffffff - ~ [ ] hdr bit apply #define \n";

/// Returns a program that uses most of the language.
fn rich() -> String {
    let mut program = program(
        "CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) p;
        Hash<bit<32>>(HashAlgorithm_t.CUSTOM, p) hash;
        action set(bit<8> v) { md.small = v; }
        action hashed() { hdr.io.x = hash.get({ hdr.io.a, 8w1 }); }
        table t { key = { hdr.io.a[7:0] : ternary; md.small : exact @name(\"s\"); } actions = { set; NoAction; } size = 8;
            const entries = { (0x10 &&& 0xf0, 0) : set(3); (_, 1) : NoAction(); } default_action = set(1); }
        Register<pair_t, bit<2>>(4, {0, 1}) r;
        RegisterAction<pair_t, bit<2>, bit<8>>(r) bump = { void apply(inout pair_t v, out bit<8> rv) {
            if (v.lo > 7 && !(v.hi == 3)) { v.hi = v.hi |+| 1; rv = 1; } else { v.lo = max(v.lo, md.small); } } };
        Counter<bit<64>, bit<1>>(2, CounterType_t.PACKETS) c;",
        "hashed(); if (t.apply().hit) { md.small = bump.execute(hdr.io.b[1:0]); } else { c.count(hdr.io.b[0:0]); }
        hdr.io.y = md.small ++ hdr.io.a[3:0] == 12w7 ? 32w1 : hdr.io.b << 3;",
    );
    program.declarations += "\nstruct pair_t { bit<8> lo; bit<8> hi; }";
    program.parser =
        "state body { packet.extract(hdr.extra[0]); transition select(hdr.extra[0].kind, 1w1) {
            (1, 1): io; (0x40 &&& 0xf0, _): ahead; default: accept; } }
        state ahead { md.m = packet.lookahead<bit<96>>()[63:32]; transition io; }
        state io { packet.extract(hdr.io); transition accept; }"
            .to_owned();
    program.text()
}

fn damage(text: &str, rng: &mut ChaCha8Rng) -> String {
    let pieces: Vec<&str> = PIECES.split(' ').collect();
    let mut words: Vec<&str> =
        text.split_inclusive([' ', '(', ')', ';', ',', '\n', '<', '>']).collect();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..words.len());
        match rng.random_range(0..4) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, pieces.choose(rng).copied().unwrap()),
            2 => words.insert(at, words[rng.random_range(0..words.len())]),
            _ => words[at] = pieces.choose(rng).copied().unwrap(),
        }
    }
    words.concat()
}

#[test]
fn never_a_panic() {
    let text = rich();
    Model::from_text("rich.p4", &text, &Options::default()).expect("undamaged");
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut loaded, mut refused) = (0, 0);
    for _ in 0..4000 {
        let damaged = damage(&text, &mut rng);
        match Model::from_text("rich.p4", &damaged, &Options::default()) {
            Ok(mut model) => {
                loaded += 1;
                for head in [1, 0x44, 0] {
                    let bytes = [&[head, 0, 0, 0][..], &frame(0x11, 0x1e)].concat();
                    // A fault is a valid result too.
                    drop(model.inject(0, &bytes));
                    drop(model.inject(128, &bytes[..9]));
                }
            }
            Err(error) => {
                refused += 1;
                let message = error.to_string();
                assert!(
                    message.starts_with("rich.p4:") || message.starts_with("tna.p4:"),
                    "{message}\n{damaged}"
                );
            }
        }
    }
    assert!(loaded > 100 && refused > 1000, "{loaded} loaded, {refused} refused");
}
