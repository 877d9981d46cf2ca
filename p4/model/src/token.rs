//! Lexer.

use crate::source::{Place, Result};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Name,
    Number,
    Text,
    Symbol,
}

/// Token. `joined`: whether the next one follows without a space, which distinguishes `>>` from
/// two closing brackets.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: Arc<str>,
    pub(crate) place: Place,
    pub(crate) joined: bool,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && &*self.text == text
    }
}

/// Symbols, longest first. `>>` is read as two symbols, since it also closes two lists of type
/// arguments.
const SYMBOLS: [&str; 20] = [
    "&&&", "|+|", "|-|", "##", "&&", "||", "==", "!=", "<=", ">=", "<<", "++", "..", "(", ")", "{",
    "}", "[", "]", "<",
];
const SINGLE: &str = ">;:,.=+-*/%&|^~!?@#";

/// Returns the tokens of one logical line.
pub(crate) fn tokens(line: &str, place: &Place) -> Result<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (kind, length) = measure(rest, first, place)?;
        let (text, behind) = rest.split_at(length);
        let next = behind.trim_start();
        let joined = next.len() == behind.len() && !next.is_empty();
        let text = if kind == Kind::Text { text.trim_matches('"') } else { text };
        found.push(Token { kind, text: text.into(), place: place.clone(), joined });
        rest = next;
    }
    Ok(found)
}

fn measure(rest: &str, first: char, place: &Place) -> Result<(Kind, usize)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    if word(first) {
        let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let kind = if first.is_ascii_digit() { Kind::Number } else { Kind::Name };
        return Ok((kind, length));
    }
    if first == '"' {
        let closing = rest.char_indices().skip(1).find(|&(_, c)| c == '"');
        let (end, _) =
            closing.ok_or_else(|| place.error("string without closing quotation mark"))?;
        return Ok((Kind::Text, end + 1));
    }
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        return Ok((Kind::Symbol, symbol.len()));
    }
    if SINGLE.contains(first) {
        return Ok((Kind::Symbol, 1));
    }
    place.fail(format!("unexpected character {first:?}"))
}

/// Parses a number: its value, and width and sign if it has a prefix such as `32w` or `8s`.
pub(crate) fn number(token: &Token) -> Result<(u128, Option<(u32, bool)>)> {
    let digits = token.text.replace('_', "");
    let unreadable =
        || token.place.error(format!("{} is not a number of at most 128 bits", token.text));
    let prefix = digits.find(|c: char| !c.is_ascii_digit());
    if let Some(at) = prefix
        && let Some(sign @ ('w' | 's')) = digits[at..].chars().next()
    {
        let width = digits[..at].parse().map_err(|_| unreadable())?;
        let value = magnitude(&digits[at + 1..]).ok_or_else(unreadable)?;
        return Ok((value, Some((width, sign == 's'))));
    }
    Ok((magnitude(&digits).ok_or_else(unreadable)?, None))
}

fn magnitude(digits: &str) -> Option<u128> {
    let radix = [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2), ("0o", 8), ("0O", 8), ("0d", 10)];
    match radix.iter().find(|(prefix, _)| digits.starts_with(prefix)) {
        Some((_, radix)) => u128::from_str_radix(&digits[2..], *radix).ok(),
        None => digits.parse().ok(),
    }
}
