//! Generates the gRPC service that a run serves from its `.proto`, with a compiler written in Rust: nobody needs `protoc`.

use prost::Message;
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["flowgauge/v1/agent.proto"], ["proto"])?;
    // What reflection tells clients.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("agent.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
