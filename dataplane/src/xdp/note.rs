//! Note that is pinned with a program: settings of the program, and progress of its controller.

use super::link;
use crate::hash_key::HashKey;
use flowgauge_core::cardinality::Mode;
use flowgauge_core::kernel::MemoryLayout;
use flowgauge_core::{HashMode, KeyKind, Precision, SETTINGS_WORDS, Settings};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Version of the pinned data. Changes whenever `kernel`, `Note` or the programs change in a way
/// that another version would misread.
pub(super) const VERSION: u32 = 16;

/// Settings of a program and progress of its controller. All bit patterns are valid, and there is
/// no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Note {
    pub(super) version: u32,
    /// Size of the core's memory under these settings, in bytes.
    pub(super) core_bytes: u32,
    /// Hook of the interface that the program is attached to, as a [mode](super::Mode).
    pub(super) attached: u32,
    /// All settings.
    pub(super) settings: [u32; NOTE_WORDS],
    /// Name of the interface when counting began, zero-padded.
    pub(super) interface: [u8; INTERFACE_BYTES],
    pub(super) seed: u64,
    /// Secret of a keyed hash. Only root can read it here: pins are accessible to their owner
    /// alone.
    pub(super) secret: Secret,
    pub(super) slot_ns: u64,
    /// Value of the programs' global variable `boot_ns`.
    pub(super) boot_ns: u64,
    pub(super) network_namespace: u64,
    pub(super) interface_index: u32,
    /// Index of the active bank.
    pub(super) active: u32,
    /// Whether the inactive bank contains a window that was not published yet.
    pub(super) unpublished: u64,
    /// Start of activity of each bank, in nanoseconds since the Unix epoch.
    pub(super) opened_ns: [u64; 2],
    /// Number of the first window that was not published yet.
    pub(super) next_window: u64,
    /// Bit mask of the banks in which packets may be missing.
    pub(super) gaps: u64,
    /// Fingerprint of each bank's filter; zero for none.
    pub(super) filters: [u64; 2],
    /// Run that began the window of each bank. It may have published the window already.
    pub(super) runs: [RunName; 2],
}

/// Bytes of a run's identifier in a note.
const RUN_BYTES: usize = 64;

/// Identifier of a run, zero-padded; all zero for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RunName([u8; RUN_BYTES]);

impl RunName {
    /// Stores the identifier of a run, or none if it is too long: a part of it may be that of
    /// another run.
    pub(super) fn new(run: &str) -> Self {
        let mut bytes = [0; RUN_BYTES];
        if run.len() <= RUN_BYTES {
            bytes.iter_mut().zip(run.bytes()).for_each(|(slot, byte)| *slot = byte);
        }
        RunName(bytes)
    }

    fn name(self) -> Option<String> {
        let name = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).ok()?;
        (!name.is_empty()).then(|| name.to_owned())
    }
}

/// Key of 32 bytes; zero for none.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Secret([u64; 4]);

impl Secret {
    pub(super) fn new(key: Option<&HashKey>) -> Self {
        let mut words = [0; 4];
        let bytes = key.map_or([0; 32], |key| *key.as_bytes());
        words
            .iter_mut()
            .zip(bytes.as_chunks().0)
            .for_each(|(word, bytes)| *word = u64::from_ne_bytes(*bytes));
        Secret(words)
    }

    pub(super) fn key(self) -> Option<HashKey> {
        let mut bytes = [0; 32];
        bytes
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(self.0)
            .for_each(|(bytes, word)| *bytes = word.to_ne_bytes());
        (self.0 != [0; 4]).then(|| HashKey::from_bytes(bytes))
    }
}

/// Prints the fingerprint alone.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key().fmt(f)
    }
}

/// Counting configuration that a controller wants or finds.
#[derive(Clone, Copy)]
pub(super) struct CountingIdentity {
    pub(super) settings: Settings,
    pub(super) seed: u64,
    pub(super) secret: Secret,
    pub(super) slot_ns: u64,
    pub(super) boot_ns: u64,
    /// Hook of its program.
    pub(super) attached: super::Mode,
    /// Fingerprint of the filter; zero for none.
    pub(super) filter: u64,
    /// Run that counts.
    pub(super) run: RunName,
}

