//! A lake that an attacker can write to: forged files, links, pipes and devices. The commands run
//! under a memory limit and, if the tests do, as root. What is around the lake stays as it is.

use crate::common::lake::{self, generate, journal};
use crate::common::{Outcome, Running, Scratch, assert_has, files, finish, in_shell, number};
use flowgauge_testing::{skip, wait};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Limit of a command's data segment: some 60 MB that any command of a debug build takes, mostly
/// stacks, and 128 MiB.
const MEMORY_KIB: u64 = (60 + 128) << 10;
/// Ends a command that hangs. No machine is this slow.
const HANG_SECONDS: u64 = 300;
/// Partition of the captures, whose times start with the epoch.
const HOUR: &str = "date=1970-01-01/hour=00";
const SPARSE: u64 = 6 << 30;

/// Returns the command of flowgauge with limited memory and time.
fn limited(before: &str) -> Command {
    in_shell(&format!("{before} ulimit -d {MEMORY_KIB} && exec timeout -s KILL {HANG_SECONDS}"))
}

/// Runs flowgauge with these space-separated arguments.
fn run(arguments: &str) -> Outcome {
    finish(limited("").args(arguments.split_whitespace()))
}

/// Runs a command, which has to succeed, and returns what it prints.
#[track_caller]
fn ok(command: &mut Command) -> String {
    finish(command).ended(0).stdout
}

/// Compacts a lake with limited memory.
#[track_caller]
fn compact(lake: &Path) -> String {
    run(&format!("lake compact {}", lake.display())).ended(0).stdout
}

/// Replays a capture into a lake as host c, with limited memory.
#[track_caller]
fn replay(capture: &str, lake: &Path) {
    run(&format!("replay {capture} --host c --lake {}", lake.display())).ended(0);
}

/// Returns a directory and all that is in it.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = left.pop() {
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push(path);
    }
    found
}

/// A lake of two hosts with several files in an hour, and canaries around it.
struct Forge {
    scratch: Scratch,
    lake: PathBuf,
    outside: PathBuf,
    before: Vec<Canary>,
}

/// Creates what an attack needs at a path.
type Make<'a> = &'a dyn Fn(&Path);

/// Path, inode, mode, time of the last change and content.
type Canary = (PathBuf, u64, u32, (i64, i64), Vec<u8>);

impl Forge {
    fn new(test: &str) -> Self {
        let scratch = Scratch::new(&format!("hostile-{test}"));
        let (lake, outside) = (scratch.path("lake"), scratch.path("outside"));
        let capture = generate(&scratch, "zipf,flows=100,packets=4000,rate=1k", "capture.pcap");
        for host in ["a", "b"] {
            lake::replay(&lake, host, &capture, "--window 1s --lake-every 2s --align").ended(0);
        }
        fs::create_dir_all(outside.join("inner/hour=00")).unwrap();
        fs::write(outside.join("victim"), "secret").unwrap();
        fs::set_permissions(outside.join("victim"), PermissionsExt::from_mode(0o600)).unwrap();
        // Something that could be taken for a part of the lake.
        let file = files(std::slice::from_ref(&lake)).unwrap().remove(0);
        fs::copy(&file, outside.join("inner/inner.parquet")).unwrap();
        fs::copy(&file, outside.join("inner/hour=00/inner.parquet")).unwrap();
        let mut forge = Forge { scratch, lake, outside, before: Vec::new() };
        forge.before = forge.canaries();
        forge
    }

    fn canaries(&self) -> Vec<Canary> {
        let canary = |path: PathBuf| {
            let about = fs::symlink_metadata(&path).unwrap();
            let content = if about.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
            let changed = (about.mtime(), about.mtime_nsec());
            (path, about.ino(), about.mode(), changed, content)
        };
        let mut canaries: Vec<Canary> = entries(&self.outside).into_iter().map(canary).collect();
        canaries.sort();
        canaries
    }

    #[track_caller]
    fn assert_untouched(&self, attack: &str) {
        assert!(self.canaries() == self.before, "{attack} has changed something outside");
    }

