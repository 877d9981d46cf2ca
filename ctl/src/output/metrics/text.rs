//! Metrics in the text format of Prometheus, version 0.0.4.

use super::proto::MetricType;
use super::{Family, SeriesLabels, SeriesValue};
use std::fmt::Write;

/// Formats metrics with their names.
pub(super) fn encoded(families: &[(String, Family)]) -> String {
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
            zero: 0.0,
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
        assert_eq!(encoded(&families), expected);
    }

    #[test]
    fn labels_are_escaped() {
        let labels = vec![("source", "a\\b\n\"c\"".to_owned()), ("direction", "in".to_owned())];
        let expected = r#"{source="a\\b\n\"c\"",direction="in",le="0.5"}"#;
        assert_eq!(braced(&labels, Some("0.5")), expected);
        assert_eq!(braced(&Vec::new(), None), "");
    }
}
