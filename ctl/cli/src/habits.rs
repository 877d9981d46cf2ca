//! Command lines that follow the habits of other tools.
//!
//! [`rewritten`] runs before clap. Where the meaning is plain, it puts the options of this command
//! in place of the habit: `flowgauge trace.pcap`, `flowgauge -i eth1`, `run eth1`,
//! `replay -r trace.pcap tcp port 443`, `--json`. Otherwise it returns the line to type. All other
//! words stay as they are, for clap to accept or refuse.

use crate::error::{CommandFailure, refuse};
use crate::interfaces;
use clap::{Arg, Command};
use flowgauge_ctl::filter::{MatchExpression, begins_expression};
use flowgauge_ctl::nearest::nearest;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Options of tcpdump and others that need an answer of their own.
const ANSWERS: [(&str, &str); 3] = [
    (
        "-w",
        "-w: flowgauge stores no packets; store them with `tcpdump -w FILE`, and count them with `flowgauge replay FILE`",
    ),
    ("-o", "-o: write results to a file with `> FILE`, or with --out DIR; a report with --to FILE"),
    ("-c", "-c: a run ends after a time, not after a number of packets; give --duration 10s"),
];
/// Options of tcpdump for what flowgauge does anyway: no names without `--names`.
const NEEDLESS: [&str; 2] = ["-n", "-nn"];
/// Formats that people give as options of their own.
const FORMATS: [(&str, &str); 2] = [("--json", "--format=json"), ("--csv", "--format=csv")];
/// Endings of the names of captures, before that of a compression.
const CAPTURES: [&str; 3] = [".pcap", ".pcapng", ".cap"];
const COMPRESSIONS: [&str; 3] = [".gz", ".zst", ".xz"];

/// Returns the words of a command line, the program's name first, in the words of this command.
///
/// # Errors
/// A [`CommandFailure`] with the line to type instead.
pub(crate) fn rewritten(
    command: &Command,
    mut words: Vec<OsString>,
) -> Result<Vec<OsString>, CommandFailure> {
    let at = subcommand_index(command, &words);
    let Some(word) = words.get(at) else { return Ok(words) };
    if command.find_subcommand(word).is_none() {
        let Some(name) = implied(command, words.get(at..).unwrap_or_default()) else {
            return Ok(words);
        };
        words.insert(at, name.into());
    }
    let operands = words.split_off((at + 1).min(words.len()));
    let chosen = words.last().and_then(|name| command.find_subcommand(name));
    let Some(chosen) = chosen else {
        words.extend(operands);
        return Ok(words);
    };
    let known = OptionSet::of(command, chosen);
    words.extend(match chosen.get_name() {
        "run" => with_interfaces(&known, classified(&known, operands, true)?)?,
        "replay" | "report" => with_filter(classified(&known, operands, true)?, 1),
        // They pass their words to another program, as they were given.
        "bench" | "reproduce" => operands,
        _ => texts(classified(&known, operands, false)?),
    });
    Ok(words)
}

/// Returns the index of the first word after the options of every command.
fn subcommand_index(command: &Command, words: &[OsString]) -> usize {
    let known = OptionSet::of(command, command);
    let mut index = 1;
    while let Some(word) = words.get(index)
        && let Some((_, takes_next)) = known.find(&word.to_string_lossy())
    {
        index += 1 + usize::from(takes_next);
    }
    index
}

/// Returns the subcommand that words without one imply.
fn implied(command: &Command, words: &[OsString]) -> Option<&'static str> {
    let run = command.find_subcommand("run")?;
    let known = OptionSet::of(command, run);
    let first = words.first()?;
    let text = first.to_string_lossy();
    if reads(&text).is_some() || is_capture(first) {
        return Some("replay");
    }
    if interfaces::exists(&text) {
        return Some("run");
    }
    let is_habit = NEEDLESS.contains(&&*text)
        || ANSWERS.iter().any(|(option, _)| *option == text)
        || FORMATS.iter().any(|(option, _)| *option == text);
    if !is_habit && known.find(&text).is_none() {
        return None;
    }
    let words = classified(&known, words.to_vec(), true).unwrap_or_default();
    let counts_capture = words.iter().any(|word| word.is_operand && is_capture(&word.text));
    Some(if counts_capture { "replay" } else { "run" })
}