    /// Returns a copy of the lake for one attack.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.scratch.path("attacked").join(name);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        ok(Command::new("cp").arg("-a").arg(&self.lake).arg(&copy));
        copy
    }

    /// Runs a command on a copy of the lake after an attack. It has to fail, name what it refuses,
    /// and leave everything outside alone.
    #[track_caller]
    fn refused(
        &self,
        attack: &str,
        forge: impl FnOnce(&Path),
        command: &str,
        named: &str,
    ) -> PathBuf {
        let lake = self.copy(attack);
        forge(&lake);
        let outcome = run(&command.replace("LAKE", lake.to_str().unwrap()));
        assert_eq!(outcome.code, Some(1), "{attack}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(named), "{attack}: {named} is not in {}", outcome.stderr);
        self.assert_untouched(attack);
        lake
    }

    fn capture(&self) -> String {
        self.scratch.path("capture.pcap").display().to_string()
    }

    /// Returns the files of the lake before any attack.
    fn files(&self) -> Vec<PathBuf> {
        files(std::slice::from_ref(&self.lake)).unwrap()
    }

    fn victim(&self) -> PathBuf {
        self.outside.join("victim")
    }
}

const COMPACT: &str = "lake compact LAKE";
const MERGE: &str = "merge LAKE --format json";

fn merged(lake: &Path) -> (u64, u64) {
    let union = &lake::unions(lake, "")[0];
    (number(union, "packets"), number(&union["united"], "rows"))
}

fn in_hour(lake: &Path) -> usize {
    let hour = fs::read_dir(lake.join(HOUR)).unwrap().map(|entry| entry.unwrap().path());
    hour.filter(|path| path.extension().is_some_and(|it| it == "parquet")).count()
}

/// Checks that a lake has its windows, in one file.
#[track_caller]
fn assert_joined(lake: &Path, whole: (u64, u64)) {
    assert_eq!((merged(lake), in_hour(lake)), (whole, 1), "{}", lake.display());
}

fn sparse(path: &Path) {
    File::create(path).unwrap().set_len(SPARSE).unwrap();
}

fn pipe(path: &Path) {
    mkfifo(path, Mode::S_IRWXU).unwrap();
}

/// Creates a device like `/dev/zero`, or a link to it where that is forbidden.
fn zero(path: &Path) {
    if mknod(path, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 5)).is_err() {
        symlink("/dev/zero", path).unwrap();
    }
}

#[test]
fn nothing_on_disk_tells_a_compaction_what_to_remove() {
    let forge = Forge::new("manifests");
    let whole = merged(&forge.lake);
    let ours: Vec<String> = forge
        .files()
        .iter()
        .map(|path| path.strip_prefix(&forge.lake).unwrap().to_str().unwrap().to_owned())
        .collect();
    let manifest = |outputs: &str, sources: &[&str], complete: bool| {
        let manifest = json!({ "outputs": outputs, "sources": sources, "complete": complete });
        manifest.to_string().into_bytes()
    };
    let victim = forge.victim();
    let hashed = format!("{HOUR}/joined-0123456789abcdef-");
    let forged: [(&str, Vec<u8>); 7] = [
        ("absolute", manifest("x", &[victim.to_str().unwrap()], true)),
        (
            "parent",
            manifest("x", &["../../outside/victim", "../../outside/inner/inner.parquet"], true),
        ),
        ("everything", manifest("date=", &[], false)),
        ("nothing", manifest("", &[], false)),
        ("ours", manifest(&hashed, &ours.iter().map(String::as_str).collect::<Vec<_>>(), true)),
        ("rubbish", b"\xff{ not JSON".to_vec()),
        ("deep", vec![b'['; 1 << 20]),
    ];
    let name = format!("{}.json", HOUR.replace('/', "_"));
    let refused = |attack: &str, make: Make<'_>| {
        let forged = |lake: &Path| {
            fs::create_dir(lake.join(".compact")).unwrap();
            make(&lake.join(".compact").join(&name));
        };
        forge.refused(attack, forged, COMPACT, &name)
    };
    let mut lakes = Vec::new();
    for (attack, content) in forged {
        lakes.push(refused(attack, &|path: &Path| fs::write(path, &content).unwrap()));
    }
    let other: [(&str, Make<'_>); 6] = [
        ("sparse", &sparse),
        ("pipe", &pipe),
        ("device", &zero),
        ("link", &|path| symlink(forge.victim(), path).unwrap()),
        ("endless", &|path| symlink("/dev/zero", path).unwrap()),
        ("directory", &|path| fs::create_dir(path).unwrap()),
    ];
    lakes.extend(other.map(|(attack, make)| refused(attack, make)));
    for lake in lakes {
        // The hour was joined all the same, and what was refused is still there.
        assert_joined(&lake, whole);
        let forged = lake.join(".compact").join(&name);
        fs::rename(forged, lake.with_extension("moved")).unwrap();
        compact(&lake);
    }
}

