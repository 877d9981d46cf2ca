//! The `flowgauge` command; see [`flowgauge::main`].

use std::process::ExitCode;

fn main() -> ExitCode {
    flowgauge::main()
}
