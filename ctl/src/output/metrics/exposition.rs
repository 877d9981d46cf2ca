//! Exposition formats of Prometheus: text, version 0.0.4, and protocol buffers, the only one with
//! native histograms.

use super::{Family, SeriesLabels, SeriesValue};
use prost::Message;
use proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use std::fmt::Write;

/// Generated messages of Prometheus, as far as they are used.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the .proto has the comments"
)]
pub mod proto {
    include!("../../../proto/io/prometheus/client/metrics.rs");
}

/// Formats metrics with their names as text.
pub(super) fn text(families: &[(String, Family)]) -> String {
    let mut text = String::new();
    for (name, Family { help, kind, series }) in families {
        let kind = match kind {
            MetricType::Counter => "counter",
            MetricType::Histogram => "histogram",
            MetricType::Gauge => "gauge",
        };
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", escaped(help));
        for (labels, value) in series {
            let mut line = |suffix: &str, bound: Option<&str>, value: f64| {
                let (labels, value) = (braced(labels, bound), number(value));
                let _ = writeln!(text, "{name}{suffix}{labels} {value}");
            };
            match value {
                SeriesValue::One(value) => line("", None, *value),
                SeriesValue::Many(all) => {
                    for (high, count) in all.cumulative() {
                        line("_bucket", Some(&high.to_string()), count as f64);
                    }
                    line("_bucket", Some("+Inf"), all.count() as f64);
                    line("_sum", None, all.sum);
                    line("_count", None, all.count() as f64);
                }
            }
        }
    }
    text
}

/// Formats labels, with the upper bound of a bucket as the last one; nothing without any.
fn braced(labels: &SeriesLabels, bound: Option<&str>) -> String {
    let label =
        |name: &str, value: &str| format!("{name}=\"{}\"", escaped(value).replace('"', "\\\""));
    let labels = labels.iter().map(|(name, value)| label(name, value));
    let labels: Vec<String> = labels.chain(bound.map(|bound| label("le", bound))).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

/// Formats a value. The format writes infinity in another way than Rust does.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Encodes metrics as messages, each after its length.
pub(super) fn protobuf(families: &[(String, Family)]) -> Vec<u8> {
    families
        .iter()
        .flat_map(|(name, family)| family.message(name).encode_length_delimited_to_vec())
        .collect()
}

impl Family {
    fn message(&self, name: &str) -> MetricFamily {
        let metric =
            self.series.iter().map(|(labels, value)| series(self.kind, labels, value)).collect();
        MetricFamily {
            name: Some(name.to_owned()),
            help: Some(self.help.clone()),
            r#type: Some(self.kind.into()),
            metric,
        }
    }
}

fn series(kind: MetricType, labels: &SeriesLabels, value: &SeriesValue) -> Metric {
    let pair = |(name, value): &(&str, String)| LabelPair {
        name: Some((*name).to_owned()),
        value: Some(value.clone()),
    };
    let mut metric = Metric { label: labels.iter().map(pair).collect(), ..Metric::default() };
    match value {
        SeriesValue::One(value) if kind == MetricType::Counter => {
            metric.counter = Some(Counter { value: Some(*value) })
        }
        SeriesValue::One(value) => metric.gauge = Some(Gauge { value: Some(*value) }),
        SeriesValue::Many(distributed) => {
            // Classic buckets as well, for servers without native histograms.
            let buckets = distributed.cumulative();
            let buckets = buckets.map(|(high, count)| Bucket {
                cumulative_count: Some(count),
                upper_bound: Some(high),
            });
            let (sample_count, sample_sum) = (Some(distributed.count()), Some(distributed.sum));
            let mut histogram = Histogram {
                sample_count,
                sample_sum,
                bucket: buckets.collect(),
                ..Histogram::default()
            };
            distributed.write_native(&mut histogram);
            metric.histogram = Some(histogram);
        }
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Distribution, Range};
    use crate::output::metrics::RunHistogram;

    #[test]
    fn counters_gauges_and_histograms_have_the_lines_of_the_format() {
        let family = |help: &str, kind: MetricType, labels: SeriesLabels, value: SeriesValue| {
            Family { help: help.to_owned(), kind, series: [(labels, value)].into() }
        };
        let source = || vec![("source", "eth1".to_owned())];
        let range = |low, high, count| Range { low, high, count };
        let mut waits = RunHistogram::default();
        waits.add(&Distribution {
            ranges: vec![range(0.0, 0.5, 2.0), range(0.5, 1.0, 1.0)],
            sum: 1.25,
            narrow: Vec::new(),
            zero_threshold: 0.0,
        });
        let [most, none, unbounded] =
            [u64::MAX as f64, f64::NAN, f64::INFINITY].map(SeriesValue::One);
        let families = [
            ("a_total".to_owned(), family("a\\b\nc \"d\"", MetricType::Counter, source(), most)),
            ("b".to_owned(), family("no number", MetricType::Gauge, Vec::new(), none)),
            ("b_high".to_owned(), family("no bound", MetricType::Gauge, Vec::new(), unbounded)),
            (
                "c_seconds".to_owned(),
                family("waits", MetricType::Histogram, source(), SeriesValue::Many(waits)),
            ),
        ];
        let expected = r#"# HELP a_total a\\b\nc "d"
# TYPE a_total counter
a_total{source="eth1"} 18446744073709552000
# HELP b no number
# TYPE b gauge
b NaN
# HELP b_high no bound
# TYPE b_high gauge
b_high +Inf
# HELP c_seconds waits
# TYPE c_seconds histogram
c_seconds_bucket{source="eth1",le="0.5"} 2
c_seconds_bucket{source="eth1",le="1"} 3
c_seconds_bucket{source="eth1",le="+Inf"} 3
c_seconds_sum{source="eth1"} 1.25
c_seconds_count{source="eth1"} 3
"#;
        assert_eq!(text(&families), expected);
    }

    #[test]
    fn labels_are_escaped() {
        let labels = vec![("source", "a\\b\n\"c\"".to_owned()), ("direction", "in".to_owned())];
        let expected = r#"{source="a\\b\n\"c\"",direction="in",le="0.5"}"#;
        assert_eq!(braced(&labels, Some("0.5")), expected);
        assert_eq!(braced(&Vec::new(), None), "");
    }
}
