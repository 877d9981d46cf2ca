//! Tokens of filter expressions.

use super::FilterError;

/// Maximum length of a word, in characters, since messages repeat words. The longest words of the
/// language are IPv6 networks, of 49 characters.
const MAX_WORD_CHARACTERS: usize = 64;

/// Token of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// Column of its first character, from 1.
    pub(super) column: usize,
}

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword, name, number, address or range.
    Word,
    And,
    Or,
    Not,
    Open,
    Close,
    OpenIndex,
    CloseIndex,
    /// `&`
    BitAnd,
    /// `|`
    BitOr,
    /// `=` or `==`
    Equal,
    /// `!=`
    NotEqual,
    /// End of the text.
    End,
}

/// Symbols, longer ones first.
const SYMBOLS: [(&str, TokenKind); 12] = [
    ("&&", TokenKind::And),
    ("||", TokenKind::Or),
    ("!=", TokenKind::NotEqual),
    ("==", TokenKind::Equal),
    ("=", TokenKind::Equal),
    ("!", TokenKind::Not),
    ("(", TokenKind::Open),
    (")", TokenKind::Close),
    ("[", TokenKind::OpenIndex),
    ("]", TokenKind::CloseIndex),
    ("&", TokenKind::BitAnd),
    ("|", TokenKind::BitOr),
];

/// Splits a text into tokens, the last of which is [`TokenKind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let mut tokens = Vec::new();
    let (mut rest, mut column) = (text, 1);
    loop {
        let trimmed = rest.trim_start();
        column += rest.chars().count() - trimmed.chars().count();
        rest = trimmed;
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { kind: TokenKind::End, text: "", column });
            return Ok(tokens);
        };
        let symbol = SYMBOLS.into_iter().find(|(symbol, _)| rest.starts_with(symbol));
        let (kind, length) = if let Some((symbol, kind)) = symbol {
            (kind, symbol.len())
        } else {
            // Characters of words are ASCII, one byte each.
            let length = rest.find(|character| !is_in_words(character)).unwrap_or(rest.len());
            if length == 0 {
                return Err(FilterError::Syntax { column, problem: unexpected(first) });
            }
            if length > MAX_WORD_CHARACTERS {
                let problem = format!(
                    "a word of {length} characters, at most {MAX_WORD_CHARACTERS} are possible"
                );
                return Err(FilterError::Syntax { column, problem });
            }
            let kind = match &rest[..length] {
                "and" => TokenKind::And,
                "or" => TokenKind::Or,
                "not" => TokenKind::Not,
                _ => TokenKind::Word,
            };
            (kind, length)
        };
        let (text, after) = rest.split_at(length);
        tokens.push(Token { kind, text, column });
        (rest, column) = (after, column + text.chars().count());
    }
}

fn is_in_words(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._:/-\\".contains(character)
}

/// Describes a character that begins no token, with advice.
fn unexpected(character: char) -> String {
    let advice = match character {
        '<' | '>' => "; for lengths use 'greater N' or 'less N'",
        '+' | '*' | '%' | '^' => "; arithmetic is not supported",
        '\'' | '"' => "; quote the whole expression only",
        _ => "",
    };
    format!("the character {character:?} is not part of the language{advice}")
}
