//! Comparison of the committed BFRuntime code with what its `.proto` generates.

use std::path::Path;

#[test]
fn the_code_belongs_to_the_protocol() {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    flowgauge_testing::generated::check(&protos, "bfruntime.proto", &scratch).unwrap();
}
