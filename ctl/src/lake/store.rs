//! Files of a lake in an object store: S3, or a service with the same protocol.

use super::parquet::{ParquetInput, Spool};
use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Time limit of a request, which is retried once. After that the store counts as unavailable.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of concurrent requests for objects.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Prefix of the URLs of stores.
pub const SCHEME: &str = "s3://";

/// Location of a lake in an object store, such as `s3://bucket/lake`.
pub struct Store {
    url: String,
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
}

impl Store {
    /// Opens the store of a URL. The environment has its address and credentials:
    /// `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` and the others that `object_store` supports. No
    /// request is made yet.
    ///
    /// # Errors
    /// If the URL has no bucket, or the environment is invalid.
    pub fn open(url: &str) -> io::Result<Self> {
        // Fails only if a provider is installed already, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let path = url
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.split_once('/'))
            .map_or("", |(_, path)| path);
        let prefix = Path::parse(path.trim_end_matches('/')).map_err(io::Error::other)?;
        let client = ClientOptions::new()
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(REQUEST_TIMEOUT / 4);
        let retry = RetryConfig {
            max_retries: 1,
            retry_timeout: REQUEST_TIMEOUT,
            ..RetryConfig::default()
        };
        // The HTTP setting of the environment would otherwise be overridden.
        let client = match std::env::var("AWS_ALLOW_HTTP").as_deref() {
            Ok("true" | "1") => client.with_allow_http(true),
            _ => client,
        };
        let objects = AmazonS3Builder::from_env()
            .with_url(url)
            .with_client_options(client)
            .with_retry(retry)
            .build();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Store {
            url: url.trim_end_matches('/').to_owned(),
            objects: Arc::new(objects.map_err(failed)?),
            prefix,
            runtime,
        })
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Creates an object, which appears only when it is complete. An existing one is not replaced.
    /// Returns whether an object of this name and content exists now.
    pub(crate) fn create(&self, name: &str, bytes: Bytes) -> io::Result<bool> {
        let (path, options) = (self.path(name), PutOptions::from(PutMode::Create));
        let created = async {
            match self.objects.put_opts(&path, bytes.clone().into(), options).await {
                Ok(_) => Ok::<_, object_store::Error>(true),
                Err(object_store::Error::AlreadyExists { .. }) => {
                    Ok(self.objects.get(&path).await?.bytes().await? == bytes)
                }
                Err(error) => Err(error),
            }
        };
        self.runtime.block_on(created).map_err(failed)
    }

    /// Downloads objects by name, several at a time.
    pub(crate) fn fetch(&self, names: &[String]) -> io::Result<Vec<ParquetInput>> {
        let mut spool = Spool::new()?;
        let mut places = vec![(0, 0); names.len()];
        self.runtime.block_on(async {
            let (mut left, mut requests) = (names.iter().enumerate(), JoinSet::new());
            loop {
                while requests.len() < MAX_CONCURRENT_REQUESTS
                    && let Some((index, name)) = left.next()
                {
                    let (objects, path, name) =
                        (Arc::clone(&self.objects), self.path(name), name.clone());
                    let bytes = async move { objects.get(&path).await?.bytes().await };
                    requests.spawn(async move {
                        (
                            index,
                            bytes.await.map_err(|error| {
                                io::Error::other(format!("{name}: {}", error_chain(&error)))
                            }),
                        )
                    });
                }
                let Some(request) = requests.join_next().await else {
                    return Ok::<_, io::Error>(());
                };
                let (index, bytes) = request.map_err(io::Error::other)?;
                if let Some(place) = places.get_mut(index) {
                    *place = spool.add(&bytes?)?;
                }
            }
        })?;
        let all = spool.finish();
        Ok(places.into_iter().map(|(start, length)| all.part(start, length)).collect())
    }

    /// Writes an object, and replaces an existing one.
    pub(crate) fn replace(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let put = self.runtime.block_on(self.objects.put(&self.path(name), bytes.into()));
        put.map(|_| ()).map_err(failed)
    }

    /// Removes an object if it exists.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match self.runtime.block_on(self.objects.delete(&self.path(name))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the names of all Parquet files, sorted. Directories that are not wanted are
    /// not listed.
    pub(crate) fn names(&self, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut left = vec![self.prefix.clone()];
        let mut names = Vec::new();
        let beyond = self.prefix.parts().count();
        while let Some(directory) = left.pop() {
            let found = self.runtime.block_on(self.objects.list_with_delimiter(Some(&directory)));
            let found = found.map_err(failed)?;
            let name = |path: &Path| {
                path.parts()
                    .skip(beyond)
                    .map(|part| part.as_ref().to_owned())
                    .collect::<Vec<_>>()
                    .join("/")
            };
            left.extend(
                found.common_prefixes.into_iter().filter(|directory| is_wanted(&name(directory))),
            );
            let paths = found.objects.into_iter().map(|object| name(&object.location));
            names.extend(paths.filter(|name| name.ends_with(".parquet")));
        }
        names.sort();
        Ok(names)
    }
}

fn failed(error: object_store::Error) -> io::Error {
    io::Error::other(error_chain(&error))
}

/// Formats an error with its causes, which have the details, on one line.
fn error_chain(error: &object_store::Error) -> String {
    let mut chain = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !chain.contains(&more) {
            chain = format!("{chain}: {more}");
        }
        cause = error.source();
    }
    chain.split_whitespace().collect::<Vec<_>>().join(" ")
}