/// Word after a subcommand.
struct Word {
    text: OsString,
    /// Whether it is neither an option nor the value of one.
    is_operand: bool,
}

/// Finds the operands among the words after a subcommand, and replaces options of other tools.
/// Those of packet tools are replaced only if the subcommand counts packets.
fn classified(
    known: &OptionSet<'_>,
    words: Vec<OsString>,
    counts: bool,
) -> Result<Vec<Word>, CommandFailure> {
    let option = |text: OsString| Word { text, is_operand: false };
    let operand = |text: OsString| Word { text, is_operand: true };
    let mut found = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if text == "--" {
            found.push(option(word));
            found.extend(words.by_ref().map(option));
        } else if let Some((_, takes_next)) = known.find(&text) {
            found.push(option(word));
            if takes_next {
                found.extend(words.next().map(option));
            }
        } else if let Some((_, format)) = FORMATS.iter().find(|(given, _)| *given == text)
            && known.find("--format").is_some()
        {
            found.push(option(OsString::from(*format)));
        } else if counts && let Some(file) = reads(&text) {
            let file = if file.is_empty() { words.next() } else { Some(file.into()) };
            found.extend(file.map(operand));
        } else if counts && NEEDLESS.contains(&&*text) {
            // Left out.
        } else if counts && let Some((_, answer)) = ANSWERS.iter().find(|(given, _)| *given == text)
        {
            return refuse(*answer);
        } else if text.starts_with('-') && text != "-" {
            // Clap refuses it, and the next word may be its value.
            found.push(option(word));
            found.extend(words.by_ref().map(option));
        } else {
            found.push(operand(word));
        }
    }
    Ok(found)
}

/// Returns the file of `-r FILE`, as tcpdump and tshark take it; an empty name if it is the next
/// word.
fn reads(text: &str) -> Option<&str> {
    let file = text.strip_prefix("-r").or_else(|| text.strip_prefix("--read="));
    file.or((text == "--read").then_some(""))
}

fn texts(words: Vec<Word>) -> Vec<OsString> {
    words.into_iter().map(|word| word.text).collect()
}

/// Replaces the operands from one that is no file and begins an expression by `--match`, as tcpdump
/// takes them. The first `files` operands are files in any case.
fn with_filter(mut words: Vec<Word>, files: usize) -> Vec<OsString> {
    let operands = operand_texts(&words);
    let begin = (files..operands.len()).find(|begin| {
        let rest = operands.get(*begin..).unwrap_or_default();
        rest.first().is_some_and(|first| !is_capture(OsStr::new(first))) && is_expression(rest)
    });
    let Some((begin, rest)) = begin.and_then(|begin| Some((begin, operands.get(begin..)?))) else {
        return texts(words);
    };
    let expression = format!("--match={}", rest.join(" "));
    let first = words.iter_mut().filter(|word| word.is_operand).nth(begin);
    if let Some(word) = first {
        *word = Word { text: expression.into(), is_operand: false };
    }
    // The words of the expression are in the first one; files come before it.
    let mut files = 0..begin;
    words.retain(|word| !word.is_operand || files.next().is_some());
    texts(words)
}

fn operand_texts(words: &[Word]) -> Vec<String> {
    let operands = words.iter().filter(|word| word.is_operand);
    operands.map(|word| word.text.to_string_lossy().into_owned()).collect()
}

/// Returns whether words are a filter expression, or are meant to be one.
fn is_expression(words: &[String]) -> bool {
    let text = words.join(" ");
    let first = text.split_whitespace().next().unwrap_or_default();
    // The name of a file that does not exist is no expression with a mistake.
    let is_path = first.contains(['.', '/']);
    text.parse::<MatchExpression>().is_ok() || (!is_path && begins_expression(first))
}

