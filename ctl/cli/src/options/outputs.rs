//! Options of outputs. They apply to the whole process; a source cannot override them.

use crate::error::Failure;
use crate::run_config::{Encryption, LakeOutput, Listen, Otlp, Outputs};
use crate::value::{self, Lake};
use clap::Args;
use flowgauge_ctl::lake;
use flowgauge_ctl::output::Format;
use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often metrics are sent unless it is said.
const USUAL_EXPORTS: Duration = Duration::from_secs(10);
/// The variable that names this machine in results: of containers, whose own names say nothing.
const HOST: &str = "FLOWGAUGE_HOST";

#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct OutputOptions {
    /// Also write every delay to this new file, one JSON object a line
    ///
    /// Each says its kind, when the answer came, how long it took, how many requests it stands for,
    /// and between which ends, as hashes. A line a window says how many there were, and how many
    /// are missing because they came faster than they could be written. A switch does it if its
    /// program was compiled with -DFLOWGAUGE_DELAY_SAMPLES=1.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) delay_samples: Option<PathBuf>,

    /// How results are printed: table, csv, json (one object a line) [default: table]
    #[arg(long, value_name = "FORMAT", value_parser = value::format, help_heading = "Output")]
    pub(crate) format: Option<Format>,

    /// Show the table's times of day as UTC, and not as local time
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) utc: Option<bool>,

    /// Also write results to new CSV and JSON-lines files in this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,

    /// Also write windows, with their sketches, to Parquet files in this directory, for
    /// `flowgauge merge`, Spark, ClickHouse and others
    ///
    /// A row a window and place, partitioned by date and hour. A crash loses the window that is
    /// being written; what cannot be written waits, and what is lost is told. With s3://BUCKET/PATH
    /// files go to an object store when they are complete; the environment says where it is and who
    /// asks (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION).
    #[arg(long, value_name = "DIR|URL", value_parser = value::lake, help_heading = "Output")]
    pub(crate) lake: Option<Lake>,

    /// Where files of a --lake in an object store are until it has them [default: lake in
    /// STATE_DIRECTORY, else /var/lib/flowgauge/lake]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) lake_buffer: Option<PathBuf>,

    /// How much of the disk they may take; beyond it the oldest are given up, and told [default:
    /// 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes, help_heading = "Output")]
    pub(crate) lake_buffer_size: Option<u64>,

    /// How long a file of --lake goes on; engines see it when it is complete [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Output")]
    pub(crate) lake_every: Option<Duration>,

    /// Serve a page that shows windows as they end, Prometheus metrics (/metrics) and whether the
    /// run is well (/health) and counts everything (/ready) at this address
    ///
    /// An address and port, such as 127.0.0.1:9420, or a port of this machine alone. An address
    /// that others can reach takes --listen-cert, --listen-key and --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen, help_heading = "Output")]
    pub(crate) listen: Option<SocketAddr>,

    /// Tell windows, samples, configuration and status over gRPC at this address, with reflection
    /// and health
    ///
    /// An address and port, such as 127.0.0.1:9421, or a port of this machine alone. An address
    /// that others can reach takes --listen-cert, --listen-key and --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen, help_heading = "Output")]
    pub(crate) grpc: Option<SocketAddr>,

    /// Encrypt what --listen and --grpc serve, with this certificate and those that vouch for it
    /// (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) listen_cert: Option<PathBuf>,

    /// The certificate's private key (PEM), which not everyone may read
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) listen_key: Option<PathBuf>,

    /// Answer only who tells the token in this file: as a bearer token, or in a browser as the
    /// password of any user
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) listen_token_file: Option<PathBuf>,

    /// Send metrics to an OpenTelemetry collector (OTLP over gRPC), such as http://127.0.0.1:4317
    ///
    /// The same metrics as those of /metrics. An address that begins with https:// takes --otlp-ca.
    #[arg(long, value_name = "URL", value_parser = value::collector, help_heading = "Output")]
    pub(crate) otlp: Option<String>,

    /// How often [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = value::duration, help_heading = "Output")]
    pub(crate) otlp_every: Option<Duration>,

    /// Encrypt what is sent, and trust collectors with certificates of this authority (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) otlp_ca: Option<PathBuf>,

    /// Tell the collector the token in this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) otlp_token_file: Option<PathBuf>,

    /// The name of this machine in results [default: FLOWGAUGE_HOST in the environment, or the
    /// host's name]
    #[arg(long, value_name = "NAME", value_parser = value::host, help_heading = "Output")]
    pub(crate) host: Option<String>,

    /// Write registers and sketches to the JSON lines of windows, in base64 where they are bytes
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = "Output")]
    pub(crate) sketches: Option<bool>,

    /// Write every exchange with the dataplane to this file, one JSON object a line, for a bug
    /// report
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
}

