//! The programs of `ebpf/`, with settings and tables put in.
#![allow(unsafe_code, reason = "aya asks for a promise that the values written into the object are plain data")]

use aya::{Ebpf, EbpfError, EbpfLoader, Pod, include_bytes_aligned};
use flowgauge_core::{Settings, Tabulation};

/// Built by `ebpf/build`; `ebpf/flowgauge.record` says from what.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf/flowgauge.o"));

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Plain<T>(T);

// SAFETY: both are `repr(C)` structs of integers and of enums with an integer representation, without padding.
unsafe impl Pod for Plain<Settings> {}
// SAFETY: as above.
unsafe impl Pod for Plain<[[u32; 256]; 4]> {}

/// Loads maps and programs; programs are verified when they are loaded one by one.
pub(super) fn load(settings: Settings, tabulation: &Tabulation, cpus: usize) -> Result<Ebpf, EbpfError> {
    const { assert!(size_of::<Settings>() == 4, "no padding") };
    let (settings, tables) = (Plain(settings), Plain(*tabulation.tables()));
    EbpfLoader::new()
        .override_global("SETTINGS", &settings, true)
        .override_global("TABULATION", &tables, true)
        .map_max_entries("CORES", u32::try_from(cpus).unwrap_or(u32::MAX))
        .load(OBJECT)
}
