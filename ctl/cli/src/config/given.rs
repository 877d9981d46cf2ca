//! Sources of options: a configuration file, the environment and the command line.
//!
//! All three pass through the parser of the command line. The file is TOML with the long option
//! names as keys; each `[[source]]` table in it is a source of packets with options that override
//! those above. Variables named after the options override the file, and the command line overrides
//! both. [`Configuration::read`] collects the options as [`GivenOption`] with their origin, and
//! [`fill`] puts the effective ones into an options struct.

use crate::error::{CommandFailure, refuse};
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use flowgauge_ctl::nearest::nearest;
use flowgauge_ctl::output::excerpt;
use flowgauge_dataplane::files::{self, MAX_SETTINGS_BYTES};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use toml::de::{DeTable, DeValue};

/// Prefix of the variables that set options.
const VARIABLE: &str = "FLOWGAUGE_";
/// Variables with that prefix that set no option: some are read by this program, others are passed
/// by its build to what `cargo run` starts.
const OTHER_VARIABLES: [&str; 7] = [
    "FLOWGAUGE_CPU",
    "FLOWGAUGE_RUN",
    "FLOWGAUGE_STATUS_DIR",
    "FLOWGAUGE_SAME_BUILD",
    "FLOWGAUGE_BUILT_FROM",
    "FLOWGAUGE_COMMIT",
    "FLOWGAUGE_SOURCES",
];
/// Options that name a source of packets.
pub(crate) const ORIGINS: [&str; 3] = ["interface", "port", "address"];
/// Key of a source that is not an option.
const NAME: &str = "name";
const SOURCE: &str = "source";

/// Place where an option was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionOrigin {
    Line { file: PathBuf, line: usize },
    Variable(String),
    Flag(String),
}

impl fmt::Display for OptionOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionOrigin::Line { file, line } => write!(formatter, "{}:{line}", file.display()),
            OptionOrigin::Variable(name) => write!(formatter, "{name} in the environment"),
            OptionOrigin::Flag(name) => write!(formatter, "--{name} on the command line"),
        }
    }
}

/// Option that was given.
#[derive(Clone, Debug)]
pub(crate) struct GivenOption {
    /// Long name of the option.
    pub(crate) key: String,
    /// Its values as written on the command line.
    pub(crate) texts: Vec<String>,
    pub(crate) origin: OptionOrigin,
    /// The parsed option; of the command line, with all others that it has.
    matches: ArgMatches,
}

/// Options in effect for each source of a run, by its name; that of the only one is empty.
pub(crate) type EffectiveSettings = Arc<Mutex<BTreeMap<String, Vec<GivenOption>>>>;

/// `[[source]]` table of the file.
#[derive(Clone, Debug)]
pub(crate) struct SourceTable {
    pub(crate) name: String,
    /// Place of the table in the file.
    pub(crate) origin: OptionOrigin,
    given: Vec<GivenOption>,
}

/// All options that were given, by origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configuration {
    pub(crate) file: Option<PathBuf>,
    common: Vec<GivenOption>,
    pub(crate) sources: Vec<SourceTable>,
    environment: Vec<GivenOption>,
    command_line: Vec<GivenOption>,
}

/// Position in the text and description of a problem.
type Problem = (usize, String);

