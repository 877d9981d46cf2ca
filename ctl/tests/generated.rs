//! Comparison of the committed gRPC, Prometheus and OpenTelemetry code with what its `.proto` files
//! generate.

use std::path::Path;

#[test]
fn the_code_belongs_to_the_protocols() {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    let protos_of_others = [
        "io/prometheus/client/metrics.proto",
        "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
    ];
    for proto in ["flowgauge/v1/agent.proto"].into_iter().chain(protos_of_others) {
        flowgauge_testing::generated::check(&protos, proto, &scratch).unwrap();
    }
}
