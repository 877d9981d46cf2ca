//! Export of the metrics of `/metrics` to an OpenTelemetry collector (OTLP over gRPC).
//!
//! A thread of its own takes the metrics at intervals and sends them, so that no window waits for
//! the collector. An export that fails temporarily is retried with exponential backoff. Pending
//! exports are bounded: the oldest is dropped for a new one, and drops are counted and logged.
//!
//! [`Collector`] is the address with its credentials, [`Service`] the running thread; `points.rs`
//! converts Prometheus metrics to OTLP messages.

mod points;

use crate::clock::unix_ns;
use crate::output::Metrics;
use crate::serve::{Service, Token, drop_capabilities};
use crate::text::counted;
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use points::PointTimes;
use proto::metrics_service_client::MetricsServiceClient;
use proto::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};

/// Generated messages and client of `opentelemetry.proto.collector.metrics.v1.MetricsService`.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the .proto has the comments"
)]
mod proto {
    include!("../../proto/opentelemetry/proto/collector/metrics/v1/metrics_service.rs");
}

/// Maximum number of pending exports.
const MAX_PENDING: usize = 32;
/// Timeout of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// First pause before a failed export is retried. Each pause is twice the one before, up to the
/// maximum.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Time for which the end of a run waits for pending exports.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Maximum size of a collector's answer, in bytes.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Address of a collector, with the credentials for it.
#[derive(Clone)]
pub struct Collector {
    endpoint: Endpoint,
    /// Address as shown in messages.
    name: String,
    token: Option<Token>,
}

impl Collector {
    /// Creates a collector at an address such as `http://127.0.0.1:4317`. `https://` requires
    /// `authority`, the certificate of the authority that signed the collector's. A token is sent
    /// with each export.
    ///
    /// # Errors
    /// If the address is invalid, the certificate cannot be read, or one of `https://` and
    /// `authority` is given without the other.
    pub fn new(address: &str, authority: Option<&Path>, token: Option<Token>) -> io::Result<Self> {
        let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
        let endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(|error| invalid(format!("{address}: {error}")))?;
        let is_encrypted = address.starts_with("https://");
        let endpoint = match authority {
            Some(path) if is_encrypted => {
                let pem = files::read(path, MAX_SETTINGS_BYTES).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
                endpoint
                    .tls_config(tls)
                    .map_err(|error| invalid(format!("{}: {error}", path.display())))?
            }
            None if !is_encrypted => endpoint,
            _ => {
                return Err(invalid(
                    "a certificate is for an address that begins with https://, and such an address takes one".to_owned(),
                ));
            }
        };
        let endpoint = endpoint
            .connect_timeout(EXPORT_TIMEOUT)
            .user_agent(concat!("flowgauge/", env!("CARGO_PKG_VERSION")));
        let endpoint = endpoint.map_err(|error| invalid(error.to_string()))?;
        Ok(Collector { endpoint, name: address.to_owned(), token })
    }
}

/// Attributes of the sender, which OpenTelemetry calls a resource: names and values.
pub type Resource = Vec<(&'static str, String)>;

impl Service {
    /// Starts to export at this interval, and once more when this is dropped. Exports that are
    /// dropped for good are reported once, at the end.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start_otlp(
        collector: Collector,
        every: Duration,
        resource: Resource,
        metrics: Metrics,
        report: impl Fn(String) + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(());
        for outcome in [DELIVERED, LOST] {
            count(&metrics, outcome, 0);
        }
        let export = Export {
            collector,
            resource,
            metrics,
            start_ns: unix_ns(),
            pending: VecDeque::new(),
            last: 0,
            lost: 0,
            missed: None,
            rejected: 0,
        };
        Service::spawn("otlp", stop, move || {
            drop_capabilities();
            if let Some(problem) = runtime.block_on(export.run(every, stopped)) {
                report(problem);
            }
        })
    }
}

const DELIVERED: &str = "delivered";
const LOST: &str = "lost";

fn count(metrics: &Metrics, outcome: &str, more: u64) {
    let help = "exports of metrics to a collector of OpenTelemetry";
    metrics.count("otlp_exports_total", help, vec![("outcome", outcome.to_owned())], more);
}

/// Outcome of an export.
type Outcome = Result<Response<ExportMetricsServiceResponse>, Status>;
/// Export in flight, with its number.
type Sending = Pin<Box<dyn Future<Output = (u64, Outcome)>>>;

struct Export {
    collector: Collector,
    resource: Resource,
    metrics: Metrics,
    start_ns: u64,
    /// Pending exports with their numbers, the oldest first. One in flight is pending.
    pending: VecDeque<(u64, ExportMetricsServiceRequest)>,
    /// Number of the last export.
    last: u64,
    /// Exports dropped for good.
    lost: u64,
    /// Exports dropped since the collector stopped answering; logged when it answers again.
    missed: Option<u64>,
    /// Points that the collector rejected in exports that it accepted.
    rejected: i64,
}

