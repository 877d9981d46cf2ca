//! tshark, an independent reader of captures.

use flowgauge_testing::skip;
use std::process::Command;

/// Returns the command of tshark.
pub(crate) fn tshark() -> Command {
    let mut command = Command::new("tshark");
    // No configuration, no name resolution, and no warnings about running as root.
    command.env("HOME", "/tmp").env("WIRESHARK_CONFIG_DIR", "/nonexistent").arg("-n");
    command
}

/// Whether tshark is installed; reports a skipped test if not.
pub(crate) fn has_tshark() -> bool {
    let found = tshark().arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip("tshark");
    }
    found
}
