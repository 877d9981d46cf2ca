//! Check of the code that is generated from `.proto` files and committed, so that building
//! flowgauge needs no code generator.

use prost::Message;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Variable that makes the check write the expected files if it is 1.
pub const BLESS: &str = "TEST_BLESS";

/// Checks the committed files next to `proto`, a file in the directory `protos`: `.rs` has the code
/// for tonic and prost (messages, client and server), and `.descriptors`, if it exists, the data
/// for reflection. The compiler for protocol buffers is written in Rust. With [`BLESS`] it writes
/// the files.
///
/// # Errors
/// If the `.proto` does not compile, a file cannot be read or written, or the committed files
/// differ.
pub fn check(protos: &Path, proto: &str, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile([proto], [protos])?;
    let package = descriptors
        .file
        .iter()
        .find(|file| file.name() == proto)
        .ok_or("the compiler left the file out")?
        .package()
        .to_owned();
    let beside = protos.join(proto);
    let told = beside.with_extension("descriptors");
    if told.exists() {
        same(&told, &descriptors.encode_to_vec(), proto)?;
    }
    fs::create_dir_all(scratch)?;
    tonic_prost_build::configure().out_dir(scratch).compile_fds(descriptors)?;
    same(&beside.with_extension("rs"), &fs::read(scratch.join(format!("{package}.rs")))?, proto)
}

fn same(committed: &Path, generated: &[u8], proto: &str) -> Result<(), Box<dyn Error>> {
    if std::env::var(BLESS).is_ok_and(|value| value == "1") {
        fs::write(committed, generated)?;
    }
    if fs::read(committed).unwrap_or_default() == generated {
        Ok(())
    } else {
        Err(format!("{} is not what {proto} generates; {BLESS}=1 writes it", committed.display())
            .into())
    }
}
