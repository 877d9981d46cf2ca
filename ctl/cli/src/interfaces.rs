//! Network interfaces of this machine.

use crate::error::{CommandFailure, cannot};
use flowgauge_dataplane::open_files;
use flowgauge_dataplane::xdp::Stack;
use nix::net::if_::if_nameindex;
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// Maximum number of names that a message lists.
const MAX_LISTED: usize = 5;

/// Name for all interfaces, as in tcpdump. If an interface has this name, it is the one that is meant.
pub(crate) const ANY: &str = "any";

/// Network interface at the time of the listing.
#[derive(Clone)]
pub(crate) struct ListedInterface {
    pub(crate) number: u32,
    pub(crate) name: String,
}

/// Lists all interfaces.
///
/// # Errors
/// The system cannot list them, as with too many open files.
pub(crate) fn list() -> Result<Vec<ListedInterface>, CommandFailure> {
    let listed = |one: &nix::net::if_::Interface| ListedInterface {
        number: one.index(),
        name: one.name().to_string_lossy().into_owned(),
    };
    let all = if_nameindex().map_err(io::Error::from).map_err(|error| {
        let advice = open_files::advice(Some(&error));
        cannot("list the interfaces of this machine")(format!("{error}{advice}"))
    });
    Ok(all?.iter().map(listed).collect())
}

/// Lists all interfaces; none, with a warning, if the system cannot.
pub(crate) fn all() -> Vec<ListedInterface> {
    list().inspect_err(|failure| tracing::warn!("{failure}")).unwrap_or_default()
}

/// Returns the names of the interfaces that are up, except loopback.
pub(crate) fn names_up() -> Vec<String> {
    let is_up = |interface: &ListedInterface| {
        let flags = fs::read_to_string(format!("/sys/class/net/{}/flags", interface.name))
            .unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        flags & 1 == 1 && flags & 8 == 0
    };
    all().into_iter().filter(is_up).map(|interface| interface.name).collect()
}

/// Returns whether an interface has this name.
pub(crate) fn exists(name: &str) -> bool {
    all().iter().any(|interface| interface.name == name)
}

/// Returns whether a name is a pattern. The name of an existing interface is not.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[']) && !exists(name)
}

/// Returns which interfaces lie above others; none if the kernel does not report it.
pub(crate) fn stack() -> Stack {
    Stack::read().unwrap_or_else(|error| {
        tracing::debug!("cannot read which interfaces lie above others: {error}");
        Stack::default()
    })
}

/// Interface and those below it.
pub(crate) type StackedInterface = (String, Vec<String>);

/// Warns if one of the interfaces of a run is above another, so that sums contain packets twice.
pub(crate) fn warn_of_overlaps(counted: &[String]) {
    if counted.len() > 1 {
        let counted: BTreeSet<&str> = counted.iter().map(String::as_str).collect();
        if let Some(warning) = stack_warning(&[], &stack().overlaps(&counted)) {
            tracing::warn!("{warning}");
        }
    }
}

/// Returns the warning about interfaces above counted ones: those that a pattern leaves out, and
/// those that are counted as well.
pub(crate) fn stack_warning(
    left_out: &[StackedInterface],
    counted: &[StackedInterface],
) -> Option<String> {
    let listed = |stacked: &[StackedInterface]| {
        let named =
            |(upper, below): &StackedInterface| format!("{upper} (above {})", first_few(below));
        first_few(&stacked.iter().map(named).collect::<Vec<_>>())
    };
    let mut parts = Vec::new();
    if !left_out.is_empty() {
        parts.push(format!(
            "left out of the pattern, since all of their packets cross other interfaces that it matches: {}; name one with -i to \
             count it as well",
            listed(left_out)
        ));
    }
    if !counted.is_empty() {
        parts.push(format!(
            "counted beside interfaces below them, so that sums over sources contain their packets twice: {}",
            listed(counted)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Lists the first few names, and the number of the others.
pub(crate) fn first_few(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_LISTED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_lists_the_first_of_many_interfaces() {
        let ports: Vec<String> = (0..97).map(|number| format!("veth{number}")).collect();
        let bridge = ("docker0".to_owned(), ports);
        let bond = ("bond0".to_owned(), vec!["eth0".to_owned(), "eth1".to_owned()]);
        assert_eq!(stack_warning(&[], &[]), None);
        let warning = stack_warning(&[bridge], &[bond]).unwrap();
        let (left_out, counted) = (
            "docker0 (above veth0, veth1, veth2, veth3, veth4 and 92 more); name one",
            "twice: bond0 (above eth0, eth1)",
        );
        assert!(warning.contains(left_out) && warning.ends_with(counted), "{warning}");
    }
}
