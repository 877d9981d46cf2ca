//! Filters that all generated packets match.

use flowgauge_core::Filter;
use flowgauge_ctl::filter::MatchExpression;
use std::sync::Arc;

/// Numbers of rules, with the most that the cost of distinct flows may be a multiple of that without
/// a filter.
pub(crate) const RULES: [(usize, f64); 2] = [(1, 1.15), (64, 2.0)];

/// Returns the name of a filter of so many rules.
pub(crate) fn name(rules: usize) -> String {
    if rules == 1 { "one rule".to_owned() } else { format!("{rules} rules") }
}

/// Returns a filter of so many rules for IPv4, each for a destination port, of which one matches:
/// that of the generated packets.
///
/// # Panics
/// There are more rules than a filter has room for.
pub(crate) fn of_rules(rules: usize) -> Arc<Filter> {
    let others = (1..rules).map(|number| format!(" or {}", number * 257));
    let expression = format!("tcp dst port (80{})", others.collect::<String>());
    let parsed: Result<MatchExpression, _> = expression.parse();
    let filter = parsed.map(|parsed| Arc::clone(parsed.filter()));
    let filter = filter.unwrap_or_else(|error| panic!("{expression}: {error}"));
    assert_eq!(filter.ipv4.rules().len(), rules, "{expression}");
    filter
}
