//! Adversary who knows the source and chooses packets, but does not see the results.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use base64::prelude::{BASE64_STANDARD, Engine};
use common::{START, Scratch, frames, pcap, records, replay, run, total};
use flowgauge_core::hash::crc32;
use flowgauge_core::{FlowKey, HashMode};
use flowgauge_ctl::lake::union::files;
use flowgauge_dataplane::HashKey;
use flowgauge_dataplane::capture::build::Packet;
use flowgauge_testing::chance::{binomial, of_mean};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Number of flows that the adversary sends.
const FLOWS: u32 = 100_000;
/// Destination address. Sources and ports are the adversary's choice.
const VICTIM: [u8; 4] = [192, 0, 2, 1];

/// Returns a UDP five-tuple with these chosen bits: the source in the upper half, the ports in the
/// lower.
fn five_tuple(chosen: u64) -> [u8; 13] {
    let [s0, s1, s2, s3, ports @ ..] = chosen.to_be_bytes();
    let mut key = [0; 13];
    key[..4].copy_from_slice(&[s0, s1, s2, s3]);
    key[4..8].copy_from_slice(&VICTIM);
    key[8..12].copy_from_slice(&ports);
    key[12] = 17;
    key
}

/// Returns the changes that do not affect the CRC: the kernel of its matrix over the chosen bits,
/// by Gaussian elimination.
fn kernel() -> Vec<u64> {
    let constant = crc32(&five_tuple(0));
    let mut rows: Vec<(u32, u64)> =
        (0..64).map(|bit| (crc32(&five_tuple(1 << bit)) ^ constant, 1 << bit)).collect();
    for bit in 0..32 {
        if let Some(pivot) = rows.iter().position(|(image, _)| image >> bit & 1 == 1) {
            let (image, chosen) = rows.swap_remove(pivot);
            rows.iter_mut()
                .filter(|(other, _)| other >> bit & 1 == 1)
                .for_each(|row| *row = (row.0 ^ image, row.1 ^ chosen));
        }
    }
    rows.into_iter().map(|(image, chosen)| (image == 0).then_some(chosen).unwrap()).collect()
}

/// Returns different five-tuples with the same CRC.
fn crafted() -> Vec<u64> {
    let kernel = kernel();
    assert!(kernel.len() >= 32);
    let combined = |number: u32| {
        (0..17)
            .filter(|bit| number >> bit & 1 == 1)
            .fold(0x0a01_0203_1234_5678, |sum, bit| sum ^ kernel[bit])
    };
    (0..FLOWS).map(combined).collect()
}

fn capture(scratch: &Scratch) -> PathBuf {
    let packets: Vec<Packet> = crafted()
        .into_iter()
        .zip(0..)
        .map(|(chosen, number)| {
            let key = five_tuple(chosen);
            let source = [key[0], key[1], key[2], key[3]];
            let mut udp = frames::udp(&[0; 18]);
            udp[..4].copy_from_slice(&key[8..12]);
            let mut ip = frames::ipv4(source, 17, &udp);
            ip[16..20].copy_from_slice(&VICTIM);
            Packet::new(START + number * 1000, frames::ethernet(&[], 0x0800, &ip))
        })
        .collect();
    scratch.write("crafted.pcap", pcap(&packets)).into()
}

fn key_file(scratch: &Scratch, name: &str, digits: &str) -> String {
    let path = scratch.write(name, digits);
    run_shell(&format!("chmod 600 {path}"));
    path
}

fn run_shell(command: &str) {
    assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success());
}

fn cardinality(file: &Path, options: &str) -> Value {
    let records =
        records(file, &format!("--key five-tuple --window 10s --read-every never {options}"));
    total(&records)["cardinality"].clone()
}

