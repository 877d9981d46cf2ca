//! What a run tells over gRPC: records as streams, its configuration and how it is doing; with
//! reflection and health, as tools expect them.

use super::access::Access;
use super::connections::Admission;
use super::feed::Feed;
use super::guard::Guard;
use super::kept::Kept;
use super::protocol::Protocol;
use super::refusal::Refusal;
use super::server::{PATIENCE, REQUEST, Server, end};
use crate::output::Metrics;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response as HttpResponse;
use proto::agent_server::{Agent, AgentServer};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Messages, client and server of the service `flowgauge.v1.Agent`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the .proto has the comments"
)]
pub mod proto {
    include!("../../proto/flowgauge/v1/agent.rs");

    /// The service, as reflection tells it.
    pub const DESCRIPTORS: &[u8] = include_bytes!("../../proto/flowgauge/v1/agent.descriptors");
}

/// Records that a stream takes at a time.
const PIECE: usize = 16;
/// Messages that wait for a reader of a stream.
const WAITING: usize = 4;
/// How often it is looked whether the run is still well, for those who watch that.
const LOOK: Duration = Duration::from_secs(1);
/// What reflection begins with; its clients send requests one after another.
const REFLECTION: &str = "/grpc.reflection.";
const SERVICE: &str = "flowgauge.v1.Agent";

type Ask<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// What is told.
#[derive(Clone)]
pub struct Told {
    /// Records as they come.
    pub feed: Feed,
    /// What is wrong with the run, one line each; nothing if it is well.
    pub problems: Ask<Vec<String>>,
    /// How the run is doing, as JSON.
    pub status: Ask<String>,
    /// What was given for each source.
    pub configuration: Ask<Vec<proto::Source>>,
    /// The machine's name.
    pub host: Arc<str>,
    /// Counts what is refused.
    pub metrics: Metrics,
}

impl Server {
    /// Begins to tell a run over gRPC.
    ///
    /// # Errors
    /// If the address is another one's, or taken.
    pub fn start_grpc(address: SocketAddr, told: Told, access: Access) -> io::Result<Self> {
        let guard = access.guard(Protocol::Grpc, &told.metrics);
        let (stop, stopped) = watch::channel(());
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let reflection =
            reflection.build_v1().map_err(io::Error::other)?.max_decoding_message_size(REQUEST);
        let service = Telling { told, stopped: stopped.clone() };
        let routes =
            Routes::new(AgentServer::new(service.clone()).max_decoding_message_size(REQUEST))
                .add_service(HealthServer::new(service).max_decoding_message_size(REQUEST))
                .add_service(reflection);
        let router = routes.into_axum_router().layer(from_fn_with_state(guard.clone(), guarded));
        Server::listen(address, access, guard, router, stop, stopped)
    }
}

/// What holds for every request.
async fn guarded(State(guard): State<Guard>, request: HttpRequest, next: Next) -> HttpResponse {
    if let Some(refused) = guard.refusal(&request) {
        return refused.over_grpc();
    }
    if let Some(admission) = request.extensions().get::<Admission>() {
        admission.give();
    }
    if request.uri().path().starts_with(REFLECTION) {
        return next.run(request).await;
    }
    // All others are one message, which comes before anything is done for it.
    let (parts, body) = request.into_parts();
    let problem = match tokio::time::timeout(PATIENCE, to_bytes(body, REQUEST)).await {
        Ok(Ok(bytes)) => return next.run(HttpRequest::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(error)) => {
            format!("a request of more than {REQUEST} bytes, or one that broke off: {error}")
        }
        Err(_) => format!("a request that did not come within {PATIENCE:?}"),
    };
    let status = Status::resource_exhausted(problem.as_str());
    guard.refusals.add(Refusal::Request, problem);
    status.into_http()
}

#[derive(Clone)]
struct Telling {
    told: Told,
    stopped: watch::Receiver<()>,
}

type Stream<T> = ReceiverStream<Result<T, Status>>;

