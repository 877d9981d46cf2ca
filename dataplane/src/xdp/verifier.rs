//! Refusals by the kernel's verifier: program, reason, and the end of the log.

use aya::programs::ProgramError;
use std::fmt;

/// A program that was not loaded, with the error.
#[derive(Debug)]
pub(super) struct NotLoaded {
    program: String,
    error: ProgramError,
}

impl NotLoaded {
    pub(super) fn new(program: &str, error: ProgramError) -> Self {
        NotLoaded { program: program.to_owned(), error }
    }
}

impl fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}: {}", self.program, self.error)
    }
}

impl std::error::Error for NotLoaded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Lines of a log that `-v` shows: the last instructions and the error.
const LAST_LINES: usize = 20;

/// End of a verifier's log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VerifierRefusal<'a> {
    /// Instructions processed before the refusal.
    instructions: u64,
    /// Last line before the statistics.
    reason: &'a str,
    last_lines: Vec<&'a str>,
}

impl<'a> VerifierRefusal<'a> {
    /// Parses an error's text that ends with a log; `None` if the verifier was not reached, as for
    /// a process without privileges.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let statistics = |line: &&str| {
            ["verification time ", "stack depth ", "processed "]
                .iter()
                .any(|start| line.starts_with(start))
        };
        // A program of several functions has such a line for each accepted function too.
        let (_, processed) = text.rsplit_once("processed ")?;
        let (instructions, _) = processed.split_once(" insns")?;
        let mut lines: Vec<&str> = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty() && !statistics(line))
            .collect();
        let reason = lines.last().copied()?;
        let reason = reason.rsplit_once("Verifier output: ").map_or(reason, |(_, reason)| reason);
        let last_lines = lines.split_off(lines.len().saturating_sub(LAST_LINES));
        Some(VerifierRefusal { instructions: instructions.parse().ok()?, reason, last_lines })
    }

    pub(super) fn log(&self) {
        self.last_lines.iter().for_each(|line| tracing::info!("verifier: {line}"));
    }

    /// Describes the refusal of `program` in one line.
    pub(super) fn problem(&self, program: Option<&NotLoaded>) -> String {
        let VerifierRefusal { instructions, reason, .. } = self;
        let name = program.map_or("", |program| program.program.as_str());
        let (what, instead) = match measurement(name) {
            Some(measurement) => (
                format!("{name}, of the measurement {measurement}"),
                format!("leave out {measurement}, or "),
            ),
            None if name.is_empty() => ("the programs".to_owned(), String::new()),
            None => (name.to_owned(), String::new()),
        };
        format!(
            "cannot load {what}: the kernel's verifier refuses it after {instructions} instructions ({reason}); {instead}count in user space \
             with --port af_xdp:INTERFACE, and report this as a bug with what -v shows"
        )
    }
}

/// Returns the measurement of a program.
fn measurement(program: &str) -> Option<&str> {
    let (_, name) =
        program.split_once('_').filter(|(hook, _)| matches!(*hook, "xdp" | "frags" | "tcx"))?;
    Some(name.strip_suffix("_locked").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "the BPF_PROG_LOAD syscall returned Permission denied (os error 13). Verifier output: func#0 @0
13275: (57) r3 &= 262143
13281: (79) r0 = *(u64 *)(r5 +28992)
R5 max value is outside of the allowed memory range
verification time 9847 usec
stack depth 232
processed 3403 insns (limit 1000000) max_states_per_insn 0 total_states 19 peak_states 19 mark_read 8

";

    #[test]
    fn a_refusal_names_its_reason_and_the_program() {
        let refusal = VerifierRefusal::parse(LOG).unwrap();
        assert_eq!(
            (refusal.instructions, refusal.reason),
            (3403, "R5 max value is outside of the allowed memory range")
        );
        assert_eq!(refusal.last_lines.len(), 4);
        let program = NotLoaded::new("tcx_delay_locked", ProgramError::NotLoaded);
        assert_eq!(
            refusal.problem(Some(&program)),
            "cannot load tcx_delay_locked, of the measurement delay: the kernel's verifier refuses it after 3403 instructions (R5 max value \
             is outside of the allowed memory range); leave out delay, or count in user space with --port af_xdp:INTERFACE, and report this \
             as a bug with what -v shows"
        );
        assert_eq!(measurement("flowgauge_xdp_all"), None);
    }

    #[test]
    fn a_log_of_one_line_is_a_reason() {
        let log = "the BPF_PROG_LOAD syscall returned Invalid argument (os error 22). Verifier output: BPF_STX uses reserved fields
processed 0 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
";
        let refusal = VerifierRefusal::parse(log).unwrap();
        assert_eq!((refusal.instructions, refusal.reason), (0, "BPF_STX uses reserved fields"));
        assert_eq!(
            VerifierRefusal::parse(
                "the BPF_PROG_LOAD syscall returned Operation not permitted (os error 1). Verifier output: "
            ),
            None
        );
    }
}
