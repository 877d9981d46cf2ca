use super::{
    ExpressionTree, FilterError, IpVersion, MatchExpression, PacketEnd, Primitive, parser,
};
use flowgauge_core::filter::fields::*;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::IpAddr;
use std::sync::LazyLock;

/// Returns the numbers of rules of IPv4 and IPv6.
fn sizes(text: &str) -> (usize, usize) {
    let expression: MatchExpression = text.parse().unwrap();
    let filter = &expression.filter;
    (filter.ipv4.rules().len(), filter.ipv6.rules().len())
}

fn problem(text: &str) -> String {
    text.parse::<MatchExpression>().unwrap_err().to_string()
}

#[test]
fn common_expressions_take_few_rules() {
    for (text, expected) in [
        ("tcp", (1, 1)),
        ("ip", (0, 0)),
        ("not ip", (0, 0)),
        ("host 10.0.0.1", (2, 0)),
        ("not host 10.0.0.1", (2, 0)),
        ("not host 10.0.0.1 and not port 22", (4, 2)),
        ("tcp port 443 and net 10.0.0.0/8", (4, 0)),
        ("tcp and not port 22", (3, 3)),
        ("portrange 8000-8015", (2, 2)),
        ("portrange 1-65535", (32, 32)),
        ("tcp[syn] and not tcp[ack]", (2, 2)),
        ("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn", (1, 1)),
        ("less 127", (1, 1)),
        ("greater 128", (1, 1)),
        ("udp port 53 or tcp port 53", (4, 4)),
        ("port 80 or port 80 or port 80", (2, 2)),
        ("net 10.0.0.0/8 and net 10.1.0.0/16 and src 10.1.2.3", (1, 0)),
    ] {
        assert_eq!(sizes(text), expected, "{text}");
    }
}

