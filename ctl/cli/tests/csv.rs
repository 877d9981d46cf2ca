//! Columns of CSV: `docs/outputs.md` has each of them, and no others.

use crate::common::served::ALL;
use crate::common::{Outcome, Scratch, command, finish, generated, run};
use std::collections::BTreeSet;

/// Page with the columns, and the titles of the section and of the one after it.
const PAGE: &str = include_str!("../../../docs/outputs.md");
const SECTION: &str = "\n## CSV\n";
const NEXT_SECTION: &str = "\n## Causes of loss\n";

/// Beside all measurements, everything that adds columns. `KIND` in a column of the page stands for
/// each of [`KINDS`], alone and with each of [`DIRECTIONS`].
const EVERYTHING: &str = "--delay tcp-handshake,tcp-data,tcp-duration,tcp-timestamps,dns,icmp,quic-spin \
    --key entropy=src+dst --alarm --truth --match ip --window 1s --format csv";
const KINDS: [&str; 7] =
    ["tcp_handshake", "tcp_data", "tcp_duration", "tcp_timestamps", "dns", "icmp", "quic_spin"];
const DIRECTIONS: [&str; 3] = ["", "_ingress", "_egress"];

/// Returns the columns in the first cells of the section's tables, with `KIND` as it is.
fn documented() -> BTreeSet<String> {
    let section = PAGE.split_once(SECTION).unwrap().1.split_once(NEXT_SECTION).unwrap().0;
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2));
    names.map(str::to_owned).collect()
}

/// Returns the column of the page that stands for a printed one.
fn as_documented(printed: &str) -> String {
    for direction in DIRECTIONS {
        for kind in KINDS {
            let beginning = format!("delay_{kind}{direction}_p");
            if let Some(percentile) = printed.strip_prefix(&beginning) {
                return format!("delay_KIND_p{percentile}");
            }
        }
    }
    printed.to_owned()
}

/// Returns the names in the first line.
fn header(outcome: Outcome) -> Vec<String> {
    outcome.ended(0).stdout.lines().next().unwrap().split(',').map(str::to_owned).collect()
}

#[test]
fn the_page_has_every_column_and_no_other() {
    let scratch = Scratch::new("csv-columns");
    let profile = "delay,shape=conversations,requests=300,timestamps";
    let capture = generated(&scratch, "talks.pcap", profile);
    let replayed = |more: &str| {
        let arguments = format!("replay {capture} --measure {ALL} {EVERYTHING} {more}");
        header(finish(&mut command(&arguments)))
    };
    let lake = scratch.argument("lake");
    let plain = replayed(&format!("--lake {lake}"));
    let by_direction = replayed("--delay-local 10.0.0.0/8");
    let merged = header(run(["merge", &lake, "--leave-one-out", "--format", "csv"]));
    let diff = header(run(["diff", &lake, &lake, "--format", "csv"]));
    assert_eq!(diff, ["part", "estimate", "low", "high"]);
    let tables = header(run(["tables", "--format", "csv"]));
    assert_eq!(tables, ["table", "key", "prefix_length", "value"]);

    for columns in [&plain, &by_direction, &merged] {
        assert_eq!(columns.iter().collect::<BTreeSet<_>>().len(), columns.len(), "{columns:?}");
        assert!(columns.contains(&"complete".to_owned()), "{columns:?}");
    }
    let printed: BTreeSet<&String> = plain.iter().chain(&by_direction).chain(&merged).collect();
    assert!(printed.iter().any(|name| *name == "delay_dns_egress_p95_ns"), "{printed:?}");
    for name in &printed {
        let is_simple =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(name.bytes().all(is_simple), "{name} needs quotes in a query");
    }
    let printed: BTreeSet<String> = printed.into_iter().map(|name| as_documented(name)).collect();
    assert_eq!(printed, documented());
}
