//! gRPC server of a run, accessed by a client with separate code, and its behaviour with malicious
//! clients.

use crate::common::served::{ALL, Served, assert_once, certificate, secret};
use crate::common::{Scratch, address_in, assert_has, execute, generated};
use flowgauge_ctl::serve::proto::agent_client::AgentClient;
use flowgauge_ctl::serve::proto::{
    ConfigurationRequest, DelaysRequest, Record, SamplesRequest, SamplesResponse, StatusRequest,
    WindowsRequest, WindowsResponse, delays_response, samples_response, windows_response,
};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// Run with a gRPC server.
struct AgentRun {
    served: Served,
    address: SocketAddr,
    runtime: Runtime,
}

impl AgentRun {
    fn start(options: &str) -> Self {
        let mut served = Served::start(&format!("--grpc 0 {options}"));
        let address = address_in(&served.messages.line(), "grpc://").parse().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        AgentRun { address, served, runtime }
    }

    /// Reads standard output until the end, since a full pipe would block the run.
    fn printed(&mut self) -> JoinHandle<String> {
        let stdout = self.served.running.stdout.take().unwrap();
        thread::spawn(move || io::read_to_string(stdout).unwrap())
    }

    fn wait<F: Future>(&self, answer: F) -> F::Output {
        self.runtime.block_on(answer)
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap()
    }

    fn channel(&self) -> Channel {
        self.runtime.block_on(self.endpoint().connect()).unwrap()
    }

    fn agent(&self) -> AgentClient<Channel> {
        AgentClient::new(self.channel())
    }

    fn windows(&self, after: Option<u64>) -> Streaming<WindowsResponse> {
        self.runtime.block_on(self.agent().windows(WindowsRequest { after })).unwrap().into_inner()
    }

    fn samples(&self, endpoint: &Endpoint) -> Streaming<SamplesResponse> {
        let channel = self.wait(endpoint.connect()).unwrap();
        self.wait(AgentClient::new(channel).samples(SamplesRequest {})).unwrap().into_inner()
    }

    fn record(&self, windows: &mut Streaming<WindowsResponse>) -> Option<Record> {
        match self.runtime.block_on(windows.message()).unwrap()?.content.unwrap() {
            windows_response::Content::Record(record) => Some(record),
            windows_response::Content::Missed(missed) => panic!("{missed:?}"),
        }
    }

    fn sample(&self, samples: &mut Streaming<SamplesResponse>) -> samples_response::Content {
        self.runtime.block_on(samples.message()).unwrap().unwrap().content.unwrap()
    }
}

/// Checks that an answer is an error with this code and message.
#[track_caller]
fn refused<T: Debug>(answer: Result<T, Status>, code: Code, message: &str) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    assert_has(status.message(), &[message]);
}

#[test]
fn windows_are_the_lines_of_json() {
    let mut agent_run = AgentRun::start(&format!(
        "--port memory:zipf,rate=5k --measure {ALL} --query 10.0.0.1 --sketches"
    ));
    let printed = agent_run.printed();
    let mut windows = agent_run.windows(Some(0));
    let mut records: Vec<Record> =
        (0..5).map(|_| agent_run.record(&mut windows).unwrap()).collect();
    // A client that reconnects continues where it stopped; one without a position gets what
    // follows.
    assert_eq!(agent_run.record(&mut agent_run.windows(Some(3))), Some(records[3].clone()));
    assert!(agent_run.record(&mut agent_run.windows(None)).unwrap().number > 5);
    let foreign = WindowsRequest { after: Some(1 << 40) };
    refused(agent_run.wait(agent_run.agent().windows(foreign)), Code::OutOfRange, "another run");
    agent_run.served.running.interrupt();
    records.extend(std::iter::from_fn(|| agent_run.record(&mut windows)));
    assert!(agent_run.served.running.child.wait().unwrap().success());
    // All of them, and the total at the end.
    let printed = printed.join().unwrap();
    assert_eq!(records.last().unwrap().kind, "total");
    assert!(
        records.iter().map(|record| &record.json).eq(printed.lines()),
        "{} {}",
        records.len(),
        printed.lines().count()
    );
    for (record, number) in records.iter().zip(1..) {
        let line: Value = serde_json::from_str(&record.json).unwrap();
        assert_eq!((record.number, record.part), (number, false));
        assert_eq!((record.host.as_str(), record.run.as_str()), ("here", "run"));
        let told = json!({
            "record": record.kind, "window": record.window, "interface": record.source,
            "start_ns": record.start_ns, "end_ns": record.end_ns,
            "direction": record.direction, "complete": record.complete,
        });
        for (key, told) in told.as_object().unwrap() {
            assert_eq!(&line[key], told, "{key}: {line}");
        }
    }
}

