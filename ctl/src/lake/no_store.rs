//! Object stores, where they are not built in.

use super::parquet::Input;
use bytes::Bytes;
use std::io;

/// What URLs of stores begin with.
pub const SCHEME: &str = "s3://";

/// A store; there is none.
pub enum Store {}

/// What became of an object that was to be new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is there now.
    New,
}

impl Store {
    /// Says what to do.
    ///
    /// # Errors
    /// Always.
    pub fn open(url: &str) -> io::Result<Self> {
        Err(io::Error::other(format!(
            "{url} is an object store, and this program was built without: give a directory, or build with --features object-store"
        )))
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        match *self {}
    }

    pub(crate) fn put(&self, _: &str, _: Bytes) -> io::Result<Put> {
        match *self {}
    }

    pub(crate) fn get(&self, _: &str) -> io::Result<Bytes> {
        match *self {}
    }

    pub(crate) fn fetch(&self, _: &[String]) -> io::Result<Vec<Input>> {
        match *self {}
    }

    pub(crate) fn replace(&self, _: &str, _: Bytes) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn remove(&self, _: &str) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn names(&self, _: &str, _: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        match *self {}
    }
}