impl Note {
    pub(super) fn new(
        identity: &CountingIdentity,
        interface: &str,
        interface_index: u32,
        now_ns: u64,
    ) -> Self {
        Note {
            version: VERSION,
            core_bytes: MemoryLayout::of(&identity.settings).core,
            attached: identity.attached as u32,
            settings: settings_words(&identity.settings),
            interface: interface_bytes(interface),
            seed: identity.seed,
            secret: identity.secret,
            slot_ns: identity.slot_ns,
            boot_ns: identity.boot_ns,
            network_namespace: network_namespace(),
            interface_index,
            active: 0,
            unpublished: 0,
            opened_ns: [now_ns; 2],
            next_window: 0,
            gaps: 0,
            filters: [identity.filter; 2],
            runs: [identity.run; 2],
        }
    }

    /// Returns the hook of the program; `None` if another version wrote an unknown one.
    pub(super) fn mode(&self) -> Option<super::Mode> {
        super::Mode::ALL.into_iter().find(|mode| *mode as u32 == self.attached)
    }

    pub(super) fn set_mode(&mut self, mode: super::Mode) {
        self.attached = mode as u32;
    }

    /// Makes the other bank active for the first window.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.active ^= 1;
        self.opened_ns = [now_ns; 2];
    }

    /// Makes the other bank active for a window of this run, with a filter of this fingerprint.
    pub(super) fn flip(&mut self, now_ns: u64, filter: u64, run: RunName) {
        self.active ^= 1;
        self.unpublished = 1;
        self.opened_ns[self.active as usize & 1] = now_ns;
        self.filters[self.active as usize & 1] = filter;
        self.runs[self.active as usize & 1] = run;
    }

    /// Limits all start times to `now_ns` and to their order, as is needed if the clock was set
    /// back. Returns whether anything changed.
    pub(super) fn limit_start_times(&mut self, now_ns: u64) -> bool {
        let before = *self;
        let active = self.active as usize & 1;
        let opened = &mut self.opened_ns;
        opened[active] = opened[active].min(now_ns);
        opened[active ^ 1] = opened[active ^ 1].min(opened[active]);
        *self != before
    }

    /// Returns the name of the interface when counting began.
    pub(super) fn interface(&self) -> String {
        let name = self.interface.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Returns the hash, and mode, key and precision of distinct flows, which are the first word of
    /// the settings.
    fn cardinality(&self) -> [u8; 4] {
        let [first, ..] = self.settings;
        first.to_ne_bytes()
    }

    /// Returns the start times of the windows not yet published, oldest first.
    pub(super) fn open_windows(&self) -> Vec<u64> {
        let active = self.active as usize & 1;
        let closed = (self.unpublished != 0).then_some(self.opened_ns[active ^ 1]);
        closed.into_iter().chain([self.opened_ns[active]]).collect()
    }

    /// Returns the runs that began the windows not yet published, oldest first.
    pub(super) fn open_runs(&self) -> Vec<Option<String>> {
        let active = self.active as usize & 1;
        let closed = (self.unpublished != 0).then_some(self.runs[active ^ 1]);
        closed.into_iter().chain([self.runs[active]]).map(RunName::name).collect()
    }

    /// Returns the fingerprints of the filters of the windows not yet published.
    fn open_filters(&self) -> impl Iterator<Item = u64> {
        let active = self.active as usize & 1;
        let closed = (self.unpublished != 0).then_some(self.filters[active ^ 1]);
        closed.into_iter().chain([self.filters[active]])
    }

    /// Returns why a controller that would write `wanted` cannot adopt this note, in terms of its
    /// options; `None` if it can.
    pub(super) fn difference(&self, wanted: &Note) -> Option<String> {
        if self.version != wanted.version {
            return Some("it was started by another version of flowgauge".to_owned());
        }
        if (self.network_namespace, self.interface_index)
            != (wanted.network_namespace, wanted.interface_index)
        {
            return Some("it counted at another interface of this name, which is gone".to_owned());
        }
        let ([has_hash, has_mode, has_key, has_precision], [hash, mode, key, precision]) =
            (self.cardinality(), wanted.cardinality());
        let options = [
            ("--measure and --staggered", has_mode, mode, mode_name as fn(u8) -> String),
            ("--key", has_key, key, key_name),
            ("--hash", has_hash, hash, hash_name),
            ("--registers", has_precision, precision, registers_name),
        ];
        if let Some((option, has, wants, name)) =
            options.into_iter().find(|(_, has, wants, _)| has != wants)
        {
            return Some(format!("it counts with {option} {}, not {}", name(has), name(wants)));
        }
        if self.attached != wanted.attached {
            let (has, wants) = (hook_name(self.attached), hook_name(wanted.attached));
            return Some(format!("it counts with --xdp-mode {has}, not {wants}"));
        }
        if self.settings != wanted.settings {
            return Some("it measures something else, or with other keys or sketches".to_owned());
        }
        if self.core_bytes != wanted.core_bytes {
            return Some("it was started by another version of flowgauge".to_owned());
        }
        if self.seed != wanted.seed {
            return Some(format!("it counts with --seed {}, not {}", self.seed, wanted.seed));
        }
        if self.secret != wanted.secret {
            let fingerprint = |secret: Secret| secret.key().map_or(0, |key| key.fingerprint());
            let (has, wants) = (fingerprint(self.secret), fingerprint(wanted.secret));
            return Some(format!(
                "it counts with another --hash-key (fingerprint {has:016x}, not {wants:016x})"
            ));
        }
        let [_, wanted_filter] = wanted.filters;
        if self.open_filters().any(|filter| filter != wanted_filter) {
            return Some("it counts packets with another --match".to_owned());
        }
        if has_mode == Mode::Staggered as u8 {
            if self.slot_ns != wanted.slot_ns {
                return Some("it counts with another --staggered time".to_owned());
            }
            if self.boot_ns.abs_diff(wanted.boot_ns) > self.slot_ns / 2 {
                return Some("the clock was set since it began to count".to_owned());
            }
        }
        None
    }
}