#[test]
fn operators_group_from_the_left_and_values_share_qualifiers() {
    let filter = |text: &str| text.parse::<MatchExpression>().unwrap().filter;
    for (one, other) in [
        ("tcp or udp and port 53", "(tcp or udp) and port 53"),
        ("port 80 or 443", "port 80 or port 443"),
        ("port (80 or 443)", "port 80 or port 443"),
        ("tcp dst port 80 or 443", "tcp dst port 80 or tcp dst port 443"),
        ("not host 10.0.0.1 and 10.0.0.2", "(not host 10.0.0.1) and host 10.0.0.2"),
        ("10.0.0.1", "host 10.0.0.1"),
        ("10.0.0.0/8", "net 10.0.0.0/8"),
        ("src 10.0.0.0/8", "src net 10.0.0.0/8"),
        ("net 10", "net 10.0.0.0 mask 255.0.0.0"),
        ("net 10.1", "net 10.1.0.0/16"),
        ("tcp && !port ssh", "tcp and not port 22"),
        ("src or dst port 80", "port 80"),
        ("proto \\tcp", "tcp"),
        ("tcp[tcpflags] & tcp-syn != 0", "tcp[syn]"),
        ("tcp[13] & 2 != 0", "tcp[syn]"),
        ("tcp[syn|fin]", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0"),
        ("ip proto icmp", "icmp"),
        ("portrange ftp-data-ssh", "portrange 20-22"),
    ] {
        assert_eq!(filter(one), filter(other), "{one}");
    }
    assert_ne!(filter("src and dst port 80"), filter("port 80"));
}

#[test]
fn errors_have_a_column_and_what_is_near() {
    let expected = [
        (
            "",
            "column 1: expected a primitive, such as 'tcp', 'port 443' or 'net 10.0.0.0/8', found the end",
        ),
        (
            "tcp prot 80",
            "column 5: expected 'and', 'or' or the end, found 'prot'; did you mean 'proto'?",
        ),
        ("prot 80", "column 1: 'prot' is not part of the language; did you mean 'proto'?"),
        (
            "arp",
            "column 1: 'arp' is not part of the language; only IP packets have fields to match; 'not ip and not ip6' is true of all other frames",
        ),
        (
            "tcp and len > 100",
            "column 13: the character '>' is not part of the language; for lengths use 'greater N' or 'less N'",
        ),
        ("len 100", "column 1: 'len' is not part of the language; use 'greater N' or 'less N'"),
        (
            "host example.com",
            "column 6: names of hosts are not resolved; give the address of 'example.com'",
        ),
        ("host 10.0.0.0/8", "column 6: 10.0.0.0/8 is a network; write 'net 10.0.0.0/8'"),
        (
            "net 10.0.0.1/8",
            "column 5: 10.0.0.1/8 has bits outside its mask, which no address of it can have",
        ),
        (
            "port htttp",
            "column 6: expected a port, by number or name, found 'htttp'; did you mean 'http'?",
        ),
        ("port 80-90", "column 6: 80-90 is a range; write 'portrange 80-90'"),
        ("port 65536", "column 6: expected a port, by number or name, found '65536'"),
        ("http", "column 1: 'http' is not part of the language; did you mean 'port http'?"),
        ("gre", "column 1: 'gre' is not part of the language; did you mean 'proto gre'?"),
        ("(tcp or udp", "column 12: expected ')' for the '(' at column 1, found the end"),
        ("tcp)", "column 4: this ')' has no '('"),
        ("tcp host 10.0.0.1", "column 5: 'tcp' does not qualify 'host'; write 'tcp and host'"),
        ("ip host ::1", "column 9: ::1 is an address of the other version of IP"),
        ("tcp[0] == 1", "column 5: of a header's bytes only tcp[13], the flags, is matched"),
        ("vlan 4096", "column 6: expected an id from 0 to 4095, found '4096'"),
        ("less 65536", "column 6: expected a length from 0 to 65535, found '65536'"),
        ("tcp and udp", "it matches no packet; its conditions contradict each other"),
        ("icmp and port 80", "it matches no packet; its conditions contradict each other"),
        ("port 1 and not port 1", "it matches no packet; its conditions contradict each other"),
        (
            "portrange 1-65534 and src and dst portrange 1-65534",
            "it takes 900 rules of IPv4, at most 128 are possible; use fewer addresses and ports, or ranges that begin and end at powers of two",
        ),
        ("tcp é", "column 5: the character 'é' is not part of the language"),
    ];
    assert_eq!(expected.map(|(text, _)| problem(text)), expected.map(|(_, problem)| problem));
    let many = vec!["host 10.0.0.1"; 257].join(" or ");
    assert!(problem(&many).contains("at most 256 primitives, in '…"), "{}", problem(&many));
    let deep = "(".repeat(100_000);
    let excerpt = format!("in '{}…'", "(".repeat(80)).replacen('(', "…(", 1);
    let expected = format!("column 65: at most 64 levels of parentheses and 'not', {excerpt}");
    assert_eq!(problem(&deep), expected);
}

#[test]
fn a_problem_in_a_long_text_is_shown_with_what_is_around_it() {
    let beginning = "udp or ".repeat(9);
    for (text, expected) in [
        (
            format!("{beginning}prot 80 and {}", "tcp and ".repeat(8_000)),
            "column 64: 'prot' is not part of the language; did you mean 'proto'?, \
             in '…p or udp or udp or udp or udp or udp or prot 80 and tcp and tcp and tcp and tcp …'",
        ),
        (
            format!("{}é", "tcp and ".repeat(8_000)),
            "column 64001: the character 'é' is not part of the language, \
             in '…cp and tcp and tcp and tcp and tcp and tcp and tcp and tcp and tcp and tcp and é'",
        ),
        (
            format!("port {}", "9".repeat(120_000)),
            "column 6: a word of 120000 characters, at most 64 are possible, \
             in 'port 999999999999999999999999999999999999999999999999999999999999999999999999999…'",
        ),
    ] {
        assert_eq!(problem(&text), expected);
    }
}

#[test]
fn conditions_on_lengths_may_leave_no_packet_as_in_tcpdump() {
    for (text, expected) in [
        ("less 65535", (0, 0)),
        ("not greater 0", (0, 0)),
        ("not less 65535", (0, 0)),
        ("tcp and less 100 and greater 200", (0, 0)),
        ("not (ip or greater 0)", (0, 0)),
    ] {
        assert_eq!(sizes(text), expected, "{text}");
    }
    for text in ["tcp and udp and less 100", "not (tcp or not udp or greater 0) and not udp"] {
        assert!(problem(text).starts_with("it matches no packet"), "{text}");
    }
}

/// Vocabulary of random expressions.
static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let words = r"
        and or not ( ) && || ! [ ] & | == != = src dst host net port portrange proto ip ip6 tcp
        udp sctp icmp icmp6 vlan greater less mask tcpflags tcp-syn syn ack 13 0 1 80 443 65535
        4096 999999 10.0.0.1 10.0.0.0/8 10.1 10 ::1 2001:db8::/32 255.255.0.0 1-1023 8000-8080
        20-10 http ftp-data \tcp arp ether len example.com 10.0.0.1/8 0x12 é a/b/c";
    words.split_whitespace().collect()
});

