//! Comparison with the chip's compiler: it accepts this source, which fits, and writes the same
//! schema as the model.
//!
//! The compiler is p4c with its Tofino backend, which is rarely installed; without it the tests
//! print `skipped: needs …`. They use `TEST_P4C`, or `p4c` in PATH.

use crate::common::OFF;
use crate::p4c::{compile, compiler};
use flowgauge_core::Grid;
use flowgauge_core::delay::{self, DelayKind, Kinds};
use flowgauge_core::heavy::{self, Algorithm, CountUnit};
use flowgauge_core::measurement::Toggle;
use flowgauge_core::membership;
use flowgauge_core::reorder;
use flowgauge_core::sketch;
use flowgauge_core::spread::{self, OtherKind};
use flowgauge_core::{HashMode, KeyKind, Precision, Settings, SketchKind, cardinality};
use flowgauge_dataplane::tofino::{builds as builds_of, definitions};
use flowgauge_p4_model::{Fault, Model, Options};
use flowgauge_testing::frames;
use flowgauge_testing::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Stages of a pipe that distinct flows alone may use.
const STAGES: u64 = 5;
/// Stages that all measurements together may use.
const STAGES_OF_ALL: u64 = 9;
/// Stages that staggered registers may use, which also find a register's round: its offset, the
/// difference, the mask.
const STAGES_OF_STAGGERED: u64 = 8;
/// Stages that all measurements may use with a second entropy.
const STAGES_WITH_SECOND: u64 = 10;
/// Stages that all measurements may use with expressions.
const STAGES_WITH_EXPRESSIONS: u64 = 10;

/// Stages of a pipe; delays and reordering may use all of them.
const STAGES_OF_CHIP: u64 = 12;

/// Source with macros, compiled and assembled in a directory of its own.
struct Compiled {
    source: PathBuf,
    defines: Vec<(&'static str, u32)>,
    output: PathBuf,
}

impl Compiled {
    fn new(compiler: &OsString, source: PathBuf, defines: &[(&'static str, u32)]) -> Compiled {
        let stem = source.file_stem().unwrap().to_string_lossy().into_owned();
        let name = defines.iter().fold(stem, |name, (define, value)| {
            let words = define.trim_start_matches("FLOWGAUGE_").split('_');
            let initials: String = words.filter_map(|word| word.chars().next()).collect();
            format!("{name}-{initials}{value}")
        });
        let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled").join(name);
        let mut options = vec!["-I".into(), folder().into_os_string()];
        options.extend(defines.iter().map(|(name, value)| format!("-D{name}={value}").into()));
        let run = compile(compiler, &source, &output, &options);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{}: {options:?}\n{said}", run.status);
        let assembly = output.join("pipe").join(source.with_extension("bfa").file_name().unwrap());
        let selects = fs::read_to_string(assembly).unwrap().matches("match: [ half").count();
        assert!(
            selects > 0,
            "this compiler loses what a parser selects on: p4/README.md says which one does not"
        );
        Compiled { source, defines: defines.to_vec(), output }
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.output.join(file)).unwrap()
    }

    fn model(&self) -> Model {
        let defined = |options: Options, (name, value): &(&str, u32)| options.define(name, value);
        Model::from_file(&self.source, &self.defines.iter().fold(Options::default(), defined))
            .unwrap()
    }

    fn stages(&self) -> u64 {
        let summary = self.read("pipe/logs/table_summary.log");
        let of_ingress = "Number of stages for ingress table allocation: ";
        // One block per attempt at an allocation; the last one counts.
        summary
            .lines()
            .filter_map(|line| line.trim().strip_prefix(of_ingress))
            .next_back()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Returns a row of the table in `p4/README.md`.
    fn row(&self, what: &str) -> String {
        let metrics: Value = serde_json::from_str(&self.read("pipe/logs/metrics.json")).unwrap();
        let containers = |kind: &str| {
            let sizes = metrics["phv"][kind].as_array().unwrap().iter();
            sizes
                .map(|size| size["containers_occupied"].to_string())
                .collect::<Vec<_>>()
                .join(" + ")
        };
        let resources = self.read("pipe/logs/mau.resources.log");
        let cells = |word: &str| -> Vec<&str> {
            let line = resources.lines().find(|line| line.contains(word)).unwrap();
            line.split('|').map(str::trim).collect()
        };
        let (totals, heads) = (cells("Totals"), cells("Meter ALU"));
        let stateful = totals[heads.iter().position(|head| head.contains("Meter ALU")).unwrap()];
        format!(
            "| {what} | {} | {} | {} | {stateful} | {} | {} | {} |",
            self.stages(),
            metrics["mau"]["srams"],
            metrics["mau"]["tcams"],
            containers("normal"),
            containers("tagalong"),
            metrics["parser"]["ingress"]["tcam_rows"],
        )
    }
}

/// Returns the directory of `flowgauge.p4`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn by_name(list: &Value) -> BTreeMap<&str, &Value> {
    list.as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), one)).collect()
}

