//! Parsers of option values.

pub(crate) use flowgauge_ctl::flow::parse_key as query;

use crate::interfaces;
use flowgauge_core::delay::prefixes::Prefix;
use flowgauge_core::heavy::{Algorithm, CountUnit};
use flowgauge_core::spread::OtherKind;
use flowgauge_core::{HashMode, KeyKind, Precision, SketchKind};
#[cfg(feature = "lake")]
use flowgauge_ctl::lake::signature::RowPolicy;
#[cfg(feature = "lake")]
use flowgauge_ctl::lake::union::{By, Selection};
use flowgauge_ctl::measurement::cardinality::estimate::Estimator;
use flowgauge_ctl::nearest::nearest;
use flowgauge_ctl::output::Format;
use flowgauge_dataplane::poll::PollMode;
use flowgauge_dataplane::poll::port::AfXdp;
use flowgauge_dataplane::{Direction, MeasurementKind, tofino, xdp};
use flowgauge_traffic::Profile;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use std::convert::Infallible;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

const MIN_DURATION: Duration = Duration::from_micros(1);
const MAX_YEARS: u32 = 100;
/// Year of [`humantime`]: 365.25 days.
const YEAR: Duration = Duration::from_secs(31_557_600);

/// Parses a time such as `500ms`, `10s` or `2m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = time_with_unit(text.trim())?;
    if duration < MIN_DURATION {
        return Err("must be at least 1us".to_owned());
    }
    if duration > YEAR * MAX_YEARS {
        return Err(format!("must be at most {MAX_YEARS} years"));
    }
    Ok(duration)
}

/// Parses numbers with units of time. `M` is refused: [`humantime`] takes it as a month, all other
/// options as a million, and users mean minutes.
fn time_with_unit(text: &str) -> Result<Duration, String> {
    if text.split(|it: char| !it.is_alphabetic()).any(|unit| unit == "M") {
        return Err("the unit M is ambiguous; write 1min for minutes, 1month for months".to_owned());
    }
    humantime::parse_duration(text).map_err(|_| {
        "give a time with its unit (ns, us, ms, s, min, h, d, w), such as 500ms, 10s or 2m"
            .to_owned()
    })
}

/// Mean time between samples; `None` for `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleEvery(pub(crate) Option<Duration>);

pub(crate) fn sample_every(text: &str) -> Result<SampleEvery, String> {
    if text == "never" {
        return Ok(SampleEvery(None));
    }
    duration(text)
        .map(|mean| SampleEvery(Some(mean)))
        .map_err(|problem| format!("{problem}, or never"))
}

/// Parses the maximum delay of a packet, which may be zero.
pub(crate) fn lateness(text: &str) -> Result<Duration, String> {
    let none = ["0", "0s", "0ms"].contains(&text.trim());
    if none { Ok(Duration::ZERO) } else { duration(text) }
}

pub(crate) fn registers(text: &str) -> Result<Precision, String> {
    let wanted = "give a power of two from 16 to 65536, such as 2048";
    let registers: usize = text.parse().map_err(|_| wanted.to_owned())?;
    Precision::from_registers(registers).ok_or_else(|| wanted.to_owned())
}

pub(crate) fn workers(text: &str) -> Result<usize, String> {
    let workers = text.parse::<usize>().ok().filter(|workers| (1..=256).contains(workers));
    workers.ok_or_else(|| "give a number from 1 to 256".to_owned())
}

/// Parses a power of two in a range; returns its exponent.
pub(crate) fn power_of_two(text: &str, range: RangeInclusive<usize>) -> Result<u8, String> {
    let number = text.parse::<usize>().ok();
    number
        .filter(|number| number.is_power_of_two() && range.contains(number))
        .map(|number| number.trailing_zeros() as u8)
        .ok_or_else(|| format!("give a power of two from {} to {}", range.start(), range.end()))
}

/// Packets per second; `None` for as many as possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate(pub(crate) Option<f64>);

pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    // As in a profile.
    let profile: Result<Profile, _> = format!("unique,rate={text}").parse();
    profile
        .map(|profile| Rate(profile.rate))
        .map_err(|_| "give packets per second, such as 100k or 2.5M, or max".to_owned())
}