impl Export {
    /// Exports until stopped. Returns a message about dropped exports, if there are any.
    async fn run(mut self, every: Duration, mut stopped: watch::Receiver<()>) -> Option<String> {
        let client = MetricsServiceClient::new(self.collector.endpoint.connect_lazy())
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // Random pauses keep agents from reconnecting to a restarted collector all at once.
        let seed = unix_ns() ^ u64::from(std::process::id());
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let first_pause = every.min(FIRST_PAUSE);
        let (mut pause, mut resume) = (first_pause, Instant::now());
        let (mut sending, mut deadline): (Option<Sending>, Option<Instant>) = (None, None);
        while deadline.is_none() || !self.pending.is_empty() {
            tokio::select! {
                _ = ticks.tick(), if deadline.is_none() => self.take(),
                _ = stopped.changed(), if deadline.is_none() => {
                    self.take();
                    deadline = Some(Instant::now() + SHUTDOWN_GRACE);
                }
                () = sleep_until(deadline.unwrap_or(resume)), if deadline.is_some() => break,
                () = sleep_until(resume), if sending.is_none() && !self.pending.is_empty() => {
                    sending = self.sending(&client);
                }
                (number, outcome) = sent(&mut sending) => {
                    sending = None;
                    let is_final = !outcome.as_ref().err().is_some_and(is_temporary);
                    // The export may have been dropped for a newer one in the meantime, and counted.
                    let is_pending = self.pending.front().is_some_and(|(first, _)| *first == number);
                    if is_final && is_pending {
                        self.pending.pop_front();
                    }
                    match outcome {
                        Ok(answer) => {
                            self.delivered(&answer.into_inner());
                            pause = first_pause;
                        }
                        Err(status) => {
                            self.failed(&status, is_final);
                            if is_final && is_pending {
                                self.lose();
                            }
                            if !is_final {
                                let share = random.random_range(0.5..1.0);
                                resume = Instant::now() + pause.mul_f64(share);
                                pause = (pause * 2).min(MAX_PAUSE);
                            }
                        }
                    }
                }
            }
        }
        let (lost, rejected) = (self.lost + self.pending.len() as u64, self.rejected);
        let name = &self.collector.name;
        match (lost, rejected) {
            (0, 0) => None,
            (0, rejected) => {
                Some(format!("{name} refused {}", counted(rejected.unsigned_abs(), "metric point")))
            }
            (lost, _) => Some(format!(
                "{} of metrics did not reach {name}, or were refused",
                counted(lost, "export")
            )),
        }
    }

    /// Adds an export of the current metrics, and drops the oldest beyond the limit.
    fn take(&mut self) {
        let times = PointTimes { start_ns: self.start_ns, now_ns: unix_ns() };
        let request = times.request(&self.metrics.families(), &self.resource);
        self.last += 1;
        self.pending.push_back((self.last, request));
        if self.pending.len() > MAX_PENDING {
            self.pending.pop_front();
            self.lose();
        }
    }

    /// Counts an export that is dropped for good.
    fn lose(&mut self) {
        count(&self.metrics, LOST, 1);
        self.lost += 1;
        if let Some(missed) = &mut self.missed {
            *missed += 1;
        }
    }

    /// Begins to send the oldest export.
    fn sending(&self, client: &MetricsServiceClient<Channel>) -> Option<Sending> {
        let (number, request) = self.pending.front()?;
        let (number, mut request) = (*number, Request::new(request.clone()));
        if let Some(bearer) = self.collector.token.as_ref().and_then(Token::bearer) {
            request.metadata_mut().insert("authorization", bearer);
        }
        let mut client = client.clone();
        Some(Box::pin(async move {
            let late =
                |_| Err(Status::deadline_exceeded(format!("no answer within {EXPORT_TIMEOUT:?}")));
            (number, timeout(EXPORT_TIMEOUT, client.export(request)).await.unwrap_or_else(late))
        }))
    }

    fn delivered(&mut self, answer: &ExportMetricsServiceResponse) {
        count(&self.metrics, DELIVERED, 1);
        let name = &self.collector.name;
        if let Some(missed) = self.missed.take() {
            tracing::warn!("{name} takes metrics again; {} lost", counted(missed, "export"));
        }
        let Some(partial) =
            answer.partial_success.as_ref().filter(|partial| partial.rejected_data_points > 0)
        else {
            return;
        };
        if self.rejected == 0 {
            let points = counted(partial.rejected_data_points.unsigned_abs(), "metric point");
            tracing::warn!(
                "{name} refuses {points} of an export: {}; further ones are counted",
                partial.error_message
            );
        }
        self.rejected += partial.rejected_data_points;
        let help =
            "metric points that a collector of OpenTelemetry refused, of exports that it took";
        self.metrics.count(
            "otlp_rejected_points_total",
            help,
            Vec::new(),
            partial.rejected_data_points.unsigned_abs(),
        );
    }

    fn failed(&mut self, status: &Status, is_final: bool) {
        if self.missed.is_none() {
            let what = if is_final {
                "what it refuses is lost".to_owned()
            } else {
                format!("up to {MAX_PENDING} exports wait for it")
            };
            let problem = if status.message().is_empty() {
                status.code().description()
            } else {
                status.message()
            };
            tracing::warn!("cannot send metrics to {}: {problem}; {what}", self.collector.name);
            self.missed = Some(0);
        }
    }
}

/// Waits for the export in flight; without one, forever.
async fn sent(sending: &mut Option<Sending>) -> (u64, Outcome) {
    match sending {
        Some(sending) => sending.await,
        None => pending().await,
    }
}

/// Returns whether a retry may succeed, as the specification of OTLP defines it.
fn is_temporary(status: &Status) -> bool {
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Retryable only if the collector says when to retry.
        Code::ResourceExhausted => !status.details().is_empty(),
        _ => false,
    }
}
