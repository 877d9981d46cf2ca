//! Options of outputs. They apply to the whole process; a source cannot override them.

use crate::config::value::{self, LakeLocation};
use crate::error::{CommandFailure, refuse};
use clap::Args;
#[cfg(feature = "lake")]
use flowgauge_ctl::lake::Settings;
use flowgauge_ctl::names::NameSources;
use flowgauge_ctl::output::Format;
use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default export interval of metrics.
const DEFAULT_EXPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Variable with the name of this machine in results. For containers, whose own names are random.
const HOST_VARIABLE: &str = "FLOWGAUGE_HOST";

#[derive(Args, Clone, Debug, Default, PartialEq)]
#[group(skip)]
pub(crate) struct OutputOptions {
    /// Output format: table, csv, json (one object per line) [default: table]
    #[arg(long, value_name = "FORMAT", value_parser = value::format, help_heading = "Output")]
    pub(crate) format: Option<Format>,

    /// Also write results to new CSV and JSON-lines files in this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,

    /// Name addresses in the table, on the page and in reports: hosts (/etc/hosts), dns (asked in
    /// the background) and CSV files of prefixes, separated by commas
    ///
    /// A line of a file is a prefix and any columns, such as 192.0.2.0/24,site,tenant,64500; the
    /// first line may name the columns (prefix,site,tenant,as). The longest prefix counts. No
    /// window waits for DNS: an address has its name from a later window on. Metrics, JSON and CSV
    /// have addresses alone.
    #[arg(long, value_name = "SOURCES", help_heading = "Output")]
    pub(crate) names: Option<NameSources>,

    /// Show times of day in the table as UTC, not local time
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) utc: Option<bool>,

    /// Leave out the CSV header, to append to a file that has one
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) no_csv_header: Option<bool>,

    /// Also write every delay to this new file, one JSON object per line
    ///
    /// Each object has the kind, when the answer arrived, how long it took, how many requests it
    /// represents, and hashes of its ends. One line per window has the number of delays, and how
    /// many are missing because they arrived faster than they could be written. A switch supports
    /// this if its program was compiled with -DFLOWGAUGE_DELAY_SAMPLES=1.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) delay_samples: Option<PathBuf>,

    /// Write registers and sketches to the JSON lines of windows, binary ones in base64
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) sketches: Option<bool>,

    /// Name of this machine in results [default: FLOWGAUGE_HOST in the environment, else the host
    /// name]
    #[arg(long, value_name = "NAME", value_parser = value::host, help_heading = "Output")]
    pub(crate) host: Option<String>,

    /// Record all calls to the dataplane in this file, one JSON object per line, for a bug report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,

    /// Serve a live page, Prometheus metrics (/metrics), health (/health) and readiness (/ready) on
    /// this address
    ///
    /// An address and port, such as 127.0.0.1:9420, or a port on localhost. An address that other
    /// machines can reach requires --listen-cert, --listen-key and --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen, help_heading = "Watching")]
    pub(crate) listen: Option<SocketAddr>,

    /// Whether to take any other port if that of `listen` is in use.
    #[arg(skip)]
    pub(crate) listen_anywhere: bool,

    /// TLS certificate chain for --listen and --grpc (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) listen_cert: Option<PathBuf>,

    /// TLS private key for --listen and --grpc (PEM); must not be world-readable
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) listen_key: Option<PathBuf>,

    /// Require the bearer token in this file (browsers: any user, token as password)
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) listen_token_file: Option<PathBuf>,

    /// Serve windows, samples, configuration and status over gRPC on this address, with reflection
    /// and health checks
    ///
    /// An address and port, such as 127.0.0.1:9421, or a port on localhost. An address that other
    /// machines can reach requires --listen-cert, --listen-key and --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen, help_heading = "Watching")]
    pub(crate) grpc: Option<SocketAddr>,

    /// Send metrics to an OpenTelemetry collector (OTLP over gRPC), such as http://127.0.0.1:4317
    ///
    /// Sends the metrics of /metrics. An https:// address requires --otlp-ca.
    #[arg(long, value_name = "URL", value_parser = value::collector, help_heading = "Watching")]
    pub(crate) otlp: Option<String>,

    /// Export interval of --otlp [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Watching")]
    pub(crate) otlp_every: Option<Duration>,

    /// Encrypt the export, and trust collectors with certificates of this authority (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) otlp_ca: Option<PathBuf>,

    /// Send the bearer token in this file to the collector
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(crate) otlp_token_file: Option<PathBuf>,

    /// Also write windows with their sketches to Parquet files in this directory or object store,
    /// for `flowgauge merge`, Spark, ClickHouse and others
    ///
    /// Writes one row per window and interface, partitioned by date and hour. A crash loses the
    /// window being written; rows that cannot be written are buffered, and losses are reported.
    /// With s3://BUCKET/PATH files are uploaded to an object store when they are complete; the
    /// environment has its address and credentials (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION).
    #[arg(long, value_name = "DIR|URL", value_parser = value::lake, help_heading = "Lake")]
    pub(crate) lake: Option<LakeLocation>,

    /// Local buffer for --lake s3://… uploads [default: lake in STATE_DIRECTORY, else
    /// /var/lib/flowgauge/lake]
    #[arg(long, value_name = "DIR", help_heading = "Lake")]
    pub(crate) lake_buffer: Option<PathBuf>,

    /// Maximum size of the upload buffer; the oldest files are dropped (with a warning) beyond it
    /// [default: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes, help_heading = "Lake")]
    pub(crate) lake_buffer_size: Option<u64>,

    /// Maximum time span of one Parquet file; a file becomes visible when it is complete [default:
    /// 1h]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Lake")]
    pub(crate) lake_every: Option<Duration>,

    /// Sign each row of --lake with the private key in this file, for merge --trust; must not be
    /// world-readable
    ///
    /// `flowgauge lake key FILE` creates a key, and prints its public part for the file of --trust.
    /// Each host needs its own key.
    #[arg(long, value_name = "FILE", help_heading = "Lake")]
    pub(crate) lake_key: Option<PathBuf>,
}

