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
                let _ = writeln!(text, "{name}{suffix}{} {value}", braced(labels, bound));
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

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let labels = vec![("source", "a\\b\n\"c\"".to_owned()), ("direction", "in".to_owned())];
        let expected = r#"{source="a\\b\n\"c\"",direction="in",le="0.5"}"#;
        assert_eq!(braced(&labels, Some("0.5")), expected);
        assert_eq!(braced(&Vec::new(), None), "");
    }
}