#[test]
fn a_killed_compaction_is_joined_again_from_whatever_it_left() {
    let forge = Forge::new("killed");
    let whole = merged(&forge.lake);
    let compacted = forge.copy("compacted");
    compact(&compacted);
    let joined = files(&[compacted]).unwrap().remove(0);
    let sources = forge.files();
    let remove = |lake: &Path, sources: &[PathBuf]| {
        for source in sources {
            fs::remove_file(lake.join(source.strip_prefix(&forge.lake).unwrap())).unwrap();
        }
    };
    // The new file is complete, and some of the old ones are gone.
    for left in 0..=sources.len() {
        let lake = forge.copy(&format!("left-{left}"));
        fs::copy(&joined, lake.join(HOUR).join(joined.file_name().unwrap())).unwrap();
        remove(&lake, &sources[left..]);
        fs::create_dir_all(lake.join(".compact")).unwrap();
        fs::write(lake.join(".compact/new"), "half a file").unwrap();
        compact(&lake);
        assert_joined(&lake, whole);
        assert_eq!(compact(&lake), "");
    }
    // Joined files of two compactions: the second one joined those of the first.
    let lake = forge.copy("twice");
    remove(&lake, &sources);
    for hash in ["0123456789abcdef", "fedcba9876543210"] {
        fs::copy(&joined, lake.join(HOUR).join(format!("joined-{hash}-000000.parquet"))).unwrap();
    }
    compact(&lake);
    assert_joined(&lake, whole);
}

#[test]
fn links_pipes_and_devices_in_a_lake_are_named_and_lead_nowhere() {
    let forge = Forge::new("links");
    let victim = forge.victim();
    let (inner, new) = (forge.outside.join("inner"), forge.outside.join("new"));
    let hour_of_inner = inner.join("hour=00");
    let work = |lake: &Path, name: &str| {
        fs::create_dir_all(lake.join(".compact")).unwrap();
        lake.join(".compact").join(name)
    };
    let to_victim = |path: &Path| symlink(&victim, path).unwrap();
    let to_nothing = |path: &Path| symlink(&new, path).unwrap();
    let directory = |path: &Path| fs::create_dir(path).unwrap();
    let makes: [Make<'_>; 5] = [&to_victim, &to_nothing, &pipe, &zero, &directory];
    for name in ["lock", "new"] {
        for (index, make) in makes.iter().enumerate() {
            let attack = format!("{name}-{index}");
            let named = format!(".compact/{name}");
            forge.refused(&attack, |lake| make(&work(lake, name)), COMPACT, &named);
        }
    }
    let linked = |lake: &Path| symlink(&inner, lake.join(".compact")).unwrap();
    forge.refused("work", linked, COMPACT, ".compact");
    let commands = [("compact", COMPACT), ("merge", MERGE)];
    // Entries between the files: both commands name them.
    let file = "date=1970-01-01/hour=00/x.parquet";
    let attacks: [(&str, &str, Make<'_>); 8] = [
        ("file", file, &|path| symlink(inner.join("inner.parquet"), path).unwrap()),
        ("dead", file, &to_nothing),
        ("pipe", file, &pipe),
        ("device", file, &zero),
        ("hour", "date=1970-01-01/hour=01", &|path| symlink(&hour_of_inner, path).unwrap()),
        ("date", "date=1970-01-02", &|path| symlink(&inner, path).unwrap()),
        ("cycle", "date=1970-01-01/hour=02", &|path| symlink("../..", path).unwrap()),
        ("rubbish", file, &|path| fs::write(path, [0xa5; 1000]).unwrap()),
    ];
    for (attack, entry, make) in attacks {
        for (kind, command) in commands {
            let attack = format!("{attack}-{kind}");
            forge.refused(&attack, |lake| make(&lake.join(entry)), command, entry);
        }
    }
    // The hour itself, with everything that was in it.
    let replaced = |lake: &Path| {
        fs::rename(lake.join(HOUR), lake.join("elsewhere")).unwrap();
        symlink(&hour_of_inner, lake.join(HOUR)).unwrap();
    };
    for (kind, command) in commands {
        forge.refused(&format!("replaced-{kind}"), replaced, command, HOUR);
    }
    // The path that the user gives may be a link.
    let given = forge.scratch.path("given");
    symlink(&forge.lake, &given).unwrap();
    assert_eq!(merged(&given), merged(&forge.lake));
    compact(&given);
    assert_eq!(in_hour(&forge.lake), 1);
}

#[test]
fn links_that_are_swapped_in_while_a_command_works_lead_nowhere() {
    let forge = Forge::new("swapped");
    let whole = merged(&forge.lake);
    let capture = forge.capture();
    let (hour, link) = (forge.lake.join(HOUR), forge.scratch.path("link"));
    symlink(forge.outside.join("inner/hour=00"), &link).unwrap();
    let swap = || renameat_with(CWD, &hour, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let mut swaps = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                swap();
                swap();
                swaps += 2;
            }
            swaps
        });
        for host in ["c", "d", "e"] {
            // Each may fail or work.
            for arguments in
                ["lake compact", "merge", &format!("replay {capture} --host {host} --lake")]
            {
                let mut command = limited("");
                command.args(arguments.split(' ')).arg(&forge.lake).output().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(swapping.join().unwrap() > 100);
    });
    forge.assert_untouched("swapping");
    // No row of the other hosts is lost either.
    let hosts = "--exclude c --exclude d --exclude e --format json";
    let left = run(&format!("merge {} {hosts}", forge.lake.display())).json().remove(0);
    assert_eq!((&left["packets"], &left["united"]["rows"]), (&whole.0.into(), &whole.1.into()));
}