/// Length of an interface name with the terminating zero.
const INTERFACE_BYTES: usize = libc::IFNAMSIZ;

fn interface_bytes(interface: &str) -> [u8; INTERFACE_BYTES] {
    let mut bytes = [0; INTERFACE_BYTES];
    let (name, _) = bytes.split_at_mut(INTERFACE_BYTES - 1);
    name.iter_mut().zip(interface.bytes()).for_each(|(slot, byte)| *slot = byte);
    bytes
}

/// Length of the settings in words, rounded up to an odd number: with the three words before them,
/// no padding follows.
const NOTE_WORDS: usize = SETTINGS_WORDS | 1;

fn settings_words(settings: &Settings) -> [u32; NOTE_WORDS] {
    let mut words = [0; NOTE_WORDS];
    words.iter_mut().zip(settings.words()).for_each(|(slot, word)| *slot = word);
    words
}

fn mode_name(value: u8) -> String {
    let names =
        [(Mode::Off, "none"), (Mode::Windowed, "cardinality"), (Mode::Staggered, "staggered")];
    named(value, names.into_iter().map(|(mode, name)| (mode as u8, name)))
}

fn hook_name(value: u32) -> String {
    let mode = super::Mode::ALL.into_iter().find(|mode| *mode as u32 == value);
    mode.map_or_else(|| value.to_string(), |mode| mode.name().to_owned())
}

fn key_name(value: u8) -> String {
    named(value, KeyKind::ALL.into_iter().map(|key| (key as u8, key.name())))
}

fn hash_name(value: u8) -> String {
    named(value, HashMode::ALL.into_iter().map(|hash| (hash as u8, hash.name())))
}

