//! What a run tells over the network: whoever asks, over HTTP and gRPC (`--listen`, `--grpc`), and a collector of metrics (`--otlp`).

use crate::config::Given;
use crate::error::Failure;
use crate::options::Options;
use crate::status::Publication;
use crate::writers::Problems;
use flowgauge_ctl::controller::Sink;
use flowgauge_ctl::lake::Identity;
use flowgauge_ctl::otlp::{Collector, Exporter};
use flowgauge_ctl::output::{Metrics, Origin};
use flowgauge_ctl::serve::proto::{Setting, Source};
use flowgauge_ctl::serve::{Access, Board, Feed, Server, Site, Token, Told, encryption};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often metrics are sent.
const USUAL_EXPORTS: Duration = Duration::from_secs(10);

impl Options {
    /// Why this may not listen where it is asked to, if it may not.
    pub(crate) fn listen_problem(&self) -> Option<String> {
        let Options { listen, grpc, listen_cert, listen_key, listen_token_file, .. } = self;
        let secrets = listen_cert.is_some() || listen_key.is_some() || listen_token_file.is_some();
        let addresses = [("--listen", listen), ("--grpc", grpc)];
        let mut addresses = addresses.into_iter().filter_map(|(option, address)| Some((option, address.as_ref()?))).peekable();
        if secrets && addresses.peek().is_none() {
            let problem =
                "--listen-cert, --listen-key and --listen-token-file are for --listen and --grpc; add one, or leave them out";
            return Some(problem.to_owned());
        }
        if listen_cert.is_some() != listen_key.is_some() {
            return Some("--listen-cert and --listen-key go together; give both".to_owned());
        }
        let is_safe = listen_cert.is_some() && listen_token_file.is_some();
        let (option, address) = addresses.find(|(_, address)| !address.ip().is_loopback() && !is_safe)?;
        Some(format!(
            "{option} {} can be reached by others: give a certificate (--listen-cert, --listen-key), so that nobody else reads what is told, and a \
             token (--listen-token-file), so that only who knows it may ask; or listen at 127.0.0.1",
            address.ip()
        ))
    }

    /// Why metrics cannot be sent as asked, if they cannot.
    pub(crate) fn otlp_problem(&self) -> Option<String> {
        let Options { otlp, otlp_every, otlp_ca, otlp_token_file, .. } = self;
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

    fn access(&self) -> Result<Access, Failure> {
        let encryption = match (&self.listen_cert, &self.listen_key) {
            (Some(certificate), Some(key)) => {
                let failed = |error| Failure::Failed(format!("cannot encrypt with --listen-cert and --listen-key: {error}"));
                Some(encryption(certificate, key).map_err(failed)?)
            }
            _ => None,
        };
        Ok(Access { encryption, token: token("--listen-token-file", self.listen_token_file.as_deref())? })
    }
}

fn token(option: &str, path: Option<&Path>) -> Result<Option<Token>, Failure> {
    let read = |path: &Path| Token::read(path).map_err(|error| Failure::Failed(format!("{option} {}: {error}", path.display())));
    path.map(read).transpose()
}

/// What was given for each source of a run, as of now; clones are of the same run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured(Arc<Mutex<BTreeMap<String, Vec<Setting>>>>);

impl Configured {
    fn sources(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Setting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a source of this name, which is empty if it is the only one.
    pub(crate) fn set<'a>(&self, source: &str, given: impl IntoIterator<Item = &'a Given>) {
        let setting =
            |given: &Given| Setting { name: given.key.clone(), values: given.texts.clone(), origin: given.origin.to_string() };
        let settings = given.into_iter().map(setting).collect();
        self.sources().insert(source.to_owned(), settings);
    }

    pub(crate) fn remove(&self, source: &str) {
        self.sources().remove(source);
    }

    fn all(&self) -> Vec<Source> {
        let sources = self.sources();
        sources.iter().map(|(name, settings)| Source { name: name.clone(), settings: settings.clone() }).collect()
    }
}

/// What is told of a run.
#[derive(Clone, Default)]
pub(crate) struct Outlets {
    metrics: Metrics,
    board: Board,
    feed: Feed,
    pub(crate) configured: Configured,
}

/// What is told, until it is dropped.
pub(crate) struct Open {
    _servers: [Option<Server>; 2],
    _exporter: Option<Exporter>,
}

impl Outlets {
    /// Of a run that counts with these.
    pub(crate) fn of(configured: &Configured) -> Self {
        Outlets { configured: configured.clone(), ..Outlets::default() }
    }

