//! C preprocessor, as far as P4 sources need it: includes, macros with `##`, conditions.

use crate::source::{Place, Result, SourceError};
use crate::token::{Kind, Token, number, tokens};
use hashbrown::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Includes of the architecture, whose declarations are built in.
const BUILT_IN: [&str; 2] = ["core.p4", "tna.p4"];
const DEEPEST_INCLUDE: usize = 32;

#[derive(Clone)]
struct Macro {
    parameters: Option<Vec<Arc<str>>>,
    body: Vec<Token>,
}

struct Condition {
    place: Place,
    active: bool,
    taken: bool,
    outer: bool,
}

/// Text of a file, or why it cannot be read.
pub(crate) type Text = std::result::Result<String, String>;

/// Reads a file from the disk.
pub(crate) fn from_disk(path: &Path) -> Text {
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

macro_rules! own {
    ($($name:literal),*) => { &[$(($name, include_str!(concat!("../p4/", $name)))),*] };
}

/// Flowgauge's own program, as of the build of this crate. `p4/model/p4` has links to it, so that
/// the crate's package contains it.
const OWN: &[(&str, &str)] = own!(
    "flowgauge.p4",
    "settings.p4",
    "headers.p4",
    "parser.p4",
    "counters.p4",
    "match.p4",
    "hash.p4",
    "cardinality.p4",
    "sketch.p4",
    "entropy.p4",
    "frequency.p4",
    "membership.p4",
    "sizes.p4",
    "heavy.p4",
    "spread.p4",
    "delay.p4",
    "delay_settings.p4",
    "delay_request.p4",
    "delay_tables.p4",
    "delay_counts.p4",
    "delay_owners.p4",
    "delay_tokens.p4",
    "delay_roles.p4",
    "reorder.p4",
    "telemetry.p4",
    "forward.p4"
);

/// Reads a file of flowgauge's own program.
pub(crate) fn from_own(path: &Path) -> Text {
    let found = OWN.iter().find(|(name, _)| Path::new(name) == path);
    found
        .map(|(_, text)| (*text).to_owned())
        .ok_or_else(|| "not part of flowgauge's P4 source".to_owned())
}

/// Reads the only file of a program, which has this name and text.
pub(crate) fn from_text(name: &str, text: &str) -> impl Fn(&Path) -> Text {
    move |path: &Path| {
        if path == Path::new(name) {
            Ok(text.to_owned())
        } else {
            Err("there is no other file".to_owned())
        }
    }
}

/// Returns the tokens of `path` and its includes, which `read` reads, with macros expanded.
pub(crate) fn preprocess(
    read: &dyn Fn(&Path) -> Text,
    path: &Path,
    defines: &[(String, String)],
) -> Result<Vec<Token>> {
    let mut preprocessor = Preprocessor {
        read,
        macros: HashMap::new(),
        pending: Vec::new(),
        output: Vec::new(),
        depth: 0,
    };
    let command_line = Place { file: "command line".into(), line: 1 };
    for (name, value) in defines {
        let body = tokens(value, &command_line)?;
        preprocessor.macros.insert(name.as_str().into(), Macro { parameters: None, body });
    }
    preprocessor.file(path)?;
    preprocessor.flush()?;
    Ok(preprocessor.output)
}

struct Preprocessor<'a> {
    read: &'a dyn Fn(&Path) -> Text,
    macros: HashMap<Arc<str>, Macro>,
    pending: Vec<Token>,
    output: Vec<Token>,
    depth: usize,
}

