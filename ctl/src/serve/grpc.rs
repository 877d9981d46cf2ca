//! gRPC server of a run: records as streams, configuration and status, with the standard reflection
//! and health services.

use super::ServedContent;
use super::access::Access;
use super::guard::{Guard, Protocol, RequestRefusal};
use super::recent::RecentItems;
use super::server::{Listener, MAX_REQUEST_BYTES, REQUEST_TIMEOUT, Service, end};
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response as HttpResponse;
use proto::agent_server::{Agent, AgentServer};
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Generated messages, client and server of the service `flowgauge.v1.Agent`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the .proto has the comments"
)]
pub mod proto {
    include!("../../proto/flowgauge/v1/agent.rs");

    /// Descriptors of the service, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!("../../proto/flowgauge/v1/agent.descriptors");
}

/// Maximum number of records that a stream takes from the feed at a time.
const MAX_RECORDS_PER_READ: usize = 16;
/// Maximum number of messages buffered for the reader of a stream.
const MAX_BUFFERED_MESSAGES: usize = 4;
/// Interval at which the health service checks the run for its watchers.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Path prefix of reflection; its clients stream requests.
const REFLECTION_PREFIX: &str = "/grpc.reflection.";
const SERVICE: &str = "flowgauge.v1.Agent";

impl Service {
    /// Starts the gRPC server of a run.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be started.
    pub fn start_grpc(
        listener: TcpListener,
        content: ServedContent,
        access: Access,
    ) -> io::Result<Self> {
        let guard = Guard::new(&access, Protocol::Grpc, Some(&content.metrics));
        let (stop, stopped) = watch::channel(());
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let reflection = reflection
            .build_v1()
            .map_err(io::Error::other)?
            .max_decoding_message_size(MAX_REQUEST_BYTES);
        let service = AgentService { content, stopped: stopped.clone() };
        let routes = Routes::new(
            AgentServer::new(service.clone()).max_decoding_message_size(MAX_REQUEST_BYTES),
        )
        .add_service(HealthServer::new(service).max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(reflection);
        let router = routes.into_axum_router().layer(from_fn_with_state(guard.clone(), guarded));
        let listen = || Listener::tcp(listener);
        Service::begin("grpc", listen, access.encryption, guard, router, (stop, stopped))
    }
}

/// Authorizes a request, and limits its size and time.
async fn guarded(State(guard): State<Guard>, request: HttpRequest, next: Next) -> HttpResponse {
    if let Some(denial) = guard.denial(&request) {
        return denial.over_grpc();
    }
    if request.uri().path().starts_with(REFLECTION_PREFIX) {
        return next.run(request).await;
    }
    // Every other request is one message, which must arrive before it is handled.
    let (parts, body) = request.into_parts();
    let problem = match tokio::time::timeout(REQUEST_TIMEOUT, to_bytes(body, MAX_REQUEST_BYTES))
        .await
    {
        Ok(Ok(bytes)) => return next.run(HttpRequest::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(error)) => {
            format!(
                "a request of more than {MAX_REQUEST_BYTES} bytes, or one that broke off: {error}"
            )
        }
        Err(_) => format!("a request that did not come within {REQUEST_TIMEOUT:?}"),
    };
    let status = Status::resource_exhausted(problem.as_str());
    guard.refuse(RequestRefusal::Request, problem);
    status.into_http()
}

#[derive(Clone)]
struct AgentService {
    content: ServedContent,
    stopped: watch::Receiver<()>,
}

type Stream<T> = ReceiverStream<Result<T, Status>>;

impl AgentService {
    /// Streams the items of a feed from a number on, until the run or the client ends. Items that
    /// were dropped before their turn are reported as missed.
    fn follow<T, R>(
        &self,
        kept: &RecentItems<Arc<T>>,
        from: u64,
        item: impl Fn(T) -> R + Send + 'static,
        missed: impl Fn(proto::Missed) -> R + Send + 'static,
    ) -> Response<Stream<R>>
    where
        T: Clone + Send + Sync + 'static,
        R: Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(MAX_BUFFERED_MESSAGES);
        let (kept, stopped, mut newest) = (kept.clone(), self.stopped.clone(), kept.newest());
        tokio::spawn(async move {
            let (mut stopped, mut next) = (pin!(end(stopped)), from);
            let mut is_over = false;
            loop {
                newest.mark_unchanged();
                loop {
                    let piece = kept.from(next, MAX_RECORDS_PER_READ);
                    // Items dropped in the meantime.
                    let first = piece.first().map_or_else(|| kept.next(), |(number, _)| *number);
                    if first > next {
                        sender.send(Ok(missed(proto::Missed { records: first - next }))).await?;
                    }
                    next = next.max(first);
                    if piece.is_empty() {
                        break;
                    }
                    for (number, record) in piece {
                        sender.send(Ok(item((*record).clone()))).await?;
                        next = number + 1;
                    }
                }
                if is_over {
                    return Ok::<(), SendError<Result<R, Status>>>(());
                }
                tokio::select! {
                    changed = newest.changed() => is_over = changed.is_err(),
                    () = sender.closed() => return Ok(()),
                    // Once more, for the last records.
                    () = &mut stopped => is_over = true,
                }
            }
        });
        Response::new(ReceiverStream::new(receiver))
    }

