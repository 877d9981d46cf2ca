//! Formatting shared by measurements and outputs: numbers and durations for people, wrapped lines,
//! escaped text, JSON objects and their optional fields.

mod below;

pub(crate) use below::{DetailRow, IndentedLines};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt::Write;

/// Formats a number with commas between its thousands.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 packet`, `2 packets`, `0 windows`.
#[must_use]
pub fn counted(number: u64, singular: &str) -> String {
    format!("{} {singular}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats a number with three digits and a decimal prefix: `0`, `999`, `1.25 M`.
#[must_use]
pub fn scaled(value: f64) -> String {
    const PREFIXES: [&str; 6] = ["", " k", " M", " G", " T", " P"];
    if !value.is_finite() {
        return "?".to_owned();
    }
    let (mut value, mut index) = (value, 0);
    // 999.6 would be rounded to 1000.
    while value >= 999.5 && index + 1 < PREFIXES.len() {
        (value, index) = (value / 1000.0, index + 1);
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    let whole = index == 0 && value.fract() == 0.0;
    format!("{value:.*}{}", if whole { 0 } else { decimals }, PREFIXES[index])
}

/// Formats a size in the largest unit that it reaches: `16 KiB`, `1 GiB`.
pub(crate) fn storage(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    format!("{} {}", bytes >> (10 * power), UNITS[power as usize])
}

/// Formats a number with all its digits if they fit in `width`, or with three.
#[must_use]
pub(crate) fn fitted(number: u64, width: usize) -> String {
    let text = grouped(number);
    if text.len() <= width { text } else { scaled(number as f64) }
}

/// Maximum number of characters of an [`excerpt`].
pub(crate) const MAX_EXCERPT: usize = 80;

/// Returns at most 80 characters of a text, around the one with an index. `…` marks what is left
/// out.
#[must_use]
pub fn excerpt(text: &str, index: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= MAX_EXCERPT {
        return Cow::Borrowed(text);
    }
    let first = index.saturating_sub(MAX_EXCERPT / 2).min(length - MAX_EXCERPT);
    let shown: String = text.chars().skip(first).take(MAX_EXCERPT).collect();
    let marks =
        [first > 0, first + MAX_EXCERPT < length].map(|is_cut| if is_cut { "…" } else { "" });
    Cow::Owned(format!("{}{shown}{}", marks[0], marks[1]))
}

/// Escapes text from outside for display: characters that move the cursor, change colours or the
/// order of letters, or begin a new line become escape sequences as in Rust, such as `\n` or
/// `\u{1b}`.
///
/// Names of interfaces, files and switches, and responses of other programs, can contain anything.
/// All code that prints them for people must escape them.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, is_unsafe, |safe, character| safe.extend(character.escape_default()))
}

/// Replaces each character for which `is_replaced` holds by the text that `write` appends for it.
fn replaced(
    text: &str,
    is_replaced: impl Fn(char) -> bool,
    write: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(&is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_replaced(character) {
            write(&mut safe, character);
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// Whether a character is a control character or invisible: marks of the writing direction (which
/// reorder adjacent text), spaces without width, separators of lines and paragraphs.
fn is_unsafe(character: char) -> bool {
    let unseen = |c| {
        matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    character.is_control() || unseen(character)
}

/// Escapes the same characters in JSON for display, as JSON does. JSON requires it only for the
/// first 32; the others occur only within strings.
#[must_use]
pub fn escaped_json(json: &str) -> String {
    let is_escaped = |character| is_unsafe(character) && character != '\n';
    let escape = |safe: &mut String, character: char| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(safe, "\\u{unit:04x}");
        }
    };
    replaced(json, is_escaped, escape).into_owned()
}

/// Escapes the same characters in the strings of a JSON text as [`escaped`] does, so that a page
/// shows them as text. In JSON, only strings contain them.
pub(crate) fn escaped_strings(json: &str) -> Cow<'_, str> {
    replaced(json, is_unsafe, |safe, character| {
        let _ = write!(safe, "\\\\u{{{:x}}}", u32::from(character));
    })
}

/// Splits a phrase where a line may end: at blanks, except between a number and its unit and within
/// an interval.
fn breakable(phrase: &str) -> Vec<&str> {
    let is_number = |word: &str| {
        let digits = word.trim_start_matches(['(', '+', '-', '±', '≤']);
        digits.starts_with(|c: char| c.is_ascii_digit())
            && digits.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.')
            && digits.matches('.').count() < 2
    };
    let is_prefix = |word: &str| matches!(word, "k" | "M" | "G" | "T" | "P");
    let (mut parts, mut start, mut end, mut before, mut is_inside) = (Vec::new(), 0, 0, "", false);
    for word in phrase.split(' ') {
        let is_unit = (is_number(before) && !word.starts_with('('))
            || is_prefix(before)
            || matches!(before, "±" | "≤" | "…");
        if end > 0 && !is_unit && !is_inside {
            parts.push(&phrase[start..end - 1]);
            start = end;
        }
        // Brackets without an ellipsis are words.
        let bracket = word.starts_with('(').then(|| phrase[end..].split(')').next()).flatten();
        is_inside = (is_inside || bracket.is_some_and(|bracket| bracket.contains('…')))
            && !word.ends_with(')');
        (before, end) = (word, end + word.len() + 1);
    }
    parts.push(&phrase[start..]);
    parts
}

/// Joins phrases with commas and wraps them into lines of at most `width` characters where
/// possible; all but the first line are indented. No line ends between a number and its unit, or
/// within an interval.
pub(crate) fn wrapped(first: usize, rest: usize, width: usize, phrases: &[String]) -> String {
    let mut text = " ".repeat(first);
    let mut column = first;
    for (index, phrase) in phrases.iter().enumerate() {
        let comma = if index + 1 < phrases.len() { "," } else { "" };
        let parts = breakable(phrase);
        for (word_index, word) in parts.iter().enumerate() {
            let comma = if word_index + 1 == parts.len() { comma } else { "" };
            let length = word.chars().count() + comma.len();
            // A phrase that fits on a line of its own starts a new one; longer phrases are broken
            // between words.
            let ahead = if word_index == 0 { phrase.chars().count() + comma.len() } else { length };
            let ahead = if rest + ahead > width { length } else { ahead };
            let begun = column > if text.contains('\n') { rest } else { first };
            if begun && column + 1 + ahead > width {
                let _ = write!(text, "\n{}", " ".repeat(rest));
                column = rest;
            } else if begun {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            text.push_str(comma);
            column += length;
        }
    }
    text
}

/// Formats a duration in nanoseconds, in suitable units.
pub(crate) fn lasted(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let fraction = nanoseconds as f64 / 1e9;
    match seconds {
        0 => format!("{fraction:.3} s"),
        1..100 => format!("{fraction:.2} s"),
        100..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => {
            format!("{} h {} min {} s", seconds / 3_600, seconds / 60 % 60, seconds % 60)
        }
        _ => format!("{} d {} h {} min", seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60),
    }
}

/// Describes a step of the clock, in nanoseconds.
pub(crate) fn stepped(by: i64) -> String {
    let way = if by < 0 { "back" } else { "forward" };
    format!("the clock was set {way} by {}", lasted(by.unsigned_abs()))
}

/// Shortens text to `width` characters, with an ellipsis in the middle.
pub(crate) fn shortened(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return Cow::Borrowed(text);
    }
    let kept = width.saturating_sub(1);
    let end = kept / 2;
    let start: String = text.chars().take(kept - end).collect();
    Cow::Owned(start + "…" + &text.chars().skip(length - end).collect::<String>())
}

/// Writes a list of names and values as an object.
pub(crate) fn serialize_pairs<K: Serialize, V: Serialize, S: Serializer>(
    pairs: &[(K, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

/// Writes a field if it has a value.
pub(crate) fn optional<M: SerializeMap>(
    line: &mut M,
    name: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| line.serialize_entry(name, &value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(
            [0, 999, 1000, 132_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "132,000", "1,234,567"]
        );
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            [0, 1, 2, 1000].map(|number| counted(number, "packet")),
            ["0 packets", "1 packet", "2 packets", "1,000 packets"]
        );
    }

    #[test]
    fn figures_have_three_digits_and_a_prefix() {
        let figures = [
            0.0,
            0.5,
            7.0,
            999.0,
            999.6,
            1_250_000.0,
            12_345.0,
            99_950.0,
            999_499.0,
            999_500.0,
            1e11,
            1e21,
        ];
        let expected = [
            "0",
            "0.50",
            "7",
            "999",
            "1.00 k",
            "1.25 M",
            "12.3 k",
            "100 k",
            "999 k",
            "1.00 M",
            "100 G",
            "1000000 P",
        ];
        assert_eq!(figures.map(scaled), expected);
        assert_eq!([f64::NAN, f64::INFINITY].map(scaled), ["?", "?"]);
        assert_eq!([fitted(1_234_567, 9), fitted(1_234_567, 8)], ["1,234,567", "1.23 M"]);
    }

    #[test]
    fn what_could_command_a_terminal_is_shown_as_text() {
        let hostile = "eth0\u{1b}[2J\u{1b}]0;owned\u{7}\r\n\u{9b}31m\u{7f}\u{202e}gnp.\u{200b}\u{2066}\u{feff}\u{e0041}";
        let shown = escaped(hostile);
        assert_eq!(
            shown,
            "eth0\\u{1b}[2J\\u{1b}]0;owned\\u{7}\\r\\n\\u{9b}31m\\u{7f}\\u{202e}gnp.\\u{200b}\\u{2066}\\u{feff}\\u{e0041}"
        );
        assert!(!shown.contains(|c: char| c.is_control()));
        for harmless in ["", "eth0", "größe 95 % …", "日本語", "a\\b 'c' \"d\""] {
            assert!(matches!(escaped(harmless), Cow::Borrowed(text) if text == harmless));
        }
        let json = serde_json::to_string(&hostile).unwrap();
        let safe = escaped_json(&json);
        assert!(!safe.contains(is_unsafe) && json.contains(is_unsafe), "{safe}");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), hostile);
        let shown: String = serde_json::from_str(&escaped_strings("\"a\u{202e}\u{9b}b\"")).unwrap();
        assert_eq!(shown, "a\\u{202e}\\u{9b}b");
    }

    #[test]
    fn phrases_go_to_the_next_line_where_they_do_not_fit() {
        let phrases =
            ["10.0.0.1 > 10.0.0.2".to_owned(), "12,345 packets".to_owned(), "8.3 %".to_owned()];
        assert_eq!(wrapped(2, 4, 60, &phrases), "  10.0.0.1 > 10.0.0.2, 12,345 packets, 8.3 %");
        assert_eq!(
            wrapped(2, 4, 30, &phrases),
            "  10.0.0.1 > 10.0.0.2,\n    12,345 packets, 8.3 %"
        );
        assert_eq!(
            wrapped(2, 4, 16, &phrases),
            "  10.0.0.1 >\n    10.0.0.2,\n    12,345 packets,\n    8.3 %"
        );
        for width in 8..80 {
            let text = wrapped(2, 4, width, &phrases);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= width.max(4 + "12,345 packets,".len()), "{width}: {text}");
            assert_eq!(text.split_whitespace().collect::<Vec<_>>().join(" "), phrases.join(", "));
        }
    }

    #[test]
    fn no_line_ends_between_a_number_and_its_unit_or_within_an_interval() {
        for (phrase, parts) in [
            ("p50 7.70 ms (7.60 ms … 7.86 ms)", &["p50", "7.70 ms", "(7.60 ms … 7.86 ms)"][..]),
            (
                "192.0.2.1 > 192.0.2.2: 1.24 k packets/s",
                &["192.0.2.1", ">", "192.0.2.2:", "1.24 k packets/s"],
            ),
            ("truth 5.867 (error -1.74 %)", &["truth", "5.867", "(error", "-1.74 %)"]),
            ("92,607 ± 4.5 % of flows", &["92,607 ± 4.5 %", "of", "flows"]),
            ("fewer requests (--delay-admit) or", &["fewer", "requests", "(--delay-admit)", "or"]),
            ("(1 or more) in all", &["(1 or", "more)", "in", "all"]),
            ("", &[""]),
        ] {
            assert_eq!(breakable(phrase), parts);
        }
        let interval = "within 1.85 s (1.80 s … 1.90 s) of it".to_owned();
        for width in 25..50 {
            let text = wrapped(2, 4, width, std::slice::from_ref(&interval));
            assert!(
                text.contains("1.85 s") && text.contains("(1.80 s … 1.90 s)"),
                "{width}: {text}"
            );
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }

    #[test]
    fn cells_of_rows_stand_below_each_other() {
        let row = |name: &str, value: &str, interval: &str, note: &str| DetailRow {
            name: name.to_owned(),
            value: value.to_owned(),
            interval: interval.to_owned(),
            notes: (!note.is_empty()).then(|| note.to_owned()).into_iter().collect(),
            ..DetailRow::default()
        };
        let rows = [
            row("p50", "7.70 ms", "(7.60 ms … 7.86 ms)", ""),
            row("p99", "115 µs", "(113 µs … 9 s)", "truth 114 µs"),
        ];
        let shown = |width| {
            let mut text = String::new();
            IndentedLines::new(&mut text, 2, width, false).rows(&rows);
            text
        };
        assert_eq!(
            shown(60),
            "  p50  7.70 ms  (7.60 ms … 7.86 ms)\n  p99   115 µs  (113 µs … 9 s)       truth 114 µs\n"
        );
        assert_eq!(
            shown(40),
            "  p50  7.70 ms  (7.60 ms … 7.86 ms)\n  p99   115 µs  (113 µs … 9 s)\n    truth 114 µs\n"
        );
        assert_eq!(
            shown(30),
            "  p50\n    7.70 ms,\n    (7.60 ms … 7.86 ms)\n  p99\n    115 µs, (113 µs … 9 s),\n    truth 114 µs\n"
        );
    }

    #[test]
    fn a_long_name_loses_its_middle() {
        assert_eq!(shortened("enp3s0f0np0 in", 14), "enp3s0f0np0 in");
        assert_eq!(shortened("enp3s0f0np0 out", 10), "enp3s… out");
    }
}
