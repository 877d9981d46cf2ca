//! The committed code of what a run tells, over gRPC and to Prometheus, is what its `.proto` generates.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

#[test]
fn the_code_belongs_to_the_protocols() {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    for proto in ["flowgauge/v1/agent.proto", "io/prometheus/client/metrics.proto"] {
        flowgauge_testing::generated::check(&protos, proto, &scratch).unwrap();
    }
}