/// Replaces the operands of `run`: interfaces by `--interface`, those after them by `--match`.
fn with_interfaces(
    known: &OptionSet<'_>,
    mut words: Vec<Word>,
) -> Result<Vec<OsString>, CommandFailure> {
    let is_source = |word: &Word| {
        let option = known.find(&word.text.to_string_lossy()).and_then(|(it, _)| it.get_long());
        !word.is_operand && option.is_some_and(|option| SOURCES.contains(&option))
    };
    let mut has_source = words.iter().any(is_source);
    for word in words.iter_mut().filter(|word| word.is_operand) {
        let name = word.text.to_string_lossy().into_owned();
        if !name.split(',').all(|name| interfaces::exists(name) || is_interface_pattern(name)) {
            break;
        }
        *word = Word { text: format!("--interface={name}").into(), is_operand: false };
        has_source = true;
    }
    let rest = operand_texts(&words);
    let is_filter = has_source && is_expression(&rest);
    match rest.first() {
        Some(first) if is_capture(OsStr::new(first)) => refuse(format!(
            "`flowgauge run` counts live traffic; count the capture with `flowgauge replay {first}`"
        )),
        Some(first) if !is_filter => refuse(no_interface(first)),
        _ => Ok(with_filter(words, 0)),
    }
}

/// Options of `run` that say where the packets of an expression come from.
const SOURCES: [&str; 5] = ["interface", "port", "address", "backend", "config"];

fn is_interface_pattern(name: &str) -> bool {
    // Brackets alone are those of an expression, such as tcp[syn].
    name == interfaces::ANY || (name.contains(['*', '?']) && !name.contains(' '))
}

fn no_interface(word: &str) -> String {
    let all: Vec<String> = interfaces::all().into_iter().map(|it| it.name).collect();
    let meant = nearest(word, all.iter().map(String::as_str))
        .map_or_else(String::new, |name| format!("did you mean `flowgauge run -i {name}`? "));
    format!(
        "'{word}' is no interface of this machine; {meant}use one of {}, as in `flowgauge run -i IFACE`",
        interfaces::first_few(&all)
    )
}

/// Returns whether a word is the name of a capture: of a file that exists, or one with its ending.
fn is_capture(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    let name = COMPRESSIONS.iter().find_map(|ending| text.strip_suffix(*ending)).unwrap_or(&text);
    let path = Path::new(word);
    text == "-"
        || (path.exists() && !path.is_dir())
        || (!text.starts_with('-') && CAPTURES.iter().any(|ending| name.ends_with(*ending)))
}

/// Options of a command.
struct OptionSet<'a>(Vec<&'a Arg>);

impl<'a> OptionSet<'a> {
    /// Options of a subcommand, and those of every command.
    fn of(command: &'a Command, subcommand: &'a Command) -> Self {
        let all = command.get_arguments().chain(subcommand.get_arguments());
        OptionSet(all.filter(|argument| !argument.is_positional()).collect())
    }

