//! Content negotiation of `/metrics` by `Accept` headers (RFC 9110, section 12.5.1).

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// Content type of the text format, the default.
pub(super) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Content type of length-delimited protobuf messages.
pub(super) const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Returns whether a request accepts [`PROTOBUF`] by name and does not prefer text.
pub(super) fn wants_protobuf(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let texts = texts.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let wanted: Vec<Range<'_>> = texts.split(',').filter_map(Range::parse).collect();
    let named = |name: &str| wanted.iter().find(|range| range.name == name);
    // The most specific range that matches text decides its weight.
    let text = ["text/plain", "text/*", "*/*"].into_iter().find_map(named);
    let text = text.map_or(0.0, |range| range.weight);
    let protobuf = wanted.iter().find(|range| range.is_protobuf());
    protobuf.is_some_and(|range| range.weight > 0.0 && range.weight >= text)
}

/// Media range of an `Accept` header, in lower case.
struct Range<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// Preference, from 0 (not acceptable) to 1.
    weight: f32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let parameter = |part: &'a str| {
            part.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        };
        let (weights, parameters): (Vec<_>, Vec<_>) =
            parts.filter_map(parameter).partition(|(name, _)| *name == "q");
        let weight = weights.first().map_or(Ok(1.0), |(_, weight)| weight.parse()).ok()?;
        Some(Range { name, parameters, weight })
    }

    fn is_protobuf(&self) -> bool {
        self.name == "application/vnd.google.protobuf"
            && self.parameters.contains(&("proto", "io.prometheus.client.metricfamily"))
            && self.parameters.contains(&("encoding", "delimited"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn wanted(accept: &[&'static str]) -> bool {
        wants_protobuf(
            &accept.iter().map(|value| (ACCEPT, HeaderValue::from_static(value))).collect(),
        )
    }

    #[test]
    fn protobuf_is_for_who_asks_for_it() {
        let asked: [&[&str]; 6] = [
            &[PROTOBUF],
            // Prometheus 2.42 and 3.
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            ],
            &[
                "text/html",
                "Application/VND.google.protobuf ; Encoding = \"delimited\" ; proto=\"io.prometheus.client.MetricFamily\"",
            ],
            &[
                "*/*, application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            ],
            &[
                "text/*;q=0.9,*/*,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.9",
            ],
        ];
        for accept in asked {
            assert!(wanted(accept), "{accept:?}");
        }
    }

    #[test]
    fn other_clients_get_text() {
        let not_asked: [&[&str]; 9] = [
            &[],
            &["*/*"],
            &["", ";;;,=,q"],
            // Prometheus without native histograms; browsers.
            &[
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ],
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            // Other messages and other encodings.
            &["application/vnd.google.protobuf"],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            ],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
            ],
            &[
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,text/plain",
            ],
        ];
        for accept in not_asked {
            assert!(!wanted(accept), "{accept:?}");
        }
    }
}
