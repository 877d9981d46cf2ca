//! Sends metrics to a collector of OpenTelemetry (OTLP over gRPC): those of `/metrics`, at
//! intervals.
//!
//! A thread of its own sends, so that no window waits for the collector. What cannot be sent waits,
//! up to a number of exports, and is sent again after longer and longer pauses; what is given up is
//! counted, and told.

mod points;

use crate::output::Metrics;
use crate::serve::Token;
use crate::serve::drop_capabilities;
use crate::text::counted;
use proto::metrics_service_client::MetricsServiceClient;
use proto::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};
use tokio::runtime::Builder;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};

/// Messages and client of the service `opentelemetry.proto.collector.metrics.v1.MetricsService`.
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

/// Exports that wait for the collector.
const ROOM: usize = 32;
/// How long an export may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The first pause before an export that failed is sent again; each is twice the one before, up to
/// the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the end of a run waits for what is still to be sent.
const LAST: Duration = Duration::from_secs(2);
/// What of an answer is read.
const ANSWER: usize = 16 << 10;

/// Where metrics go.
#[derive(Clone)]
pub struct Collector {
    endpoint: Endpoint,
    /// For people.
    name: String,
    token: Option<Token>,
}

impl Collector {
    /// A collector at an address such as `http://127.0.0.1:4317`. An encrypted one (`https://`)
    /// takes the certificate of the authority that its own comes from. With a token, each export
    /// tells it.
    ///
    /// # Errors
    /// If the address is none, the certificate cannot be read, or one of address and certificate is
    /// without the other.
    pub fn new(address: &str, authority: Option<&Path>, token: Option<Token>) -> io::Result<Self> {
        let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
        let endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(|error| invalid(format!("{address}: {error}")))?;
        let is_encrypted = address.starts_with("https://");
        let endpoint = match authority {
            Some(path) if is_encrypted => {
                let pem = std::fs::read(path).map_err(|error| {
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
            .connect_timeout(LIMIT)
            .user_agent(concat!("flowgauge/", env!("CARGO_PKG_VERSION")));
        let endpoint = endpoint.map_err(|error| invalid(error.to_string()))?;
        Ok(Collector { endpoint, name: address.to_owned(), token })
    }
}

/// Who sends: names and values of what OpenTelemetry calls a resource.
pub type Resource = Vec<(&'static str, String)>;

/// Sends metrics, until it is dropped. Then it sends them once more.
pub struct Exporter {
    /// Dropped, it ends the thread.
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Begins to send, at this interval. What is lost for good is told once, when the exporter
    /// ends.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn start(
        collector: Collector,
        every: Duration,
        resource: Resource,
        metrics: Metrics,
        tell: impl Fn(String) + Send + 'static,
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
            began: SystemTime::now(),
            queue: Queue::default(),
        };
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            drop_capabilities();
            if let Some(problem) = runtime.block_on(export.run(every, stopped)) {
                tell(problem);
            }
        })?;
        Ok(Exporter { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const DELIVERED: &str = "delivered";
const LOST: &str = "lost";

fn count(metrics: &Metrics, outcome: &str, more: u64) {
    let help = "exports of metrics to a collector of OpenTelemetry";
    metrics.count("otlp_exports_total", help, vec![("outcome", outcome.to_owned())], more);
}

/// Exports that wait, the oldest first.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<ExportMetricsServiceRequest>>,
    came: Notify,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<ExportMetricsServiceRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Export {
    collector: Collector,
    resource: Resource,
    metrics: Metrics,
    began: SystemTime,
    queue: Queue,
}

/// What has become of exports.
#[derive(Default)]
struct Fate {
    lost: u64,
    /// Of the ones before, since the collector does not answer; they are told when it does.
    missed: Option<u64>,
    /// Points that the collector refused, of exports that it took.
    rejected: i64,
}

impl Export {
    /// Sends until it is to stop; gives what to say of what was lost.
    async fn run(self, every: Duration, mut stopped: watch::Receiver<()>) -> Option<String> {
        let fate = Mutex::new(Fate::default());
        let client = MetricsServiceClient::new(self.collector.endpoint.connect_lazy())
            .max_decoding_message_size(ANSWER);
        {
            let mut sending = pin!(self.send(client, &fate, every));
            tokio::select! {
                () = self.gather(every, &fate) => {}
                () = &mut sending => {}
                _ = stopped.changed() => {}
            }
            self.take(&fate);
            // Until nothing waits; the one that is on its way is still among them.
            let all_sent = async {
                while !self.queue.waiting().is_empty() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = &mut sending => {}
                _ = timeout(LAST, all_sent) => {}
            }
        }
        let unsent = self.queue.waiting().len() as u64;
        let fate = fate.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (lost, rejected) = (fate.lost + unsent, fate.rejected);
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

    /// Takes metrics as of now.
    fn take(&self, fate: &Mutex<Fate>) {
        let request = points::request(
            &self.metrics.families(),
            &self.resource,
            self.began,
            SystemTime::now(),
        );
        let mut waiting = self.queue.waiting();
        waiting.push_back(request);
        let more = waiting.len().saturating_sub(ROOM);
        waiting.drain(..more);
        drop(waiting);
        self.lose(fate, more as u64);
        self.queue.came.notify_one();
    }

    fn lose(&self, fate: &Mutex<Fate>, exports: u64) {
        if exports == 0 {
            return;
        }
        count(&self.metrics, LOST, exports);
        let mut fate = locked(fate);
        fate.lost += exports;
        if let Some(missed) = &mut fate.missed {
            *missed += exports;
        }
    }

    async fn gather(&self, every: Duration, fate: &Mutex<Fate>) {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.take(fate);
        }
    }

    /// Sends what waits, one after another.
    async fn send(
        &self,
        mut client: MetricsServiceClient<Channel>,
        fate: &Mutex<Fate>,
        every: Duration,
    ) {
        // Many agents that lost one collector do not come back at once.
        let seed = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos() as u64);
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ u64::from(std::process::id()));
        let first_pause = every.min(FIRST_PAUSE);
        let mut pause = first_pause;
        loop {
            let Some(request) = self.queue.waiting().front().cloned() else {
                self.queue.came.notified().await;
                continue;
            };
            // It may be given up meanwhile, for newer ones.
            let sent = request.clone();
            let outcome = self.export(&mut client, request).await;
            let is_final = outcome.as_ref().err().is_none_or(|status| !is_temporary(status));
            if is_final {
                let mut waiting = self.queue.waiting();
                if waiting.front() == Some(&sent) {
                    waiting.pop_front();
                }
            }
            match outcome {
                Ok(answer) => {
                    self.delivered(&answer.into_inner(), fate);
                    pause = first_pause;
                }
                Err(status) => {
                    self.failed(&status, is_final, fate);
                    if !is_final {
                        tokio::time::sleep(pause.mul_f64(random.random_range(0.5..1.0))).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        }
    }

    async fn export(
        &self,
        client: &mut MetricsServiceClient<Channel>,
        request: ExportMetricsServiceRequest,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let mut request = Request::new(request);
        if let Some(bearer) = self.collector.token.as_ref().and_then(Token::bearer) {
            request.metadata_mut().insert("authorization", bearer);
        }
        let late = |_| Status::deadline_exceeded(format!("no answer within {LIMIT:?}"));
        timeout(LIMIT, client.export(request)).await.map_err(late)?
    }

    fn delivered(&self, answer: &ExportMetricsServiceResponse, fate: &Mutex<Fate>) {
        count(&self.metrics, DELIVERED, 1);
        let (mut fate, name) = (locked(fate), &self.collector.name);
        if let Some(missed) = fate.missed.take() {
            tracing::warn!("{name} takes metrics again; {} lost", counted(missed, "export"));
        }
        let Some(partial) =
            answer.partial_success.as_ref().filter(|partial| partial.rejected_data_points > 0)
        else {
            return;
        };
        if fate.rejected == 0 {
            let points = counted(partial.rejected_data_points.unsigned_abs(), "metric point");
            tracing::warn!(
                "{name} refuses {points} of an export: {}; further ones are counted",
                partial.error_message
            );
        }
        fate.rejected += partial.rejected_data_points;
        let help =
            "metric points that a collector of OpenTelemetry refused, of exports that it took";
        self.metrics.count(
            "otlp_rejected_points_total",
            help,
            Vec::new(),
            partial.rejected_data_points.unsigned_abs(),
        );
    }

    fn failed(&self, status: &Status, is_final: bool, fate: &Mutex<Fate>) {
        let is_first = locked(fate).missed.is_none();
        if is_first {
            let what = if is_final {
                "what it refuses is lost".to_owned()
            } else {
                format!("up to {ROOM} exports wait for it")
            };
            let problem = if status.message().is_empty() {
                status.code().description()
            } else {
                status.message()
            };
            tracing::warn!("cannot send metrics to {}: {problem}; {what}", self.collector.name);
            locked(fate).missed = Some(0);
        }
        if is_final {
            self.lose(fate, 1);
        }
    }
}

fn locked(fate: &Mutex<Fate>) -> MutexGuard<'_, Fate> {
    fate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the same export may succeed later, as the specification of OTLP says.
fn is_temporary(status: &Status) -> bool {
    match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // With a hint when.
        Code::ResourceExhausted => !status.details().is_empty(),
        _ => false,
    }
}