/// Returns the name of this machine in results: the given one, that of the environment, or the host
/// name.
pub(crate) fn host(given: Option<String>) -> Result<String, CommandFailure> {
    match given.or_else(|| env::var(HOST_VARIABLE).ok().filter(|host| !host.is_empty())) {
        Some(host) => value::host(&host)
            .map_err(|problem| CommandFailure::Usage(format!("{HOST_VARIABLE}: {problem}"))),
        None => Ok(rustix::system::uname().nodename().to_string_lossy().into_owned()),
    }
}

impl OutputOptions {
    /// Rejects contradictory options, and outputs that this build does not have. `has_windows`:
    /// whether the run has windows to store.
    pub(super) fn check(&self, has_windows: bool) -> Result<(), CommandFailure> {
        if self.lake_every.is_some() && self.lake.is_none() {
            return refuse("--lake-every is for --lake; add --lake, or remove --lake-every");
        }
        if self.lake_key.is_some() && self.lake.is_none() {
            return refuse("--lake-key is for --lake; add --lake, or remove --lake-key");
        }
        let has_buffer = self.lake_buffer.is_some() || self.lake_buffer_size.is_some();
        if has_buffer && !matches!(self.lake, Some(LakeLocation::Store(_))) {
            return refuse(
                "--lake-buffer is for a --lake in an object store, such as --lake s3://bucket/lake; remove it",
            );
        }
        if self.lake.is_some() && !has_windows {
            return refuse(
                "--lake stores windows, which --staggered does not have; remove one of them",
            );
        }
        if self.no_csv_header == Some(true) && self.format != Some(Format::Csv) {
            return refuse("--no-csv-header is for --format csv; leave it out");
        }
        self.check_built()?;
        self.check_servers()?;
        self.check_otlp()
    }