impl Preprocessor<'_> {
    fn file(&mut self, path: &Path) -> Result<()> {
        let text = (self.read)(path)
            .map_err(|problem| SourceError::Unreadable { path: path.to_owned(), problem })?;
        let name: Arc<str> = path.display().to_string().into();
        let mut conditions: Vec<Condition> = Vec::new();
        for (line, text) in logical_lines(&without_comments(&text)) {
            let place = Place { file: name.clone(), line };
            let text = text.trim();
            if let Some(directive) = text.strip_prefix('#') {
                self.flush()?;
                self.directive(directive.trim(), &place, path, &mut conditions)?;
            } else if active(&conditions) {
                self.pending.extend(tokens(text, &place)?);
            }
        }
        match conditions.pop() {
            Some(open) => open.place.fail("#if without #endif"),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let expanded = self.expand(&pending, &[])?;
        self.output.extend(expanded);
        Ok(())
    }

    fn directive(
        &mut self,
        text: &str,
        place: &Place,
        path: &Path,
        conditions: &mut Vec<Condition>,
    ) -> Result<()> {
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let rest = rest.trim();
        let outer = active(conditions);
        match name {
            "if" | "ifdef" | "ifndef" => {
                let holds = outer
                    && match name {
                        "if" => self.condition(rest, place)?,
                        "ifdef" => self.macros.contains_key(rest),
                        _ => !self.macros.contains_key(rest),
                    };
                conditions.push(Condition {
                    place: place.clone(),
                    active: holds,
                    taken: holds,
                    outer,
                });
            }
            "elif" | "else" => {
                let Some(condition) = conditions.last_mut() else {
                    return place.fail(format!("#{name} without #if"));
                };
                let open = condition.outer && !condition.taken;
                let holds = open && (name == "else" || self.condition(rest, place)?);
                condition.active = holds;
                condition.taken |= holds;
            }
            "endif" => {
                conditions.pop().ok_or_else(|| place.error("#endif without #if"))?;
            }
            _ if !outer => {}
            "define" => self.define(rest, place)?,
            "undef" => {
                self.macros.remove(rest);
            }
            "include" => self.include(rest, place, path)?,
            "error" => return place.fail(format!("#error {rest}")),
            "pragma" => {}
            _ => return place.fail(format!("unsupported directive #{name}")),
        }
        Ok(())
    }

    fn include(&mut self, what: &str, place: &Place, path: &Path) -> Result<()> {
        if let Some(name) = what.strip_prefix('<').and_then(|name| name.strip_suffix('>')) {
            return if BUILT_IN.contains(&name) {
                Ok(())
            } else {
                place.fail(format!(
                    "unsupported include <{name}>: only <core.p4> and <tna.p4> are built in"
                ))
            };
        }
        let quoted = what.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        let name = quoted
            .ok_or_else(|| place.error("expected a name in quotation marks or angle brackets"))?;
        let target: PathBuf = path.parent().unwrap_or(Path::new("")).join(name);
        if self.depth == DEEPEST_INCLUDE {
            return place.fail(format!("includes are nested more than {DEEPEST_INCLUDE} deep"));
        }
        self.depth += 1;
        let done = self.file(&target).map_err(|error| match error {
            SourceError::Unreadable { path, problem } if path == target => {
                place.error(format!("cannot include {name}: {problem}"))
            }
            other => other,
        });
        self.depth -= 1;
        done
    }

    fn define(&mut self, text: &str, place: &Place) -> Result<()> {
        let end =
            text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name.is_empty() {
            return place.fail("#define without a name");
        }
        let (parameters, body) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
        {
            Some((parameters, body)) => {
                let names = parameters.split(',').map(str::trim).filter(|name| !name.is_empty());
                (Some(names.map(Arc::from).collect()), body)
            }
            None => (None, rest),
        };
        self.macros.insert(name.into(), Macro { parameters, body: tokens(body, place)? });
        Ok(())
    }

    fn condition(&self, text: &str, place: &Place) -> Result<bool> {
        let mut found = tokens(text, place)?;
        self.resolve_defined(&mut found);
        let expanded = self.expand(&found, &[])?;
        let mut condition = Arithmetic { tokens: &expanded, at: 0, place };
        let value = condition.binary(0)?;
        match expanded.get(condition.at) {
            None => Ok(value != 0),
            Some(extra) => place.fail(format!("unexpected {} in condition", extra.text)),
        }
    }

    fn resolve_defined(&self, found: &mut Vec<Token>) {
        while let Some(at) = found.iter().position(|token| token.is("defined")) {
            let bracket = found.get(at + 1).is_some_and(|token| token.is("("));
            let name = found
                .get(at + 1 + usize::from(bracket))
                .map(|token| token.text.clone())
                .unwrap_or_default();
            let value = if self.macros.contains_key(&*name) { "1" } else { "0" };
            let end = (at + if bracket { 4 } else { 2 }).min(found.len());
            let place = found[at].place.clone();
            found.splice(
                at..end,
                [Token { kind: Kind::Number, text: value.into(), place, joined: false }],
            );
        }
    }

    fn expand(&self, input: &[Token], within: &[&str]) -> Result<Vec<Token>> {
        let mut output = Vec::with_capacity(input.len());
        let mut at = 0;
        while let Some(token) = input.get(at) {
            at += 1;
            let known = (token.kind == Kind::Name && !within.contains(&&*token.text))
                .then(|| self.macros.get(&*token.text));
            let Some(definition) = known.flatten() else {
                output.push(token.clone());
                continue;
            };
            let arguments = match &definition.parameters {
                None => Vec::new(),
                Some(_) if !input.get(at).is_some_and(|next| next.is("(")) => {
                    output.push(token.clone());
                    continue;
                }
                Some(parameters) => {
                    let (arguments, behind) = arguments(input, at, token)?;
                    at = behind;
                    if arguments.len() != parameters.len() {
                        let (given, wanted) = (arguments.len(), parameters.len());
                        return token.place.fail(format!(
                            "macro {} takes {wanted} arguments, {given} given",
                            token.text
                        ));
                    }
                    arguments
                }
            };
            let body = self.substitute(definition, &arguments, token, within)?;
            let deeper: Vec<&str> = within.iter().copied().chain([&*token.text]).collect();
            output.extend(self.expand(&body, &deeper)?);
            // The name of a macro at the end of an expansion takes the arguments after it.
            if let Some(rest) = input.get(at..)
                && rest.first().is_some_and(|next| next.is("("))
                && output.last().is_some_and(|last| self.takes_arguments(last, within))
            {
                let again: Vec<Token> =
                    output.pop().into_iter().chain(rest.iter().cloned()).collect();
                output.extend(self.expand(&again, within)?);
                return Ok(output);
            }
        }
        Ok(output)
    }

    fn takes_arguments(&self, token: &Token, within: &[&str]) -> bool {
        let known = (token.kind == Kind::Name && !within.contains(&&*token.text))
            .then(|| self.macros.get(&*token.text));
        known.flatten().is_some_and(|definition| definition.parameters.is_some())
    }

    fn substitute(
        &self,
        definition: &Macro,
        arguments: &[Vec<Token>],
        user: &Token,
        within: &[&str],
    ) -> Result<Vec<Token>> {
        let empty = Vec::new();
        let parameters = definition.parameters.as_ref().unwrap_or(&empty);
        let parameter = |token: &Token| {
            parameters.iter().position(|name| token.kind == Kind::Name && *name == token.text)
        };
        let mut output: Vec<Token> = Vec::new();
        let mut paste = false;
        let mut quote = false;
        for (at, token) in definition.body.iter().enumerate() {
            if token.is("##") {
                paste = true;
                continue;
            }
            if token.is("#")
                && let Some(next) = definition.body.get(at + 1)
                && parameter(next).is_some()
            {
                quote = true;
                continue;
            }
            let pasted_to = definition.body.get(at + 1).is_some_and(|next| next.is("##"));
            let replaced = match parameter(token).and_then(|index| arguments.get(index)) {
                Some(argument) if std::mem::take(&mut quote) => vec![quoted(argument, user)],
                Some(argument) if paste || pasted_to => argument.clone(),
                Some(argument) => self.expand(argument, within)?,
                None => vec![token.clone()],
            };
            let mut replaced =
                replaced.into_iter().map(|part| Token { place: user.place.clone(), ..part });
            if paste && let Some(left) = output.pop() {
                let right = replaced.next().map(|token| token.text).unwrap_or_default();
                output.extend(tokens(&format!("{}{right}", left.text), &user.place)?);
            }
            paste = false;
            output.extend(replaced);
        }
        Ok(output)
    }
}

