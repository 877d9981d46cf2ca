//! Prefixes with names, from CSV.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// Maximum number of names: those of all prefixes of the Internet fit. They take some 150 MB, and a
/// file of the maximum size has seven million.
pub(super) const MAX_NAMES: usize = 1_500_000;

/// Names by prefix. IPv4 is in the IPv6 range of mapped addresses.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    names: HashMap<(u128, u8), Box<str>>,
    /// Lengths in use.
    lengths: BTreeSet<u8>,
}

impl Prefixes {
    /// Adds the lines of a CSV: a prefix or address, then any columns, such as site, tenant and AS.
    /// The first line may name the columns; a column `as` with a number is shown as `AS64500`. More
    /// than `most` names in all are an error.
    pub(super) fn read(&mut self, text: &str, most: usize) -> Result<(), String> {
        let mut systems = None;
        let lines = text.lines().map(str::trim).enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let cells: Vec<&str> =
                line.split(',').map(|cell| cell.trim().trim_matches('"').trim()).collect();
            let (first, others) = cells.split_first().unwrap_or((&"", &[]));
            let Some(prefix) = prefix(first) else {
                if self.names.is_empty()
                    && systems.is_none()
                    && first.eq_ignore_ascii_case("prefix")
                {
                    let is_system =
                        |name: &&str| ["as", "asn"].contains(&name.to_lowercase().as_str());
                    systems = Some(others.iter().position(is_system));
                    continue;
                }
                return Err(format!(
                    "line {}: '{first}' is no prefix; write 192.0.2.0/24,site,tenant,64500",
                    index + 1
                ));
            };
            let cell = |(column, cell): (usize, &&str)| match systems {
                Some(Some(system)) if column == system && cell.parse::<u32>().is_ok() => {
                    format!("AS{cell}")
                }
                _ => (*cell).to_owned(),
            };
            let cells = others.iter().enumerate().map(cell);
            let name: Vec<String> = cells.filter(|cell| !cell.is_empty()).collect();
            if !name.is_empty() {
                self.lengths.insert(prefix.1);
                self.names.insert(prefix, name.join(" ").into());
                if self.names.len() > most {
                    return Err(format!(
                        "line {}: more than {most} prefixes with names, which take too much memory; leave out those that do not matter",
                        index + 1
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the name of the longest prefix of an address.
    pub(super) fn name(&self, address: IpAddr) -> Option<&str> {
        let bits = bits(address);
        let mut found = self
            .lengths
            .iter()
            .rev()
            .filter_map(|&length| self.names.get(&(masked(bits, length), length)));
        found.next().map(AsRef::as_ref)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    }
}

fn masked(bits: u128, length: u8) -> u128 {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or_default();
    bits & mask
}

/// Parses `192.0.2.0/24`, or an address alone.
fn prefix(text: &str) -> Option<(u128, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let (most, around) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
    let length = length.unwrap_or(most);
    let whole = (length <= most).then(|| length + around)?;
    Some((masked(bits(address), whole), whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_names_an_address() {
        let mut prefixes = Prefixes::default();
        let csv = "prefix,site,tenant,AS\n10.0.0.0/8,fra,,64500\n\n# comment\n10.1.0.0/16, ams ,\"acme\",x\n10.1.2.3,host\n2001:db8::/32,v6,,1\n0.0.0.0/0,world\n192.0.2.0/24,,,\n";
        prefixes.read(csv, MAX_NAMES).unwrap();
        for (address, name) in [
            ("10.9.9.9", Some("fra AS64500")),
            ("10.1.9.9", Some("ams acme x")),
            ("10.1.2.3", Some("host")),
            ("2001:db8::7", Some("v6 AS1")),
            ("2001:db9::7", None),
            ("192.0.2.1", Some("world")),
        ] {
            assert_eq!(prefixes.name(address.parse().unwrap()), name, "{address}");
        }
    }

    #[test]
    fn names_are_limited() {
        let mut prefixes = Prefixes::default();
        // A prefix that is named again takes no more memory.
        prefixes.read("10.0.0.0/8,a\n10.0.0.0/8,b\n10.1.0.0/16,c", 2).unwrap();
        let error = prefixes.read("10.0.0.0/8,d\n10.2.0.0/16,e", 2).unwrap_err();
        assert!(error.starts_with("line 2: more than 2 prefixes with names, "), "{error}");
    }

    #[test]
    fn a_line_without_a_prefix_is_an_error_with_its_number() {
        for (csv, line) in [
            ("10.0.0.0/8,a\nsite,b", "line 2: 'site'"),
            ("10.0.0.0/33,a", "line 1: '10.0.0.0/33'"),
            ("prefix,a\nprefix,b", "line 2: 'prefix'"),
            (",a", "line 1: ''"),
        ] {
            let problem = Prefixes::default().read(csv, MAX_NAMES).unwrap_err();
            assert!(problem.contains(line), "{problem}");
        }
    }
}