#[test]
fn crafted_five_tuples_are_one_flow_by_their_crc_and_all_flows_by_a_keyed_hash() {
    let scratch = Scratch::new("crafted");
    let file = capture(&scratch);
    for public in
        ["--hash crc32", "--hash tabulated", "--hash tabulated --seed 5577006791947779410"]
    {
        let printed = cardinality(&file, public);
        assert!(printed["high"].as_f64().unwrap() < 3.0, "{public}: {printed}");
    }
    // A 95 % interval does not contain the truth for every key, and these are fixed: the error is
    // that of 2048 registers.
    let allowed = of_mean(1.04 / 2048.0_f64.sqrt(), 1);
    for number in 1..=3 {
        let key = key_file(&scratch, &format!("key{number}"), &format!("{number:064x}"));
        let printed = cardinality(&file, &format!("--hash keyed --hash-key {key}"));
        let [low, estimate, high] =
            ["low", "estimate", "high"].map(|number| printed[number].as_f64().unwrap());
        assert!(low <= estimate && estimate <= high, "key {number}: {printed}");
        assert!((estimate / f64::from(FLOWS) - 1.0).abs() <= allowed, "key {number}: {printed}");
        assert_eq!(printed["hash"]["mode"], "keyed");
        assert_eq!(printed["hash"]["fingerprint"].as_str().unwrap().len(), 16);
        assert!(
            printed["hash"].get("seed").is_none() && printed["hash"].get("polynomial").is_none(),
            "{printed}"
        );
    }
}

#[test]
fn crafted_five_tuples_hide_in_no_measurement_of_a_keyed_hash() {
    let scratch = Scratch::new("measurements");
    let file = capture(&scratch);
    let key = key_file(&scratch, "key", &"5a".repeat(32));
    // One that is in the traffic, and one with the same CRC that is not.
    let flow = |chosen: u64| {
        let [a, b, c, d, _, _, _, _, s0, s1, d0, d1, _] = five_tuple(chosen);
        let ports = [u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])];
        format!("{a}.{b}.{c}.{d}:{} > 192.0.2.1:{} udp", ports[0], ports[1])
    };
    let sent = crafted()[7];
    let absent = sent ^ kernel()[31];
    assert_eq!(crc32(&five_tuple(sent)), crc32(&five_tuple(absent)));
    let printed = |hash: &str| {
        let file = file.to_str().unwrap();
        let mut arguments = vec![
            "replay",
            file,
            "--format",
            "json",
            "--window",
            "10s",
            "--read-every",
            "never",
            "--truth",
        ];
        arguments.extend([
            "--measure",
            "entropy,frequency,membership,heavy",
            "--key",
            "five-tuple",
        ]);
        let (sent, absent) = (flow(sent), flow(absent));
        arguments.extend(["--query", &sent, "--query", &absent]);
        arguments.extend(hash.split_whitespace());
        let lines = run(arguments).quiet();
        let windows: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        windows.into_iter().find(|record: &Value| record["record"] == "window").unwrap()
    };
    let number = |value: &Value| value.as_f64().unwrap();
    for public in ["--hash crc32", "--hash tabulated --seed 99"] {
        let window = printed(public);
        assert!(number(&window["entropy"]["five-tuple"]["high"]) < 2.0, "{window}");
        // All packets are in one counter of each row, which may also have up to e/1024 of all from
        // others.
        let low = f64::from(FLOWS) * (1.0 - std::f64::consts::E / 1024.0);
        assert!((number(&window["frequency"]["flows"][0]["low"]) - low).abs() < 1e-6, "{window}");
        assert_eq!(window["membership"]["flows"][1]["seen"], true, "{window}");
        assert_eq!(number(&window["heavy"]["flows"][0]["low"]), f64::from(FLOWS), "{window}");
    }
    let window = printed(&format!("--hash keyed --hash-key {key}"));
    let entropy = &window["entropy"]["five-tuple"];
    let truth = number(&entropy["truth"]);
    assert!(
        truth > 16.0 && (number(&entropy["low"])..=number(&entropy["high"])).contains(&truth),
        "{entropy}"
    );
    let [low, high] = ["low", "high"].map(|bound| number(&window["frequency"]["flows"][0][bound]));
    // Its own packet, and those of others in the counter of one row.
    let others = binomial((FLOWS - 1).into(), 1.0 / 1024.0);
    assert!(
        (low..=high).contains(&1.0) && high - 1.0 <= *others.end() as f64,
        "{}",
        window["frequency"]
    );
    assert_eq!(window["membership"]["flows"][0]["seen"], true);
    // This many flows leave a share of e^(-flows/bits) of the 65,536 bits of a row unset; the
    // variance is that of empty bins.
    let (load, bits) = (f64::from(FLOWS) / 65_536.0, 65_536.0);
    let (unset, set) = ((-load).exp(), -(-load).exp_m1());
    let deviation = (unset * (1.0 - (1.0 + load) * unset) / bits).sqrt();
    let (expected, allowed) = (set.powi(4), 4.0 * set.powi(3) * of_mean(deviation, 4));
    let printed = number(&window["membership"]["false_positive"]);
    assert!((printed - expected).abs() <= allowed, "{printed}, {expected} expected");
    // Each flow sent one packet; of 100,000 flows one pair shares its 32-bit signature on average.
    let heaviest = &window["heavy"]["flows"][0];
    assert!(number(&heaviest["low"]) <= 2.0, "{heaviest}");
    for value in [&window["frequency"], &window["membership"], entropy] {
        assert_eq!(value["hash"]["mode"], "keyed", "{value}");
    }
}

