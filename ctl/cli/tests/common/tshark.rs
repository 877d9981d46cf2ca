//! tshark, an independent reader of captures.

use flowgauge_testing::skip;
use std::process::Command;

/// The program that captures are compared with.
pub(crate) fn tshark() -> Command {
    let mut command = Command::new("tshark");
    // No configuration, no names, and no complaints about running as root.
    command.env("HOME", "/tmp").env("WIRESHARK_CONFIG_DIR", "/nonexistent").arg("-n");
    command
}

/// Whether it is installed; says so if not.
pub(crate) fn has_tshark() -> bool {
    let found = tshark().arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip("tshark");
    }
    found
}
