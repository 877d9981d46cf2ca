//! Names of addresses, for people: from `/etc/hosts`, from DNS and from files of prefixes.
//!
//! [`Names::open`] reads the files. [`Names::name`] never waits: an address has no name until DNS
//! has answered a thread of `dns`, which asks the system's resolver in the background.
//!
//! Names come from outside, so they are escaped and cut here, once for all outputs.

mod dns;

use crate::nearest::nearest;
use crate::text::escaped;
use dns::Resolver;
use dns_lookup::lookup_addr;
use flowgauge_dataplane::files;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// File with names of hosts.
const HOSTS: &str = "/etc/hosts";
/// Maximum size of a file with names.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum length of a name, in characters.
const MAX_NAME: usize = 80;

/// Maximum number of names: those of all prefixes of the Internet fit. They take some 150 MB, and a
/// file of the maximum size has seven million.
const MAX_NAMES: usize = 1_500_000;

/// Selected sources of names of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSources {
    /// Whether `/etc/hosts` names them.
    pub hosts: bool,
    /// Whether DNS is queried.
    pub dns: bool,
    /// CSV files of prefixes.
    pub files: Vec<PathBuf>,
}

impl FromStr for NameSources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sources = NameSources::default();
        for part in text.split(',') {
            match part {
                "hosts" => sources.hosts = true,
                "dns" => sources.dns = true,
                "" => return Err("write hosts, dns and files, with commas between them".to_owned()),
                file => match nearest(&file.to_lowercase(), ["hosts", "dns"]) {
                    Some(name) if !Path::new(file).exists() => {
                        return Err(format!(
                            "no file is named '{file}'; did you mean '{name}'? write hosts, dns and files, with commas between them"
                        ));
                    }
                    _ => sources.files.push(file.into()),
                },
            }
        }
        Ok(sources)
    }
}

/// Names of addresses; none by default. Clones share what DNS answered.
#[derive(Clone, Debug, Default)]
pub struct Names(Option<Arc<KnownNames>>);

#[derive(Debug)]
struct KnownNames {
    hosts: HashMap<IpAddr, String>,
    prefixes: Prefixes,
    resolver: Option<Resolver>,
}

impl Names {
    /// Reads the files, and starts to ask DNS if that is selected. Without any source no address
    /// has a name.
    ///
    /// # Errors
    /// If a file cannot be read or has a line that is no prefix, or if no thread can be started.
    pub fn open(sources: &NameSources) -> Result<Self, String> {
        if *sources == NameSources::default() {
            return Ok(Names::default());
        }
        let read = |path: &Path| {
            files::read_text(path, MAX_FILE_BYTES)
                .map_err(|error| format!("cannot read names from {}: {error}", path.display()))
        };
        let hosts = sources.hosts.then(|| read(Path::new(HOSTS))).transpose()?;
        let hosts = named_hosts(&hosts.unwrap_or_default());
        let mut prefixes = Prefixes::default();
        for path in &sources.files {
            let problem = |problem| format!("{}: {problem}", path.display());
            prefixes.read(&read(path)?, MAX_NAMES).map_err(problem)?;
        }
        let lookup = |address: IpAddr| lookup_addr(&address).ok();
        let resolver = sources.dns.then(|| Resolver::start(lookup)).transpose()?;
        Ok(Names(Some(Arc::new(KnownNames { hosts, prefixes, resolver }))))
    }

    /// Returns the name of an address as far as it is known now: of the host, of the network, or
    /// both. It has no control characters.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> Option<String> {
        let known = self.0.as_ref()?;
        let host = known.hosts.get(&address).cloned();
        let host = host.or_else(|| known.resolver.as_ref()?.name(address));
        let network = known.prefixes.name(address);
        let name = match (host, network) {
            (Some(host), Some(network)) => format!("{host}, {network}"),
            (host, network) => host.or(network.map(str::to_owned))?,
        };
        Some(shown(&name))
    }

    /// Returns a flow as text with names after its addresses, `10.0.0.1 (web) > 10.0.0.2`, if any
    /// of them has one.
    #[must_use]
    pub fn named(&self, flow: &str) -> Option<String> {
        self.0.as_ref()?;
        let mut has_name = false;
        let word = |word: &str| {
            let address = word.parse().or_else(|_| word.parse().map(|end: SocketAddr| end.ip()));
            let name = address.ok().and_then(|address| self.name(address));
            has_name |= name.is_some();
            name.map_or_else(|| word.to_owned(), |name| format!("{word} ({name})"))
        };
        let words: Vec<String> = flow.split(' ').map(word).collect();
        has_name.then(|| words.join(" "))
    }

    /// Asks DNS for addresses, and waits until it answered for all of them, but at most for `most`.
    /// Returns how many are still without an answer.
    pub fn prepare(&self, addresses: &[IpAddr], most: Duration) -> usize {
        let resolver = self.0.as_ref().and_then(|known| known.resolver.as_ref());
        resolver.map_or(0, |resolver| resolver.prepare(addresses, most))
    }
}