    /// Rejects options with which the servers must not listen.
    fn check_servers(&self) -> Result<(), CommandFailure> {
        let OutputOptions { listen, grpc, listen_cert, listen_key, listen_token_file, .. } = self;
        let secrets = listen_cert.is_some() || listen_key.is_some() || listen_token_file.is_some();
        if secrets && listen.is_none() && grpc.is_none() {
            return refuse(
                "--listen-cert, --listen-key and --listen-token-file are for --listen and --grpc; add one of these, or remove them",
            );
        }
        if listen_cert.is_some() != listen_key.is_some() {
            return refuse("--listen-cert and --listen-key must be given together");
        }
        let is_safe = listen_cert.is_some() && listen_token_file.is_some();
        for (option, address) in [("--listen", listen), ("--grpc", grpc)] {
            if let Some(address) = address.filter(|it| !it.ip().is_loopback() && !is_safe) {
                return refuse(format!(
                    "{option} {} is reachable by other machines: encrypt with --listen-cert and --listen-key and require a token with \
                     --listen-token-file, or listen on 127.0.0.1",
                    address.ip()
                ));
            }
        }
        Ok(())
    }

    /// Rejects options with which metrics cannot be exported.
    fn check_otlp(&self) -> Result<(), CommandFailure> {
        let OutputOptions { otlp, otlp_every, otlp_ca, otlp_token_file, .. } = self;
        match otlp {
            None if otlp_every.is_some() || otlp_ca.is_some() || otlp_token_file.is_some() => {
                refuse(
                    "--otlp-every, --otlp-ca and --otlp-token-file are for --otlp; add it, or remove them",
                )
            }
            Some(url) if url.starts_with("https://") != otlp_ca.is_some() => refuse(
                "--otlp-ca is required for an https:// address of --otlp, and invalid for any other",
            ),
            Some(_) if otlp_token_file.is_some() && otlp_ca.is_none() => refuse(
                "--otlp-token-file requires encryption; give --otlp an https:// address, and --otlp-ca",
            ),
            _ => Ok(()),
        }
    }

    /// Returns these options with their defaults.
    pub(super) fn resolve(self) -> Result<Self, CommandFailure> {
        Ok(OutputOptions {
            format: Some(self.format.unwrap_or_default()),
            names: Some(self.names.unwrap_or_default()),
            utc: Some(self.utc.unwrap_or_default()),
            no_csv_header: Some(self.no_csv_header.unwrap_or_default()),
            sketches: Some(self.sketches.unwrap_or_default()),
            host: Some(host(self.host)?),
            otlp_every: Some(self.otlp_every.unwrap_or(DEFAULT_EXPORT_INTERVAL)),
            lake_buffer: Some(self.lake_buffer.unwrap_or_else(default_buffer)),
            #[cfg(feature = "lake")]
            lake_buffer_size: Some(self.lake_buffer_size.unwrap_or(Settings::BUFFER)),
            #[cfg(feature = "lake")]
            lake_every: Some(self.lake_every.unwrap_or(Settings::LONGEST)),
            ..self
        })
    }

    /// Rejects an output that this build does not have.
    fn check_built(&self) -> Result<(), CommandFailure> {
        let outputs = [
            ("--lake", "lake", cfg!(feature = "lake"), self.lake.is_some()),
            ("--listen", "serve", cfg!(feature = "serve"), self.listen.is_some()),
            ("--grpc", "serve", cfg!(feature = "serve"), self.grpc.is_some()),
            ("--otlp", "serve", cfg!(feature = "serve"), self.otlp.is_some()),
        ];
        let missing = outputs.into_iter().find(|(.., is_built, is_given)| *is_given && !is_built);
        missing.map_or(Ok(()), |(option, feature, ..)| {
            refuse(format!("{option}: {}", value::not_built(feature)))
        })
    }
}

/// Returns the default directory of the upload buffer, which systemd creates for a unit.
fn default_buffer() -> PathBuf {
    env::var_os("STATE_DIRECTORY")
        .map_or_else(|| "/var/lib/flowgauge".into(), PathBuf::from)
        .join("lake")
}
