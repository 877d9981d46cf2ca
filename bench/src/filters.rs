//! Filters that all generated packets match.

use flowgauge_core::Filter;
use flowgauge_ctl::filter::MatchExpression;
use std::sync::Arc;

/// Numbers of rules, each with the limit of its cost: a multiple of distinct flows without a filter.
pub(crate) const RULES: [(usize, f64); 2] = [(1, 1.15), (64, 2.0)];

/// Returns the name of a filter with this number of rules.
pub(crate) fn name(rules: usize) -> String {
    if rules == 1 { "one rule".to_owned() } else { format!("{rules} rules") }
}

/// Returns a filter with this number of rules for IPv4. Each rule is for a destination port; the
/// generated packets meet the one for port 80.
///
/// # Panics
/// There are more rules than a filter has room for.
pub(crate) fn of_rules(rules: usize) -> Arc<Filter> {
    let others = (1..rules).map(|number| format!(" or {}", number * 257));
    let expression = format!("tcp dst port (80{})", others.collect::<String>());
    let parsed: Result<MatchExpression, _> = expression.parse();
    let filter = parsed.map(|parsed| parsed.filter);
    let filter = filter.unwrap_or_else(|error| panic!("{expression}: {error}"));
    assert_eq!(filter.ipv4.rules().len(), rules, "{expression}");
    filter
}
