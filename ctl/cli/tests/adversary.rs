//! Adversary who knows the source and chooses packets, but does not see the results.

use crate::common;
use crate::common::served::{ALL, exchange_bytes, secret};
use crate::common::{
    Running, START, Scratch, address_in, command, csv_rows, execute, files, finish, flowgauge,
    generated, pcap, records, replay, run, total,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use flowgauge_core::hash::crc32;
use flowgauge_core::{FlowKey, HashMode};
use flowgauge_ctl::serve::proto::agent_client::AgentClient;
use flowgauge_ctl::serve::proto::{
    ConfigurationRequest, DelaysRequest, SamplesRequest, StatusRequest, WindowsRequest,
};
use flowgauge_dataplane::HashKey;
use flowgauge_dataplane::capture::build::CapturePacket;
use flowgauge_testing::chance::{binomial, of_mean, poisson};
use flowgauge_testing::skip;
use flowgauge_traffic::frame::{Ip, UDP, udp};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use tokio::runtime::Builder;

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
    let packets: Vec<CapturePacket> = crafted()
        .into_iter()
        .zip(0..)
        .map(|(chosen, number)| {
            let [a, b, c, d, _, _, _, _, s0, s1, d0, d1, _] = five_tuple(chosen);
            let ports = [[s0, s1], [d0, d1]].map(u16::from_be_bytes);
            let ip = Ip::new([a, b, c, d], VICTIM, UDP);
            CapturePacket::new(START + number * 1000, ip.frame(&udp(ports, &[0; 18])))
        })
        .collect();
    scratch.write("crafted.pcap", pcap(&packets)).into()
}

fn cardinality(file: &Path, options: &str) -> Value {
    let records =
        records(file, &format!("--key five-tuple --window 10s --sample-every never {options}"));
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
        let key = secret(&scratch, &format!("key{number}"), &format!("{number:064x}"));
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
    let key = secret(&scratch, "key", &"5a".repeat(32));
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
        let mut command = command(&format!(
            "replay {} --format json --window 10s --sample-every never --truth --key five-tuple \
             {hash}",
            file.display()
        ));
        command.args(["--measure", "entropy,frequency,membership,heavy"]);
        let lines =
            finish(command.args(["--query", &flow(sent), "--query", &flow(absent)])).quiet();
        let mut records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.find(|record| record["record"] == "window").unwrap()
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
    let key = secret(&scratch, "key", &"c3".repeat(32));
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
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&format!("--hash-key {open}"), "everyone can read the key of the hash (mode 644)");
    let short = secret(&scratch, "short", "1234");
    refused(&format!("--hash-key {short}"), "32 or 64 hexadecimal digits");
    let zero = secret(&scratch, "zero", &"00".repeat(32));
    refused(&format!("--hash-key {zero}"), "no secret");
    refused("--hash-key /nonexistent/key", "cannot read the key of the hash");
    refused("--hash keyed --seed 7", "--seed is not secret");
    refused(&format!("--hash tabulated --hash-key {short}"), "--hash-key is for --hash keyed");
    let of_switch = "run --backend tofino --address localhost:1 --hash keyed";
    assert_ne!(execute(of_switch).code, Some(0));
}

/// Prefix of the addresses that the adversary can send from.
const PREFIX: [u8; 8] = [0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 2];

/// Returns the address of the prefix with these words in its lower half.
fn of_prefix([low, high]: [u32; 2]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..8].copy_from_slice(&PREFIX);
    address[8..12].copy_from_slice(&low.to_le_bytes());
    address[12..].copy_from_slice(&high.to_le_bytes());
    address
}

/// Returns the multiplier of a word, with an error of at most 2: doublings of the word show bit
/// after bit of it.
fn multiplier(signature: impl Fn(u32) -> u32) -> u64 {
    let none = signature(0);
    (0..u32::BITS).fold(0, |multiplier: u64, bit| {
        let difference = u64::from(signature(1 << bit).wrapping_sub(none)) << 32;
        let missing = difference.wrapping_sub(multiplier << bit).cast_signed();
        multiplier.wrapping_add_signed(missing >> bit)
    })
}

/// Signature of a prefix's addresses, as an attacker computes it from others: the upper half of
/// `sum + low * multipliers[0] + high * multipliers[1] + low * high`.
struct Learned {
    multipliers: [u64; 2],
    /// Least possible sum, and the number of possible ones.
    sum: (u64, u64),
}