/// Cuts and escapes a name.
fn shown(name: &str) -> String {
    let name = escaped(name);
    if name.chars().count() <= MAX_NAME {
        return name.into_owned();
    }
    name.chars().take(MAX_NAME).chain(['…']).collect()
}

/// Reads the format of `/etc/hosts`: an address and its names. The first name is used.
fn named_hosts(text: &str) -> HashMap<IpAddr, String> {
    let mut hosts = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|word| word.parse().ok());
        if let (Some(address), Some(name)) = (address, words.next()) {
            hosts.entry(address).or_insert_with(|| name.to_owned());
        }
    }
    hosts
}

/// Names by prefix. IPv4 is in the IPv6 range of mapped addresses.
#[derive(Debug, Default)]
struct Prefixes {
    names: HashMap<(u128, u8), Box<str>>,
    /// Lengths in use.
    lengths: BTreeSet<u8>,
}

impl Prefixes {
    /// Adds the lines of a CSV: a prefix or address, then any columns, such as site, tenant and AS.
    /// The first line may name the columns; a column `as` with a number is shown as `AS64500`. More
    /// than `most` names in all are an error.
    fn read(&mut self, text: &str, most: usize) -> Result<(), String> {
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
    fn name(&self, address: IpAddr) -> Option<&str> {
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

    fn names(hosts: &str, csv: &str) -> Names {
        let mut prefixes = Prefixes::default();
        prefixes.read(csv, MAX_NAMES).unwrap();
        let known = KnownNames { hosts: named_hosts(hosts), prefixes, resolver: None };
        Names(Some(Arc::new(known)))
    }

    #[test]
    fn hosts_and_networks_name_the_addresses_of_a_flow() {
        let names = names(
            "# comment\n10.0.0.1 web-1 alias # first\n2001:db8::2\tdb\n10.0.0.1 other\nno address\n",
            "prefix,site\n10.0.0.0/8,fra\n",
        );
        for (flow, named) in [
            ("10.0.0.1", Some("10.0.0.1 (web-1, fra)")),
            ("10.9.0.1 > 192.0.2.1", Some("10.9.0.1 (fra) > 192.0.2.1")),
            (
                "[2001:db8::2]:53 > [2001:db8::3]:9 udp",
                Some("[2001:db8::2]:53 (db) > [2001:db8::3]:9 udp"),
            ),
            ("192.0.2.1:80 > 192.0.2.2:81 tcp", None),
        ] {
            assert_eq!(names.named(flow).as_deref(), named);
        }
        assert_eq!(Names::default().named("10.0.0.1"), None);
    }

    #[test]
    fn names_are_escaped_and_cut() {
        let long = "x".repeat(200);
        let names = names(&format!("10.0.0.1 a\u{202e}b\u{1b}[31m\n10.0.0.2 {long}"), "");
        let name = |text: &str| names.name(text.parse().unwrap()).unwrap();
        assert_eq!(name("10.0.0.1"), "a\\u{202e}b\\u{1b}[31m");
        assert_eq!(name("10.0.0.2").chars().count(), MAX_NAME + 1);
    }

    #[test]
    fn sources_are_words_or_files() {
        let sources: NameSources = "hosts,sites.csv,dns".parse().unwrap();
        let files = vec![PathBuf::from("sites.csv")];
        assert_eq!(sources, NameSources { hosts: true, dns: true, files });
        assert!("hosts,,dns".parse::<NameSources>().is_err());
        let missing = NameSources { files: vec!["/nonexistent.csv".into()], ..sources };
        assert!(Names::open(&missing).unwrap_err().contains("/nonexistent.csv"));
    }

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