impl Configuration {
    /// Reads the options of `K` from the command line, the environment and the file that one of
    /// them names.
    pub(crate) fn read<K: KnownOptions>(given: &ArgMatches) -> Result<Self, CommandFailure> {
        let keys = Keys::new::<K>();
        let environment = environment(&keys, |name| env::var(name).ok())?;
        known_variables(
            &keys,
            env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()),
        )?;
        let command_line = command_line(&keys, given);
        let is_config = |given: &&GivenOption| given.key == "config";
        let file = command_line
            .iter()
            .chain(&environment)
            .find(is_config)
            .and_then(|config| config.texts.first())
            .map(PathBuf::from);
        let (common, sources) =
            file.as_deref().map_or_else(|| Ok(Default::default()), |file| read(&keys, file))?;
        Configuration { file, common, sources, environment, command_line }.checked()
    }

    /// Reads a file alone.
    pub(crate) fn of_file<K: KnownOptions>(file: &Path) -> Result<Self, CommandFailure> {
        let (common, sources) = read(&Keys::new::<K>(), file)?;
        let file = Some(file.to_owned());
        Configuration { file, common, sources, ..Configuration::default() }.checked()
    }

    /// Parses a text as if it were a file.
    #[cfg(test)]
    pub(crate) fn of_text<K: KnownOptions>(text: &str) -> Self {
        let (common, sources) = parse(&Keys::new::<K>(), Path::new("run.toml"), text).unwrap();
        Configuration { common, sources, ..Configuration::default() }
    }

    /// Returns this configuration; rejects a common option that names a source if the file has
    /// `[[source]]` tables.
    fn checked(self) -> Result<Self, CommandFailure> {
        let says = |given: &&GivenOption| ORIGINS.contains(&given.key.as_str());
        let common = self.applicable(None).find(says);
        match common {
            Some(given) if !self.sources.is_empty() => refuse(format!(
                "{}: {} cannot be combined with [[source]] tables; move it into one of them",
                given.origin, given.key
            )),
            _ => Ok(self),
        }
    }

    /// Returns the options that apply to a source, or to all, in ascending order of precedence.
    fn applicable<'a>(
        &'a self,
        source: Option<&'a SourceTable>,
    ) -> impl Iterator<Item = &'a GivenOption> {
        let own = source.into_iter().flat_map(|source| &source.given);
        self.common.iter().chain(own).chain(&self.environment).chain(&self.command_line)
    }

    /// Returns the effective options of a source, each one once.
    pub(crate) fn effective(&self, source: Option<&SourceTable>) -> Vec<GivenOption> {
        let all: Vec<&GivenOption> = self.applicable(source).collect();
        let is_last = |(index, given): &(usize, &GivenOption)| {
            all.iter().skip(index + 1).all(|later| later.key != given.key)
        };
        all.iter().copied().enumerate().filter(is_last).map(|(_, given)| given.clone()).collect()
    }
}

/// Fills in options.
pub(crate) fn fill(
    options: &mut impl FromArgMatches,
    given: &[GivenOption],
) -> Result<(), CommandFailure> {
    // Later options override earlier ones.
    given
        .iter()
        .try_for_each(|given| options.update_from_arg_matches(&given.matches))
        .map_err(|error| CommandFailure::Usage(error.to_string()))
}

/// Set of options that can be given in the file, in the environment and on the command line.
pub(crate) trait KnownOptions: Args {
    /// Options of the whole process, which a source cannot override.
    type OfProcess: Args;
}

/// Known options and the parser of the command line, which parses those of the file and of the
/// environment one by one. The parser is shared since building it takes longer than parsing.
struct Keys {
    known: Command,
    /// Options of the whole process.
    of_process: Command,
    parser: RefCell<Command>,
}

