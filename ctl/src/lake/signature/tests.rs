use super::*;
use crate::row::Cells;

/// Private keys that stay the same, as `openssl genpkey` writes them.
fn key(number: u8) -> SigningKey {
    let der = [&PKCS8_PREFIX[..], &[number; KEY_BYTES]].concat();
    let encoded = BASE64_STANDARD.encode(der);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
    SigningKey::parse(pem.as_bytes()).unwrap()
}

impl Trust {
    /// Trusts these hosts.
    pub(crate) fn of(hosts: &[(&str, &SigningKey)]) -> Self {
        Trust(hosts.iter().map(|(host, key)| ((*host).to_owned(), key.public())).collect())
    }
}

fn drops(packets: [i64; 2]) -> Value {
    let causes = vec!["ring".to_owned(), "late".to_owned()];
    let packets = ("packets".into(), Cells::Int(packets.to_vec()));
    Value::Table(vec![("cause".into(), Cells::Text(causes)), packets])
}

fn row(host: &str) -> Row {
    let mut row = Row::default();
    row.text("host", host);
    row.text("run", "run");
    row.int("window", 7);
    row.int("packets", 100);
    row.put("time", Value::Time(5));
    row.put("match", Value::Text(None));
    row.put("full", Value::List(vec![1, 2]));
    row.put("drops", drops([3, 4]));
    row.seal();
    row
}

fn signed(host: &str, number: u8) -> Row {
    let mut row = row(host);
    key(number).sign(&mut row);
    row
}

fn trust(hosts: &[(&str, u8)]) -> Trust {
    let lines = hosts.iter().map(|(host, number)| format!("{host} {}\n", key(*number).public()));
    Trust::parse(&lines.collect::<String>()).unwrap()
}

fn set(row: &mut Row, column: &str, value: Value) {
    row.0.iter_mut().find(|(name, _)| name == column).unwrap().1 = value;
}

/// Computes the checksum again, as anyone can.
fn reseal(row: &mut Row) {
    let signature = row.get(SIGNATURE).unwrap().clone();
    row.0.retain(|(name, _)| ![SIGNATURE, "checksum"].contains(&name.as_ref()));
    row.seal();
    row.put(SIGNATURE, signature);
}