impl Learned {
    /// Computes it from some 130 addresses and their signatures; nothing else is known.
    fn from(signature: impl Fn([u32; 2]) -> u32) -> Self {
        let near = [multiplier(|low| signature([low, 0])), multiplier(|high| signature([0, high]))];
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let samples: Vec<([u32; 2], u32)> = (0..64)
            .map(|_| random.random())
            .map(|words: [u32; 2]| (words, signature(words)))
            .collect();
        let base = u64::from(signature([0, 0])) << 32;
        let errors = (-4..5).flat_map(|low| (-4..5).map(move |high| [low, high]));
        let mut possible = errors.filter_map(|[low, high]: [i64; 2]| {
            let multipliers = [near[0].wrapping_add_signed(low), near[1].wrapping_add_signed(high)];
            let rest = Learned { multipliers, sum: (base, 1) };
            // Each sample bounds the sum.
            let missing = samples.iter().map(|(words, signature)| {
                (u64::from(*signature) << 32).wrapping_sub(rest.at(*words)).cast_signed()
            });
            let (least, most) = missing.fold((0, 1 << 32), |(least, most): (i64, i64), missing| {
                (least.max(missing), most.min(missing.saturating_add(1 << 32)))
            });
            let sum = (base.wrapping_add_signed(least), most.saturating_sub(least) as u64);
            (least < most).then_some(Learned { sum, ..rest })
        });
        let learned = possible.next().unwrap();
        assert!(possible.next().is_none(), "one solution");
        learned
    }

    /// Returns the sum at an address, if it is the least possible one.
    fn at(&self, [low, high]: [u32; 2]) -> u64 {
        let [low, high] = [low, high].map(u64::from);
        let [of_low, of_high] = self.multipliers;
        let terms = [low.wrapping_mul(of_low), high.wrapping_mul(of_high), low * high];
        terms.into_iter().fold(self.sum.0, u64::wrapping_add)
    }

    /// Returns the most likely signature of an address.
    fn predicted(&self, words: [u32; 2]) -> u32 {
        (self.at(words).wrapping_add(self.sum.1 / 2) >> 32) as u32
    }

    /// Returns an address with this signature among those with this upper word, if there is one.
    fn with_signature(&self, signature: u32, high: u32) -> Option<[u32; 2]> {
        let least = (u64::from(signature) << 32).wrapping_sub(self.at([0, high]));
        let room = (1_u64 << 32).checked_sub(self.sum.1)?;
        let step = self.multipliers[0].wrapping_add(high.into());
        let (step, least, modulus) = (step.into(), least.into(), 1 << 64);
        let low = first_within(step, modulus, (least, least + u128::from(room) - 1))?;
        Some([u32::try_from(low).ok()?, high])
    }
}

/// Returns the first multiple of a step that is within bounds modulo a number, by Euclid's
/// algorithm.
fn first_within(step: u128, modulus: u128, (least, most): (u128, u128)) -> Option<u128> {
    if least == 0 || most >= modulus {
        return Some(0);
    }
    if step == 0 {
        return None;
    }
    if step * 2 > modulus {
        return first_within(modulus - step, modulus, (modulus - most, modulus - least));
    }
    let times = least.div_ceil(step);
    if times * step <= most {
        return Some(times);
    }
    let below = |bound: u128| (step - bound % step) % step;
    let wraps = first_within(modulus % step, step, (below(most), below(least)))?;
    Some((least + modulus * wraps).div_ceil(step))
}

/// Tests what `docs/security.md` says about an attacker who sees signatures: runs with another key
/// are not affected.
#[test]
fn whoever_reads_signatures_can_compute_the_keyed_hash() {
    const SOURCES: usize = 20_000;
    let scratch = Scratch::new("leak");
    let [key, other] = ["5a", "a5"].map(|digits| secret(&scratch, digits, &digits.repeat(32)));
    let tabulation = HashKey::read(Path::new(&key)).unwrap().tabulation();
    // The leak.
    let signature =
        |words: [u32; 2]| HashMode::Keyed.signature(&FlowKey::new(&of_prefix(words)), &tabulation);
    let learned = Learned::from(signature);
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let predicted = (0..400)
        .map(|_| random.random())
        .filter(|words: &[u32; 2]| learned.predicted(*words) == signature(*words))
        .count();
    // A signature is missed if the uncertainty of the sum decides: one in 32 on average.
    assert!(predicted > 340, "{predicted} of 400");
    let crafted = (0..).filter_map(|high| learned.with_signature(0x0123_4567, high));
    let packets: Vec<CapturePacket> = crafted
        .take(SOURCES)
        .zip(0..)
        .map(|(words, number)| {
            let ip = Ip::new(Ipv6Addr::from(of_prefix(words)), Ipv6Addr::LOCALHOST, UDP);
            CapturePacket::new(START + number * 1000, ip.frame(&udp([4000, 4000], &[0; 8])))
        })
        .collect();
    let file = PathBuf::from(scratch.write("leak.pcap", pcap(&packets)));
    let estimate = |key: &str| {
        let records =
            records(&file, &format!("--key src --window 10s --read-every never --hash-key {key}"));
        total(&records)["cardinality"]["estimate"].as_f64().unwrap()
    };
    let (known, unknown) = (estimate(&key), estimate(&other));
    assert!(known < 10.0, "{known}");
    assert!((unknown / SOURCES as f64 - 1.0).abs() < 0.1, "{unknown}");
}

