//! Run with an HTTP server.

use super::{Messages, Outcome, Running, Scratch, address_in, flowgauge};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Run that listens on any free port.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    pub(crate) messages: Messages,
}

/// All measurements, so that every part of the output is covered.
pub(crate) const ALL: &str =
    "cardinality,entropy,frequency,membership,heavy,spread,sizes,delay,reorder";

impl Served {
    pub(crate) fn start(options: &str) -> Self {
        Served::of(flowgauge(), options)
    }

    /// Starts a run with the environment of this command.
    pub(crate) fn of(mut command: Command, options: &str) -> Self {
        command.args([
            "run", "--window", "100ms", "--format", "json", "--seed", "1", "--listen", "0",
            "--host", "here",
        ]);
        Served::listening(Running::of(command.args(options.split_whitespace())))
    }

    /// Waits until a run says where it listens.
    #[track_caller]
    pub(crate) fn listening(mut running: Running) -> Self {
        let mut messages = running.messages();
        let address = address_in(&messages.line(), "://").parse().unwrap();
        Served { address, running, messages }
    }

    #[track_caller]
    pub(crate) fn window(&mut self) -> Value {
        self.running.record_that(|record| record["record"] == "window")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a request and returns status, headers and body of the answer.
    pub(crate) fn ask(&self, request: &str) -> (u16, String, String) {
        exchange(&mut self.connect(), request)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        ))
    }

    /// Checks the answer to a request, a text.
    #[track_caller]
    pub(crate) fn answers(&self, path: &str, status: u16, text: &str) {
        let (found, head, body) = self.get(path);
        assert_eq!((found, body.as_str()), (status, text), "{path}: {head}");
    }

    /// Returns the JSON of a page.
    pub(crate) fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).2).unwrap()
    }

    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let (status, _, text) = self.get("/metrics");
        assert_eq!(status, 200, "{text}");
        parsed(&text)
    }

    /// Reads events with their names, up to one with this number.
    pub(crate) fn events(&self, last: Option<&str>, until: u64) -> Vec<(String, Value)> {
        let mut stream = self.connect();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n{last}\r\n").unwrap();
        let mut events = Vec::new();
        let mut name = String::new();
        for line in BufReader::new(stream).lines().map(Result::unwrap) {
            if let Some(id) = line.strip_prefix("id: ") {
                name = id.to_owned();
            }
            let Some(event) = line.strip_prefix("data: {\"id\"") else { continue };
            let event: Value = serde_json::from_str(&format!("{{\"id\"{event}")).unwrap();
            let id = event["id"].as_u64().unwrap();
            events.push((name.clone(), event));
            if id >= until {
                break;
            }
        }
        events
    }

    /// Interrupts it, and returns its messages after checking for success.
    #[track_caller]
    pub(crate) fn end(self) -> String {
        self.outcome().ended(0).stderr
    }

    /// Interrupts it and waits for its end.
    pub(crate) fn outcome(self) -> Outcome {
        self.running.interrupt();
        self.messages.outcome(self.running)
    }
}

/// Checks that each of these parts is logged exactly once, however often its cause occurs.
#[track_caller]
pub(crate) fn assert_once(messages: &str, parts: &[&str]) {
    for part in parts {
        assert_eq!(messages.matches(part).count(), 1, "{part}: {messages}");
    }
}

/// Parses metrics into names with labels and their values.
pub(crate) fn parsed(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Writes a certificate for this machine and its key to files.
pub(crate) fn certificate(scratch: &Scratch) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    (scratch.write("tls.crt", certificate.pem()), secret(scratch, "tls.key", &key.serialize_pem()))
}

/// Writes a file that only its user can read.
pub(crate) fn secret(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.write(name, text);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// Returns a TLS connection that trusts this certificate.
pub(crate) fn encrypted(
    stream: TcpStream,
    certificate: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let client =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap())
            .unwrap();
    StreamOwned::new(client, stream)
}

/// Counts the connections that were closed by the server.
pub(crate) fn closed<'a>(streams: impl IntoIterator<Item = &'a TcpStream>) -> usize {
    let is_closed = |mut stream: &TcpStream| stream.read(&mut [0]).is_ok_and(|read| read == 0);
    streams.into_iter().filter(|stream| is_closed(stream)).count()
}

/// Sends a request on a connection and returns status, headers and body of the answer.
pub(crate) fn exchange(stream: &mut (impl Read + Write), request: &str) -> (u16, String, String) {
    let (status, head, body) = exchange_bytes(stream, request);
    (status, head, String::from_utf8(body).unwrap())
}

/// Sends a request on a connection and returns status, headers and the bytes of the body.
pub(crate) fn exchange_bytes(
    stream: &mut (impl Read + Write),
    request: &str,
) -> (u16, String, Vec<u8>) {
    const END: &[u8] = b"\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(END.len()).position(|bytes| bytes == END);
    let body = end.map_or(Vec::new(), |end| answer.split_off(end + END.len()));
    let head = String::from_utf8_lossy(&answer).trim_end().to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head, body)
}