/// Primitives of random expressions.
static PRIMITIVES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let primitives = "tcp; udp port 53; src 10.0.0.1; net 10.0.0.0/8; portrange 1-1000; vlan 3; \
        not host 2001:db8::1; tcp[syn]; less 100; port (80 or 443); ip6; icmp";
    primitives.split("; ").collect()
});

/// Returns an expression that may be one of the language.
fn sentence(random: &mut ChaCha8Rng) -> String {
    let mut text = String::new();
    for index in 0..random.random_range(1..12) {
        if index > 0 {
            text += [" and ", " or ", " and not ", " "].choose(random).unwrap();
        }
        text += if random.random_bool(0.7) {
            PRIMITIVES.choose(random).unwrap()
        } else {
            WORDS.choose(random).unwrap()
        };
    }
    // A character that is missing, doubled or another one.
    if random.random_bool(0.2) {
        let mut symbols: Vec<char> = text.chars().collect();
        let at = random.random_range(0..symbols.len());
        match random.random_range(0..3) {
            0 => drop(symbols.remove(at)),
            1 => symbols.insert(at, symbols[at]),
            _ => symbols[at] = char::from(random.random_range(0..128_u8)),
        }
        text = symbols.into_iter().collect();
    }
    text
}

#[test]
fn any_text_is_an_expression_or_has_an_error_with_a_column() {
    let mut random = ChaCha8Rng::seed_from_u64(44);
    let mut parsed = 0;
    for number in 0..100_000 {
        let text = match number % 4 {
            0 => {
                let words = random.random_range(0..15);
                let word = |random: &mut ChaCha8Rng| *WORDS.choose(random).unwrap();
                (0..words).map(|_| word(&mut random)).collect::<Vec<_>>().join(" ")
            }
            1 => (0..random.random_range(0..40)).map(|_| random.random::<char>()).collect(),
            _ => sentence(&mut random),
        };
        match text.parse::<MatchExpression>() {
            Ok(_) => parsed += 1,
            Err(FilterError::Syntax { column, problem }) => {
                assert!((1..=text.chars().count() + 1).contains(&column), "{text:?}: {column}");
                assert!(!problem.is_empty(), "{text:?}");
            }
            Err(_) => {}
        }
    }
    assert!((5_000..90_000).contains(&parsed), "{parsed} expressions");
}

/// A packet's fields, or those of a frame without one.
#[derive(Clone, Copy, Debug)]
struct Fields {
    version: Option<IpVersion>,
    words: [u32; IPV6_WORDS],
}

/// Evaluates a tree by the definition of its primitives.
fn holds(tree: &ExpressionTree, packet: &Fields) -> bool {
    match tree {
        ExpressionTree::Not(inner) => !holds(inner, packet),
        ExpressionTree::And(one, other) => holds(one, packet) && holds(other, packet),
        ExpressionTree::Or(one, other) => holds(one, packet) || holds(other, packet),
        ExpressionTree::Primitive(primitive) => holds_of(primitive, packet),
    }
}

fn at(end: PacketEnd, source: bool, destination: bool) -> bool {
    match end {
        PacketEnd::Source => source,
        PacketEnd::Destination => destination,
        PacketEnd::Either => source || destination,
        PacketEnd::Both => source && destination,
    }
}

fn holds_of(primitive: &Primitive, Fields { version, words }: &Fields) -> bool {
    let (frame, protocol) = (words[FRAME], words[PROTOCOL] >> PROTOCOL_SHIFT);
    match primitive {
        Primitive::Vlan(id) => {
            frame & TAGGED != 0
                && id.is_none_or(|id| frame >> VLAN_SHIFT & VLAN_MASK == u32::from(id))
        }
        Primitive::Length(lengths) => lengths.contains(&(frame as u16)),
        Primitive::Ip(wanted) => *version == Some(*wanted),
        Primitive::Protocol(wanted, number) => {
            version.is_some()
                && wanted.is_none_or(|wanted| *version == Some(wanted))
                && protocol == u32::from(*number)
        }
        Primitive::Network { end, address, mask } => {
            let bits = |address: &IpAddr| match address {
                IpAddr::V4(address) => u128::from(u32::from(*address)),
                IpAddr::V6(address) => u128::from(*address),
            };
            let (length, is_of) = match address {
                IpAddr::V4(_) => (1, Some(IpVersion::V4)),
                IpAddr::V6(_) => (4, Some(IpVersion::V6)),
            };
            let is_in = |first: usize| {
                let words = &words[ADDRESSES + first..][..length];
                let number = words.iter().fold(0, |number, word| number << 32 | u128::from(*word));
                number & bits(mask) == bits(address)
            };
            *version == is_of && at(*end, is_in(0), is_in(length))
        }
        Primitive::Ports { end, protocol: wanted, ports } => {
            let [source, destination] = [words[PORTS] >> 16, words[PORTS] & 0xffff];
            let is_in = |port: u32| ports.contains(&(port as u16));
            version.is_some()
                && words[PROTOCOL] & HAS_PORTS != 0
                && wanted.is_none_or(|wanted| u32::from(wanted) == protocol)
                && at(*end, is_in(source), is_in(destination))
        }
        Primitive::Flags { mask, value, differs } => {
            let flags = (words[PROTOCOL] >> FLAGS_SHIFT) as u8;
            version.is_some()
                && words[PROTOCOL] & HAS_FLAGS != 0
                && (flags & mask == *value) != *differs
        }
    }
}

