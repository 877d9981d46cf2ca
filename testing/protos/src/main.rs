//! Compares the committed code of gRPC services and Prometheus' messages with what their `.proto`
//! files generate, so that building flowgauge needs no generator. With `--write` it writes the code.
//!
//! Next to a `.proto` are `.rs`, the code for tonic and prost (messages, client and server), and
//! `.descriptors`, if it exists, the data for reflection.

use prost::Message;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Directories of protocols, and those in them that have code.
const PROTOS: [(&str, &[&str]); 2] = [
    (
        "ctl/proto",
        &[
            "flowgauge/v1/agent.proto",
            "io/prometheus/client/metrics.proto",
            "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
        ],
    ),
    ("p4/bfruntime/proto", &["bfruntime.proto"]),
];

fn main() -> Result<(), Box<dyn Error>> {
    let write = std::env::args().any(|argument| argument == "--write");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/protos/generated");
    fs::create_dir_all(&scratch)?;
    for (directory, protos) in PROTOS {
        for proto in protos {
            check(&root.join(directory), proto, &scratch, write)?;
        }
    }
    Ok(())
}

fn check(directory: &Path, proto: &str, scratch: &Path, write: bool) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile([proto], [directory])?;
    let mut files = descriptors.file.iter();
    let compiled = files.find(|file| file.name() == proto);
    let package = compiled.ok_or("the compiler left the file out")?.package().to_owned();
    let path = directory.join(proto);
    let reflection = path.with_extension("descriptors");
    if reflection.exists() {
        same(&reflection, &descriptors.encode_to_vec(), write)?;
    }
    tonic_prost_build::configure().out_dir(scratch).compile_fds(descriptors)?;
    same(&path.with_extension("rs"), &fs::read(scratch.join(format!("{package}.rs")))?, write)
}

fn same(committed: &Path, generated: &[u8], write: bool) -> Result<(), Box<dyn Error>> {
    if write {
        fs::write(committed, generated)?;
    }
    if fs::read(committed)? == generated {
        return Ok(());
    }
    Err(format!("{} is not what its .proto generates; --write writes it", committed.display())
        .into())
}