#[test]
fn a_run_tells_its_options_and_how_it_is_doing() {
    let agent_run = AgentRun::start(
        "--port memory:zipf,rate=5k --key heavy=dst,src --measure cardinality,heavy",
    );
    let (runtime, mut agent) = (&agent_run.runtime, agent_run.agent());
    let configuration =
        runtime.block_on(agent.configuration(ConfigurationRequest {})).unwrap().into_inner();
    let [source] = &configuration.sources[..] else { panic!("{configuration:?}") };
    let setting = |name: &str| {
        source
            .settings
            .iter()
            .find(|setting| setting.name == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(
        (source.name.as_str(), &setting("window").values[..]),
        ("", &["100ms".to_owned()][..])
    );
    assert_eq!(setting("window").origin, "--window on the command line");
    assert_eq!(setting("key").values, ["heavy=dst", "src"]);
    let status = runtime.block_on(agent.status(StatusRequest {})).unwrap().into_inner();
    let report: Value = serde_json::from_str(&status.json).unwrap();
    assert_eq!((status.host.as_str(), status.problems), ("here", vec![]));
    assert_eq!(report["pid"].as_u64(), Some(agent_run.served.running.child.id().into()));
    let mut health = HealthClient::new(agent_run.channel());
    for service in ["", "flowgauge.v1.Agent"] {
        let asked = HealthCheckRequest { service: service.to_owned() };
        let checked = runtime.block_on(health.check(asked.clone())).unwrap().into_inner();
        let mut watched = runtime.block_on(health.watch(asked)).unwrap().into_inner();
        let first = runtime.block_on(watched.message()).unwrap().unwrap();
        assert_eq!([checked.status, first.status], [ServingStatus::Serving as i32; 2], "{service}");
    }
    let unknown = HealthCheckRequest { service: "nothing".to_owned() };
    assert_eq!(runtime.block_on(health.check(unknown)).unwrap_err().code(), Code::NotFound);
    let delays = runtime.block_on(agent.delays(DelaysRequest {}));
    refused(delays, Code::FailedPrecondition, "--delay-samples");
    agent_run.served.end();
}

#[test]
fn tools_find_the_service_by_reflection() {
    let agent_run = AgentRun::start("--port memory:zipf,rate=5k");
    let mut client = ServerReflectionClient::new(agent_run.channel());
    let mut ask = |request| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let stream = tokio_stream::once(request);
        let mut answers =
            agent_run.wait(client.server_reflection_info(stream)).unwrap().into_inner();
        agent_run.wait(answers.message()).unwrap().unwrap().message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(list) =
        ask(MessageRequest::ListServices(String::new()))
    else {
        panic!("no list")
    };
    let mut names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["flowgauge.v1.Agent", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]
    );
    let asked = MessageRequest::FileContainingSymbol("flowgauge.v1.Agent.Windows".to_owned());
    let MessageResponse::FileDescriptorResponse(file) = ask(asked) else { panic!("no file") };
    let contains =
        |bytes: &Vec<u8>, name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    assert!(file.file_descriptor_proto.iter().any(|bytes| contains(bytes, b"WindowsRequest")));
    agent_run.served.end();
}

/// A client that does not read is notified of what it missed, and delays neither other clients nor
/// the windows.
#[test]
fn a_slow_client_learns_what_it_missed() {
    let mut agent_run = AgentRun::start("--port memory:zipf,rate=5k --sample-every 1ms");
    let printed = agent_run.printed();
    let mut slow = agent_run.samples(&agent_run.endpoint().initial_stream_window_size(65_535));
    let mut quick = agent_run.samples(&agent_run.endpoint());
    let (mut last, mut first) = (0, None);
    // More than are stored, and than fit into the buffers in between.
    while last < first.unwrap_or(0) + 2000 {
        match agent_run.sample(&mut quick) {
            samples_response::Content::Record(record) => last = record.number,
            // The machine may have been busy.
            samples_response::Content::Missed(_) => {}
        }
        first = first.or(Some(last));
    }
    let (mut next, mut missed) = (None, 0);
    while next.is_none_or(|next| next <= last) {
        match agent_run.sample(&mut slow) {
            samples_response::Content::Record(record) => {
                assert!(
                    next.is_none_or(|next| next == record.number),
                    "{next:?} {}",
                    record.number
                );
                assert_eq!(record.kind, "sample");
                next = Some(record.number + 1);
            }
            samples_response::Content::Missed(gap) => {
                next = next.map(|next| next + gap.records);
                missed += gap.records;
            }
        }
    }
    assert!(missed > 0, "nothing was missed up to {next:?}");
    agent_run.served.end();
    assert!(!printed.join().unwrap().is_empty());
}

#[test]
fn delays_come_one_by_one() {
    let scratch = Scratch::new("grpc-delays");
    let capture = generated(&scratch, "delays.pcap", "delay,requests=10k,rate=1000");
    let samples = scratch.argument("delays.jsonl");
    let mut agent_run = AgentRun::start(&format!(
        "--port pcap:{capture} --measure delay --delay-samples {samples}"
    ));
    let mut delays =
        agent_run.wait(agent_run.agent().delays(DelaysRequest {})).unwrap().into_inner();
    let (mut lines, mut number) = (Vec::new(), 0);
    while lines.len() < 300 {
        match agent_run.wait(delays.message()).unwrap().unwrap().content.unwrap() {
            delays_response::Content::Delays(delays) => {
                assert!(
                    delays.number > number
                        && delays.host == "here"
                        && delays.source.ends_with("delays.pcap"),
                    "{delays:?}"
                );
                number = delays.number;
                lines.extend(delays.json_lines.lines().map(str::to_owned));
            }
            delays_response::Content::Missed(missed) => panic!("{missed:?}"),
        }
    }
    agent_run.served.window();
    agent_run.served.end();
    let written = std::fs::read_to_string(samples).unwrap();
    let written: Vec<&str> = written.lines().collect();
    let begins = written.iter().position(|line| *line == lines[0]).unwrap();
    assert_eq!(written[begins..begins + lines.len()], lines);
    assert!(lines.iter().any(|line| line.contains("\"delay_ns\"")));
}

#[test]
fn clients_that_mean_no_good_are_turned_away() {
    let mut agent_run = AgentRun::start("--port memory:zipf,rate=5k");
    let address = agent_run.address;
    for garbage in [
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "\0".repeat(1 << 16),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n?".repeat(99),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        // The connection may be closed before everything is written.
        let _ =
            stream.write_all(garbage.as_bytes()).and_then(|()| stream.read_to_end(&mut Vec::new()));
    }
    let mut health = HealthClient::new(agent_run.channel());
    let large = HealthCheckRequest { service: "x".repeat(1 << 20) };
    let large = agent_run.wait(health.check(large)).unwrap_err();
    assert!(
        matches!(large.code(), Code::ResourceExhausted | Code::Unknown | Code::Internal),
        "{large:?}"
    );
    // A host name that does not belong to this machine.
    let foreign = agent_run.endpoint().origin("http://evil.example".parse().unwrap());
    let mut agent = AgentClient::new(agent_run.wait(foreign.connect()).unwrap());
    let answer = agent_run.wait(agent.status(StatusRequest {}));
    refused(answer, Code::PermissionDenied, "localhost");
    // More connections than allowed, without any request. An accepted one is greeted.
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let is_closed = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let rest = stream.read_to_end(&mut Vec::new());
        rest.map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
    };
    assert!(silent.iter().take(236).filter(|stream| is_closed(stream)).count() == 236);
    let before = agent_run.served.window()["window"].as_u64().unwrap();
    drop(silent);
    assert!(agent_run.served.window()["window"].as_u64().unwrap() > before);
    let is_answered = || {
        agent_run.wait(async {
            let channel = agent_run.endpoint().connect().await.ok()?;
            AgentClient::new(channel).status(StatusRequest {}).await.ok()
        })
    };
    while is_answered().is_none() {}
    let refused = agent_run.served.metrics();
    let count =
        |reason: &str| refused[&format!("flowgauge_grpc_refused_total{{reason=\"{reason}\"}}")];
    assert!(
        count("connections") >= 236.0 && count("host") == 1.0 && count("request") >= 3.0,
        "{refused:?}"
    );
    assert_eq!((count("token"), count("tls")), (0.0, 0.0));
    assert_once(
        &agent_run.served.end(),
        &["connections are open", "is not this machine's own", "refused over gRPC: a request: "],
    );
}

