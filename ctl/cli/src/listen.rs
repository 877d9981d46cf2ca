//! `--listen`: what a run answers over HTTP, and whom.

use crate::error::Failure;
use crate::measure::identity;
use crate::options::Options;
use flowgauge_ctl::output::Metrics;
use flowgauge_ctl::serve::{Access, Board, Server, Site, Token, encryption};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

impl Options {
    /// Why this may not listen where it is asked to, if it may not.
    pub(crate) fn listen_problem(&self) -> Option<String> {
        let Options { listen, listen_cert, listen_key, listen_token_file, .. } = self;
        let secrets = listen_cert.is_some() || listen_key.is_some() || listen_token_file.is_some();
        let Some(address) = listen else {
            return secrets.then(|| {
                "--listen-cert, --listen-key and --listen-token-file are for --listen; add it, or leave them out".to_owned()
            });
        };
        if listen_cert.is_some() != listen_key.is_some() {
            return Some("--listen-cert and --listen-key go together; give both".to_owned());
        }
        if address.ip().is_loopback() || (listen_cert.is_some() && listen_token_file.is_some()) {
            return None;
        }
        Some(format!(
            "--listen {} can be reached by others: give a certificate (--listen-cert, --listen-key), so that nobody else reads what is told, and a \
             token (--listen-token-file), so that only who knows it may ask; or listen at 127.0.0.1",
            address.ip()
        ))
    }

    fn access(&self) -> Result<Access, Failure> {
        let failed = |what: &str, problem| Failure::Failed(format!("{what}: {problem}"));
        let encryption = match (&self.listen_cert, &self.listen_key) {
            (Some(certificate), Some(key)) => Some(
                encryption(certificate, key)
                    .map_err(|error| failed("cannot encrypt with --listen-cert and --listen-key", error))?,
            ),
            _ => None,
        };
        let read =
            |path: &Path| Token::read(path).map_err(|error| failed(&format!("--listen-token-file {}", path.display()), error));
        Ok(Access { encryption, token: self.listen_token_file.as_deref().map(read).transpose()? })
    }
}

/// Begins to answer, if that is asked for, until the server is dropped.
pub(crate) fn start(
    options: &Options,
    metrics: &Metrics,
    board: &Board,
    problems: impl Fn() -> Vec<String> + Send + Sync + 'static,
) -> Result<Option<Server>, Failure> {
    let Some(address) = options.listen else { return Ok(None) };
    let access = options.access()?;
    let protocol = if access.encryption.is_some() { "https" } else { "http" };
    let host = identity(options)?.host;
    let site = Site { metrics: metrics.clone(), board: board.clone(), problems: Arc::new(problems), host };
    let listening = |address| Server::start(address, site.clone(), access.clone());
    let server = match listening(address) {
        // Whoever chose no port takes any.
        Err(_) if options.listen_anywhere => listening(SocketAddr::new(address.ip(), 0)),
        listening => listening,
    };
    let server =
        server.map_err(|error| Failure::Failed(format!("cannot listen at {address}: {error}; --listen takes another one")))?;
    eprintln!("{protocol}://{} shows this run; /metrics is for Prometheus", server.address());
    Ok(Some(server))
}
