//! Export of metrics to an OpenTelemetry collector, which is a server in this test.

use crate::common;
use crate::common::served::{ALL, Served, certificate, parsed, secret};
use crate::common::{Scratch, assert_has, execute};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tokio::runtime::Builder;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// Received request with its token.
type Received = (ExportMetricsServiceRequest, Option<String>);
/// Function that returns the answer to the export with this number, from zero.
type Answer = fn(usize) -> Result<ExportMetricsServiceResponse, Status>;

struct Collector {
    came: Mutex<(Sender<Received>, usize)>,
    answer: Answer,
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let token =
            request.metadata().get("authorization").map(|token| token.to_str().unwrap().to_owned());
        let mut came = self.came.lock().unwrap();
        let answer = (self.answer)(came.1);
        came.1 += 1;
        if answer.is_ok() {
            // The receiver is gone once the test has seen enough.
            let _ = came.0.send((request.into_inner(), token));
        }
        answer.map(Response::new)
    }
}

/// Starts a collector with this answer on a thread that ends with the test.
fn collector(answer: Answer, tls: Option<ServerTlsConfig>) -> (SocketAddr, Receiver<Received>) {
    let (sender, came) = channel();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let service = MetricsServiceServer::new(Collector { came: Mutex::new((sender, 0)), answer });
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap();
    }
    thread::spawn(move || {
        runtime.block_on(
            server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener)),
        )
    });
    (address, came)
}

fn well(_: usize) -> Result<ExportMetricsServiceResponse, Status> {
    Ok(ExportMetricsServiceResponse::default())
}

fn text(attribute: &KeyValue) -> (String, String) {
    let Some(Any::StringValue(value)) = attribute.value.as_ref().and_then(|it| it.value.clone())
    else {
        panic!("{attribute:?}")
    };
    (attribute.key.clone(), value)
}

fn metrics(request: &ExportMetricsServiceRequest) -> &[Metric] {
    let [resource] = &request.resource_metrics[..] else { panic!("{request:?}") };
    let [scope] = &resource.scope_metrics[..] else { panic!("{resource:?}") };
    &scope.metrics
}

/// Returns sums and gauges, by name and labels in the text format.
fn numbers(request: &ExportMetricsServiceRequest) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::new();
    for metric in metrics(request) {
        let points = match metric.data.as_ref().unwrap() {
            Data::Sum(sum) => {
                assert!(
                    sum.is_monotonic
                        && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32,
                    "{metric:?}"
                );
                &sum.data_points
            }
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Histogram(_) => continue,
            other => panic!("{other:?}"),
        };
        for point in points {
            assert!(
                point.start_time_unix_nano > 0
                    && point.start_time_unix_nano <= point.time_unix_nano,
                "{metric:?}"
            );
            let labels: Vec<String> = point
                .attributes
                .iter()
                .map(text)
                .map(|(name, value)| format!("{name}=\"{value}\""))
                .collect();
            let labels =
                if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let Some(Number::AsDouble(value)) = point.value else { panic!("{point:?}") };
            numbers.insert(format!("{}{labels}", metric.name), value);
        }
    }
    numbers
}

#[test]
fn a_collector_gets_the_metrics_of_prometheus() {
    // It rejects the first requests, as a collector that is starting.
    let answer: Answer =
        |number| if number < 3 { Err(Status::unavailable("starting")) } else { well(number) };
    let (address, came) = collector(answer, None);
    let mut served = Served::start(&format!(
        "--port memory:zipf,rate=5k --measure {ALL} --query 10.0.0.1 --otlp http://{address} --otlp-every 100ms"
    ));
    for _ in 0..3 {
        served.window();
    }
    let (_, _, scraped) = served.get("/metrics");
    let sum = |metrics: &BTreeMap<String, f64>| -> f64 {
        metrics
            .iter()
            .filter(|(name, _)| name.starts_with("flowgauge_packets_total{"))
            .map(|(_, packets)| packets)
            .sum()
    };
    let least = sum(&parsed(&scraped));
    // None of the earlier ones was lost: they were retried.
    let (mut before, mut last) = (-1.0, ExportMetricsServiceRequest::default());
    while before < least {
        (last, _) = came.recv().unwrap();
        let now = sum(&numbers(&last));
        assert!(now >= before.max(0.0), "{now} {before}");
        before = now;
    }
    let who: BTreeMap<String, String> =
        last.resource_metrics[0].resource.as_ref().unwrap().attributes.iter().map(text).collect();
    let named = |name: &str| who.get(name).map(String::as_str);
    assert_eq!(
        (named("service.name"), named("host.name"), named("service.instance.id")),
        (Some("flowgauge"), Some("here"), Some("run"))
    );
    // The same metrics with the same kinds and labels.
    let kinds = |kind: &str| -> BTreeSet<String> {
        let lines =
            scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(kind));
        lines.map(|name| name.trim_end().to_owned()).collect()
    };
    let sent = |is: fn(&Data) -> bool| -> BTreeSet<String> {
        let of = metrics(&last).iter().filter(|metric| metric.data.as_ref().is_some_and(is));
        of.map(|metric| metric.name.clone()).collect()
    };
    for (kind, is) in [
        (" counter", (|data| matches!(data, Data::Sum(_))) as fn(&Data) -> bool),
        (" gauge", |data| matches!(data, Data::Gauge(_))),
        (" histogram", |data| matches!(data, Data::Histogram(_))),
    ] {
        let (printed, sent) = (kinds(kind), sent(is));
        assert!(!printed.is_empty() && printed.is_subset(&sent), "{kind}: {printed:?} {sent:?}");
    }
    let (mine, theirs) = (numbers(&last), parsed(&scraped));
    let simple = theirs.keys().filter(|name| {
        !["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.split('{').next().unwrap().ends_with(end))
    });
    let missing: Vec<&String> =
        simple.filter(|name| !mine.contains_key(*name) && !name.contains("rank=")).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Units and histograms: each packet is in a bucket, and there is one more bucket than bounds.
    let lengths = metrics(&last)
        .iter()
        .find(|metric| metric.name == "flowgauge_packet_lengths_bytes")
        .unwrap();
    let Some(Data::Histogram(histogram)) = &lengths.data else { panic!("{lengths:?}") };
    let point = &histogram.data_points[0];
    assert_eq!((lengths.unit.as_str(), point.count as f64), ("By", before));
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    let printed = served.end();
    assert_eq!(printed.matches("cannot send metrics").count(), 1, "{printed}");
    assert_has(&printed, &["starting", "takes metrics again; 0 exports lost"]);
}

