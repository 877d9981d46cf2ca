//! The configuration file: TOML with the long option names as keys.

use crate::error::Failure;
use crate::nearest::nearest;
use crate::value::{self, ReadEvery};
use flowgauge_core::Grid;
use flowgauge_core::heavy::{Algorithm, Unit};
use flowgauge_core::{FlowKey, HashMode, Precision};
use flowgauge_ctl::estimate::cardinality::Estimator;
use flowgauge_ctl::output::Format;
use flowgauge_dataplane::poll::PollMode;
use flowgauge_dataplane::{tofino, xdp};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::path::Path;
use std::time::Duration;

/// Reads a configuration file.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, Failure> {
    let name = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::Usage(format!("cannot read configuration {name}: {error}")))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1);
        let problem = unknown_key(error.message()).unwrap_or_else(|| error.message().replace('\n', " "));
        Failure::Usage(format!("configuration {name}, line {line}: {problem}"))
    })
}

/// What to say of a key that is none, in the place of a list of all that serde gives: "unknown field `windw`, expected one of `port`, …".
fn unknown_key(message: &str) -> Option<String> {
    let (key, known) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let known = known.split('`').skip(1).step_by(2);
    let advice = match nearest(key, known) {
        Some(name) => format!("did you mean '{name}'?"),
        None => "keys are the long options that `flowgauge run --help` shows, without their dashes".to_owned(),
    };
    Some(format!("there is no option '{key}'; {advice}"))
}

/// A value as it would be written on the command line; numbers need no quotes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(u64),
}

fn parsed<'de, D: Deserializer<'de>, T>(deserializer: D, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, D::Error> {
    let text = match Scalar::deserialize(deserializer).map_err(|_| D::Error::custom("give a text or a number"))? {
        Scalar::Text(text) => text,
        Scalar::Number(number) => number.to_string(),
    };
    parse(&text).map(Some).map_err(|problem| D::Error::custom(format!("'{text}' will not do: {problem}")))
}

macro_rules! options {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(pub(crate) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<$type>, D::Error> {
            parsed(deserializer, value::$name)
        })*
    };
}

options! {
    duration: Duration,
    read_every: ReadEvery,
    lateness: value::Lateness,
    measure: value::Measurements,
    filter: Grid,
    algorithm: Algorithm,
    by: Unit,
    slots: value::Slots,
    hash: HashMode,
    registers: Precision,
    estimator: Estimator,
    workers: usize,
    cpus: value::Cpus,
    poll_mode: PollMode,
    format: Format,
    port: value::PortSpec,
    xdp_mode: xdp::Mode,
    direction: value::Directions,
    address: String,
}

macro_rules! lists {
    ($($name:ident: $type:ty = $parse:path),* $(,)?) => {
        $(pub(crate) fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<$type>, D::Error> {
            let texts = one_or_more(deserializer)?;
            let parsed = |text: &String| $parse(text).map_err(|problem| D::Error::custom(format!("'{text}' will not do: {problem}")));
            texts.iter().map(parsed).collect()
        })*
    };
}

lists! {
    switch_ports: tofino::Port = value::switch_port,
    port_pairs: value::PortPair = value::port_pair,
    keys: value::Keyed = value::keyed,
    sketches: value::SketchSpec = value::sketch,
    queries: FlowKey = value::query,
}

/// One text, or a list of them.
pub(crate) fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Texts {
        One(String),
        More(Vec<String>),
    }
    match Texts::deserialize(deserializer).map_err(|_| D::Error::custom("give a text, or a list of them"))? {
        Texts::One(text) => Ok(text.split(',').map(str::to_owned).collect()),
        Texts::More(texts) => Ok(texts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn an_unknown_key_gets_the_nearest_name() {
        let told = |text: &str| unknown_key(toml::from_str::<Options>(text).unwrap_err().message()).unwrap();
        assert_eq!(told("windw = '1m'"), "there is no option 'windw'; did you mean 'window'?");
        assert_eq!(told("read_every = '1s'"), "there is no option 'read_every'; did you mean 'read-every'?");
        assert_eq!(told("xpd-mode = 'skb'"), "there is no option 'xpd-mode'; did you mean 'xdp-mode'?");
        let far = told("colour-of-the-sky = 'blue'");
        assert!(far.contains("`flowgauge run --help`") && far.len() < 150, "{far}");
    }
}
