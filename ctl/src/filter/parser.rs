//! Parser of filter expressions: a descent over the tokens, without going back.
//!
//! As in pcap-filter, `and` and `or` have the same precedence and group from the left, and a value
//! without qualifiers has those of the value before it: `port 80 or 443`.

use super::lexer::{Token, TokenKind, tokens};
use super::names::{self, FLAGS, OTHERS, PORTS, PROTOCOLS, WORDS};
use super::{
    ExpressionTree, FilterError, IpVersion, MAX_DEPTH, MAX_PRIMITIVES, PacketEnd, Primitive,
};
use crate::nearest::nearest;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<ExpressionTree, FilterError> {
    let mut parser =
        Parser { tokens: tokens(text)?, at: 0, qualifiers: None, primitives: 0, depth: 0 };
    let tree = parser.expression(None)?;
    match parser.peek().kind {
        TokenKind::End => Ok(tree),
        TokenKind::Close => Err(parser.refused("this ')' has no '('")),
        _ => Err(parser.unexpected_word()),
    }
}

/// Kind of the values of a primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ValueKind {
    /// A host, or with a length a network.
    #[default]
    Address,
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// Qualifiers of a primitive, which the values after it share.
#[derive(Clone, Copy, Debug, Default)]
struct Qualifiers {
    version: Option<IpVersion>,
    protocol: Option<u8>,
    end: PacketEnd,
    kind: ValueKind,
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Qualifiers of the last value.
    qualifiers: Option<Qualifiers>,
    primitives: usize,
    depth: usize,
}

type Parsed<T> = Result<T, FilterError>;

impl<'a> Parser<'a> {
    /// Parses terms between operators. Terms are values if they share qualifiers, else primitives.
    fn expression(&mut self, shared: Option<Qualifiers>) -> Parsed<ExpressionTree> {
        let mut tree = self.term(shared)?;
        loop {
            let make = match self.peek().kind {
                TokenKind::And => ExpressionTree::And,
                TokenKind::Or => ExpressionTree::Or,
                _ => return Ok(tree),
            };
            self.advance();
            tree = make(tree.into(), self.term(shared)?.into());
        }
    }

    fn term(&mut self, shared: Option<Qualifiers>) -> Parsed<ExpressionTree> {
        match (self.peek().kind, shared) {
            (TokenKind::Not, _) => self.nested(|parser| {
                parser.advance();
                Ok(ExpressionTree::Not(parser.term(shared)?.into()))
            }),
            (TokenKind::Open, _) => self.in_parentheses(shared),
            (_, Some(qualifiers)) => self.value(qualifiers),
            (TokenKind::Word, None) => self.primitive(),
            _ => Err(self.expected("a primitive, such as 'tcp', 'port 443' or 'net 10.0.0.0/8'")),
        }
    }