fn active(conditions: &[Condition]) -> bool {
    conditions.last().is_none_or(|condition| condition.active)
}

/// Returns the arguments in brackets at `at`, and the position after them.
fn arguments(input: &[Token], at: usize, user: &Token) -> Result<(Vec<Vec<Token>>, usize)> {
    let mut arguments = vec![Vec::new()];
    let mut depth = 0;
    for (offset, token) in input.iter().enumerate().skip(at) {
        match &*token.text {
            "(" | "{" | "[" if token.kind == Kind::Symbol => depth += 1,
            ")" | "}" | "]" if token.kind == Kind::Symbol => depth -= 1,
            "," if depth == 1 => {
                arguments.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            return Ok((arguments, offset + 1));
        }
        if offset > at
            && let Some(last) = arguments.last_mut()
        {
            last.push(token.clone());
        }
    }
    user.place.fail(format!("arguments of macro {} have no closing bracket", user.text))
}

/// Returns the text of a macro's argument.
fn quoted(argument: &[Token], user: &Token) -> Token {
    let parts: Vec<&str> = argument.iter().map(|token| &*token.text).collect();
    Token {
        kind: Kind::Text,
        text: parts.join(" ").into(),
        place: user.place.clone(),
        joined: false,
    }
}

fn without_comments(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            ('"', _) => {
                quoted = !quoted;
                output.push(c);
            }
            ('/', Some('/')) if !quoted => while characters.next_if(|&c| c != '\n').is_some() {},
            ('/', Some('*')) if !quoted => {
                characters.next();
                output.push(' ');
                let mut last = ' ';
                for c in characters.by_ref() {
                    if c == '\n' {
                        output.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            _ => output.push(c),
        }
    }
    output
}

/// Returns lines with their numbers. A line that ends with a backslash is joined with the next.
fn logical_lines(text: &str) -> Vec<(u32, String)> {
    let mut lines: Vec<(u32, String)> = Vec::new();
    let mut open = false;
    for (line, text) in (1..).zip(text.lines()) {
        let (text, continues) = match text.trim_end().strip_suffix('\\') {
            Some(text) => (text, true),
            None => (text, false),
        };
        match lines.last_mut() {
            Some((_, last)) if open => {
                last.push(' ');
                last.push_str(text);
            }
            _ => lines.push((line, text.to_owned())),
        }
        open = continues;
    }
    lines
}

/// Parser of integer expressions in `#if`.
struct Arithmetic<'a> {
    tokens: &'a [Token],
    at: usize,
    place: &'a Place,
}

impl Arithmetic<'_> {
    fn take(&mut self, text: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|token| token.is(text));
        self.at += usize::from(found);
        found
    }

    fn binary(&mut self, level: usize) -> Result<i128> {
        const LEVELS: [&[&str]; 6] =
            [&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"], &["+", "-"], &["*"]];
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            let right = self.binary(level + 1)?;
            left = match *operator {
                "||" => i128::from(left != 0 || right != 0),
                "&&" => i128::from(left != 0 && right != 0),
                "==" => i128::from(left == right),
                "!=" => i128::from(left != right),
                "<=" => i128::from(left <= right),
                ">=" => i128::from(left >= right),
                "<" => i128::from(left < right),
                ">" => i128::from(left > right),
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                _ => left.wrapping_mul(right),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<i128> {
        if self.take("!") {
            return Ok(i128::from(self.unary()? == 0));
        }
        if self.take("-") {
            return Ok(self.unary()?.wrapping_neg());
        }
        if self.take("(") {
            let value = self.binary(0)?;
            return if self.take(")") {
                Ok(value)
            } else {
                self.place.fail("condition without closing bracket")
            };
        }
        let Some(token) = self.tokens.get(self.at) else {
            return self.place.fail("condition ends where a value is expected");
        };
        self.at += 1;
        match token.kind {
            Kind::Number => Ok(number(token)?.0 as i128),
            // As in C, a name that is not a macro is zero.
            Kind::Name => Ok(0),
            _ => self.place.fail(format!("unexpected {} in condition", token.text)),
        }
    }
}