#[test]
fn an_agent_writes_through_no_link_and_reads_no_endless_journal() {
    let forge = Forge::new("agent");
    let capture = forge.capture();
    let agent = format!("replay {capture} --host c --lake LAKE");
    let (victim, inner) = (forge.victim(), forge.outside.join("inner"));
    let new = forge.outside.join("new");
    let to_victim = |path: &Path| symlink(&victim, path).unwrap();
    let to_nothing = |path: &Path| symlink(&new, path).unwrap();
    let attacks: [(&str, &str, Make<'_>); 11] = [
        ("tmp", "c-run-000000.tmp", &to_victim),
        ("dead-tmp", "c-run-000000.tmp", &to_nothing),
        ("pipe-tmp", "c-run-000000.tmp", &pipe),
        ("probe", "c-run-000000.probe", &to_victim),
        ("journal", "c-run-000000.journal", &to_victim),
        ("dead-journal", "other.journal", &to_nothing),
        ("pipe-journal", "other.journal", &pipe),
        ("device-journal", "other.journal", &zero),
        ("directory-journal", "other.journal", &|path| fs::create_dir(path).unwrap()),
        ("sparse-journal", "other.journal", &sparse),
        ("rubbish-journal", "other.journal", &|path| {
            fs::write(path, vec![b'F'; 200 << 20]).unwrap()
        }),
    ];
    for (attack, name, make) in attacks {
        let stem = name.split('.').next().unwrap();
        let forged = |lake: &Path| make(&lake.join(".journal").join(name));
        let lake = forge.refused(attack, forged, &agent, stem);
        // Others can go on.
        assert_has(&compact(&lake), &["files are 1 now"]);
    }
    for (attack, name) in [("journals", ".journal"), ("date", "date=1970-01-01")] {
        let replaced = |lake: &Path| {
            fs::rename(lake.join(name), lake.join("elsewhere")).unwrap();
            symlink(&inner, lake.join(name)).unwrap();
        };
        forge.refused(attack, replaced, &agent, name);
    }
    // A link with the name of the new file is not replaced, and no row is lost.
    let lake = forge.copy("taken");
    let link = lake.join(HOUR).join("c-run-000000.parquet");
    to_victim(&link);
    replay(&capture, &lake);
    fs::remove_file(link).unwrap();
    assert_eq!(merged(&lake).0, 3 * 4000);
    forge.assert_untouched("taken");
}

#[test]
fn records_do_not_go_through_links_and_others_cannot_read_them() {
    let forge = Forge::new("records");
    let path = |name: &str| forge.scratch.path(name).to_str().unwrap().to_owned();
    let capture = path("capture.pcap");
    let targets = [("victim", forge.victim()), ("new", forge.outside.join("new"))];
    for (option, name) in [("--record", "exchanges"), ("--delay-samples", "samples")] {
        for (target, to) in &targets {
            let link = path(&format!("{name}-{target}"));
            symlink(to, &link).unwrap();
            let arguments = format!("replay {capture} --measure delay {option} {link}");
            run(&arguments).ended_with(1, &[&format!("cannot create {link}")]);
            forge.assert_untouched(option);
        }
    }
    // A name of --out has the time and the process in it, and others can guess both.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (target, to) in &targets {
        let out = path(&format!("out-{target}"));
        fs::create_dir(&out).unwrap();
        let before = format!(
            "for second in $(seq {now} {}); do ln -s '{}' '{out}'/windows-$second-$$.csv; done; exec",
            now + 1000,
            to.display()
        );
        finish(in_shell(&before).args(["replay", &capture, "--out", &out]))
            .ended_with(1, &[&format!("cannot create {out}/windows-")]);
        forge.assert_untouched("--out");
    }
    for umask in ["000", "002", "022", "077"] {
        let of = |name: &str| path(&format!("{name}-{umask}"));
        let options = format!(
            "--measure cardinality,delay --lake {} --out {} --record {} --delay-samples {}",
            of("lake"),
            of("out"),
            of("record"),
            of("delays")
        );
        let before = format!("umask {umask};");
        ok(limited(&before).args(["replay", &capture]).args(options.split_whitespace()));
        ok(limited(&before).args(["lake", "compact", &of("lake")]));
        let (mut files, denied) = (0, u32::from_str_radix(umask, 8).unwrap());
        for name in ["lake", "out", "record", "delays"] {
            for path in entries(Path::new(&of(name))) {
                let about = fs::metadata(&path).unwrap();
                let most = if about.is_dir() { 0o770 } else { 0o640 };
                assert_eq!(about.mode() & 0o777, most & !denied, "{} {umask}", path.display());
                files += u32::from(!about.is_dir());
            }
        }
        // The file of the lake, the lock, two of records, one each of exchanges and delays.
        assert!(files >= 6, "{files}");
    }
    // A journal exists only during a run.
    let lake = forge.scratch.path("live");
    let live =
        ["run", "--port", "memory:zipf,rate=1k", "--window", "50ms", "--seed", "1", "--lake"];
    let running = Running::of(in_shell("umask 000; exec").args(live).arg(&lake));
    let mode = fs::metadata(wait::until_some(|| journal(&lake))).unwrap().mode() & 0o777;
    drop(running);
    assert_eq!(mode, 0o600);
}