impl Telling {
    /// Items of a feed from a number on, until the run ends or the reader does. What is no longer
    /// kept when it is its turn is told as missed.
    fn follow<T, R>(
        &self,
        kept: &Kept<Arc<T>>,
        from: u64,
        tell: impl Fn(Piece<T>) -> R + Send + 'static,
    ) -> Response<Stream<R>>
    where
        T: Clone + Send + Sync + 'static,
        R: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(WAITING);
        let (kept, stopped, mut newest) = (kept.clone(), self.stopped.clone(), kept.newest());
        tokio::spawn(async move {
            let (mut stopped, mut next) = (pin!(end(stopped)), from);
            let mut is_over = false;
            loop {
                newest.mark_unchanged();
                loop {
                    let piece = kept.from(next, PIECE);
                    // What was given up since.
                    let first = piece.first().map_or_else(|| kept.next(), |(number, _)| *number);
                    if first > next
                        && sender
                            .send(Ok(tell(Piece::Missed(proto::Missed { records: first - next }))))
                            .await
                            .is_err()
                    {
                        return;
                    }
                    next = next.max(first);
                    if piece.is_empty() {
                        break;
                    }
                    for (number, item) in piece {
                        if sender.send(Ok(tell(Piece::Item((*item).clone())))).await.is_err() {
                            return;
                        }
                        next = number + 1;
                    }
                }
                if is_over {
                    return;
                }
                tokio::select! {
                    changed = newest.changed() => is_over = changed.is_err(),
                    () = sender.closed() => return,
                    // Once more, for the last that came.
                    () = &mut stopped => is_over = true,
                }
            }
        });
        Response::new(ReceiverStream::new(receiver))
    }

    fn health(&self) -> HealthCheckResponse {
        let is_well = (self.told.problems)().is_empty();
        let status = if is_well { ServingStatus::Serving } else { ServingStatus::NotServing };
        HealthCheckResponse { status: status as i32 }
    }
}

/// What a stream tells.
enum Piece<T> {
    Item(T),
    Missed(proto::Missed),
}

#[tonic::async_trait]
impl Agent for Telling {
    type WindowsStream = Stream<proto::WindowsResponse>;
    type SamplesStream = Stream<proto::SamplesResponse>;
    type DelaysStream = Stream<proto::DelaysResponse>;

    async fn windows(
        &self,
        request: Request<proto::WindowsRequest>,
    ) -> Result<Response<Self::WindowsStream>, Status> {
        let kept = &self.told.feed.windows;
        let next = kept.next();
        // Numbers begin at 1 there, and at 0 here.
        let from = request.get_ref().after.unwrap_or(next);
        if from > next {
            return Err(Status::out_of_range(format!(
                "the last record of this run is {next}; {from} is one of another run"
            )));
        }
        Ok(self.follow(kept, from, |piece| {
            use proto::windows_response::Told;
            let told = match piece {
                Piece::Item(record) => Told::Record(record),
                Piece::Missed(missed) => Told::Missed(missed),
            };
            proto::WindowsResponse { told: Some(told) }
        }))
    }

    async fn samples(
        &self,
        _: Request<proto::SamplesRequest>,
    ) -> Result<Response<Self::SamplesStream>, Status> {
        let kept = &self.told.feed.samples;
        Ok(self.follow(kept, kept.next(), |piece| {
            use proto::samples_response::Told;
            let told = match piece {
                Piece::Item(record) => Told::Record(record),
                Piece::Missed(missed) => Told::Missed(missed),
            };
            proto::SamplesResponse { told: Some(told) }
        }))
    }

    async fn delays(
        &self,
        _: Request<proto::DelaysRequest>,
    ) -> Result<Response<Self::DelaysStream>, Status> {
        if !self.told.feed.passes_delays() {
            return Err(Status::failed_precondition(
                "this run does not pass on delays one by one; --delay-samples FILE does",
            ));
        }
        let kept = &self.told.feed.delays;
        Ok(self.follow(kept, kept.next(), |piece| {
            use proto::delays_response::Told;
            let told = match piece {
                Piece::Item(delays) => Told::Delays(delays),
                Piece::Missed(missed) => Told::Missed(missed),
            };
            proto::DelaysResponse { told: Some(told) }
        }))
    }

    async fn configuration(
        &self,
        _: Request<proto::ConfigurationRequest>,
    ) -> Result<Response<proto::ConfigurationResponse>, Status> {
        Ok(Response::new(proto::ConfigurationResponse { sources: (self.told.configuration)() }))
    }

    async fn status(
        &self,
        _: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusResponse>, Status> {
        let Told { host, problems, status, .. } = &self.told;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(proto::StatusResponse {
            host: host.to_string(),
            version,
            problems: problems(),
            json: status(),
        }))
    }
}

/// Of the run as a whole, and of the one service that tells it.
fn check(request: &HealthCheckRequest) -> Result<(), Status> {
    let is_known = ["", SERVICE].contains(&request.service.as_str());
    if is_known { Ok(()) } else { Err(Status::not_found(format!("the service here is {SERVICE}"))) }
}

#[tonic::async_trait]
impl Health for Telling {
    type WatchStream = Stream<HealthCheckResponse>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        check(request.get_ref())?;
        Ok(Response::new(self.health()))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        check(request.get_ref())?;
        let (sender, receiver) = mpsc::channel(1);
        let telling = self.clone();
        tokio::spawn(async move {
            let (mut stopped, mut last) = (pin!(end(telling.stopped.clone())), None);
            loop {
                let health = telling.health();
                if last.replace(health) != Some(health) && sender.send(Ok(health)).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = sender.closed() => return,
                    () = &mut stopped => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