    /// What takes the records of a source: of one of several, if it has a name, or else of the place that is shown.
    pub(crate) fn sinks(&self, options: &Options, name: Option<&Arc<str>>, shown: &str, origin: &Origin) -> Vec<Box<dyn Sink>> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if options.listen.is_some() || options.otlp.is_some() {
            sinks.push(Box::new(name.map_or_else(|| self.metrics.clone(), |name| self.metrics.of_source(name))));
        }
        if options.listen.is_some() {
            sinks.push(Box::new(self.board.clone()));
        }
        if options.grpc.is_some() {
            sinks.push(Box::new(self.feed.of(origin.clone(), shown, options.own.delay.samples().is_some())));
        }
        sinks
    }

    /// Begins to tell what is asked for.
    pub(crate) fn open(
        &self,
        options: &Options,
        identity: &Identity,
        publication: &Publication,
        problems: &Problems,
    ) -> Result<Open, Failure> {
        let servers = [self.serve(options, identity, publication)?, self.serve_grpc(options, identity, publication)?];
        Ok(Open { _servers: servers, _exporter: self.export(options, identity, problems)? })
    }

    fn serve(&self, options: &Options, identity: &Identity, publication: &Publication) -> Result<Option<Server>, Failure> {
        let Some(address) = options.listen else { return Ok(None) };
        let access = options.access()?;
        let protocol = if access.encryption.is_some() { "https" } else { "http" };
        let (metrics, board, host) = (self.metrics.clone(), self.board.clone(), Arc::clone(&identity.host));
        let (problems, hindrances) = (Arc::new(publication.problems()), Arc::new(publication.hindrances()));
        let stalls = Arc::new(publication.stalls());
        let site = Site { metrics, board, problems, hindrances, stalls, host };
        let listening = |address| Server::start(address, site.clone(), access.clone());
        let server = match listening(address) {
            // Whoever chose no port takes any.
            Err(_) if options.listen_anywhere => listening(SocketAddr::new(address.ip(), 0)),
            listening => listening,
        };
        let server = server.map_err(|error| cannot_listen("--listen", address, &error))?;
        eprintln!("{protocol}://{} shows this run; /metrics is for Prometheus", server.address());
        Ok(Some(server))
    }

    fn serve_grpc(&self, options: &Options, identity: &Identity, publication: &Publication) -> Result<Option<Server>, Failure> {
        let Some(address) = options.grpc else { return Ok(None) };
        let access = options.access()?;
        let configured = self.configured.clone();
        let told = Told {
            feed: self.feed.clone(),
            problems: Arc::new(publication.problems()),
            status: Arc::new(publication.status()),
            configuration: Arc::new(move || configured.all()),
            host: Arc::clone(&identity.host),
            metrics: self.metrics.clone(),
        };
        let encrypted = if access.encryption.is_some() { " over TLS" } else { "" };
        let server = Server::start_grpc(address, told, access).map_err(|error| cannot_listen("--grpc", address, &error))?;
        eprintln!("grpc://{} tells this run{encrypted}; flowgauge.v1.Agent is its service", server.address());
        Ok(Some(server))
    }

    fn export(&self, options: &Options, identity: &Identity, problems: &Problems) -> Result<Option<Exporter>, Failure> {
        let Some(url) = &options.otlp else { return Ok(None) };
        let failed = |error: io::Error| Failure::Failed(format!("cannot send metrics to {url}: {error}"));
        let token = token("--otlp-token-file", options.otlp_token_file.as_deref())?;
        let collector = Collector::new(url, options.otlp_ca.as_deref(), token).map_err(failed)?;
        let resource = vec![
            ("service.name", "flowgauge".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", identity.run.to_string()),
            ("host.name", identity.host.to_string()),
        ];
        let (problems, every) = (problems.clone(), options.otlp_every.unwrap_or(USUAL_EXPORTS));
        let tell = move |problem: String| {
            tracing::warn!("{problem}");
            problems.add(problem);
        };
        Exporter::start(collector, every, resource, self.metrics.clone(), tell).map(Some).map_err(failed)
    }
}

fn cannot_listen(option: &str, address: SocketAddr, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot listen at {address}: {error}; {option} takes another one"))
}