/// CPU numbers, parsed from a comma-separated list with ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    const MAX_CPUS: usize = 1024;
    let wanted = || "give CPUs by number, such as 2 or 0,4-7".to_owned();
    let number = |text: &str| {
        text.trim().parse::<usize>().ok().filter(|cpu| *cpu < MAX_CPUS).ok_or_else(wanted)
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wanted());
        }
        cpus.extend(first..=last);
    }
    Ok(Cpus(cpus))
}

/// Finds a value by its name.
fn named<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
        let meant = nearest(text, names.iter().copied())
            .map_or_else(String::new, |name| format!("did you mean '{name}'? "));
        format!("{meant}use one of {}", names.join(", "))
    })
}

/// Defines parsers of values that have names.
macro_rules! by_name {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(pub(crate) fn $name(text: &str) -> Result<$type, String> {
            named(text, &<$type>::ALL, <$type>::name)
        })*
    };
}

by_name! {
    algorithm: Algorithm,
    estimator: Estimator,
    format: Format,
    hash: HashMode,
    key_kind: KeyKind,
    measurement: MeasurementKind,
    other_kind: OtherKind,
    poll_mode: PollMode,
    sketch_kind: SketchKind,
    unit: CountUnit,
}

/// Parses the name or the pattern of an interface; `any` is all, as in tcpdump.
pub(crate) fn interface(text: &str) -> Result<String, Infallible> {
    let is_any = text == interfaces::ANY && !interfaces::exists(text);
    Ok(if is_any { "*" } else { text }.to_owned())
}

/// Hook of an interface; `None` for the best available one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XdpMode(pub(crate) Option<xdp::Mode>);

pub(crate) fn xdp_mode(text: &str) -> Result<XdpMode, String> {
    let modes = iter::once(None).chain(xdp::Mode::ALL.map(Some));
    let all: Vec<XdpMode> = modes.map(XdpMode).collect();
    named(text, &all, |XdpMode(mode)| mode.map_or("auto", xdp::Mode::name))
}

/// Direction in which packets cross an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CountedDirections {
    #[default]
    Ingress,
    Egress,
    Both,
}

impl CountedDirections {
    pub(crate) fn all(self) -> Vec<Direction> {
        match self {
            CountedDirections::Ingress => vec![Direction::Ingress],
            CountedDirections::Egress => vec![Direction::Egress],
            CountedDirections::Both => Direction::ALL.to_vec(),
        }
    }
}

pub(crate) fn direction(text: &str) -> Result<CountedDirections, String> {
    let all = [CountedDirections::Ingress, CountedDirections::Egress, CountedDirections::Both];
    named(text, &all, |directions| match directions {
        CountedDirections::Ingress => "ingress",
        CountedDirections::Egress => "egress",
        CountedDirections::Both => "both",
    })
}

pub(crate) fn rows_and_columns(text: &str) -> Option<(usize, usize)> {
    let (rows, columns) = text.split_once('x')?;
    Some((rows.trim().parse().ok()?, columns.trim().parse().ok()?))
}

/// Port that workers poll.
#[derive(Clone, Debug, PartialEq)]
pub enum PortSpec {
    /// AF_XDP sockets of an interface, past the kernel's network stack.
    AfXdp(AfXdp),
    /// Capture, at its own pace.
    Pcap(PathBuf),
    /// Generated packets.
    Memory(Profile),
    /// DPDK device with its options.
    Dpdk(String),
}

impl PortSpec {
    /// Returns whether its packets come from a network.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self, PortSpec::Dpdk(_) | PortSpec::AfXdp(_))
    }
}

pub(crate) fn port(text: &str) -> Result<PortSpec, String> {
    match text.split_once(':') {
        Some(("af_xdp", description)) => description.parse().map(PortSpec::AfXdp),
        Some(("pcap", path)) if !path.is_empty() => Ok(PortSpec::Pcap(path.into())),
        Some(("memory", profile)) => {
            profile.parse().map(PortSpec::Memory).map_err(|error: flowgauge_traffic::ProfileError| error.to_string())
        }
        Some(("dpdk", device)) => dpdk(device).map(PortSpec::Dpdk),
        _ => Err("use af_xdp:IFACE, pcap:FILE, memory:PROFILE or dpdk:DEVICE, such as memory:zipf,flows=100k,rate=1M".to_owned()),
    }
}

pub(crate) const NO_DPDK: &str = "this build does not include DPDK; install libdpdk-dev and build flowgauge with `--features dpdk`";

/// Returns the error for an option of a feature that this build does not have.
pub(crate) fn not_built(feature: &str) -> String {
    format!("this build does not include {feature}; build flowgauge with `--features {feature}`")
}