    fn in_parentheses(&mut self, shared: Option<Qualifiers>) -> Parsed<ExpressionTree> {
        self.nested(|parser| {
            let open = parser.advance();
            let tree = parser.expression(shared)?;
            let end = format!("')' for the '(' at column {}", open.column);
            parser.expect(TokenKind::Close, &end)?;
            Ok(tree)
        })
    }

    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Parsed<ExpressionTree>,
    ) -> Parsed<ExpressionTree> {
        if self.depth == MAX_DEPTH {
            return Err(
                self.refused(&format!("at most {MAX_DEPTH} levels of parentheses and 'not'"))
            );
        }
        self.depth += 1;
        let tree = parse(self)?;
        self.depth -= 1;
        Ok(tree)
    }

    /// Parses a primitive, which begins with a word.
    fn primitive(&mut self) -> Parsed<ExpressionTree> {
        let (word, next) = (self.peek().text, self.peek_next());
        let begins_qualified = |next: Token<'_>, kinds: &[&str]| {
            next.kind == TokenKind::Word && kinds.contains(&next.text)
        };
        let primitive = match word {
            "src" | "dst" | "host" | "net" | "port" | "portrange" | "proto" => {
                return self.qualified(Qualifiers::default());
            }
            "ip" | "ip6" => {
                let version = if word == "ip" { IpVersion::V4 } else { IpVersion::V6 };
                if begins_qualified(next, &["src", "dst", "host", "net", "proto"]) {
                    self.advance();
                    let before = Qualifiers { version: Some(version), ..Qualifiers::default() };
                    return self.qualified(before);
                }
                Primitive::Ip(version)
            }
            "tcp" if next.kind == TokenKind::OpenIndex => return self.flags(),
            "tcp" | "udp" | "sctp" => {
                let protocol = match word {
                    "tcp" => TCP,
                    "udp" => UDP,
                    _ => SCTP,
                };
                if begins_qualified(next, &["src", "dst", "port", "portrange"]) {
                    self.advance();
                    let before = Qualifiers { protocol: Some(protocol), ..Qualifiers::default() };
                    return self.qualified(before);
                }
                if begins_qualified(next, &["host", "net", "proto"]) {
                    self.advance();
                    return Err(self.refused(&format!(
                        "'{word}' does not qualify '{}'; write '{word} and {}'",
                        next.text, next.text
                    )));
                }
                Primitive::Protocol(None, protocol)
            }
            "icmp" => Primitive::Protocol(Some(IpVersion::V4), ICMP),
            "icmp6" => Primitive::Protocol(Some(IpVersion::V6), ICMP6),
            "vlan" => return self.vlan(),
            "greater" | "less" => return self.length(),
            _ if self.qualifiers.is_some() || is_address(word) => {
                let qualifiers = self.qualifiers.unwrap_or_default();
                // A word that is no value is more likely to be a mistyped keyword.
                if !is_address(word) && self.value_of(qualifiers, word).is_none() {
                    return Err(self.unknown());
                }
                return self.value(qualifiers);
            }
            _ => return Err(self.unknown()),
        };
        self.advance();
        self.qualifiers = None;
        self.leaf(primitive)
    }

    /// Makes a leaf of the tree.
    fn leaf(&mut self, primitive: Primitive) -> Parsed<ExpressionTree> {
        self.primitives += 1;
        if self.primitives > MAX_PRIMITIVES {
            return Err(self.refused(&format!("at most {MAX_PRIMITIVES} primitives")));
        }
        Ok(ExpressionTree::Primitive(primitive))
    }

    /// Parses a primitive that begins with a direction, a kind or both.
    fn qualified(&mut self, before: Qualifiers) -> Parsed<ExpressionTree> {
        let end = self.end()?;
        let kind = match self.peek().text {
            "host" => Some(ValueKind::Host),
            "net" => Some(ValueKind::Net),
            "port" => Some(ValueKind::Port),
            "portrange" => Some(ValueKind::PortRange),
            "proto" => Some(ValueKind::Protocol),
            _ => None,
        };
        let is_port = matches!(kind, Some(ValueKind::Port | ValueKind::PortRange));
        if before.protocol.is_some() && !is_port {
            return Err(self.expected("'port' or 'portrange'"));
        }
        if is_port && before.version.is_some() {
            return Err(self.refused("'ip' and 'ip6' do not qualify ports; write 'ip and port …'"));
        }
        if kind == Some(ValueKind::Protocol) && end.is_some() {
            return Err(self.refused("'src' and 'dst' do not qualify 'proto'"));
        }
        if kind.is_some() {
            self.advance();
        }
        let qualifiers =
            Qualifiers { end: end.unwrap_or_default(), kind: kind.unwrap_or_default(), ..before };
        if self.peek().kind == TokenKind::Open {
            // Values that share the qualifiers: `port (80 or 443)`.
            return self.in_parentheses(Some(qualifiers));
        }
        self.value(qualifiers)
    }

    /// Parses `src`, `dst`, `src or dst` or `src and dst`, if it is there.
    fn end(&mut self) -> Parsed<Option<PacketEnd>> {
        let word = self.peek().text;
        let (first, second) = match word {
            "src" => (PacketEnd::Source, "dst"),
            "dst" => (PacketEnd::Destination, "src"),
            _ => return Ok(None),
        };
        self.advance();
        let (operator, other) = (self.peek(), self.peek_next());
        let both = match operator.kind {
            TokenKind::And => PacketEnd::Both,
            TokenKind::Or => PacketEnd::Either,
            _ => return Ok(Some(first)),
        };
        if other.text != second {
            return Err(self.expected(&format!("a value of '{word}'")));
        }
        self.advance();
        self.advance();
        Ok(Some(both))
    }

    /// Parses a value.
    fn value(&mut self, qualifiers: Qualifiers) -> Parsed<ExpressionTree> {
        let token = self.peek();
        if token.kind != TokenKind::Word {
            return Err(self.expected(qualifiers.kind.values()));
        }
        let word = token.text.trim_start_matches('\\');
        let Some(mut primitive) = self.value_of(qualifiers, word) else {
            return Err(self.refused(&qualifiers.problem(word)));
        };
        self.advance();
        if self.peek().text == "mask" {
            primitive = self.mask(qualifiers, &primitive)?;
        }
        if let Primitive::Network { address, mask, .. } = &primitive
            && bits(*address) & !bits(*mask) != 0
        {
            let problem =
                format!("{word} has bits outside its mask, which no address of it can have");
            return Err(FilterError::Syntax { column: token.column, problem });
        }
        self.qualifiers = Some(qualifiers);
        self.leaf(primitive)
    }

    /// Parses the mask of an IPv4 network.
    fn mask(&mut self, qualifiers: Qualifiers, network: &Primitive) -> Parsed<Primitive> {
        let &Primitive::Network { end, address: address @ IpAddr::V4(_), .. } = network else {
            return Err(self.refused("'mask' is for IPv4 networks"));
        };
        if qualifiers.kind != ValueKind::Net {
            return Err(self.refused("'mask' is for 'net'"));
        }
        self.advance();
        match self.peek().text.parse::<Ipv4Addr>() {
            Ok(mask) => {
                self.advance();
                Ok(Primitive::Network { end, address, mask: mask.into() })
            }
            Err(_) => Err(self.expected("a mask, such as 255.255.0.0")),
        }
    }

    /// Returns the primitive of a value; `None` if the word is not a value of the kind.
    fn value_of(&self, qualifiers: Qualifiers, word: &str) -> Option<Primitive> {
        let Qualifiers { version, protocol, end, kind } = qualifiers;
        match kind {
            ValueKind::Address | ValueKind::Host | ValueKind::Net => {
                let (address, mask) = match kind {
                    ValueKind::Host => host(word),
                    ValueKind::Net => network(word),
                    _ if word.contains('/') => network(word),
                    _ => host(word),
                }?;
                version
                    .is_none_or(|version| version == IpVersion::of(address))
                    .then_some(Primitive::Network { end, address, mask })
            }
            ValueKind::Port => {
                let port = port(word)?;
                Some(Primitive::Ports { end, protocol, ports: port..=port })
            }
            ValueKind::PortRange => {
                Some(Primitive::Ports { end, protocol, ports: port_range(word)? })
            }
            ValueKind::Protocol => {
                let number = word.parse().ok().or_else(|| names::number(&PROTOCOLS, word))?;
                Some(Primitive::Protocol(version, number))
            }
        }
    }

    fn vlan(&mut self) -> Parsed<ExpressionTree> {
        self.advance();
        self.qualifiers = None;
        let token = self.peek();
        if !token.text.starts_with(|digit: char| digit.is_ascii_digit()) {
            return self.leaf(Primitive::Vlan(None));
        }
        match token.text.parse() {
            Ok(id @ 0..=4095) => {
                self.advance();
                self.leaf(Primitive::Vlan(Some(id)))
            }
            _ => Err(self.expected("an id from 0 to 4095")),
        }
    }

    fn length(&mut self) -> Parsed<ExpressionTree> {
        let word = self.advance().text;
        self.qualifiers = None;
        let lengths = match (word, self.peek().text.parse()) {
            ("less", Ok(most)) => 0..=most,
            ("greater", Ok(least)) => least..=u16::MAX,
            _ => return Err(self.expected("a length from 0 to 65535")),
        };
        self.advance();
        self.leaf(Primitive::Length(lengths))
    }

    /// Parses `tcp[syn]`, and pcap-filter's comparisons of `tcp[tcpflags]`.
    fn flags(&mut self) -> Parsed<ExpressionTree> {
        self.advance();
        self.advance();
        self.qualifiers = None;
        if !matches!(self.peek().text, "tcpflags" | "13") {
            if self.peek().text.starts_with(|digit: char| digit.is_ascii_digit()) {
                return Err(self.refused("of a header's bytes only tcp[13], the flags, is matched"));
            }
            let mask = self.flag_set(true)?;
            self.expect(TokenKind::CloseIndex, "']'")?;
            return self.leaf(Primitive::Flags { mask, value: 0, differs: true });
        }
        self.advance();
        self.expect(TokenKind::CloseIndex, "']'")?;
        let mask = if self.peek().kind == TokenKind::BitAnd {
            self.advance();
            self.flag_set(false)?
        } else {
            u8::MAX
        };
        let differs = match self.peek().kind {
            TokenKind::Equal => false,
            TokenKind::NotEqual => true,
            TokenKind::BitOr => {
                return Err(self.refused("put the flags of the mask in parentheses"));
            }
            _ => return Err(self.expected("'& FLAGS', '== FLAGS' or '!= FLAGS'")),
        };
        self.advance();
        let value = self.flag_set(true)?;
        self.leaf(Primitive::Flags { mask, value, differs })
    }

    /// Parses flags or a number, with parentheses around them or not; several flags without
    /// parentheses only if they are `bare`.
    fn flag_set(&mut self, bare: bool) -> Parsed<u8> {
        let in_parentheses = self.peek().kind == TokenKind::Open;
        if in_parentheses {
            self.advance();
        }
        let mut set = self.flag()?;
        while self.peek().kind == TokenKind::BitOr && (bare || in_parentheses) {
            self.advance();
            set |= self.flag()?;
        }
        if in_parentheses {
            self.expect(TokenKind::Close, "'|' or ')'")?;
        }
        Ok(set)
    }

    fn flag(&mut self) -> Parsed<u8> {
        let word = self.peek().text;
        let name = word.strip_prefix("tcp-").unwrap_or(word);
        let number = match word.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        match number.or_else(|| names::number(&FLAGS, name)) {
            Some(flag) => {
                self.advance();
                Ok(flag)
            }
            None => Err(self.expected(
                "a TCP flag (fin, syn, rst, push, ack, urg, ece, cwr) or 'tcpflags'; other bytes of headers are not matched",
            )),
        }
    }

    fn peek(&self) -> Token<'a> {
        self.token(self.at)
    }

    fn peek_next(&self) -> Token<'a> {
        self.token(self.at + 1)
    }

    /// Returns a token; the last one is repeated.
    fn token(&self, index: usize) -> Token<'a> {
        const END: Token<'static> = Token { kind: TokenKind::End, text: "", column: 1 };
        self.tokens.get(index).or(self.tokens.last()).copied().unwrap_or(END)
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Advances past a token of a kind, which an error describes if another one is there.
    fn expect(&mut self, kind: TokenKind, what: &str) -> Parsed<()> {
        if self.peek().kind != kind {
            return Err(self.expected(what));
        }
        self.advance();
        Ok(())
    }

    /// Returns the error of the next token.
    fn refused(&self, problem: &str) -> FilterError {
        FilterError::Syntax { column: self.peek().column, problem: problem.to_owned() }
    }

    fn expected(&self, what: &str) -> FilterError {
        let Token { kind, text, column } = self.peek();
        let found = match kind {
            TokenKind::End => "the end".to_owned(),
            _ => format!("'{text}'"),
        };
        FilterError::Syntax { column, problem: format!("expected {what}, found {found}") }
    }

    /// Returns the error of a word after an expression.
    fn unexpected_word(&self) -> FilterError {
        let word = self.peek().text;
        let near = nearest(word, WORDS).filter(|near| *near != word);
        let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        self.refused(&format!("expected 'and', 'or' or the end, found '{word}'{near}"))
    }

    /// Returns the error of a word that begins no primitive.
    fn unknown(&self) -> FilterError {
        let word = self.peek().text;
        let plain = word.trim_start_matches('\\');
        let is_protocol = names::number(&PROTOCOLS, plain).is_some();
        let is_port = names::number(&PORTS, plain).is_some();
        let advice = match OTHERS.iter().find(|(others, _)| others.contains(&word)) {
            Some((_, advice)) => (*advice).to_owned(),
            None if is_protocol => format!("did you mean 'proto {plain}'?"),
            None if is_port => format!("did you mean 'port {plain}'?"),
            None if plain.parse::<u16>().is_ok() => "write what the number is: port, proto or vlan".to_owned(),
            None => match nearest(word, WORDS) {
                Some(near) => format!("did you mean '{near}'?"),
                None => "expected a primitive, such as 'tcp', 'port 443' or 'net 10.0.0.0/8'; names of hosts are not resolved".to_owned(),
            },
        };
        self.refused(&format!("'{word}' is not part of the language; {advice}"))
    }
}