/// Everything that runs wrote or served.
#[derive(Default)]
struct Evidence {
    /// Numbers and other words of texts.
    words: BTreeSet<String>,
    /// Binary data.
    bytes: Vec<Vec<u8>>,
}

impl Evidence {
    fn text(&mut self, text: &str) {
        for word in text.split(|it: char| !it.is_ascii_alphanumeric() && it != '-') {
            self.words.insert(word.to_owned());
            // Identifiers of flows, registers and counters are several numbers in one word.
            if word.len() % 8 == 0 && word.bytes().all(|it| it.is_ascii_hexdigit()) {
                let digits = word.as_bytes().chunks(8).map(String::from_utf8_lossy);
                self.words.extend(digits.map(|digits| digits.to_lowercase()));
            }
        }
        let in_base64 = |it: char| it.is_ascii_alphanumeric() || "+/=".contains(it);
        let blobs = text.split(|it| !in_base64(it)).filter(|word| word.len() >= 16);
        self.bytes.extend(blobs.filter_map(|word| BASE64_STANDARD.decode(word).ok()));
    }

    fn file(&mut self, path: &Path) {
        self.text(&fs::read_to_string(path).unwrap());
    }

    /// Adds all columns of a lake.
    fn lake(&mut self, lake: &Path) {
        let files = files(&[lake.to_owned()]).unwrap();
        assert!(!files.is_empty());
        for file in files {
            let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
            for row in reader.get_row_iter(None).unwrap() {
                row.unwrap().get_column_iter().for_each(|(_, field)| self.field(field));
            }
        }
    }

    fn field(&mut self, field: &Field) {
        match field {
            Field::Group(row) => row.get_column_iter().for_each(|(_, field)| self.field(field)),
            Field::ListInternal(list) => list.elements().iter().for_each(|it| self.field(it)),
            Field::Bytes(bytes) => self.bytes.push(bytes.data().to_vec()),
            other => self.text(&other.to_string()),
        }
    }

    /// Returns where the signatures are found.
    fn found(&self, signatures: &BTreeSet<u32>) -> Vec<String> {
        let spellings = |signature: u32| {
            [
                signature.to_string(),
                signature.cast_signed().to_string(),
                format!("{signature:08x}"),
                format!("{:08x}", signature.swap_bytes()),
            ]
        };
        let words = signatures.iter().flat_map(|it| spellings(*it));
        let mut found: Vec<String> = words.filter(|it| self.words.contains(it)).collect();
        let numbers = self.bytes.iter().flat_map(|bytes| bytes.windows(4));
        let numbers = numbers.map(|four| u32::from_le_bytes(four.try_into().unwrap()));
        let (mut all, mut equal) = (0_u64, 0_u64);
        // Millions of numbers: most are ruled out by their lower half.
        let mut lower_halves = vec![false; 1 << 16];
        for signature in signatures {
            lower_halves[usize::from(*signature as u16)] = true;
            lower_halves[usize::from(signature.swap_bytes() as u16)] = true;
        }
        for number in numbers {
            all += 1;
            equal += u64::from(
                lower_halves[usize::from(number as u16)]
                    && (signatures.contains(&number) || signatures.contains(&number.swap_bytes())),
            );
        }
        // Binary data has all numbers by chance.
        let by_chance = all as f64 * 2.0 * signatures.len() as f64 / 2_f64.powi(32);
        if equal > *poisson(by_chance).end() {
            found.push(format!("{equal} of {all} binary numbers"));
        }
        found
    }
}

/// Capture and key of the tests for signatures, and the signatures.
struct Conversations {
    scratch: Scratch,
    capture: String,
    key: String,
    /// Signatures under the key.
    secret: BTreeSet<u32>,
    /// Signatures of the hashes without a secret.
    public: BTreeSet<u32>,
}

