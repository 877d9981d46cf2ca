//! Conversion of metrics to the points of OTLP messages.
//!
//! Names stay those of Prometheus, with `_total` and units: OpenTelemetry's compatibility
//! specification keeps them, so a collector that exports to Prometheus yields the same metrics as
//! `/metrics`.

use super::Resource;
use super::proto::any_value::Value as Any;
use super::proto::metric::Data;
use super::proto::number_data_point::Value as Number;
use super::proto::{
    AggregationTemporality, AnyValue, ExportMetricsServiceRequest, Gauge, Histogram,
    HistogramDataPoint, InstrumentationScope, KeyValue, Metric, NumberDataPoint,
    Resource as ResourceMessage, ResourceMetrics, ScopeMetrics, Sum,
};
use crate::output::metrics::{Family, SeriesLabels, SeriesValue};
use crate::output::proto::MetricType;

/// Suffixes of metric names, and the units that they stand for.
const UNITS: [(&str, &str); 3] = [("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1")];

fn attribute(name: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: name.to_owned(), value }
}

fn attributes(labels: &SeriesLabels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| attribute(name, value)).collect()
}

/// Returns the unit that a name's suffix stands for, in UCUM notation.
fn unit(name: &str) -> &'static str {
    let name = name.trim_end_matches("_total");
    UNITS.iter().find(|(suffix, _)| name.ends_with(suffix)).map_or("", |(_, unit)| unit)
}

/// Times of all points of an export, in nanoseconds since the Unix epoch.
pub(super) struct PointTimes {
    /// Start of the run, from which sums count.
    pub(super) start_ns: u64,
    /// Time of the export.
    pub(super) now_ns: u64,
}

impl PointTimes {
    /// Builds the request that exports all metrics.
    pub(super) fn request(
        &self,
        families: &[(String, Family)],
        resource: &Resource,
    ) -> ExportMetricsServiceRequest {
        let attributes = resource.iter().map(|(name, value)| attribute(name, value)).collect();
        let scope = InstrumentationScope {
            name: "flowgauge".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let metrics = families.iter().map(|(name, family)| self.metric(name, family)).collect();
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics }];
        let resource = Some(ResourceMessage { attributes });
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics { resource, scope_metrics }],
        }
    }

    fn metric(&self, name: &str, family: &Family) -> Metric {
        let aggregation_temporality = AggregationTemporality::Cumulative as i32;
        let data = match family.kind {
            MetricType::Counter => Data::Sum(Sum {
                data_points: self.numbers(family),
                aggregation_temporality,
                is_monotonic: true,
            }),
            MetricType::Histogram => Data::Histogram(Histogram {
                data_points: self.distributions(family),
                aggregation_temporality,
            }),
            _ => Data::Gauge(Gauge { data_points: self.numbers(family) }),
        };
        let (name, description, unit) =
            (name.to_owned(), family.help.clone(), unit(name).to_owned());
        Metric { name, description, unit, data: Some(data) }
    }

    fn numbers(&self, family: &Family) -> Vec<NumberDataPoint> {
        let point = |(labels, value): (&SeriesLabels, &SeriesValue)| {
            let SeriesValue::One(value) = value else { return None };
            Some(NumberDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: self.start_ns,
                time_unix_nano: self.now_ns,
                value: Some(Number::AsDouble(*value)),
            })
        };
        family.series.iter().filter_map(point).collect()
    }

    fn distributions(&self, family: &Family) -> Vec<HistogramDataPoint> {
        let point = |(labels, value): (&SeriesLabels, &SeriesValue)| {
            let SeriesValue::Many(histogram) = value else { return None };
            let mut previous = 0;
            let counts = histogram
                .cumulative()
                .map(|(_, count)| count - std::mem::replace(&mut previous, count));
            // The bucket above the last bound is empty.
            let bucket_counts = counts.chain([0]).collect();
            Some(HistogramDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: self.start_ns,
                time_unix_nano: self.now_ns,
                count: histogram.count(),
                sum: Some(histogram.sum),
                bucket_counts,
                explicit_bounds: histogram.cumulative().map(|(high, _)| high).collect(),
            })
        };
        family.series.iter().filter_map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn suffixes_of_names_give_units() {
        let names = [
            "delay_seconds",
            "worker_cpu_seconds_total",
            "traffic_bytes_total",
            "x_ratio",
            "packets_total",
            "entropy",
        ];
        assert_eq!(names.map(unit), ["s", "s", "By", "1", "", ""]);
    }
}