impl Keys {
    fn new<K: KnownOptions>() -> Self {
        let known = K::augment_args(Command::new("configuration").no_binary_name(true));
        Keys {
            parser: RefCell::new(known.clone()),
            known,
            of_process: K::OfProcess::augment_args(Command::new("process")),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arg> {
        self.known.get_arguments()
    }

    fn is_of_process(&self, key: &str) -> bool {
        self.of_process.get_arguments().any(|option| option.get_long() == Some(key))
    }

    /// Parses the values of an option; returns why they are invalid, if so.
    fn parsed(
        &self,
        key: &str,
        texts: Vec<String>,
        origin: OptionOrigin,
    ) -> Result<GivenOption, String> {
        let arguments = texts.iter().map(|text| format!("--{key}={text}"));
        match self.parser.borrow_mut().try_get_matches_from_mut(arguments) {
            Ok(matches) => Ok(GivenOption { key: key.to_owned(), texts, origin, matches }),
            Err(error) => Err(describe(&error)),
        }
    }
}

/// Returns the name of the variable that sets an option.
pub(crate) fn variable(key: &str) -> String {
    VARIABLE.to_owned() + &key.to_ascii_uppercase().replace('-', "_")
}

/// Returns the options that the environment sets. Empty variables are ignored.
fn environment(
    keys: &Keys,
    value: impl Fn(&str) -> Option<String>,
) -> Result<Vec<GivenOption>, CommandFailure> {
    let mut given = Vec::new();
    for option in keys.iter() {
        let Some(key) = option.get_long() else { continue };
        let is_set = |name: &str| {
            let name = variable(name);
            value(&name).filter(|text| !text.is_empty()).map(|text| (name, text))
        };
        let Some((name, text)) = option_names(option).find_map(is_set) else { continue };
        let texts =
            if is_list(option) { text.split(',').map(str::to_owned).collect() } else { vec![text] };
        let refused = |problem| CommandFailure::Usage(format!("{name}: {problem}"));
        let origin = OptionOrigin::Variable(name.clone());
        given.push(keys.parsed(key, texts, origin).map_err(refused)?);
    }
    Ok(given)
}

/// Rejects variables that start with the prefix and set no option, which are probably mistyped.
fn known_variables(keys: &Keys, names: impl Iterator<Item = String>) -> Result<(), CommandFailure> {
    let options: Vec<String> = keys.iter().flat_map(option_names).map(variable).collect();
    let is_known =
        |name: &String| options.contains(name) || OTHER_VARIABLES.contains(&name.as_str());
    let Some(name) = names.filter(|name| name.starts_with(VARIABLE)).find(|name| !is_known(name))
    else {
        return Ok(());
    };
    let advice = match nearest(&name, options.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean {nearest}? If not, unset it"),
        None => format!(
            "unset it; variables are named after options of `flowgauge run`, such as {} for --window",
            variable("window")
        ),
    };
    refuse(format!("{name} in the environment is not an option; {advice}"))
}

/// Returns the options of the command line, which clap has validated.
fn command_line(keys: &Keys, given: &ArgMatches) -> Vec<GivenOption> {
    let option = |option: &Arg| {
        let (id, key) = (option.get_id().as_str(), option.get_long()?);
        if !matches!(given.try_contains_id(id), Ok(true))
            || given.value_source(id) != Some(ValueSource::CommandLine)
        {
            return None;
        }
        let texts: Vec<String> =
            given.get_raw(id)?.map(|text| text.to_string_lossy().into_owned()).collect();
        Some(GivenOption {
            key: key.to_owned(),
            texts,
            origin: OptionOrigin::Flag(key.to_owned()),
            matches: given.clone(),
        })
    };
    keys.iter().filter_map(option).collect()
}

/// Maximum number of sources in a file. Each is compared with all others.
const MAX_SOURCES: usize = 1000;

/// Reads the options and the sources of a configuration file.
fn read(keys: &Keys, path: &Path) -> Result<(Vec<GivenOption>, Vec<SourceTable>), CommandFailure> {
    let name = path.display();
    let text = files::read_text(path, MAX_SETTINGS_BYTES).map_err(|error| {
        CommandFailure::Usage(format!("cannot read configuration {name}: {error}"))
    })?;
    parse(keys, path, &text).map_err(|(position, problem)| {
        CommandFailure::Usage(format!(
            "configuration {name}, line {}: {problem}",
            line(&text, position)
        ))
    })
}

fn line(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}

/// Parses the options and the sources of a text, or returns the first problem.
fn parse(
    keys: &Keys,
    path: &Path,
    text: &str,
) -> Result<(Vec<GivenOption>, Vec<SourceTable>), Problem> {
    let syntax = |error: toml::de::Error| {
        (error.span().map_or(0, |span| span.start), error.message().replace('\n', " "))
    };
    let table = DeTable::parse(text).map_err(syntax)?.into_inner();
    let reader = Reader { keys, path, text };
    let options: Vec<&Arg> = keys.iter().filter(|option| option.get_id() != "config").collect();
    let sources = table.get(SOURCE);
    let common = reader.table(&table, &options, &[SOURCE])?;
    let mut named: Vec<SourceTable> = Vec::new();
    let Some(sources) = sources else { return Ok((common, named)) };
    let at = sources.span().start;
    let tables = sources.get_ref().as_array().filter(|sources| !sources.is_empty());
    let tables = tables
        .ok_or_else(|| (at, "'source' must be an array of tables, as in [[source]]".to_owned()))?;
    if tables.len() > MAX_SOURCES {
        let number = tables.len();
        return Err((
            at,
            format!("{number} sources; at most {MAX_SOURCES}: divide them among several runs"),
        ));
    }
    let is_own = |option: &&Arg| !option.get_long().is_some_and(|key| keys.is_of_process(key));
    let own: Vec<&Arg> = options.into_iter().filter(is_own).collect();
    for source in tables.iter() {
        let at = source.span().start;
        let table = source
            .get_ref()
            .as_table()
            .ok_or_else(|| (at, "a source must be a table, as in [[source]]".to_owned()))?;
        if let Some((key, _)) = table.iter().find(|(key, _)| keys.is_of_process(key.get_ref())) {
            let name = key.get_ref();
            let problem =
                format!("'{name}' applies to all sources; move it above the first [[source]]");
            return Err((key.span().start, problem));
        }
        let given = reader.table(table, &own, &[NAME])?;
        let Some(origin) = given.iter().find(|given| ORIGINS.contains(&given.key.as_str())) else {
            return Err((at, format!("a [[source]] needs one of: {}", ORIGINS.join(", "))));
        };
        let name = match table.get(NAME) {
            None => origin.texts.join(","),
            Some(name) => {
                let text = name.get_ref().as_str().filter(|name| is_name(name));
                let problem = "a name must be a string of 1 to 64 letters, digits, dots, dashes and underscores";
                text.ok_or_else(|| (name.span().start, problem.to_owned()))?.to_owned()
            }
        };
        if named.iter().any(|other| other.name == name) {
            return Err((
                at,
                format!("two sources are named '{name}'; rename one, as in name = \"uplink\""),
            ));
        }
        let line = line(text, table.iter().map(|(key, _)| key.span().start).min().unwrap_or(at));
        named.push(SourceTable {
            name,
            origin: OptionOrigin::Line { file: path.to_owned(), line },
            given,
        });
    }
    Ok((common, named))
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Reader of the tables in a text.
struct Reader<'a> {
    keys: &'a Keys,
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    /// Returns the options of a table, without the keys `others`, which are not options.
    fn table(
        &self,
        table: &DeTable<'_>,
        options: &[&Arg],
        others: &[&str],
    ) -> Result<Vec<GivenOption>, Problem> {
        let mut entries: Vec<_> =
            table.iter().filter(|(key, _)| !others.contains(&key.get_ref().as_ref())).collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let given = entries.into_iter().map(|(key, value)| {
            let name = key.get_ref().as_ref();
            let option =
                options.iter().find(|option| option_names(option).any(|known| known == name));
            let known =
                options.iter().filter_map(|option| option.get_long()).chain(others.iter().copied());
            let option = option.ok_or_else(|| (key.span().start, unknown(name, known)))?;
            let at_value = |problem| (value.span().start, problem);
            let texts = texts(option, value.get_ref())
                .ok_or_else(|| at_value(wanted(option).to_owned()))?;
            let name = option.get_long().unwrap_or(name);
            let line = line(self.text, key.span().start);
            let origin = OptionOrigin::Line { file: self.path.to_owned(), line };
            self.keys.parsed(name, texts, origin).map_err(at_value)
        });
        given.collect()
    }
}

/// Returns the name of an option, then its earlier names.
fn option_names(option: &Arg) -> impl Iterator<Item = &str> {
    option.get_long().into_iter().chain(option.get_all_aliases().unwrap_or_default())
}

/// Returns the message for an unknown key.
fn unknown<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> String {
    let advice = match nearest(key, known) {
        Some(name) => format!("did you mean '{name}'?"),
        None => "keys are the long options of `flowgauge run --help`, without dashes".to_owned(),
    };
    format!("unknown option '{key}'; {advice}")
}

/// Returns whether an option may be repeated.
fn is_list(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// Options with one value that consists of several, separated by commas.
const COMMA_LISTS: [&str; 4] = ["measure", "delay", "names", "cpus"];

/// Returns whether the value of an option is a list separated by commas.
fn takes_commas(option: &Arg) -> bool {
    option.get_long().is_some_and(|name| COMMA_LISTS.contains(&name))
}

/// Returns whether an option needs no value on the command line.
fn is_switch(option: &Arg) -> bool {
    option.get_num_args().is_some_and(|values| values.min_values() == 0)
}

/// Returns a value as written on the command line; numbers need no quotes. `None` if its type does
/// not fit the option.
fn texts(option: &Arg, value: &DeValue<'_>) -> Option<Vec<String>> {
    let word = |text: &DeValue<'_>| match text {
        DeValue::Integer(number) => Some(number.to_string()),
        _ => text.as_str().map(str::to_owned),
    };
    Some(match value {
        DeValue::Array(texts) if takes_commas(option) => {
            let words =
                texts.iter().map(|text| word(text.get_ref())).collect::<Option<Vec<_>>>()?;
            vec![words.join(",")]
        }
        DeValue::String(text) if is_list(option) => text.split(',').map(str::to_owned).collect(),
        DeValue::Array(texts) if is_list(option) => texts
            .iter()
            .map(|text| text.get_ref().as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
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
    match (is_switch(option), is_list(option) || takes_commas(option)) {
        (true, _) => "must be a boolean: true or false",
        (false, true) => "must be a string or a list of strings",
        (false, false) => "must be a string or a number",
    }
}

/// Returns the message for an invalid value.
fn describe(error: &clap::Error) -> String {
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let why = error.source().map_or_else(
        || format!("use one of {}", context(ContextKind::ValidValue)),
        ToString::to_string,
    );
    format!("invalid value '{}': {why}", excerpt(&context(ContextKind::InvalidValue), 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::run::Run;

    fn parse(text: &str) -> Result<(Vec<GivenOption>, Vec<SourceTable>), Problem> {
        super::parse(&Keys::new::<Run>(), Path::new("run.toml"), text)
    }

    #[test]
    fn an_unknown_key_gets_the_nearest_name() {
        let problem_of = |text: &str| parse(text).unwrap_err().1;
        assert_eq!(problem_of("windw = '1m'"), "unknown option 'windw'; did you mean 'window'?");
        assert_eq!(
            problem_of("sample_every = '1s'"),
            "unknown option 'sample_every'; did you mean 'sample-every'?"
        );
        assert_eq!(
            problem_of("xpd-mode = 'skb'"),
            "unknown option 'xpd-mode'; did you mean 'xdp-mode'?"
        );
        assert_eq!(
            problem_of("[[sorce]]\nport = 'memory:unique'"),
            "unknown option 'sorce'; did you mean 'source'?"
        );
        let far = problem_of("colour-of-the-sky = 'blue'");
        assert!(far.contains("`flowgauge run --help`") && far.len() < 150, "{far}");
    }

    #[test]
    fn what_is_a_list_with_commas_may_be_a_list_of_toml() {
        for (text, value) in [
            ("measure = ['cardinality', 'heavy']", "cardinality,heavy"),
            ("measure = ['all']", "all"),
            ("delay = ['dns', 'icmp']", "dns,icmp"),
            ("cpus = [2, 4]", "2,4"),
            ("names = ['dns']", "dns"),
            ("interface = ['eth1', 'eth2']", "eth1+eth2"),
        ] {
            let (given, _) = parse(text).unwrap();
            assert_eq!(given[0].texts.join("+"), value, "{text}");
        }
        let problem_of = |text: &str| parse(text).unwrap_err().1;
        assert_eq!(problem_of("window = ['1m']"), "must be a string or a number");
        assert!(problem_of("measure = ['cardinalty']").contains("did you mean 'cardinality'?"));
        let known: Vec<String> = Keys::new::<Run>()
            .iter()
            .filter_map(|option| Some(option.get_long()?.to_owned()))
            .collect();
        assert!(COMMA_LISTS.iter().all(|name| known.iter().any(|known| known == name)));
    }

    /// Only the first of several problems is reported.
    #[test]
    fn values_are_refused_where_they_stand() {
        let problem_of = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            problem_of("window = '1m'\nby = 'flows'\nwindw = 1"),
            (19, "invalid value 'flows': use one of packets, bytes".to_owned())
        );
        assert_eq!(
            problem_of("backend = 'abacus'"),
            (10, "invalid value 'abacus': use one of xdp, poll, tofino".to_owned())
        );
        assert_eq!(problem_of("key = 5"), (6, "must be a string or a list of strings".to_owned()));
        assert_eq!(problem_of("alarm = 'on'"), (8, "must be a boolean: true or false".to_owned()));
    }

    #[test]
    fn sources_have_names_and_settings_of_their_own() {
        let text = "window = '1m'\n\n[[source]]\nname = 'uplink'\ninterface = 'eth1,eth2'\nwindow = '10s'\n\n[[source]]\nport = 'memory:unique'\n";
        let (common, sources) = parse(text).unwrap();
        assert_eq!(
            sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(),
            ["uplink", "memory:unique"]
        );
        let configuration = Configuration { common, sources, ..Configuration::default() };
        let listed = |source: Option<usize>| -> Vec<String> {
            let source = source.map(|index| &configuration.sources[index]);
            let listed = |given: &GivenOption| {
                format!("{} = {} ({})", given.key, given.texts.join("+"), given.origin)
            };
            configuration.effective(source).iter().map(listed).collect()
        };
        assert_eq!(listed(None), ["window = 1m (run.toml:1)"]);
        assert_eq!(
            listed(Some(0)),
            ["interface = eth1+eth2 (run.toml:5)", "window = 10s (run.toml:6)"]
        );
        assert_eq!(
            listed(Some(1)),
            ["window = 1m (run.toml:1)", "port = memory:unique (run.toml:9)"]
        );
        assert_eq!(configuration.sources[1].origin.to_string(), "run.toml:9");
    }

    #[test]
    fn sources_that_make_no_sense_are_refused() {
        let problem_of = |text: &str| parse(text).unwrap_err().1;
        assert!(problem_of("[[source]]\nwindow = '1s'").contains("needs one of: interface"));
        assert!(
            problem_of("[[source]]\nport = 'memory:unique'\nformat = 'json'")
                .contains("above the first [[source]]")
        );
        assert!(
            problem_of("[[source]]\nport = 'memory:unique'\n[[source]]\nport = 'memory:unique'")
                .contains("two sources")
        );
        assert!(
            problem_of("[[source]]\nname = 'a b'\nport = 'memory:unique'")
                .contains("letters, digits")
        );
        assert!(problem_of("source = 'eth1'").contains("[[source]]"));
        assert!(
            problem_of(&"[[source]]\nport = 'memory:unique'\n".repeat(MAX_SOURCES + 1))
                .contains("1001 sources; at most 1000")
        );
        assert_eq!(
            problem_of("[[source]]\nport = 'memory:unique'\nnme = 'x'"),
            "unknown option 'nme'; did you mean 'name'?"
        );
    }

    #[test]
    fn a_variable_goes_before_the_file_and_the_command_line_before_both() {
        let keys = Keys::new::<Run>();
        let (common, sources) = parse("window = '1m'\nkey = 'src'\nalarm = true\n").unwrap();
        let variables = [
            ("FLOWGAUGE_WINDOW", "2m"),
            ("FLOWGAUGE_SAMPLE_EVERY", "1s"),
            ("FLOWGAUGE_KEY", "src,heavy=dst"),
            ("FLOWGAUGE_SEED", ""),
        ];
        let value = |name: &str| {
            variables
                .iter()
                .find(|(variable, _)| *variable == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let environment = environment(&keys, value).unwrap();
        let given = keys
            .known
            .clone()
            .try_get_matches_from(["--sample-every=3s", "--alarm=false"])
            .unwrap();
        let command_line = command_line(&keys, &given);
        let configuration =
            Configuration { file: None, common, sources, environment, command_line };
        let mut listed: Vec<String> = configuration
            .effective(None)
            .into_iter()
            .map(|given| format!("{} = {} ({})", given.key, given.texts.join("+"), given.origin))
            .collect();
        listed.sort();
        assert_eq!(
            listed,
            [
                "alarm = false (--alarm on the command line)",
                "key = src+heavy=dst (FLOWGAUGE_KEY in the environment)",
                "sample-every = 3s (--sample-every on the command line)",
                "window = 2m (FLOWGAUGE_WINDOW in the environment)",
            ]
        );
        let refused = super::environment(&keys, |name| {
            (name == "FLOWGAUGE_WINDOW").then(|| "soon".to_owned())
        })
        .unwrap_err();
        assert!(
            refused.to_string().starts_with("FLOWGAUGE_WINDOW: invalid value 'soon'"),
            "{refused}"
        );
    }

    #[test]
    fn an_option_is_known_by_its_earlier_name() {
        let (common, _) = parse("read-every = '1s'").unwrap();
        assert_eq!(
            (common[0].key.as_str(), common[0].texts.as_slice()),
            ("sample-every", &["1s".to_owned()][..])
        );
        let keys = Keys::new::<Run>();
        let value = |name: &str| (name == "FLOWGAUGE_READ_EVERY").then(|| "2s".to_owned());
        let given = environment(&keys, value).unwrap();
        assert_eq!(given[0].key, "sample-every");
        assert!(known_variables(&keys, std::iter::once("FLOWGAUGE_READ_EVERY".to_owned())).is_ok());
    }

    #[test]
    fn a_mistyped_variable_is_refused_with_the_nearest_one() {
        let keys = Keys::new::<Run>();
        let problem_of = |name: &str| {
            let names =
                ["PATH", "FLOWGAUGE_WINDOW", "FLOWGAUGE_RUN", "FLOWGAUGE", name].map(str::to_owned);
            known_variables(&keys, names.into_iter()).map_err(|failure| failure.to_string())
        };
        assert_eq!(problem_of("FLOWGAUGE_SAMPLE_EVERY"), Ok(()));
        let mistyped = problem_of("FLOWGAUGE_INTERFACES").unwrap_err();
        assert_eq!(
            mistyped,
            "FLOWGAUGE_INTERFACES in the environment is not an option; did you mean FLOWGAUGE_INTERFACE? If not, unset it"
        );
        let far = problem_of("FLOWGAUGE_9420_TCP_PROTO_OF_A_SERVICE").unwrap_err();
        assert!(far.contains("is not an option"), "{far}");
    }
}