#[test]
fn only_the_key_of_a_rows_host_signs_it() {
    let trust = trust(&[("paris", 1), ("berlin", 2)]);
    assert_eq!(trust.verify(&signed("paris", 1)), Ok(()));
    assert_eq!(trust.verify(&signed("berlin", 2)), Ok(()));
    for (row, words) in [
        (row("paris"), "it has no signature of host paris"),
        (signed("paris", 2), "its signature is not one of the trusted key of host paris"),
        (signed("lab7", 1), "host lab7 is not in the list"),
        (signed("Paris", 1), "host Paris is not in the list"),
    ] {
        let problem = trust.verify(&row).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
    for length in [0, 1, 63, 65, 1000] {
        let mut row = row("paris");
        row.put(SIGNATURE, Value::Bytes(Some(vec![0; length])));
        assert!(trust.verify(&row).is_err(), "{length}");
    }
}

#[test]
fn a_changed_row_does_not_verify_although_its_checksum_is_right() {
    let trust = trust(&[("paris", 1)]);
    let edits: [(&str, Value); 7] = [
        ("run", Value::Text(Some("other".into()))),
        ("window", Value::Int(Some(8))),
        // An integer and a list of it have one checksum.
        ("window", Value::List(vec![7])),
        ("packets", Value::Int(None)),
        ("match", Value::Text(Some(String::new()))),
        ("full", Value::List(vec![2, 1])),
        ("drops", drops([4, 3])),
    ];
    for (column, value) in edits {
        let mut row = signed("paris", 1);
        set(&mut row, column, value.clone());
        reseal(&mut row);
        assert!(row.is_as_summed());
        assert!(trust.verify(&row).is_err(), "{column} {value:?}");
    }
    // Without its checksum, the row would pass as one of an earlier version.
    let mut row = signed("paris", 1);
    set(&mut row, "checksum", Value::Int(None));
    assert!(trust.verify(&row).is_err());
}

#[test]
fn engines_may_reorder_columns_and_add_null_ones() {
    let trust = trust(&[("paris", 1)]);
    let mut row = signed("paris", 1);
    row.0.reverse();
    row.put("unmatched", Value::Int(None));
    row.0.retain(|(name, _)| name != "match");
    set(&mut row, "time", Value::Time(0));
    assert_eq!(trust.verify(&row), Ok(()));
}

/// Each pair has one checksum but for the column `checksum`, and two contents.
#[test]
fn different_rows_have_different_content() {
    let table = |cells: &[&str], next: &[&str]| {
        let texts =
            |cells: &[&str]| Cells::Text(cells.iter().map(|cell| (*cell).to_owned()).collect());
        Value::Table(vec![("a".into(), texts(cells)), ("b".into(), texts(next))])
    };
    let pairs = [
        (Value::Int(Some(1)), Value::List(vec![1])),
        (Value::Int(Some(1)), Value::Bool(Some(true))),
        (Value::Text(Some("x".into())), Value::Bytes(Some(b"x".to_vec()))),
        (table(&["x"], &["y"]), table(&["x", "b", "y"], &[])),
    ];
    for (one, other) in pairs {
        let contents = [one, other].map(|value| {
            let mut row = Row::default();
            row.put("column", value);
            row.signed_content()
        });
        assert_ne!(contents[0], contents[1]);
    }
    // A column more, or the same bytes as part of the one before it.
    let (mut one, mut other) = (Row::default(), Row::default());
    one.text("a", "b");
    one.text("c", "d");
    other.put("a", table(&["b", "c", "d"], &[]));
    assert_ne!(one.signed_content(), other.signed_content());
}

#[test]
fn copies_with_other_signatures_are_other_rows() {
    assert!(signed("paris", 1).says_the_same(&signed("paris", 1)));
    assert!(!signed("paris", 1).says_the_same(&signed("paris", 2)));
    assert!(!signed("paris", 1).says_the_same(&row("paris")));
}

#[test]
fn lists_of_keys() {
    let public = key(1).public();
    let line = format!("paris {public}");
    let parsed = Trust::parse(&format!("# fleet\n\n  {line}  \r\nberlin\t{}\n", key(2).public()));
    assert_eq!(parsed, Ok(trust(&[("paris", 1), ("berlin", 2)])));
    let (longer, shorter) = (format!("{line}AAAA"), line[..line.len() - 4].to_owned());
    for (text, words) in [
        (String::new(), "it lists no host"),
        ("# nothing\n".to_owned(), "it lists no host"),
        (format!("{line}\n\n{line}\n"), "line 3: host paris is in line 1 already"),
        (format!("{line}\nparis {}\n", key(2).public()), "line 2: host paris is in line 1 already"),
        ("paris".to_owned(), "line 1: give the name of a host and its public key"),
        (format!("{line}\n{line} laptop\n"), "line 2: give the name of a host"),
        (format!("\n{public}\n"), "line 2: give the name of a host"),
        (format!("{public} paris"), "line 1: the key of host"),
        ("paris ed25519:".to_owned(), "line 1: the key of host paris is not ed25519:"),
        ("paris ed25519:!!!!".to_owned(), "line 1: the key of host paris is not ed25519:"),
        (line.replace("ed25519:", ""), "line 1: the key of host paris is not ed25519:"),
        (line.replace("ed25519:", "rsa:"), "line 1: the key of host paris is not ed25519:"),
        (longer, "32 bytes in Base64"),
        (shorter, "32 bytes in Base64"),
    ] {
        let problem = Trust::parse(&text).unwrap_err();
        assert!(problem.contains(words), "{text}: {problem}");
    }
}

#[test]
fn private_keys() {
    let (created, pem) = SigningKey::create().unwrap();
    assert_eq!(SigningKey::parse(pem.as_bytes()).unwrap().public(), created.public());
    assert_ne!(SigningKey::create().unwrap().0.public(), created.public());
    // The public key of a secret of 32 times 1 (RFC 8032), by an independent implementation.
    assert_eq!(key(1).public().to_string(), "ed25519:iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=");
    assert!(!format!("{created:?}").contains("PRIVATE"));
    let with = |label: &str, der: &[u8]| {
        let encoded = BASE64_STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{encoded}\n-----END {label}-----\n")
    };
    let der = [&PKCS8_PREFIX[..], &[1; KEY_BYTES]].concat();
    let x25519 = [&PKCS8_PREFIX[..11], &[0x6e], &PKCS8_PREFIX[12..], &[1; KEY_BYTES]].concat();
    for (text, what) in [
        (String::new(), "nothing"),
        ("rubbish".to_owned(), "rubbish"),
        (with("PRIVATE KEY", &der[..40]), "a part"),
        (with("PRIVATE KEY", &[&der[..], &[0]].concat()), "more"),
        (with("PRIVATE KEY", &x25519), "another algorithm"),
        (with("PUBLIC KEY", &der), "another label"),
        (with("RSA PRIVATE KEY", &der), "another form"),
        (with("PRIVATE KEY", &der).replace("-----END", "----END"), "no end"),
        (key(1).public().to_string(), "a public key"),
    ] {
        let problem = SigningKey::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(problem.contains("`flowgauge lake key`"), "{what}: {problem}");
    }
}