fn named(value: u8, names: impl IntoIterator<Item = (u8, &'static str)>) -> String {
    names
        .into_iter()
        .find(|(number, _)| *number == value)
        .map_or_else(|| value.to_string(), |(_, name)| name.to_owned())
}

fn registers_name(value: u8) -> String {
    Precision::new(value)
        .map_or_else(|| value.to_string(), |precision| precision.registers().to_string())
}

/// Returns the identifier of this thread's network namespace: a number that is never reused, or
/// before Linux 5.14 the inode of its file.
pub(super) fn network_namespace() -> u64 {
    let file = || fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
    link::network_namespace().unwrap_or_else(|_| file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose name does not matter.
    const RUN: RunName = RunName([0; RUN_BYTES]);

    fn note(change: impl FnOnce(&mut CountingIdentity)) -> Note {
        let settings = Settings::default();
        let (secret, attached) = (Secret::new(None), crate::xdp::Mode::Native);
        let mut identity = CountingIdentity {
            settings,
            seed: 1,
            secret,
            slot_ns: 1000,
            boot_ns: 5_000,
            attached,
            filter: 9,
            run: RunName::new("first"),
        };
        change(&mut identity);
        Note::new(&identity, "eth0", 3, 10)
    }

    #[test]
    fn differences_are_described_by_option_names() {
        let kept = note(|_| {});
        let difference =
            |change: fn(&mut CountingIdentity)| kept.difference(&note(change)).unwrap_or_default();
        assert_eq!(difference(|_| {}), "");
        assert_eq!(
            difference(|identity| identity.settings.cardinality.key = KeyKind::Dst),
            "it counts with --key src, not dst"
        );
        assert_eq!(difference(|identity| identity.seed = 7), "it counts with --seed 1, not 7");
        let other =
            difference(|identity| identity.secret = Secret::new(Some(&HashKey::from_seed(1))));
        assert!(
            other.starts_with(
                "it counts with another --hash-key (fingerprint 0000000000000000, not "
            ),
            "{other}"
        );
        assert_eq!(
            difference(|identity| identity.attached = crate::xdp::Mode::Tcx),
            "it counts with --xdp-mode native, not tcx"
        );
        let other = difference(|identity| identity.settings.cardinality.precision = Precision::MIN);
        assert_eq!(other, "it counts with --registers 2048, not 16");
        let other = difference(|identity| identity.settings.cardinality.mode = Mode::Staggered);
        assert_eq!(other, "it counts with --measure and --staggered cardinality, not staggered");
        assert_eq!(
            difference(|identity| identity.slot_ns = 7),
            "",
            "slots matter to staggered registers only"
        );
        let other = difference(|identity| identity.filter = 0);
        assert_eq!(other, "it counts packets with another --match");
        let moved = Note { interface_index: 4, ..kept };
        assert!(kept.difference(&moved).unwrap_or_default().contains("which is gone"));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_negative_window() {
        let mut kept = note(|_| {});
        kept.flip(100, 9, RUN);
        assert!(!kept.limit_start_times(100), "nothing is wrong");
        assert!(kept.limit_start_times(50));
        assert_eq!(kept.open_windows(), [10, 50]);
        assert!(kept.limit_start_times(5));
        assert_eq!(kept.open_windows(), [5, 5]);
        // The clock was set back between two rotations.
        kept.flip(3, 9, RUN);
        assert!(kept.limit_start_times(1_000));
        assert_eq!(kept.open_windows(), [3, 3]);
        assert_eq!(kept.interface(), "eth0");
    }

    #[test]
    fn a_window_of_another_filter_is_not_adopted_unless_it_is_published() {
        let wanted = note(|identity| identity.filter = 5);
        let mut kept = note(|_| {});
        kept.flip(20, 5, RUN);
        assert!(kept.difference(&wanted).is_some());
        kept.unpublished = 0;
        assert_eq!(kept.difference(&wanted), None);
    }

    #[test]
    fn notes_keep_a_key_and_show_its_fingerprint_alone() {
        let key = HashKey::from_seed(7);
        let kept = note(|identity| identity.secret = Secret::new(Some(&key)));
        assert_eq!(kept.secret.key(), Some(key.clone()));
        let shown = format!("{kept:?}");
        assert!(shown.contains(&format!("{:016x}", key.fingerprint())), "{shown}");
        assert!(kept.secret.0.iter().all(|word| !shown.contains(&word.to_string())), "{shown}");
        assert_eq!(note(|_| {}).secret.key(), None);
    }

    #[test]
    fn a_flipped_note_has_two_open_windows() {
        let mut kept = note(|_| {});
        assert_eq!(kept.open_windows(), [10]);
        kept.flip(20, 9, RUN);
        assert_eq!((kept.active, kept.open_windows()), (1, vec![10, 20]));
        kept.unpublished = 0;
        kept.flip(30, 9, RUN);
        assert_eq!((kept.active, kept.open_windows()), (0, vec![20, 30]));
    }

    #[test]
    fn each_open_window_has_the_run_that_began_it() {
        let mut kept = note(|_| {});
        let named = |runs: &[&str]| runs.iter().map(|run| Some((*run).to_owned())).collect();
        let expected: Vec<Option<String>> = named(&["first"]);
        assert_eq!(kept.open_runs(), expected);
        // Another run adopts the note: its windows begin with the next rotation.
        kept.flip(20, 9, RunName::new("second"));
        let expected: Vec<Option<String>> = named(&["first", "second"]);
        assert_eq!(kept.open_runs(), expected);
        kept.unpublished = 0;
        kept.flip(30, 9, RunName::new(&"x".repeat(RUN_BYTES)));
        kept.unpublished = 0;
        assert_eq!(kept.open_runs(), [Some("x".repeat(RUN_BYTES))]);
        kept.flip(40, 9, RunName::new(&"x".repeat(RUN_BYTES + 1)));
        kept.unpublished = 0;
        assert_eq!(kept.open_runs(), vec![None::<String>]);
    }
}
