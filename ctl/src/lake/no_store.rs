//! Placeholder for object stores in builds without them.

use super::parquet::ParquetInput;
use bytes::Bytes;
use std::io;

/// Prefix of the URLs of stores.
pub const SCHEME: &str = "s3://";

/// A store, which cannot exist in this build.
pub enum Store {}

impl Store {
    /// Fails with an explanation.
    ///
    /// # Errors
    /// Always.
    pub fn open(url: &str) -> io::Result<Self> {
        Err(io::Error::other(format!(
            "{url} is an object store, and this program was built without: give a directory, or build with --features object-store"
        )))
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &str {
        match *self {}
    }

    pub(crate) fn create(&self, _: &str, _: Bytes) -> io::Result<bool> {
        match *self {}
    }

    pub(crate) fn fetch(&self, _: &[String]) -> io::Result<Vec<ParquetInput>> {
        match *self {}
    }

    pub(crate) fn replace(&self, _: &str, _: Bytes) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn remove(&self, _: &str) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn names(&self, _: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        match *self {}
    }
}
