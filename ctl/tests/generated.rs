//! The committed code of the gRPC service is what its `.proto` generates, and so is what reflection tells of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use flowgauge_testing::generated::{check, check_descriptors};
use std::path::Path;

#[test]
fn the_code_of_the_service_belongs_to_it() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (protos, proto, serve) = (package.join("proto"), "flowgauge/v1/agent.proto", package.join("src/serve"));
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    check(&protos, proto, &serve.join("generated.rs"), &scratch).unwrap();
    check_descriptors(&protos, proto, &serve.join("agent.descriptors")).unwrap();
}