impl ValueKind {
    fn values(self) -> &'static str {
        match self {
            ValueKind::Address => "an address, or one of 'host', 'net', 'port' and 'portrange'",
            ValueKind::Host => "an address, such as 10.0.0.1 or 2001:db8::1",
            ValueKind::Net => "a network, such as 10.0.0.0/8, 10.0 or 2001:db8::/32",
            ValueKind::Port => "a port, by number or name",
            ValueKind::PortRange => "a range of ports, such as 8000-8080",
            ValueKind::Protocol => "a protocol, by number or name",
        }
    }
}

impl Qualifiers {
    /// Describes a word that is not a value of this kind.
    fn problem(self, word: &str) -> String {
        let is_other_version = |address: Option<(IpAddr, IpAddr)>| {
            address.is_some_and(|(address, _)| {
                self.version.is_some_and(|version| version != IpVersion::of(address))
            })
        };
        let near = match self.kind {
            _ if is_other_version(host(word).or_else(|| network(word))) => {
                return format!("{word} is an address of the other version of IP");
            }
            ValueKind::Host if network(word).is_some() => {
                return format!("{word} is a network; write 'net {word}'");
            }
            ValueKind::Host if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                return format!("names of hosts are not resolved; give the address of '{word}'");
            }
            ValueKind::Port if port_range(word).is_some() => {
                return format!("{word} is a range; write 'portrange {word}'");
            }
            ValueKind::Port => nearest(word, PORTS.map(|(name, _)| name)),
            ValueKind::Protocol => nearest(word, PROTOCOLS.map(|(name, _)| name)),
            ValueKind::Address => nearest(word, WORDS),
            _ => None,
        };
        let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        format!("expected {}, found '{word}'{near}", self.kind.values())
    }
}