impl Conversations {
    fn new(test: &str, profile: &str) -> Self {
        let scratch = Scratch::new(test);
        let capture = generated(&scratch, "capture.pcap", profile);
        let key = scratch.write("key", [9; 32]);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let tabulation = HashKey::read(Path::new(&key)).unwrap().tabulation();
        let keys = keys(Path::new(&capture));
        assert!(keys.len() > 100, "{}", keys.len());
        let signature = |key: &Vec<u8>| HashMode::Keyed.signature(&FlowKey::new(key), &tabulation);
        let secret = keys.iter().map(signature).collect();
        let public = keys.iter().map(|key| crc32(key)).collect();
        Conversations { scratch, capture, key, secret, public }
    }

    /// Replays the capture and returns everything that this writes.
    fn replayed(&self, hash: &str, format: &str) -> Evidence {
        let path = |name: &str| self.scratch.path(&format!("{name}-{format}-{}", hash.len()));
        let [lake, samples, calls, out] = ["lake", "samples", "calls", "out"].map(path);
        let mut command = command(&format!(
            "replay {} --window 1s --sample-every 100ms --measure {ALL} --slots 1024 \
             --format {format} {hash}",
            self.capture
        ));
        for (option, path) in [
            ("--lake", &lake),
            ("--delay-samples", &samples),
            ("--record", &calls),
            ("--out", &out),
        ] {
            command.arg(option).arg(path);
        }
        if format == "json" {
            command.arg("--sketches");
        }
        let mut evidence = Evidence::default();
        evidence.text(&finish(&mut command).quiet());
        let mut merge = flowgauge();
        merge.arg("merge").arg(&lake).args(["--format", "json"]);
        if hash.contains("--hash-key") {
            merge.args(["--hash-key", &self.key]);
        }
        evidence.text(&finish(&mut merge).quiet());
        evidence.lake(&lake);
        evidence.file(&samples);
        evidence.file(&calls);
        fs::read_dir(&out).unwrap().for_each(|file| evidence.file(&file.unwrap().path()));
        evidence
    }
}

#[test]
fn nothing_that_is_told_has_a_signature_of_a_secret_hash_in_it() {
    let sent =
        Conversations::new("adversary-signatures", "delay,shape=conversations,requests=400,seed=2");
    let keyed = format!("--hash keyed --hash-key {}", sent.key);
    for format in ["json", "csv", "table"] {
        let found = sent.replayed(&keyed, format).found(&sent.secret);
        assert!(found.is_empty(), "{format}: {found:?}");
    }
    // The same search finds those of a hash without a secret.
    let found = sent.replayed("--hash tabulated --seed 1", "json").found(&sent.public);
    assert!(found.len() > 50, "{found:?}");
}

