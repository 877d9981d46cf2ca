//! The configuration file: TOML with the long option names as keys. It goes through the parser of the command line.

use crate::error::Failure;
use crate::nearest::nearest;
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::error::Error as _;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Fills in what the command line does not give from a configuration file, if it names one, with the long options of `Known` as keys. The
/// names of all options that were given.
pub(crate) fn fill<Known: Args>(
    options: &mut impl FromArgMatches,
    file: Option<&Path>,
    given: &ArgMatches,
) -> Result<Vec<String>, Failure> {
    let mut all = file.map_or_else(|| Ok(Vec::new()), read::<Known>)?;
    all.push(given.clone());
    if file.is_some() {
        // Later ones replace those before.
        let filled = all.iter().try_for_each(|matches| options.update_from_arg_matches(matches));
        filled.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let is_given = |matches: &ArgMatches, id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let names = |matches| ArgMatches::ids(matches).map(|id| id.to_string()).filter(move |id| is_given(matches, id));
    Ok(all.iter().flat_map(names).collect())
}

/// What a configuration file gives, key by key.
fn read<Known: Args>(path: &Path) -> Result<Vec<ArgMatches>, Failure> {
    let name = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::Usage(format!("cannot read configuration {name}: {error}")))?;
    parse::<Known>(&text).map_err(|(position, problem)| {
        let line = text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1;
        Failure::Usage(format!("configuration {name}, line {line}: {problem}"))
    })
}

/// What each key of a text gives, or where the first problem is, and which.
fn parse<Known: Args>(text: &str) -> Result<Vec<ArgMatches>, (usize, String)> {
    let syntax = |error: toml::de::Error| (error.span().map_or(0, |span| span.start), error.message().replace('\n', " "));
    let table = DeTable::parse(text).map_err(syntax)?.into_inner();
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let command = Known::augment_args(Command::new("configuration").no_binary_name(true));
    let given = entries.into_iter().map(|(key, value)| {
        let options = || command.get_arguments().filter(|option| option.get_id() != "config");
        let option = options().find(|option| option.get_long() == Some(key.get_ref().as_ref()));
        let option = option.ok_or_else(|| (key.span().start, unknown(key.get_ref(), options().filter_map(Arg::get_long))))?;
        let at_value = |problem| (value.span().start, problem);
        let texts = texts(option, value.get_ref()).ok_or_else(|| at_value(wanted(option).to_owned()))?;
        let arguments = texts.iter().map(|text| format!("--{}={text}", key.get_ref()));
        command.clone().try_get_matches_from(arguments).map_err(|error| at_value(told(&error)))
    });
    given.collect()
}

/// What to say of a key that is no option.
fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> String {
    let advice = match nearest(key, known) {
        Some(name) => format!("did you mean '{name}'?"),
        None => "keys are the long options that `flowgauge run --help` shows, without their dashes".to_owned(),
    };
    format!("there is no option '{key}'; {advice}")
}

/// Whether an option may be repeated.
fn is_list(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// Whether an option needs no value on the command line.
fn is_switch(option: &Arg) -> bool {
    option.get_num_args().is_some_and(|values| values.min_values() == 0)
}

/// A value as it would be written on the command line; numbers need no quotes. `None` if it is none for this option.
fn texts(option: &Arg, value: &DeValue<'_>) -> Option<Vec<String>> {
    Some(match value {
        DeValue::String(text) if is_list(option) => text.split(',').map(str::to_owned).collect(),
        DeValue::Array(texts) if is_list(option) => {
            texts.iter().map(|text| text.get_ref().as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        DeValue::Boolean(on) if is_switch(option) => vec![on.to_string()],
        DeValue::String(text) if !is_switch(option) => vec![text.to_string()],
        DeValue::Integer(number) if !is_switch(option) && !is_list(option) => {
            vec![
                u64::from_str_radix(number.as_str(), number.radix())
                    .map_or_else(|_| number.to_string(), |number| number.to_string()),
            ]
        }
        _ => return None,
    })
}

fn wanted(option: &Arg) -> &'static str {
    match (is_switch(option), is_list(option)) {
        (true, _) => "give a boolean, true or false",
        (false, true) => "give a text, or a list of them",
        (false, false) => "give a text or a number",
    }
}

/// What is wrong with a value.
fn told(error: &clap::Error) -> String {
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let why = error.source().map_or_else(|| format!("use one of {}", context(ContextKind::ValidValue)), ToString::to_string);
    format!("'{}' will not do: {why}", context(ContextKind::InvalidValue))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Run;

    #[test]
    fn an_unknown_key_gets_the_nearest_name() {
        let told = |text: &str| parse::<Run>(text).unwrap_err().1;
        assert_eq!(told("windw = '1m'"), "there is no option 'windw'; did you mean 'window'?");
        assert_eq!(told("read_every = '1s'"), "there is no option 'read_every'; did you mean 'read-every'?");
        assert_eq!(told("xpd-mode = 'skb'"), "there is no option 'xpd-mode'; did you mean 'xdp-mode'?");
        let far = told("colour-of-the-sky = 'blue'");
        assert!(far.contains("`flowgauge run --help`") && far.len() < 150, "{far}");
    }

    /// Of several problems the first in the file is told.
    #[test]
    fn values_are_refused_where_they_stand() {
        let told = |text: &str| parse::<Run>(text).unwrap_err();
        assert_eq!(
            told("window = '1m'\nby = 'flows'\nwindw = 1"),
            (19, "'flows' will not do: use one of packets, bytes".to_owned())
        );
        assert_eq!(told("backend = 'abacus'"), (10, "'abacus' will not do: use one of xdp, poll, tofino".to_owned()));
        assert_eq!(told("key = 5"), (6, "give a text, or a list of them".to_owned()));
        assert_eq!(told("alarm = 'on'"), (8, "give a boolean, true or false".to_owned()));
    }
}