#[test]
fn a_key_repeats_a_result_and_random_keys_do_not() {
    let scratch = Scratch::new("repeat");
    let file = scratch.write("some.pcap", pcap(&common::packets(0..3000, 1000)));
    let key = key_file(&scratch, "key", &"c3".repeat(32));
    let printed = |options: &str| replay(&file, &format!("--format json {options}")).quiet();
    let of_key = format!("--hash-key {key}");
    assert_eq!(printed(&of_key), printed(&of_key), "--hash-key alone means --hash keyed");
    assert!(printed(&of_key).contains("\"mode\":\"keyed\""));
    assert_ne!(printed("--hash keyed"), printed("--hash keyed"));
    assert!(
        printed("").contains("\"mode\":\"tabulated\",\"polynomial\":\"0x790900f3\",\"seed\":1"),
        "a replay is repeatable"
    );
    let digits = "c3".repeat(32);
    assert!(!printed(&of_key).contains(&digits));
    let table = run(["tables", "--hash", "keyed", "--hash-key", &key]).quiet();
    assert!(table.contains("fingerprint") && !table.contains(&digits), "{table}");
}

#[test]
fn keys_that_are_no_secrets_are_refused() {
    let scratch = Scratch::new("refused");
    let file = scratch.write("some.pcap", pcap(&common::packets(0..3, 1000)));
    let refused = |options: &str, why: &str| {
        let outcome = replay(&file, options);
        assert!(outcome.code != Some(0) && outcome.stderr.contains(why), "{options}: {outcome:?}");
    };
    let open = scratch.write("open", "11".repeat(32));
    run_shell(&format!("chmod 644 {open}"));
    refused(&format!("--hash-key {open}"), "everyone can read the key of the hash (mode 644)");
    let short = key_file(&scratch, "short", "1234");
    refused(&format!("--hash-key {short}"), "32 or 64 hexadecimal digits");
    let zero = key_file(&scratch, "zero", &"00".repeat(32));
    refused(&format!("--hash-key {zero}"), "no secret");
    refused("--hash-key /nonexistent/key", "cannot read the key of the hash");
    refused("--hash keyed --seed 7", "--seed is not secret");
    refused(&format!("--hash tabulated --hash-key {short}"), "--hash-key is for --hash keyed");
    let outcome =
        run(["run", "--backend", "tofino", "--address", "localhost:1", "--hash", "keyed"]);
    assert_ne!(outcome.code, Some(0));
}

/// Returns the representations of a signature in text and bytes.
fn spellings(signature: u32) -> [String; 4] {
    [
        signature.to_string(),
        signature.cast_signed().to_string(),
        format!("{signature:08x}"),
        format!("{:08x}", signature.swap_bytes()),
    ]
}