    /// Returns the option that a word sets, and whether its value is the next word.
    fn find(&self, word: &str) -> Option<(&'a Arg, bool)> {
        let takes_value =
            |option: &Arg| option.get_action().takes_values() && !option.is_require_equals_set();
        if let Some(long) = word.strip_prefix("--") {
            let name = long.split_once('=').map_or(long, |(name, _)| name);
            let is_it = |option: &&Arg| {
                let aliases = option.get_all_aliases().unwrap_or_default();
                option.get_long() == Some(name) || aliases.contains(&name)
            };
            let option = self.0.iter().copied().find(is_it)?;
            return Some((option, takes_value(option) && name == long));
        }
        let mut letters = word.strip_prefix('-')?.chars();
        let mut last = None;
        while let Some(letter) = letters.next() {
            let option =
                self.0.iter().copied().find(|option| option.get_short() == Some(letter))?;
            if takes_value(option) {
                return Some((option, letters.as_str().is_empty()));
            }
            last = Some((option, false));
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn rewritten_line(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        let words = rewritten(&crate::Cli::command(), words).map_err(|it| it.to_string())?;
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    /// `lo` is an interface of every machine, and of every network namespace.
    #[test]
    fn what_people_type_becomes_the_options_of_this_command() {
        for (typed, meant) in [
            ("flowgauge x.pcap", "flowgauge replay x.pcap"),
            ("flowgauge -q x.pcapng.zst --truth", "flowgauge -q replay x.pcapng.zst --truth"),
            ("flowgauge -", "flowgauge replay -"),
            ("flowgauge -r x.pcap", "flowgauge replay x.pcap"),
            ("flowgauge --measure delay x.pcap", "flowgauge replay --measure delay x.pcap"),
            ("flowgauge -i eth9", "flowgauge run -i eth9"),
            ("flowgauge -ieth9", "flowgauge run -ieth9"),
            ("flowgauge -nn -i eth9", "flowgauge run -i eth9"),
            ("flowgauge --color never -i eth9", "flowgauge --color never run -i eth9"),
            ("flowgauge lo", "flowgauge run --interface=lo"),
            ("flowgauge run lo", "flowgauge run --interface=lo"),
            ("flowgauge run any", "flowgauge run --interface=any"),
            ("flowgauge run lo tcp port 443", "flowgauge run --interface=lo --match=tcp port 443"),
            ("flowgauge run -i eth9 udp", "flowgauge run -i eth9 --match=udp"),
            ("flowgauge run -i eth9 --json", "flowgauge run -i eth9 --format=json"),
            ("flowgauge replay -r x.pcap", "flowgauge replay x.pcap"),
            ("flowgauge replay -rx.pcap --csv", "flowgauge replay x.pcap --format=csv"),
            ("flowgauge report -r x.pcap", "flowgauge report x.pcap"),
            (
                "flowgauge replay x.pcap tcp port 443",
                "flowgauge replay x.pcap --match=tcp port 443",
            ),
            (
                "flowgauge replay x.pcap y.pcap tcp[syn] --truth",
                "flowgauge replay x.pcap y.pcap --match=tcp[syn] --truth",
            ),
            (
                "flowgauge replay x.pcap not --window 1m host 10.0.0.1",
                "flowgauge replay x.pcap --match=not host 10.0.0.1 --window 1m",
            ),
            (
                "flowgauge replay x.pcap tpc port 443",
                "flowgauge replay x.pcap --match=tpc port 443",
            ),
            ("flowgauge status --json", "flowgauge status --format=json"),
        ] {
            assert_eq!(rewritten_line(typed).as_deref(), Ok(meant), "{typed}");
        }
    }

    #[test]
    fn what_clap_understands_or_refuses_is_left_to_it() {
        for line in [
            "flowgauge",
            "flowgauge -V",
            "flowgauge --help",
            "flowgauge help run",
            "flowgauge -q",
            "flowgauge reply x.pcap",
            "flowgauge --nonsense",
            "flowgauge run -i eth9 --match tcp",
            "flowgauge run --port memory:unique --window 1s --alarm",
            "flowgauge run --eal --no-huge",
            "flowgauge run --nonsense",
            "flowgauge replay x.pcap --window",
            "flowgauge replay x.pcap missing",
            "flowgauge replay x.pcap missing.pcap tcp.cap",
            "flowgauge replay x.pcap --query 10.0.0.1",
            "flowgauge replay -- -r",
            "flowgauge config check run.toml",
            "flowgauge bench packet --json",
            "flowgauge generate unique --to -w",
            "flowgauge completions bash",
        ] {
            assert_eq!(rewritten_line(line).as_deref(), Ok(line), "{line}");
        }
    }

    #[test]
    fn what_is_not_plain_is_answered_with_the_line_to_type() {
        for (typed, answer) in [
            ("flowgauge run x.pcap", "`flowgauge replay x.pcap`"),
            ("flowgauge run loo", "did you mean `flowgauge run -i lo`?"),
            ("flowgauge run tcp port 443", "as in `flowgauge run -i IFACE`"),
            ("flowgauge -i eth9 -w x.pcap", "`tcpdump -w FILE`"),
            ("flowgauge run -i eth9 -c 100", "--duration 10s"),
            ("flowgauge replay x.pcap -o x.json", "--out DIR"),
        ] {
            let given = rewritten_line(typed).unwrap_err();
            assert!(given.contains(answer) && !given.contains('\n'), "{typed}: {given}");
        }
    }
}