#[test]
fn nothing_that_is_served_has_a_signature_of_a_secret_hash_in_it() {
    // In its own pace the capture lasts 100 s: the run must not end before it is interrupted.
    let sent = Conversations::new(
        "adversary-served",
        "delay,shape=conversations,requests=1000,rate=10,seed=2",
    );
    let runs = sent.scratch.path("runs");
    let [samples, calls] = ["samples", "calls"].map(|name| sent.scratch.path(name));
    let mut run = command(&format!(
        "run --port pcap:{} --hash-key {} --window 500ms --sample-every 100ms --measure {ALL} \
         --slots 1024 --format json --sketches --truth --listen 0 --grpc 0",
        sent.capture, sent.key
    ));
    run.env("RUST_LOG", "debug").env("FLOWGAUGE_STATUS_DIR", &runs);
    run.arg("--delay-samples").arg(&samples).arg("--record").arg(&calls);
    let mut running = Running::of(&mut run);
    let mut messages = running.messages();
    let mut address =
        |protocol: &str| address_in(&messages.line_with(protocol), protocol).to_owned();
    let (http, grpc) = (address("http://"), address("grpc://"));
    let stdout = running.stdout.take().unwrap();
    let printed = thread::spawn(move || io::read_to_string(stdout).unwrap());
    let log = thread::spawn(move || messages.rest());
    let mut evidence = Evidence::default();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut agent = AgentClient::connect(format!("http://{grpc}")).await.unwrap();
        let mut windows =
            agent.windows(WindowsRequest { after: Some(0) }).await.unwrap().into_inner();
        let mut reads = agent.samples(SamplesRequest {}).await.unwrap().into_inner();
        let mut delays = agent.delays(DelaysRequest {}).await.unwrap().into_inner();
        for _ in 0..4 {
            evidence.text(&format!("{:?}", windows.message().await.unwrap().unwrap()));
            evidence.text(&format!("{:?}", reads.message().await.unwrap().unwrap()));
        }
        evidence.text(&format!("{:?}", delays.message().await.unwrap().unwrap()));
        evidence.text(&format!("{:?}", agent.status(StatusRequest {}).await.unwrap()));
        let configuration = agent.configuration(ConfigurationRequest {}).await.unwrap();
        evidence.text(&format!("{configuration:?}"));
    });
    let get = |path: &str, accept: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        );
        exchange_bytes(&mut TcpStream::connect(&http).unwrap(), &request)
    };
    for path in ["/", "/metrics", "/status", "/about", "/health", "/ready", "/live"] {
        let (status, head, body) = get(path, "*/*");
        assert_eq!(status, 200, "{path}");
        evidence.text(&head);
        evidence.text(&String::from_utf8(body).unwrap());
    }
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    evidence.bytes.push(get("/metrics", protobuf).2);
    let mut events = TcpStream::connect(&http).unwrap();
    events.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // Whichever windows follow: to a slow machine the first ones are past.
    let mut records = 0;
    for line in BufReader::new(events).lines().map(Result::unwrap) {
        evidence.text(&line);
        records += u32::from(line.contains("\"window\":"));
        if records == 10 {
            break;
        }
    }
    assert_eq!(records, 10, "the run has ended");
    for format in ["json", "table"] {
        let mut status = command(&format!("status --format {format}"));
        let status = finish(status.env("FLOWGAUGE_STATUS_DIR", &runs));
        assert!(!status.stdout.is_empty(), "{status:?}");
        evidence.text(&status.stdout);
    }
    running.interrupt();
    assert!(running.child.wait().unwrap().success());
    evidence.text(&log.join().unwrap());
    evidence.text(&printed.join().unwrap());
    evidence.file(&samples);
    evidence.file(&calls);
    let found = evidence.found(&sent.secret);
    assert!(found.is_empty(), "{found:?}");
}

/// Returns all IPv4 addresses, pairs of them, addresses with ports, and five-tuples in a generated
/// capture: little-endian, Ethernet, no options.
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
        keys.insert(frame[26..34].to_vec());
        keys.insert([&frame[26..38], &frame[23..24]].concat());
        at += 16 + length;
    }
    keys
}

/// Counts the copies of a key in the memory of a process.
fn copies(process: u32, key: &[u8]) -> usize {
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut copies = 0;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (begin, end) = range.split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|it| u64::from_str_radix(it, 16).unwrap());
        let mut bytes = vec![0; (end - begin) as usize];
        // The kernel's own pages cannot be read.
        if rest.starts_with("rw") && memory.read_exact_at(&mut bytes, begin).is_ok() {
            copies += bytes.windows(key.len()).filter(|window| *window == key).count();
        }
    }
    copies
}

#[test]
fn a_key_stands_in_memory_once() {
    if !rustix::process::geteuid().is_root() {
        return skip("root");
    }
    let scratch = Scratch::new("memory");
    let digits = "0123456789abcdef".repeat(4);
    let key = secret(&scratch, "key", &digits);
    let mut running = Running::with(&format!(
        "run --port memory:unique,rate=1k --window 100ms --format json --workers 2 --hash-key {key}"
    ));
    running.line();
    let process = running.child.id();
    let bytes: Vec<u8> = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(4);
    assert_eq!(copies(process, &bytes), 1);
    assert_eq!(copies(process, digits.as_bytes()), 0);
    running.end().ended(0);
}

#[test]
fn names_in_csv_are_no_formulas_and_numbers_stay_numbers() {
    let scratch = Scratch::new("formulas");
    for name in ["=1+1.pcap", "+1.pcap", "-1.pcap", "@a.pcap"] {
        scratch.write(name, pcap(&common::packets(0..300, 1000)));
        let options = "--format csv --window 10s --sample-every never";
        let mut command = command(&format!("replay {options} -- {name}"));
        let csv = finish(command.current_dir(scratch.path("."))).quiet();
        let row = csv_rows(&csv).remove(0);
        assert_eq!(row["interface"], format!("'{name}"));
        assert_eq!(row["packets"], "300");
        let is_formula =
            |cell: &&str| cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
        assert!(!row.values().any(is_formula), "{row:?}");
    }
}
