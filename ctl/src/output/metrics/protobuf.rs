//! Metrics in the protocol-buffer format of Prometheus, the only one with native histograms.

use super::{Family, SeriesLabels, SeriesValue};
use prost::Message;
use proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

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

/// Encodes the messages, each after its length.
pub(super) fn encoded(families: &[(String, Family)]) -> Vec<u8> {
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