/// Returns whether a word looks like an address, so that it needs no qualifier.
fn is_address(word: &str) -> bool {
    host(word).is_some() || (word.contains('/') && network(word).is_some())
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn host(word: &str) -> Option<(IpAddr, IpAddr)> {
    let address: IpAddr = word.parse().ok()?;
    let mask = match address {
        IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
        IpAddr::V6(_) => Ipv6Addr::from(u128::MAX).into(),
    };
    Some((address, mask))
}

/// Parses a network: with a length, or IPv4 bytes without the last ones.
fn network(word: &str) -> Option<(IpAddr, IpAddr)> {
    let (start, length) = match word.split_once('/') {
        Some((start, length)) => (start, Some(length.parse::<u8>().ok()?)),
        None => (word, None),
    };
    if start.contains(':') {
        let address: Ipv6Addr = start.parse().ok()?;
        let length = length.unwrap_or(128);
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(length.into())?).unwrap_or(0);
        return Some((address.into(), Ipv6Addr::from(mask).into()));
    }
    let mut bytes = [0; 4];
    let parts: Vec<&str> = start.split('.').collect();
    if parts.len() > bytes.len() {
        return None;
    }
    for (byte, part) in bytes.iter_mut().zip(&parts) {
        *byte = part.parse().ok().filter(|_| !part.starts_with('+'))?;
    }
    let length = length.map_or(8 * parts.len() as u32, u32::from);
    let mask = u32::MAX.checked_shl(32_u32.checked_sub(length)?).unwrap_or(0);
    Some((Ipv4Addr::from(bytes).into(), Ipv4Addr::from(mask).into()))
}

fn port(word: &str) -> Option<u16> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { word.parse().ok() } else { names::number(&PORTS, word) }
}

/// Parses a range of ports. Names may contain the dash.
fn port_range(word: &str) -> Option<RangeInclusive<u16>> {
    let mut splits = word.match_indices('-').map(|(at, _)| (&word[..at], &word[at + 1..]));
    let (first, last) = splits.find_map(|(first, last)| Some((port(first)?, port(last)?)))?;
    (first <= last).then_some(first..=last)
}
