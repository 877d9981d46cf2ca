//! Run-time cost of programs, which the kernel measures if that is enabled.

use aya::programs::loaded_programs;
use std::fs;
use std::io;

/// Cost of a program while the kernel measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// ID of the program.
    pub program: u32,
    /// CPU time, in nanoseconds.
    pub time_ns: u64,
    /// Number of runs: one for every packet.
    pub runs: u64,
}

/// Returns whether the kernel measures the cost of programs: `sysctl kernel.bpf_stats_enabled`.
#[must_use]
pub fn costs_are_measured() -> bool {
    fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled")
        .is_ok_and(|enabled| enabled.trim() == "1")
}

/// Returns the cost of those of these programs that are loaded.
///
/// # Errors
/// The kernel denies the information, which needs root or `CAP_SYS_ADMIN`.
pub fn costs(programs: &[u32]) -> io::Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for program in loaded_programs() {
        match program {
            Ok(program) if programs.contains(&program.id()) => {
                let time_ns = u64::try_from(program.run_time().as_nanos()).unwrap_or(u64::MAX);
                costs.push(Cost { program: program.id(), time_ns, runs: program.run_count() });
            }
            Ok(_) => {}
            // Programs may be unloaded while they are listed.
            Err(error)
                if super::refusal::io_error(&error).is_some_and(|code| code == libc::ENOENT) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(costs)
}