/// An address that other machines can reach requires a certificate and a token.
#[test]
fn strangers_have_to_know_the_token() {
    execute("run --port memory:zipf --grpc 0.0.0.0:0")
        .ended_with(2, &["--grpc 0.0.0.0 is reachable by other machines"]);
    let scratch = Scratch::new("grpc-strangers");
    let (certificate, key) = certificate(&scratch);
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let token = secret(&scratch, "token", TOKEN);
    let mut agent_run = AgentRun::start(&format!(
        "--port memory:zipf,rate=5k --listen-cert {certificate} --listen-key {key} --listen-token-file {token}"
    ));
    let authority = Certificate::from_pem(std::fs::read(&certificate).unwrap());
    let tls = ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", agent_run.address))
        .unwrap()
        .tls_config(tls)
        .unwrap();
    let mut agent = AgentClient::new(agent_run.wait(endpoint.connect()).unwrap());
    let mut ask = |token: Option<&str>| {
        let mut request = Request::new(StatusRequest {});
        if let Some(token) = token {
            request
                .metadata_mut()
                .insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        agent_run
            .wait(agent.status(request))
            .map(|status| status.into_inner().host)
            .map_err(|status| status.code())
    };
    for wrong in [None, Some(""), Some("0123456789abcdef0123456789abcdee"), Some("0123")] {
        assert_eq!(ask(wrong), Err(Code::Unauthenticated), "{wrong:?}");
    }
    assert_eq!(ask(Some(TOKEN)).as_deref(), Ok("here"));
    // Without TLS there is no answer.
    let plain = agent_run.wait(async {
        let channel = agent_run.endpoint().connect().await.ok()?;
        AgentClient::new(channel).status(StatusRequest {}).await.ok()
    });
    assert!(plain.is_none(), "{plain:?}");
    agent_run.served.window();
    let printed = agent_run.served.end();
    assert_once(&printed, &["without the token", "without TLS"]);
    assert!(!printed.contains("0123456789"), "{printed}");
}
