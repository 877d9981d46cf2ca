//! The committed code of the protocol is what its `.proto` generates.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

#[test]
fn the_code_of_the_protocol_belongs_to_it() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    flowgauge_testing::generated::check(&package.join("proto"), "bfruntime.proto", &package.join("src/generated.rs"), &scratch)
        .unwrap();
}
