//! Figures that the windows of a run can have.
//!
//! They follow from the settings of the run, so that a rule about another figure is refused before
//! the first window. Each measurement lists its own next to its fields.

use crate::alert::Rule;
use crate::figure::KnownFigure;
use crate::measurement::{self, Estimation};
use crate::nearest::nearest;
use crate::record;
pub use crate::record::SourceTraits;
use flowgauge_core::Settings;
use std::collections::BTreeSet;

/// Returns why a rule can never fire in a run with these settings, if it is about none of its
/// figures: which ones there are, or which labels they have.
#[must_use]
pub fn problem(
    rule: &Rule,
    settings: &Settings,
    options: &Estimation,
    source: SourceTraits,
) -> Option<String> {
    let mut known = record::known(source);
    known.extend(measurement::known(settings, options));
    let named: Vec<&KnownFigure> =
        known.iter().filter(|known| rule.names(known.name, known.unit)).collect();
    if named.iter().any(|known| known.has(&rule.labels)) {
        return None;
    }
    let text = &rule.text;
    let Some(first) = named.first() else {
        let names: BTreeSet<&str> = known.iter().map(|known| known.name).collect();
        let meant = nearest(&rule.figure, names.iter().copied())
            .map_or_else(String::new, |name| format!("did you mean '{name}'? "));
        let names: Vec<&str> = names.into_iter().collect();
        return Some(format!(
            "the alert '{text}' is about no figure of this run; {meant}those are {}; --measure, --alarm and --match add others",
            names.join(", ")
        ));
    };
    let mut labels = BTreeSet::new();
    for (label, values) in named.iter().flat_map(|known| &known.labels) {
        labels.extend(values.iter().map(|value| format!("{label}={value}")));
    }
    let labels: Vec<String> = labels.into_iter().collect();
    let advice = if labels.is_empty() {
        "it has no labels".to_owned()
    } else {
        format!("its labels are {}", labels.join(", "))
    };
    Some(format!("the alert '{text}' matches no {} of this run; {advice}", first.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::KeyKind;
    use flowgauge_core::measurement::Toggle;

    fn problem(rule: &str) -> Option<String> {
        let mut settings = Settings::default();
        settings.cardinality.key = KeyKind::SrcDst;
        settings.sizes = Toggle::ON;
        let rule = rule.parse().unwrap();
        super::problem(&rule, &settings, &Estimation::default(), SourceTraits::default())
    }

    #[test]
    fn a_rule_about_a_figure_or_label_that_is_not_there_lists_those_that_are() {
        for rule in [
            "distinct_flows > 1M",
            "distinct_flows{key=src-dst} > 1M",
            "flowgauge_packets_total{family=ipv6} > 0",
            "lost_packets{cause=device} > 0",
            "mean_packet_length > 100",
            "packet_length_bytes{percentile=50} > 100",
            "full{measurement=sizes} > 0",
        ] {
            assert_eq!(problem(rule), None, "{rule}");
        }
        for (rule, part) in [
            (
                "distinct_flowz > 1",
                "did you mean 'distinct_flows'? those are distinct_flows, full,",
            ),
            ("entropy{key=src} < 3", "is about no figure of this run; those are distinct_flows"),
            (
                "distinct_flows{key=src} > 1",
                "no distinct_flows of this run; its labels are key=src-dst",
            ),
            ("late_packets{cause=device} > 1", "it has no labels"),
            // A rule cannot compare a distribution.
            ("packet_lengths > 1", "is about no figure"),
            ("unmatched_packets > 1", "is about no figure"),
            ("worker_cpu > 1", "is about no figure"),
        ] {
            let problem = problem(rule).unwrap();
            assert!(problem.contains(part) && problem.contains(rule), "{problem}");
        }
    }
}