/// Returns the name of a DPDK device with its options, if this build supports DPDK.
pub(crate) fn dpdk(device: &str) -> Result<String, String> {
    if device.is_empty() {
        return Err(
            "name a device, such as dpdk:0000:03:00.0 or dpdk:net_af_xdp0,iface=eth1".to_owned()
        );
    }
    if cfg!(feature = "dpdk") { Ok(device.to_owned()) } else { Err(NO_DPDK.to_owned()) }
}

/// Parses a pair of switch ports between which frames are forwarded.
pub(crate) fn port_pair(text: &str) -> Result<(u32, u32), String> {
    let wanted = || "give the numbers of two ports of the switch, such as 132-140".to_owned();
    let (one, other) = text.split_once('-').ok_or_else(wanted)?;
    let (one, other) = (one.parse().map_err(|_| wanted())?, other.parse().map_err(|_| wanted())?);
    if one == other { Err(wanted()) } else { Ok((one, other)) }
}

pub(crate) fn switch_port(text: &str) -> Result<tofino::PortConfig, String> {
    let wanted = || "give PORT:SPEED or PORT:SPEED:FEC, such as 132:100g:rs".to_owned();
    let mut parts = text.split(':');
    let (Some(port), Some(speed), fec, None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wanted());
    };
    Ok(tofino::PortConfig {
        dev_port: port.parse().map_err(|_| wanted())?,
        speed: named(speed, &tofino::Speed::ALL, tofino::Speed::name)?,
        fec: fec.map_or(Ok(tofino::Fec::None), |fec| {
            named(fec, &tofino::Fec::ALL, tofino::Fec::name)
        })?,
        enable: true,
    })
}

/// Parses a host name or address with a port, such as `switch:50052` or `[2001:db8::1]:50052`.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let wanted = || "give HOST:PORT, such as switch:50052 or [2001:db8::1]:50052".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let port: u16 = port.parse().map_err(|_| wanted())?;
    if host.is_empty() || port == 0 || host.contains(':') && !bracketed {
        Err(wanted())
    } else {
        Ok(text.to_owned())
    }
}

/// Parses a prefix such as `10.0.0.0/8` or `2001:db8::/32`, or a single IPv4 address.
pub(crate) fn prefix(text: &str) -> Result<Prefix, String> {
    let text = text.trim();
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let parsed: Result<IpAddr, _> = address.parse();
    let example =
        || format!("'{text}' is not a prefix; give one such as 10.0.0.0/8 or 2001:db8::/32");
    let address = parsed.map_err(|_| example())?;
    let most = if address.is_ipv4() { 32 } else { 64 };
    let length = match length {
        Some(length) => length.parse().map_err(|_| example())?,
        None if address.is_ipv4() => most,
        None => {
            let around = Prefix::of(address, most)
                .map_or_else(String::new, |prefix| format!("; give {prefix}"));
            return Err(format!("{text}: IPv6 prefixes have at most 64 bits{around}"));
        }
    };
    let Some(prefix) = Prefix::of(address, length) else {
        return Err(format!(
            "{text}: prefixes have at most 32 bits (IPv4) or 64 bits (IPv6, below ffff:ffff::)"
        ));
    };
    let is_whole = match address {
        IpAddr::V4(address) => prefix.parts().1 == u64::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(prefix.parts().1) << 64 == u128::from(address),
    };
    is_whole
        .then_some(prefix)
        .ok_or_else(|| format!("{text} has bits beyond its length; give {prefix}"))
}

/// Location of a lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LakeLocation {
    Directory(PathBuf),
    /// URL of an object store.
    Store(String),
}

pub(crate) fn lake(text: &str) -> Result<LakeLocation, String> {
    match text.split_once("://") {
        Some(("s3", rest)) if !rest.is_empty() && !rest.starts_with('/') => {
            Ok(LakeLocation::Store(text.to_owned()))
        }
        Some(("s3", _)) => Err("give a bucket and a path, such as s3://bucket/lake".to_owned()),
        Some((scheme, _)) => {
            Err(format!("unknown scheme '{scheme}'; give a directory, or s3://BUCKET/PATH"))
        }
        None => Ok(LakeLocation::Directory(PathBuf::from(text))),
    }
}