#[test]
fn root_leaves_the_files_of_a_lake_to_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return skip("root");
    }
    let forge = Forge::new("owner");
    let (user, group) = (54_321, 54_322);
    ok(Command::new("chown").arg("-R").arg(format!("{user}:{group}")).arg(&forge.lake));
    compact(&forge.lake);
    replay(&forge.capture(), &forge.lake);
    for path in forge.files() {
        let about = fs::metadata(&path).unwrap();
        assert_eq!((about.uid(), about.gid()), (user, group), "{}", path.display());
    }
}

#[test]
fn what_is_no_regular_file_is_no_input() {
    let scratch = Scratch::new("hostile-inputs");
    let capture = generate(&scratch, "zipf,flows=10,packets=100,rate=1k", "capture.pcap");
    let lake = scratch.path("lake");
    lake::replay(&lake, "a", &capture, "").ended(0);
    fs::create_dir(scratch.path("directory")).unwrap();
    let pipe_path = scratch.path("pipe");
    pipe(&pipe_path);
    let large = scratch.path("large");
    sparse(&large);
    fs::set_permissions(&large, PermissionsExt::from_mode(0o600)).unwrap();
    let certificate = scratch.write("cert.pem", "-----BEGIN CERTIFICATE-----\n");
    let lake = lake.display();
    let listen = "run --port memory:zipf --listen 127.0.0.1:0";
    let otlp = "run --port memory:zipf --otlp https://127.0.0.1:1";
    let switch = "run --address 127.0.0.1:1 --tls-ca";
    let commands = [
        ("configuration", "run --config FILE".to_owned()),
        ("check", "config check FILE".to_owned()),
        ("hash key", format!("replay {capture} --hash-key FILE")),
        ("key of a merge", format!("merge {lake} --hash-key FILE")),
        ("hosts", format!("merge {lake} --expect FILE")),
        ("names", format!("replay {capture} --names FILE")),
        ("groups", format!("replay {capture} --measure delay --delay-groups FILE")),
        ("token", format!("{listen} --listen-token-file FILE")),
        ("certificate", format!("{listen} --listen-cert FILE --listen-key FILE")),
        ("authority", format!("{otlp} --otlp-ca FILE")),
        ("switch", format!("{switch} FILE")),
        ("client", format!("{switch} {certificate} --tls-cert FILE --tls-key FILE")),
        ("lake", "merge FILE".to_owned()),
    ];
    for (what, command) in &commands {
        for file in [&pipe_path, Path::new("/dev/zero"), &scratch.path("directory"), &large] {
            let file = file.to_str().unwrap();
            // A lake is a directory, and its files may be long.
            if *what == "lake" && (file.ends_with("directory") || file.ends_with("large")) {
                continue;
            }
            let outcome = run(&command.replace("FILE", file));
            assert!(
                matches!(outcome.code, Some(1 | 2)) && outcome.stderr.contains(file),
                "{what} {file}: {outcome:?}"
            );
            if !file.ends_with("large") {
                assert!(outcome.stderr.contains("no regular file"), "{what} {file}: {outcome:?}");
            }
        }
    }
}