    fn health(&self) -> HealthCheckResponse {
        let is_well = (self.content.status)().problems.is_empty();
        let status = if is_well { ServingStatus::Serving } else { ServingStatus::NotServing };
        HealthCheckResponse { status: status as i32 }
    }
}

#[tonic::async_trait]
impl Agent for AgentService {
    type WindowsStream = Stream<proto::WindowsResponse>;
    type SamplesStream = Stream<proto::SamplesResponse>;
    type DelaysStream = Stream<proto::DelaysResponse>;

    async fn windows(
        &self,
        request: Request<proto::WindowsRequest>,
    ) -> Result<Response<Self::WindowsStream>, Status> {
        use proto::windows_response::Content;
        let kept = &self.content.feed.windows;
        let next = kept.next();
        // Numbers start at 1 in messages, and at 0 here.
        let from = request.get_ref().after.unwrap_or(next);
        if from > next {
            return Err(Status::out_of_range(format!(
                "the last record of this run is {next}; {from} is one of another run"
            )));
        }
        let respond = |content| proto::WindowsResponse { content: Some(content) };
        Ok(self.follow(
            kept,
            from,
            move |record| respond(Content::Record(record)),
            move |missed| respond(Content::Missed(missed)),
        ))
    }

    async fn samples(
        &self,
        _: Request<proto::SamplesRequest>,
    ) -> Result<Response<Self::SamplesStream>, Status> {
        use proto::samples_response::Content;
        let kept = &self.content.feed.samples;
        let respond = |content| proto::SamplesResponse { content: Some(content) };
        Ok(self.follow(
            kept,
            kept.next(),
            move |record| respond(Content::Record(record)),
            move |missed| respond(Content::Missed(missed)),
        ))
    }

    async fn delays(
        &self,
        _: Request<proto::DelaysRequest>,
    ) -> Result<Response<Self::DelaysStream>, Status> {
        use proto::delays_response::Content;
        if !self.content.feed.has_delay_samples() {
            return Err(Status::failed_precondition(
                "this run does not pass on delays one by one; --delay-samples FILE does",
            ));
        }
        let kept = &self.content.feed.delay_samples;
        let respond = |content| proto::DelaysResponse { content: Some(content) };
        Ok(self.follow(
            kept,
            kept.next(),
            move |delays| respond(Content::Delays(delays)),
            move |missed| respond(Content::Missed(missed)),
        ))
    }

    async fn configuration(
        &self,
        _: Request<proto::ConfigurationRequest>,
    ) -> Result<Response<proto::ConfigurationResponse>, Status> {
        Ok(Response::new(proto::ConfigurationResponse { sources: (self.content.configuration)() }))
    }

    async fn status(
        &self,
        _: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusResponse>, Status> {
        let report = (self.content.status)();
        let json = serde_json::to_string(&report).unwrap_or_default();
        Ok(Response::new(proto::StatusResponse {
            host: self.content.host.to_string(),
            version: report.version,
            problems: report.problems,
            json,
        }))
    }
}

/// Accepts a health check of the whole run, or of its one service.
fn check(request: &HealthCheckRequest) -> Result<(), Status> {
    let is_known = ["", SERVICE].contains(&request.service.as_str());
    if is_known { Ok(()) } else { Err(Status::not_found(format!("the service here is {SERVICE}"))) }
}

#[tonic::async_trait]
impl Health for AgentService {
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
                    () = tokio::time::sleep(HEALTH_CHECK_INTERVAL) => {}
                    () = sender.closed() => return,
                    () = &mut stopped => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