/// Parses a number of bytes, with an optional unit KiB, MiB, GiB or TiB.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [&str; 5] = ["", "KiB", "MiB", "GiB", "TiB"];
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let power = UNITS.iter().position(|it| it.eq_ignore_ascii_case(unit.trim()));
    let bytes = number
        .parse::<u64>()
        .ok()
        .zip(power)
        .and_then(|(number, power)| number.checked_mul(1 << (10 * power)));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| {
        "give a number of bytes, optionally with a unit, such as 512MiB or 4GiB".to_owned()
    })
}

/// Parses an address to listen on; a port alone is one on localhost.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    let local = port.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local
        .or_else(|_| text.parse())
        .map_err(|_| "give an address and a port, such as 127.0.0.1:9420, or a port".to_owned())
}

/// Parses the URL of an OpenTelemetry collector.
pub(crate) fn collector(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let authority = rest.map(|rest| rest.trim_end_matches('/'));
    let fits = authority.is_some_and(|it| {
        !it.is_empty() && it.bytes().all(|it| it.is_ascii_graphic() && !b"/@?#".contains(&it))
    });
    fits.then(|| text.to_owned())
        .ok_or_else(|| "give an address such as http://127.0.0.1:4317".to_owned())
}

/// Parses the name of a machine.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= 64
        && text.chars().all(|it| it.is_ascii_graphic() && !matches!(it, '/' | '\\' | ',' | ':'));
    fits.then(|| text.to_owned())
        .ok_or_else(|| "give up to 64 letters, digits, dots and hyphens".to_owned())
}

/// Parses a time and returns nanoseconds since the Unix epoch: `2026-11-23`, `2026-11-23T14:00` and
/// `2026-11-23T14:00:30` in UTC; with a time zone as in RFC 3339; `now`, `today`, `yesterday`; or a
/// time ago, as in `24h`. A day is its start.
pub(crate) fn time(text: &str) -> Result<u64, String> {
    moment(text, 0)
}

/// Parses a time at the end of a range like [`time`]; a day is its end.
pub(crate) fn end_time(text: &str) -> Result<u64, String> {
    moment(text, 1)
}

/// Parses a time; a day is shifted by this many days.
fn moment(text: &str, days: i64) -> Result<u64, String> {
    let now = Timestamp::now();
    let day = |day: Date| {
        Some(day.checked_add(days.days()).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    let today = || now.to_zoned(TimeZone::UTC).date();
    let in_utc = |time: DateTime| time.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp());
    let ago = || now.checked_sub(time_with_unit(text).ok()?).ok();
    let is_day = !text.contains([':', 'T', 't', ' ']);
    let time = match text {
        "now" => Some(now),
        "today" => day(today()),
        "yesterday" => today().yesterday().ok().and_then(day),
        _ if is_day && text.parse::<Date>().is_ok() => text.parse().ok().and_then(day),
        _ => text
            .parse::<Timestamp>()
            .ok()
            .or_else(|| text.parse::<DateTime>().ok().and_then(in_utc))
            .or_else(ago),
    };
    let time = time.and_then(|time| u64::try_from(time.as_nanosecond()).ok());
    time.ok_or_else(|| format!("'{text}' is not a time; give one such as 2026-11-23, 2026-11-23T14:00 (UTC), 2026-11-23T14:00+01:00, yesterday, or 24h for 24 hours ago"))
}

#[cfg(feature = "lake")]
/// Parses a selection of rows of a lake:
/// `PATH[,host=NAME][,source=NAME][,direction=WAY][,from=TIME][,to=TIME]`. The path may be a
/// pattern.
pub(crate) fn selection(text: &str) -> Result<Selection, String> {
    let mut parts = text.split(',');
    let mut selection =
        Selection { paths: vec![parts.next().unwrap_or_default().into()], ..Selection::default() };
    for part in parts {
        let wanted = || {
            format!(
                "unknown filter '{part}'; use host=NAME, source=NAME, direction=ingress or egress, from=TIME, to=TIME"
            )
        };
        let (name, value) = part.split_once('=').ok_or_else(wanted)?;
        match name {
            "host" => selection.host = Some(value.to_owned()),
            "source" => selection.source = Some(value.to_owned()),
            "direction" => selection.direction = Some(value.to_owned()),
            "from" => selection.from = Some(time(value)?),
            "to" => selection.to = Some(end_time(value)?),
            _ => return Err(wanted()),
        }
    }
    Ok(selection)
}

#[cfg(feature = "lake")]
by_name! {
    by: By,
    row_policy: RowPolicy,
}