impl OutputOptions {
    /// Returns a contradiction among the options of the lake, if there is one.
    pub(super) fn lake_problem(&self) -> Option<&'static str> {
        if self.lake_every.is_some() && self.lake.is_none() {
            Some("--lake-every is for --lake; add it, or leave it out")
        } else if !matches!(self.lake, Some(Lake::Store(_)))
            && (self.lake_buffer.is_some() || self.lake_buffer_size.is_some())
        {
            Some(
                "--lake-buffer is for a --lake in an object store, as in --lake s3://bucket/lake; leave it out",
            )
        } else {
            None
        }
    }

    /// Returns a contradiction among the other options, if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        self.listen_problem().or_else(|| self.otlp_problem())
    }

    /// Why this may not listen where it is asked to, if it may not.
    fn listen_problem(&self) -> Option<String> {
        let OutputOptions { listen, grpc, listen_cert, listen_key, listen_token_file, .. } = self;
        let secrets = listen_cert.is_some() || listen_key.is_some() || listen_token_file.is_some();
        let addresses = [("--listen", listen), ("--grpc", grpc)];
        let mut addresses = addresses
            .into_iter()
            .filter_map(|(option, address)| Some((option, address.as_ref()?)))
            .peekable();
        if secrets && addresses.peek().is_none() {
            let problem = "--listen-cert, --listen-key and --listen-token-file are for --listen and --grpc; add one, or leave them out";
            return Some(problem.to_owned());
        }
        if listen_cert.is_some() != listen_key.is_some() {
            return Some("--listen-cert and --listen-key go together; give both".to_owned());
        }
        let is_safe = listen_cert.is_some() && listen_token_file.is_some();
        let (option, address) =
            addresses.find(|(_, address)| !address.ip().is_loopback() && !is_safe)?;
        Some(format!(
            "{option} {} can be reached by others: give a certificate (--listen-cert, --listen-key), so that nobody else reads what is told, and a \
             token (--listen-token-file), so that only who knows it may ask; or listen at 127.0.0.1",
            address.ip()
        ))
    }

    /// Why metrics cannot be sent as asked, if they cannot.
    fn otlp_problem(&self) -> Option<String> {
        let OutputOptions { otlp, otlp_every, otlp_ca, otlp_token_file, .. } = self;
        let problem = match otlp {
            None if otlp_every.is_some() || otlp_ca.is_some() || otlp_token_file.is_some() => {
                "--otlp-every, --otlp-ca and --otlp-token-file are for --otlp; add it, or leave them out"
            }
            Some(url) if url.starts_with("https://") != otlp_ca.is_some() => {
                "an --otlp address that begins with https:// takes --otlp-ca, and no other does"
            }
            Some(_) if otlp_token_file.is_some() && otlp_ca.is_none() => {
                "a token that is sent without encryption is none; give --otlp an address that begins with https://, and --otlp-ca"
            }
            _ => return None,
        };
        Some(problem.to_owned())
    }

    pub(super) fn resolve(&self) -> Result<Outputs, Failure> {
        let host =
            match self.host.clone().or_else(|| env::var(HOST).ok().filter(|host| !host.is_empty()))
            {
                Some(host) => value::host(&host)
                    .map_err(|problem| Failure::Usage(format!("{HOST}: {problem}")))?,
                None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            };
        let lake = self.lake.clone().map(|lake| {
            let (directory, store) = match lake {
                Lake::Directory(directory) => (directory, None),
                Lake::Store(url) => {
                    (self.lake_buffer.clone().unwrap_or_else(usual_buffer), Some(url))
                }
            };
            LakeOutput {
                directory,
                store,
                buffer: self.lake_buffer_size.unwrap_or(lake::Settings::BUFFER),
                longest: self.lake_every.unwrap_or(lake::Settings::LONGEST),
            }
        });
        let encryption = self.listen_cert.clone().zip(self.listen_key.clone());
        Ok(Outputs {
            format: Some(self.format.unwrap_or_default()),
            utc: self.utc.unwrap_or_default(),
            sketches: self.sketches.unwrap_or_default(),
            directory: self.out.clone(),
            lake,
            listen: self.listen.map(|address| Listen { address, anywhere: false }),
            grpc: self.grpc,
            encryption: encryption.map(|(certificate, key)| Encryption { certificate, key }),
            token: self.listen_token_file.clone(),
            otlp: self.otlp.clone().map(|url| Otlp {
                url,
                every: self.otlp_every.unwrap_or(USUAL_EXPORTS),
                authority: self.otlp_ca.clone(),
                token: self.otlp_token_file.clone(),
            }),
            host: host.into(),
            exchanges: self.record.clone(),
            delay_samples: self.delay_samples.clone(),
        })
    }
}

/// Where files wait for an object store: what systemd made for the unit, if it did.
fn usual_buffer() -> PathBuf {
    env::var_os("STATE_DIRECTORY")
        .map_or_else(|| "/var/lib/flowgauge".into(), PathBuf::from)
        .join("lake")
}
