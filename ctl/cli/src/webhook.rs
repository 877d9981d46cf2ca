//! Tells an HTTP server when rules begin and cease to fire.
//!
//! A thread of its own posts, so that no window waits for the server. Each post has a time limit, and as many wait as there is room for. What could not be
//! told is said once, and once again when the server answers again.

use crate::writers::Problems;
use flowgauge_ctl::Record;
use flowgauge_ctl::alert::Alert;
use flowgauge_ctl::controller::Sink;
use flowgauge_ctl::lake::Identity;
use flowgauge_ctl::output::counted;
use flowgauge_ctl::record::Kind;
use flowgauge_ctl::serve::drop_capabilities;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Alerts that wait to be told.
const ROOM: usize = 256;
/// How long the server may take to be reached, to read and to answer, together.
const LIMIT: Duration = Duration::from_secs(5);
/// How long the end of a run waits for what is still to be told.
const LAST: Duration = Duration::from_secs(5);
/// What of an answer is read.
const ANSWER: usize = 64;

/// Where to post: plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// Host and port.
    authority: String,
    path: String,
}

impl FromStr for Webhook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "give an address such as http://127.0.0.1:8080/alerts";
        if text.starts_with("https://") {
            return Err(
                "posts are not encrypted; give a server or proxy on this machine, as in http://127.0.0.1:8080/alerts".to_owned()
            );
        }
        let rest = text.strip_prefix("http://").ok_or(form)?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_plain(rest) {
            return Err(form.to_owned());
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Webhook { authority, path: path.to_owned() })
    }
}

impl fmt::Display for Webhook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.authority, self.path)
    }
}

/// Posts changes of alerts.
pub(crate) struct Caller {
    posts: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
    /// When the run ended.
    ended: Arc<OnceLock<Instant>>,
    identity: Option<Identity>,
    /// Whether rules fire, by rule and place.
    firing: BTreeMap<(String, String), bool>,
    is_told: bool,
}

impl Caller {
    pub(crate) fn start(webhook: Webhook, identity: Option<Identity>, problems: &Problems) -> io::Result<Self> {
        let (posts, posted) = sync_channel(ROOM);
        let (problems, ended) = (problems.clone(), Arc::new(OnceLock::new()));
        let end = Arc::clone(&ended);
        let body = move || {
            drop_capabilities();
            call(&webhook, &posted, &end, &problems);
        };
        let thread = thread::Builder::new().name("webhook".to_owned()).spawn(body)?;
        Ok(Caller { posts: Some(posts), thread: Some(thread), ended, identity, firing: BTreeMap::new(), is_told: false })
    }

    fn body(&self, record: &Record, alert: &Alert) -> String {
        let host = self.identity.as_ref().map(|identity| identity.host.as_ref());
        let run = self.identity.as_ref().map(|identity| identity.run.as_ref());
        let Alert { rule, firing, value, low, high } = alert;
        json!({
            "rule": rule, "firing": firing, "value": value, "low": low, "high": high, "window": record.window,
            "start_ns": record.start_ns, "end_ns": record.end_ns, "source": record.origin(), "direction": record.direction,
            "host": host, "run": run,
        })
        .to_string()
    }
}

impl Sink for Caller {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        if record.kind != Kind::Window || record.part {
            return Ok(());
        }
        for alert in &record.alerts {
            let key = (alert.rule.clone(), record.origin().into_owned());
            let was = self.firing.insert(key, alert.firing).unwrap_or(false);
            if was == alert.firing {
                continue;
            }
            let body = self.body(record, alert);
            let is_posted = self.posts.as_ref().is_some_and(|posts| posts.try_send(body).is_ok());
            if !is_posted && !std::mem::replace(&mut self.is_told, true) {
                tracing::warn!("{ROOM} alerts wait for the webhook; further ones are not told it");
            }
        }
        Ok(())
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.ended.set(Instant::now());
        self.posts = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Posts what comes, until nothing can come any more.
fn call(webhook: &Webhook, posted: &Receiver<String>, ended: &OnceLock<Instant>, problems: &Problems) {
    /// Posts that failed or were left out since the server last answered, and when it is asked again.
    struct Silence {
        lost: u64,
        until: Instant,
    }
    let mut silence: Option<Silence> = None;
    while let Ok(body) = posted.recv() {
        if let Some(silence) = &mut silence
            && Instant::now() < silence.until
        {
            silence.lost += 1;
            continue;
        }
        let is_over = ended.get().is_some_and(|ended| ended.elapsed() > LAST);
        let outcome = if is_over { Err(io::ErrorKind::TimedOut.into()) } else { post(webhook, &body) };
        match (outcome, &mut silence) {
            (Ok(()), silence) => {
                if let Some(Silence { lost, .. }) = silence.take() {
                    tracing::warn!("{webhook} answers again; it was not told of {}", counted(lost, "alert"));
                }
            }
            (Err(_), Some(silence)) => {
                silence.lost += 1;
                silence.until = Instant::now() + LIMIT;
            }
            (Err(error), None) => {
                let problem = format!("cannot tell {webhook} of an alert: {error}; alerts are in the log and the records");
                tracing::warn!("{problem}");
                problems.add(problem);
                silence = Some(Silence { lost: 1, until: Instant::now() + LIMIT });
            }
        }
    }
}

/// Posts one, within the limit.
fn post(webhook: &Webhook, body: &str) -> io::Result<()> {
    let until = Instant::now() + LIMIT;
    let left = || {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut addresses = webhook.authority.to_socket_addrs()?;
    let address = addresses.next().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nUser-Agent: flowgauge/{}\r\nConnection: \
         close\r\n\r\n{body}",
        webhook.path,
        webhook.authority,
        body.len(),
        env!("CARGO_PKG_VERSION")
    );
    stream.write_all(request.as_bytes())?;
    // Only whether it was taken: HTTP/1.1 200 OK
    let mut answer = Vec::new();
    while answer.len() < ANSWER && !answer.contains(&b'\n') {
        stream.set_read_timeout(Some(left()?))?;
        let mut piece = [0; ANSWER];
        match stream.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    match line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|status| status.parse::<u16>().ok()) {
        Some(200..=299) => Ok(()),
        Some(status) => Err(io::Error::other(format!("it answers with status {status}"))),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not answer in HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_http() {
        let told = |text: &str| text.parse::<Webhook>().map(|webhook| webhook.to_string());
        assert_eq!(told("http://127.0.0.1:8080/alerts?x=1").as_deref(), Ok("http://127.0.0.1:8080/alerts?x=1"));
        assert_eq!(told("http://hooks.local").as_deref(), Ok("http://hooks.local:80/"));
        for text in ["", "127.0.0.1:80", "http://", "http:///x", "http://user@host/", "http://host/a b", "http://host/\r\nX: y"] {
            assert!(told(text).is_err(), "{text}");
        }
        assert!(told("https://host/").is_err_and(|problem| problem.contains("not encrypted")));
    }
}