/// Whether the model omits a table (see `Model::schema`).
fn left_out(table: &Value) -> bool {
    let kind = table["table_type"].as_str().unwrap_or_default();
    kind.starts_with("Snapshot")
        || ["DynHashAlgorithm", "DynHashConfigure", "TblDbgCnt"].contains(&kind)
}

/// Removes the value of hashed constants from names. Versions of the compiler write it in two ways,
/// as `constant0_16_16w0` or `constant0_16_0`. Such fields are not looked up.
fn without_constants(table: &Value) -> Value {
    let mut table = table.clone();
    for field in table["data"].as_array_mut().into_iter().flatten() {
        let name = field["singleton"]["name"].as_str().filter(|name| name.starts_with("constant"));
        if let Some((name, _)) = name.and_then(|name| name.rsplit_once('_')) {
            field["singleton"]["name"] = name.into();
        }
    }
    table
}

/// Compares the schemas and runs frames through the model. Returns the number of tables and
/// digests.
fn compare(name: &str, model: &mut Model, compiled: &str) -> usize {
    let compiled: Value = serde_json::from_str(compiled).unwrap();
    let schema = model.schema();
    let mut compared = 0;
    assert_eq!(schema["schema_version"], compiled["schema_version"]);
    for list in ["tables", "learn_filters"] {
        let (ours, theirs) = (by_name(&schema[list]), by_name(&compiled[list]));
        for (object, theirs) in &theirs {
            match ours.get(object) {
                Some(ours) => assert_eq!(
                    without_constants(ours),
                    without_constants(theirs),
                    "{name}: {object}"
                ),
                None => assert!(left_out(theirs), "{name}: {object} is missing"),
            }
            compared += 1;
        }
        for object in ours.keys() {
            assert!(theirs.contains_key(object), "{name}: the compiler has no {object}");
        }
    }
    // The hardware can execute what the compiler accepts, so the model must not report a fault. The
    // compiler does not check indices.
    for frame in [frames::random(5, 2000), frames::kinds()].concat() {
        match model.inject(0, &frame.bytes) {
            Ok(_) | Err(Fault::IndexOutOfRange { .. }) => {}
            Err(fault) => panic!("{name}: {fault}, {:02x?}", frame.bytes),
        }
    }
    compared
}

