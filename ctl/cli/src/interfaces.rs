//! Network interfaces of this machine.

use nix::net::if_::if_nameindex;
use std::fs;

/// Network interface at the time of the listing.
#[derive(Clone)]
pub(crate) struct ListedInterface {
    pub(crate) number: u32,
    pub(crate) name: String,
}

/// Lists all interfaces.
pub(crate) fn all() -> Vec<ListedInterface> {
    let listed = |one: &nix::net::if_::Interface| ListedInterface {
        number: one.index(),
        name: one.name().to_string_lossy().into_owned(),
    };
    let all = if_nameindex()
        .map_err(|error| tracing::warn!("cannot list the interfaces of this machine: {error}"));
    all.map(|all| all.iter().map(listed).collect()).unwrap_or_default()
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

/// Returns whether a name is a pattern. The name of an existing interface is not.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[']) && !all().iter().any(|interface| interface.name == name)
}