/// Returns a packet with the fields that expressions ask for, often.
fn packet(random: &mut ChaCha8Rng) -> Fields {
    let version = *[Some(IpVersion::V4), Some(IpVersion::V6), None].choose(random).unwrap();
    let mut words = [0; IPV6_WORDS];
    let length = *[0, 60, 99, 100, 101, 1500, 65535].choose(random).unwrap();
    words[FRAME] = length;
    if random.random_bool(0.5) {
        words[FRAME] |= TAGGED | random.random_range(2..5) << VLAN_SHIFT;
    }
    let port = |random: &mut ChaCha8Rng| {
        *[53, 80, 443, 1, 999, 1000, 1001, 1023, 8080].choose(random).unwrap()
    };
    if version.is_some() {
        let protocol: u32 = *[1, 6, 17, 58, 132, 47].choose(random).unwrap();
        words[PROTOCOL] = protocol << PROTOCOL_SHIFT;
        if matches!(protocol, 6 | 17 | 132) && random.random_bool(0.9) {
            words[PROTOCOL] |= HAS_PORTS;
            words[PORTS] = port(random) << 16 | port(random);
            if protocol == 6 && random.random_bool(0.9) {
                words[PROTOCOL] |= HAS_FLAGS | random.random_range(0..256) << FLAGS_SHIFT;
            }
        }
    }
    let mut address = || -> Vec<u32> {
        match version {
            Some(IpVersion::V4) => {
                vec![*[0x0a00_0001, 0x0a00_0002, 0x0a01_0000, 0x0b00_0001].choose(random).unwrap()]
            }
            Some(IpVersion::V6) => {
                let first = *[0x2001_0db8, 0].choose(random).unwrap();
                vec![first, 0, 0, random.random_range(0..3)]
            }
            None => Vec::new(),
        }
    };
    let addresses = [address(), address()].concat();
    words[ADDRESSES..][..addresses.len()].copy_from_slice(&addresses);
    Fields { version, words }
}

#[test]
fn rules_decide_as_the_expression_does() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let (mut compared, mut verdicts) = (0, [0, 0]);
    while compared < 3000 {
        let text = sentence(&mut random);
        let Ok(tree) = parser::parse(&text) else { continue };
        let Ok(expression) = text.parse::<MatchExpression>() else { continue };
        let filter = &expression.filter;
        compared += 1;
        for _ in 0..60 {
            let packet = packet(&mut random);
            let words = packet.words;
            let decided = match packet.version {
                Some(IpVersion::V4) => filter.ipv4.decide(words.first_chunk().unwrap()),
                Some(IpVersion::V6) => filter.ipv6.decide(&words),
                None => filter.non_ip.decide(words.first_chunk().unwrap()),
            };
            assert_eq!(decided, holds(&tree, &packet), "{text}: {packet:?}");
            // Whatever matches may be what a frame of its length that cannot be read is.
            assert!(!decided || filter.unreadable.decide(words.first_chunk().unwrap()), "{text}");
            verdicts[usize::from(decided)] += 1;
        }
    }
    assert!(verdicts.iter().all(|packets| *packets > 20_000), "{verdicts:?}");
}

#[test]
fn a_frame_that_cannot_be_read_is_left_out_only_if_it_cannot_match() {
    for (text, lengths) in [
        ("tcp", [true, true]),
        ("not tcp", [true, true]),
        ("less 100", [true, false]),
        ("tcp and less 100", [true, false]),
        ("not greater 100", [true, false]),
        ("not (tcp or greater 100)", [true, false]),
        ("vlan 10", [true, true]),
        ("port 80 and greater 100", [false, true]),
    ] {
        let expression: MatchExpression = text.parse().unwrap();
        let decided = [60, 1500].map(|length| expression.filter.unreadable.decide(&[length]));
        assert_eq!(decided, lengths, "{text}");
    }
}