/// Compiles `flowgauge.p4` and compares it with the model. Returns its row in `p4/README.md`.
fn check(
    compiler: &OsString,
    name: &str,
    defines: &[(&'static str, u32)],
    most_stages: u64,
) -> String {
    let compiled = Compiled::new(compiler, folder().join("flowgauge.p4"), defines);
    let compared = compare(name, &mut compiled.model(), &compiled.read("bfrt.json"));
    assert!(compared > 10, "{name}: {compared}");
    assert!(compiled.stages() <= most_stages, "{name}: {} stages", compiled.stages());
    compiled.row(name)
}

/// Describes what is measured, as in the table of `p4/README.md`.
fn described(settings: &Settings) -> String {
    let builds = builds_of(settings).unwrap();
    let on = builds
        .iter()
        .filter_map(|build| Some(format!("{} {}", build.kind.name(), build.description.as_ref()?)));
    on.collect::<Vec<_>>().join("; ")
}

fn distinct(key: KeyKind, hash: HashMode, precision: u8) -> Settings {
    let precision = Precision::new(precision).unwrap();
    Settings::only(cardinality::Settings { key, precision, ..cardinality::Settings::DEFAULT })
        .with_hash(hash)
}

fn staggered(key: KeyKind, hash: HashMode, precision: u8) -> Settings {
    let mut settings = distinct(key, hash, precision);
    settings.cardinality.mode = cardinality::Mode::Staggered;
    settings
}

fn sketch_of(kind: SketchKind, key: KeyKind, columns: usize) -> sketch::Settings {
    sketch::Settings { mode: kind.into(), key, shape: Grid::of_counters(3, columns).unwrap() }
}

fn filter(key: KeyKind, bits: usize) -> membership::Settings {
    membership::Settings { on: true, key, shape: Grid::of_bits(3, bits).unwrap() }
}

fn slots(key: KeyKind, slots_log2: u8) -> heavy::Settings {
    heavy::Settings { algorithm: Algorithm::Precision, unit: CountUnit::Packets, key, slots_log2 }
}

/// Returns settings with everything but heavy hitters, by the keys of cardinality, entropy,
/// frequency and membership.
fn all(keys: [KeyKind; 4], entropy: SketchKind, frequency: SketchKind, columns: usize) -> Settings {
    Settings {
        entropy: [sketch_of(entropy, keys[1], columns), sketch::Settings::DEFAULT],
        frequency: sketch_of(frequency, keys[2], columns),
        membership: filter(keys[3], 1 << 16),
        ..distinct(keys[0], HashMode::Tabulated, 11)
    }
}

fn delays(kinds: Kinds, algorithm: delay::Algorithm) -> Settings {
    Settings { delay: delay::Settings { kinds, algorithm, ..delay::Settings::DEFAULT }, ..OFF }
}

fn reordering(algorithm: reorder::Algorithm) -> reorder::Settings {
    reorder::Settings { algorithm, slots_log2: 12, ..reorder::Settings::DEFAULT }
}

fn builds() -> Vec<Settings> {
    use KeyKind::{Dst, FiveTuple, Src, SrcDst};
    use SketchKind::{CountMin, CountSketch};
    let of_each_key = |key| HashMode::PUBLIC.map(|hash| distinct(key, hash, 11));
    let entropy = |kind, columns| Settings {
        entropy: [sketch_of(kind, SrcDst, columns), sketch::Settings::DEFAULT],
        ..OFF
    };
    // By sources and destinations.
    let two = |others: Settings| {
        let entropy = [Src, Dst].map(|key| sketch_of(CountSketch, key, 1024));
        Settings { entropy, ..others }
    };
    let frequency = |kind, columns| Settings { frequency: sketch_of(kind, Src, columns), ..OFF };
    let membership = |bits| Settings { membership: filter(Src, bits), ..OFF };
    let mut builds: Vec<Settings> = KeyKind::ALL.into_iter().flat_map(of_each_key).collect();
    builds.extend(
        [(Src, 4), (Src, 16), (FiveTuple, 16)]
            .map(|(key, bits)| distinct(key, HashMode::Tabulated, bits)),
    );
    builds.extend([
        entropy(CountSketch, 1024),
        entropy(CountSketch, 4096),
        entropy(CountMin, 1024),
        entropy(CountMin, 16),
    ]);
    builds.push(two(OFF));
    builds.extend([
        frequency(CountMin, 1024),
        frequency(CountMin, 4096),
        frequency(CountSketch, 1024),
    ]);
    builds.extend([membership(64), membership(1 << 16)]);
    let all_by_few_keys = [
        all([Src; 4], CountSketch, CountMin, 1024),
        all([FiveTuple; 4], CountSketch, CountSketch, 1024),
        all([Src, SrcDst, Src, Src], CountSketch, CountMin, 1024),
        all([FiveTuple, SrcDst, SrcDst, FiveTuple], CountMin, CountSketch, 1024),
    ];
    let [all_by_src, all_by_five_tuple, ..] = all_by_few_keys;
    builds.extend(all_by_few_keys);
    builds.push(all([FiveTuple, SrcDst, Src, Dst], CountSketch, CountMin, 4096));
    builds.extend(
        [(Src, 10), (Dst, 4), (SrcDst, 10), (FiveTuple, 12)]
            .map(|(key, bits)| Settings { heavy: slots(key, bits), ..OFF }),
    );
    // By the key of the cardinality.
    let heavy_too =
        |others: Settings| Settings { heavy: slots(others.cardinality.key, 10), ..others };
    builds.extend(all_by_few_keys.map(heavy_too));
    builds.extend([
        sizes_too(OFF),
        sizes_too(heavy_too(all_by_five_tuple)),
        sizes_too(heavy_too(two(all_by_src))),
    ]);
    builds.extend(delays_and_reordering());
    builds.push(Settings { reorder: reordering(reorder::Algorithm::Hybrid), ..OFF });
    builds
}

fn sizes_too(others: Settings) -> Settings {
    Settings { sizes: Toggle::ON, ..others }
}

/// Returns settings that may use all stages.
fn delays_and_reordering() -> [Settings; 9] {
    let only = |kind| Kinds::NONE.with(kind);
    let data = delays(only(DelayKind::TcpData), delay::Algorithm::Fridge);
    let in_groups = delay::Settings {
        groups_log2: 3,
        directions: delay::Directions::Local,
        samples: true,
        ..data.delay
    };
    [
        data,
        delays(only(DelayKind::TcpDuration), delay::Algorithm::Overwrite),
        delays(only(DelayKind::TcpTimestamps), delay::Algorithm::Fridge),
        delays(only(DelayKind::QuicSpin), delay::Algorithm::Fridge),
        delays(Kinds::USUAL, delay::Algorithm::MultiFridge),
        delays(Kinds::USUAL.with(DelayKind::Icmp), delay::Algorithm::Expiry),
        Settings {
            delay: data.delay,
            ..sizes_too(distinct(KeyKind::Src, HashMode::Tabulated, 11))
        },
        Settings { delay: in_groups, ..OFF },
        Settings { reorder: reordering(reorder::Algorithm::Sampling), ..OFF },
    ]
}

/// Every key, hash and measurement, and the smallest and largest arrays. With the compiler that
/// `p4/README.md` names, its table must be correct.
#[test]
fn flowgauge_fits_and_has_the_same_schema() {
    let Some(compiler) = compiler() else { return };
    let mut builds = builds();
    // All of them take long.
    if let Ok(wanted) = std::env::var("TEST_P4_BUILDS") {
        builds.retain(|build| described(build).contains(&wanted));
        skip(format_args!("builds other than those of {wanted}, which TEST_P4_BUILDS names"));
    }
    let build = |settings: &Settings| {
        let most = match settings.beyond_cardinality() {
            _ if settings.delay.kinds.any()
                || settings.reorder.algorithm != reorder::Algorithm::Off =>
            {
                STAGES_OF_CHIP
            }
            true if settings.entropy[1].is_on() => STAGES_WITH_SECOND,
            true => STAGES_OF_ALL,
            false => STAGES,
        };
        check(&compiler, &described(settings), &definitions(settings).unwrap(), most)
    };
    let (first, second) = builds.split_at(builds.len() / 2);
    let rows: Vec<String> = thread::scope(|scope| {
        let first = scope.spawn(|| first.iter().map(build).collect::<Vec<_>>());
        let second: Vec<_> = second.iter().map(build).collect();
        first.join().unwrap().into_iter().chain(second).collect()
    });
    compare_rows(&compiler, &rows);
}

/// Compares rows with the table in `p4/README.md`, if it is for this compiler.
fn compare_rows(compiler: &OsString, rows: &[String]) {
    println!("{}", rows.join("\n"));
    let version = Command::new(compiler).arg("--version").output().unwrap().stdout;
    let version =
        String::from_utf8_lossy(&version).split(" (SHA").next().unwrap().trim().to_owned();
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    if readme.contains(&version) {
        for row in rows {
            assert!(readme.contains(row), "p4/README.md does not say what {version} does: {row}");
        }
    } else {
        skip(format_args!(
            "the compiler that p4/README.md names, to compare its table; this is {version}"
        ));
    }
}

#[test]
fn staggered_registers_fit_and_have_the_same_schema() {
    use KeyKind::{FiveTuple, Src, SrcDst};
    let Some(compiler) = compiler() else { return };
    let others = all([Src; 4], SketchKind::CountSketch, SketchKind::CountMin, 1024);
    let beside =
        Settings { cardinality: staggered(Src, HashMode::Tabulated, 11).cardinality, ..others };
    let all_by_five_tuple = Settings {
        cardinality: staggered(FiveTuple, HashMode::Tabulated, 11).cardinality,
        heavy: slots(FiveTuple, 10),
        sizes: Toggle::ON,
        ..all([FiveTuple; 4], SketchKind::CountSketch, SketchKind::CountMin, 1024)
    };
    let builds = [
        (staggered(Src, HashMode::Crc32, 11), 23, STAGES_OF_STAGGERED),
        (staggered(Src, HashMode::Tabulated, 11), 23, STAGES_OF_STAGGERED),
        (staggered(Src, HashMode::Tabulated, 4), 10, STAGES_OF_STAGGERED),
        (staggered(SrcDst, HashMode::Tabulated, 16), 28, STAGES_OF_STAGGERED),
        (staggered(FiveTuple, HashMode::Tabulated, 11), 23, STAGES_OF_STAGGERED),
        (staggered(FiveTuple, HashMode::Tabulated, 16), 28, STAGES_OF_STAGGERED),
        (all_by_five_tuple, 23, STAGES_OF_CHIP),
        (beside, 23, STAGES_OF_CHIP),
    ];
    let row = |(settings, slot_bits, most): &(Settings, u32, u64)| {
        let mut defines = definitions(settings).unwrap();
        defines.push(("FLOWGAUGE_SLOT_BITS", *slot_bits));
        let name = format!("{}, slots of 2^{slot_bits} ns", described(settings));
        check(&compiler, &name, &defines, *most)
    };
    compare_rows(&compiler, &builds.iter().map(row).collect::<Vec<_>>());
}

/// Returns builds that match expressions, with the stages that each may use.
fn matching_builds() -> Vec<(Settings, u64)> {
    use KeyKind::{FiveTuple, Src};
    use SketchKind::{CountMin, CountSketch};
    let everything = |key: KeyKind| Settings {
        heavy: slots(key, 10),
        ..all([key; 4], CountSketch, CountMin, 1024)
    };
    let mut builds = vec![
        (distinct(Src, HashMode::Crc32, 11), STAGES),
        (distinct(Src, HashMode::Tabulated, 11), STAGES),
        (distinct(FiveTuple, HashMode::Tabulated, 16), STAGES),
        (Settings { heavy: slots(Src, 10), ..OFF }, STAGES_OF_ALL),
        (sizes_too(OFF), STAGES_OF_ALL),
        (sizes_too(everything(Src)), STAGES_WITH_EXPRESSIONS),
        (sizes_too(everything(FiveTuple)), STAGES_WITH_EXPRESSIONS),
    ];
    builds.extend(delays_and_reordering().map(|settings| (settings, STAGES_OF_CHIP)));
    builds
}

#[test]
fn expressions_fit_and_have_the_same_schema() {
    let Some(compiler) = compiler() else { return };
    let build = |(settings, most): &(Settings, u64)| {
        let mut defines = definitions(settings).unwrap();
        defines.push(("FLOWGAUGE_MATCH", 1));
        check(&compiler, &format!("{}, with expressions", described(settings)), &defines, *most)
    };
    compare_rows(&compiler, &matching_builds().iter().map(build).collect::<Vec<_>>());
}

#[test]
fn an_entropy_that_the_switch_makes_fits_and_has_the_same_schema() {
    let Some(compiler) = compiler() else { return };
    let by = |kind, keys: &[KeyKind], others: Settings| {
        let mut settings = others;
        settings
            .entropy
            .iter_mut()
            .zip(keys)
            .for_each(|(entropy, key)| *entropy = sketch_of(kind, *key, 1024));
        settings
    };
    let build = |(settings, key, alarm, also): (Settings, KeyKind, u32, &str)| {
        let second =
            settings.entropy.into_iter().find(|entropy| entropy.is_on() && entropy.key != key);
        let second = second.map(|second| ("FLOWGAUGE_ENTROPY_SECOND_KEY", second.key as u32));
        let own = [
            ("FLOWGAUGE_ENTROPY_KEY", key as u32),
            ("FLOWGAUGE_ENTROPY_BITS", 1),
            ("FLOWGAUGE_ENTROPY_ALARM", alarm),
        ];
        let mut defined: BTreeMap<_, _> = definitions(&settings).unwrap().into_iter().collect();
        defined.extend(own.into_iter().chain(second));
        let name = format!("{}, {also}", described(&settings));
        check(&compiler, &name, &Vec::from_iter(defined), STAGES_OF_CHIP)
    };
    use KeyKind::{Dst, Src};
    use SketchKind::{CountMin, CountSketch};
    let talkers = |others| Settings { heavy: slots(Src, 10), ..others };
    let everything = sizes_too(talkers(all([Src; 4], CountSketch, CountMin, 1024)));
    let builds = [
        (by(CountSketch, &[Dst], OFF), Dst, 0, "made by the switch"),
        (by(CountSketch, &[Dst], OFF), Dst, 1, "made by the switch, with alarms"),
        (by(CountMin, &[Dst], OFF), Dst, 1, "made by the switch, with alarms"),
        (by(CountSketch, &[Src, Dst], OFF), Dst, 1, "that of dst made by the switch, with alarms"),
        (
            by(CountSketch, &[Src, Dst], talkers(OFF)),
            Dst,
            1,
            "that of dst made by the switch, with alarms",
        ),
        (
            by(CountSketch, &[Src, Dst], everything),
            Src,
            1,
            "that of src made by the switch, with alarms",
        ),
    ];
    compare_rows(&compiler, &builds.map(build));
}

#[test]
fn distinct_others_fit_and_have_the_same_schema() {
    let Some(compiler) = compiler() else { return };
    let row = |(by, of)| {
        let sketch = spread::Settings { on: true, by, of, ..spread::Settings::DEFAULT };
        let settings = Settings { spread: [sketch, spread::Settings::DEFAULT], ..OFF };
        let defines = definitions(&settings).unwrap();
        check(&compiler, &described(&settings), &defines, STAGES_OF_CHIP)
    };
    let pairs = [
        (KeyKind::Dst, OtherKind::Src),
        (KeyKind::Src, OtherKind::Dst),
        (KeyKind::Src, OtherKind::DstPort),
        (KeyKind::SrcDst, OtherKind::FiveTuple),
    ];
    compare_rows(&compiler, &pairs.map(row));
}

#[test]
fn a_program_that_includes_the_telemetry_compiles() {
    let Some(compiler) = compiler() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/own.p4");
    let compiled = Compiled::new(&compiler, source, &[]);
    assert!(compare("own", &mut compiled.model(), &compiled.read("bfrt.json")) > 10);
}

/// Schemas compiled elsewhere: `TEST_P4_COMPILED` names a directory with pairs of `NAME.p4` and
/// `NAME.bfrt.json`.
#[test]
fn schemas_at_hand() {
    let Ok(folder) = std::env::var("TEST_P4_COMPILED") else {
        skip(
            "TEST_P4_COMPILED, a folder with programs and the schemas that the compiler wrote for them",
        );
        return;
    };
    let mut compared = 0;
    for file in Path::new(&folder).read_dir().unwrap().map(|file| file.unwrap().path()) {
        let Some(stem) = file
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".bfrt.json"))
        else {
            continue;
        };
        let mut model =
            Model::from_file(&file.with_file_name(format!("{stem}.p4")), &Options::default())
                .unwrap();
        compared += compare(stem, &mut model, &fs::read_to_string(&file).unwrap());
    }
    assert!(compared > 0, "no *.bfrt.json in {folder}");
    println!("{compared} tables and digests compared");
}
