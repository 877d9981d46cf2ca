//! Network services of a run: HTTP and gRPC servers (`--listen`, `--grpc`) and the exporter to a
//! metrics collector (`--otlp`).
//!
//! Each source feeds the shared stores with the sinks of [`Exporters::sinks`]; [`Exporters::start`]
//! starts the servers and the exporter that read them.

use crate::config::given::{EffectiveSettings, GivenOption};
use crate::config::options::outputs::OutputOptions;
use crate::config::secrets;
use crate::error::{CommandFailure, cannot, print_message};
use crate::locked;
use crate::output::status::Publication;
use crate::output::writers::FileProblems;
use flowgauge_ctl::controller::Sink;
use flowgauge_ctl::history::History;
use flowgauge_ctl::identity::Identity;
use flowgauge_ctl::names::Names;
use flowgauge_ctl::otlp::Collector;
use flowgauge_ctl::output::{Metrics, Origin};
use flowgauge_ctl::serve::{Access, Board, Feed, ServedContent, Service, Token, encryption, proto};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the encryption and the token of the servers.
fn access(outputs: &OutputOptions) -> Result<Access, CommandFailure> {
    let OutputOptions { listen_cert, listen_key, listen_token_file, .. } = outputs;
    let encrypted = |(certificate, key): (&PathBuf, &PathBuf)| {
        secrets::protect();
        encryption(certificate, key).map_err(cannot("use --listen-cert and --listen-key"))
    };
    let encryption = listen_cert.as_ref().zip(listen_key.as_ref()).map(encrypted).transpose()?;
    Ok(Access { encryption, token: token("--listen-token-file", listen_token_file.as_deref())? })
}

fn token(option: &str, path: Option<&Path>) -> Result<Option<Token>, CommandFailure> {
    let read = |path: &Path| {
        secrets::protect();
        Token::read(path).map_err(|error| {
            CommandFailure::Failed(format!("{option} {}: {error}", path.display()))
        })
    };
    path.map(read).transpose()
}

/// Returns the options in effect, as clients see them.
fn configuration(sources: &EffectiveSettings) -> Vec<proto::Source> {
    let setting = |given: &GivenOption| proto::Setting {
        name: given.key.clone(),
        values: given.texts.clone(),
        origin: given.origin.to_string(),
    };
    let source = |(name, given): (&String, &Vec<GivenOption>)| proto::Source {
        name: name.clone(),
        settings: given.iter().map(setting).collect(),
    };
    locked(sources).iter().map(source).collect()
}

/// Stores that the servers and the exporter of a run read.
#[derive(Clone, Default)]
pub(crate) struct Exporters {
    metrics: Metrics,
    board: Board,
    feed: Feed,
    pub(crate) configured: EffectiveSettings,
}

/// Servers and exporter of a run, which stop when they are dropped.
pub(crate) type RunningExporters = Vec<Service>;

impl Exporters {
    /// Returns the metrics, as a sink of a source. `name` is its name if there are several.
    pub(crate) fn metrics(&self, name: Option<&Arc<str>>) -> Metrics {
        name.map_or_else(|| self.metrics.clone(), |name| self.metrics.of_source(name))
    }

