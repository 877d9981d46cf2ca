//! The `flowgauge` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    flowgauge::main()
}