#[test]
fn nothing_that_is_told_has_a_signature_of_a_secret_hash_in_it() {
    let scratch = Scratch::new("adversary-signatures");
    let key = scratch.write("key", [9; 32]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let file = scratch.path("capture.pcap");
    let file = file.to_str().unwrap();
    run(["generate", "delay,shape=conversations,requests=400,seed=2", "--to", file]).quiet();
    let lake = scratch.path("lake");
    let printed = |hash: &str, format: &str| {
        let samples = scratch.path(&format!("samples-{format}-{}", hash.len()));
        let mut arguments =
            vec!["replay", file, "--window", "1s", "--format", format, "--read-every", "100ms"];
        arguments.extend([
            "--measure",
            "cardinality,entropy,frequency,membership,heavy,sizes,delay,reorder",
            "--slots",
            "1024",
        ]);
        arguments.extend([
            "--lake",
            lake.to_str().unwrap(),
            "--delay-samples",
            samples.to_str().unwrap(),
        ]);
        if format == "json" {
            arguments.push("--sketches");
        }
        arguments.extend(hash.split_whitespace());
        let records = run(arguments).quiet();
        records + &fs::read_to_string(&samples).unwrap()
    };
    let keyed = format!("--hash keyed --hash-key {key}");
    let mut text = printed(&keyed, "json") + &printed(&keyed, "csv") + &printed(&keyed, "table");
    // The lake's files have the columns of the sketches; search their plain bytes too.
    let mut bytes = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        blobs(&line, &mut bytes);
    }
    for file in files(std::slice::from_ref(&lake)).unwrap() {
        bytes.extend(fs::read(&file).unwrap());
        text += &run(["merge", file.to_str().unwrap(), "--format", "json"]).quiet();
    }
    let tabulation = HashKey::read(Path::new(&key)).unwrap().tabulation();
    let keys = keys(Path::new(file));
    assert!(keys.len() > 100, "{}", keys.len());
    let words: BTreeSet<&str> =
        text.split(|it: char| !it.is_ascii_alphanumeric() && it != '-').collect();
    // Identifiers of ends are two numbers of eight digits.
    let halves: BTreeSet<&str> = words
        .iter()
        .filter(|word| word.len() == 16)
        .flat_map(|word| [&word[..8], &word[8..]])
        .collect();
    let has = |signature: u32| {
        spellings(signature)
            .iter()
            .any(|it| words.contains(it.as_str()) || halves.contains(it.as_str()))
    };
    for key in &keys {
        let signature = HashMode::Keyed.signature(&FlowKey::new(key), &tabulation);
        assert!(!has(signature), "{key:?} is printed as {signature:08x}");
        for four in [signature.to_le_bytes(), signature.to_be_bytes()] {
            assert!(!bytes.windows(4).any(|it| it == four), "{key:?} is printed as {four:?}");
        }
    }
    // The same search finds those of a hash without a secret.
    let public = printed("--hash tabulated --seed 1", "json");
    let halves: BTreeSet<&str> = public
        .split('"')
        .filter(|word| word.len() == 16)
        .flat_map(|word| [&word[..8], &word[8..]])
        .collect();
    assert!(
        keys.iter().any(|key| spellings(crc32(key)).iter().any(|it| halves.contains(it.as_str())))
    );
}

/// Returns all IPv4 addresses, and addresses with ports, in a generated capture: little-endian,
/// Ethernet, no options.
fn keys(capture: &Path) -> BTreeSet<Vec<u8>> {
    let bytes = fs::read(capture).unwrap();
    let (mut keys, mut at) = (BTreeSet::new(), 24);
    while let Some(head) = bytes.get(at..at + 16) {
        let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let frame = &bytes[at + 16..at + 16 + length];
        for (address, port) in [(26, 34), (30, 36)] {
            keys.insert(frame[address..address + 4].to_vec());
            keys.insert([&frame[address..address + 4], &frame[port..port + 2]].concat());
        }
        at += 16 + length;
    }
    keys
}

/// Collects the base64 data of a JSON line.
fn blobs(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::String(text) if text.len() >= 16 => {
            bytes.extend(BASE64_STANDARD.decode(text).unwrap_or_default())
        }
        Value::Array(values) => values.iter().for_each(|value| blobs(value, bytes)),
        Value::Object(values) => values.values().for_each(|value| blobs(value, bytes)),
        _ => {}
    }
}