#[test]
fn a_collector_that_is_not_there_loses_metrics_and_no_packet() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let run = format!(
        "run --port memory:zipf,packets=5000,rate=10k --format json --window 50ms --otlp http://{address} --otlp-every 10ms"
    );
    let outcome = execute(&run).ended(1);
    let records = common::parse(&outcome.stdout);
    assert_eq!(common::number(common::total(&records), "packets"), 5000);
    // Logged when it starts, and at the end with the amount.
    let lost = format!("of metrics did not reach http://{address}");
    assert_has(&outcome.stderr, &[&lost]);
    assert_eq!(outcome.stderr.matches("cannot send metrics").count(), 1, "{}", outcome.stderr);
}

#[test]
fn what_a_collector_refuses_is_told() {
    let answer: Answer = |number| match number {
        0 => Err(Status::invalid_argument("not like this")),
        1 => Ok(ExportMetricsServiceResponse {
            partial_success: Some(ExportMetricsPartialSuccess {
                rejected_data_points: 7,
                error_message: "too many".to_owned(),
            }),
        }),
        _ => well(number),
    };
    let (address, came) = collector(answer, None);
    let mut served = Served::start(&format!(
        "--port memory:zipf,rate=5k --otlp http://{address} --otlp-every 20ms"
    ));
    // The data of a rejected request is in one of those after it.
    let refused = |request: &ExportMetricsServiceRequest| {
        let numbers = numbers(request);
        let printed = |name: &str| numbers.get(name).copied().unwrap_or_default();
        (
            printed("flowgauge_otlp_exports_total{outcome=\"lost\"}"),
            printed("flowgauge_otlp_rejected_points_total"),
        )
    };
    while refused(&came.recv().unwrap().0) != (1.0, 7.0) {}
    served.window();
    let lost = "not like this; what it refuses is lost";
    let parts = [lost, "refuses 7 metric points", "1 export of metrics did not reach"];
    served.outcome().ended_with(1, &parts);
}

#[test]
fn a_token_goes_over_an_encrypted_connection_alone() {
    let scratch = Scratch::new("otlp-token");
    let (certificate, key) = certificate(&scratch);
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let token = secret(&scratch, "token", TOKEN);
    let identity = Identity::from_pem(fs::read(&certificate).unwrap(), fs::read(&key).unwrap());
    let (address, came) = collector(well, Some(ServerTlsConfig::new().identity(identity)));
    let url = format!("https://localhost:{}", address.port());
    let served = Served::start(&format!(
        "--port memory:zipf,rate=5k --otlp {url} --otlp-every 20ms --otlp-ca {certificate} --otlp-token-file {token}"
    ));
    assert_eq!(came.recv().unwrap().1.as_deref(), Some(&*format!("Bearer {TOKEN}")));
    let printed = served.end();
    assert!(!printed.contains("cannot send"), "{printed}");
    for options in [
        "--otlp http://127.0.0.1:1 --otlp-token-file token",
        "--otlp http://127.0.0.1:1 --otlp-ca ca",
        "--otlp https://127.0.0.1:1",
        "--otlp 127.0.0.1:4317",
        "--otlp http://user@host",
        "--otlp-every 1s",
    ] {
        let outcome = execute(&format!("run --port memory:zipf {options}"));
        assert_eq!(outcome.code, Some(2), "{options}: {}", outcome.stderr);
    }
}