    /// Returns the sinks for the records of a source. `name` is its name if there are several
    /// sources; `shown` is the name or interface that clients see; `history` is recorded before.
    pub(crate) fn sinks(
        &self,
        outputs: &OutputOptions,
        name: Option<&Arc<str>>,
        shown: &str,
        origin: &Origin,
        names: &Names,
        history: &History,
    ) -> Vec<Box<dyn Sink>> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if outputs.listen.is_some() || outputs.otlp.is_some() {
            sinks.push(Box::new(self.metrics(name)));
        }
        if outputs.listen.is_some() {
            sinks.push(Box::new(self.board.of_source(names.clone(), history.clone())));
        }
        if outputs.grpc.is_some() {
            sinks.push(Box::new(self.feed.of(
                origin.clone(),
                shown,
                outputs.delay_samples.is_some(),
            )));
        }
        sinks
    }

    /// Starts the servers and the exporter that the options of outputs enable.
    pub(crate) fn start(
        &self,
        outputs: &OutputOptions,
        identity: &Identity,
        publication: &Publication,
        problems: &FileProblems,
    ) -> Result<RunningExporters, CommandFailure> {
        self.metrics.follow_sources(publication.sources_up());
        let mut services = Vec::from_iter(self.serve(outputs, identity, publication)?);
        services.extend(self.serve_grpc(outputs, identity, publication)?);
        services.extend(self.export(outputs, identity, problems)?);
        Ok(services)
    }

    fn content(&self, identity: &Identity, publication: &Publication) -> ServedContent {
        let configured = Arc::clone(&self.configured);
        ServedContent {
            metrics: self.metrics.clone(),
            board: self.board.clone(),
            feed: self.feed.clone(),
            status: publication.status(),
            configuration: Arc::new(move || configuration(&configured)),
            host: Arc::clone(&identity.host),
        }
    }

    fn serve(
        &self,
        outputs: &OutputOptions,
        identity: &Identity,
        publication: &Publication,
    ) -> Result<Option<Service>, CommandFailure> {
        let Some(address) = outputs.listen else { return Ok(None) };
        let access = access(outputs)?;
        let protocol = if access.encryption.is_some() { "https" } else { "http" };
        let content = self.content(identity, publication);
        let start = |listener| Service::start(listener, content, access);
        let (address, server) = started("--listen", address, outputs.listen_anywhere, start)?;
        print_message(&format!(
            "listening on {protocol}://{address} (page, /metrics, /health, /ready)"
        ));
        Ok(Some(server))
    }

    fn serve_grpc(
        &self,
        outputs: &OutputOptions,
        identity: &Identity,
        publication: &Publication,
    ) -> Result<Option<Service>, CommandFailure> {
        let Some(address) = outputs.grpc else { return Ok(None) };
        let access = access(outputs)?;
        let content = self.content(identity, publication);
        let encrypted = if access.encryption.is_some() { " over TLS" } else { "" };
        let start = |listener| Service::start_grpc(listener, content, access);
        let (address, server) = started("--grpc", address, false, start)?;
        print_message(&format!("serving flowgauge.v1.Agent on grpc://{address}{encrypted}"));
        Ok(Some(server))
    }

    fn export(
        &self,
        outputs: &OutputOptions,
        identity: &Identity,
        problems: &FileProblems,
    ) -> Result<Option<Service>, CommandFailure> {
        let OutputOptions { otlp, otlp_every, otlp_ca, otlp_token_file, .. } = outputs;
        let (Some(url), Some(every)) = (otlp, otlp_every) else { return Ok(None) };
        let token = token("--otlp-token-file", otlp_token_file.as_deref())?;
        let collector = Collector::new(url, otlp_ca.as_deref(), token)
            .map_err(cannot(format_args!("send metrics to {url}")))?;
        let resource = vec![
            ("service.name", "flowgauge".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", identity.run.to_string()),
            ("host.name", identity.host.to_string()),
        ];
        let problems = problems.clone();
        let report = move |problem| problems.add(problem);
        Service::start_otlp(collector, *every, resource, self.metrics.clone(), report)
            .map(Some)
            .map_err(cannot(format_args!("send metrics to {url}")))
    }
}

/// Starts a server at an address, or if that is in use `anywhere`, and returns its address.
fn started(
    option: &str,
    address: SocketAddr,
    anywhere: bool,
    start: impl FnOnce(TcpListener) -> io::Result<Service>,
) -> Result<(SocketAddr, Service), CommandFailure> {
    let bound = match TcpListener::bind(address) {
        // Use any free port if the user did not choose one.
        Err(_) if anywhere => TcpListener::bind((address.ip(), 0)),
        bound => bound,
    };
    bound.and_then(|listener| Ok((listener.local_addr()?, start(listener)?))).map_err(|error| {
        let advice = format!("choose another address with {option}");
        CommandFailure::Failed(format!("cannot listen on {address}: {error}; {advice}"))
    })
}
