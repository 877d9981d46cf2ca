//! Code that is generated from a `.proto` and committed, so that nobody who builds flowgauge builds a generator first.

use prost::Message;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Set to 1, it writes what is expected.
pub const BLESS: &str = "FLOWGAUGE_BLESS";

/// Checks that `code` is what `proto`, a file of the folder `protos`, generates for tonic and prost: messages, client and server. The compiler for
/// protocol buffers is written in Rust. With [`BLESS`] it writes `code`.
///
/// # Errors
/// If the `.proto` does not compile, a file cannot be read or written, or `code` is something else.
pub fn check(protos: &Path, proto: &str, code: &Path, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile([proto], [protos])?;
    let package =
        descriptors.file.iter().find(|file| file.name() == proto).ok_or("the compiler left the file out")?.package().to_owned();
    fs::create_dir_all(scratch)?;
    tonic_prost_build::configure().out_dir(scratch).compile_fds(descriptors)?;
    same(code, &fs::read(scratch.join(format!("{package}.rs")))?, proto)
}

/// The same of a file of descriptors, with which a server tells what it serves.
///
/// # Errors
/// As [`check`].
pub fn check_descriptors(protos: &Path, proto: &str, descriptors: &Path) -> Result<(), Box<dyn Error>> {
    same(descriptors, &protox::compile([proto], [protos])?.encode_to_vec(), proto)
}

fn same(committed: &Path, generated: &[u8], proto: &str) -> Result<(), Box<dyn Error>> {
    if std::env::var(BLESS).is_ok_and(|value| value == "1") {
        fs::write(committed, generated)?;
    }
    if fs::read(committed).unwrap_or_default() == generated {
        Ok(())
    } else {
        Err(format!("{} is not what {proto} generates; {BLESS}=1 writes it", committed.display()).into())
    }
}
