//! Names of addresses: in what people read, and in nothing else.

use crate::common::served::Served;
use crate::common::{Scratch, generated, list, replay, run};
use std::fs;

/// Addresses of generated traffic are in 10/8. The name has a character that reverses text.
const SITES: &str = "prefix,site,as\n10.0.0.0/8,fra\u{202e}nk,64500\n";
const NAMED: &str = " (fra\\u{202e}nk AS64500)";

fn capture(scratch: &Scratch) -> String {
    generated(scratch, "some.pcap", "zipf,flows=50,packets=2000,rate=1k")
}

#[test]
fn tables_have_names_and_programs_get_addresses() {
    let scratch = Scratch::new("names");
    let (capture, sites) = (capture(&scratch), scratch.write("sites.csv", SITES));
    let printed = |format: &str, names: bool| {
        let names = if names { format!("--names {sites}") } else { String::new() };
        replay(&capture, &format!("--measure heavy --format {format} {names}")).quiet()
    };
    let table = printed("table", true);
    assert!(table.contains(NAMED), "{table}");
    let addresses = |table: &str| table.matches("10.").count();
    assert_eq!(addresses(&table.replace(NAMED, "")), addresses(&printed("table", false)));
    for format in ["csv", "json"] {
        let text = printed(format, true);
        assert!(text.contains("10.") && !text.contains("AS64500"), "{text}");
    }
}

#[test]
fn a_report_has_names() {
    let scratch = Scratch::new("names-report");
    let (capture, sites) = (capture(&scratch), scratch.write("sites.csv", SITES));
    let page = scratch.argument("page.html");
    let report = |names: &[&str]| {
        run(["report", "--force", &capture, "--to", &page].iter().chain(names)).ended(0);
        fs::read_to_string(&page).unwrap()
    };
    let named = report(&["--names", &sites]);
    assert!(named.contains("fra\\\\u{202e}nk AS64500") && !named.contains('\u{202e}'));
    assert!(!report(&[]).contains("AS64500"));
}

#[test]
fn the_page_has_names_and_metrics_have_none() {
    let scratch = Scratch::new("names-page");
    let sites = scratch.write("sites.csv", SITES);
    let mut served =
        Served::start(&format!("--port memory:zipf,rate=20k --measure heavy --names {sites}"));
    served.window();
    let metrics: Vec<String> = served.metrics().into_keys().collect();
    assert!(metrics.iter().any(|series| series.contains("heavy_flows")), "{metrics:?}");
    assert!(!metrics.iter().any(|series| series.contains("AS64500") || series.contains("\"10.")));
    let (_, event) = served.events(None, 0).remove(0);
    let mut figures = list(&event, "figures").iter();
    let flow = figures.find_map(|it| it["ranking"][0]["name"].as_str()).unwrap();
    assert_eq!(event["names"][flow], format!("{flow}{NAMED}"));
    served.end();
}

#[test]
fn sources_that_cannot_be_used_are_refused() {
    let scratch = Scratch::new("names-refused");
    let capture = capture(&scratch);
    let broken = scratch.write("broken.csv", "10.0.0.0/8,fra\nsite,ams\n");
    for (names, problem) in [
        ("/nonexistent.csv", "cannot read names from /nonexistent.csv"),
        (&*broken, "line 2: 'site' is no prefix"),
        ("hosts,,dns", "write hosts, dns and files"),
    ] {
        let outcome = replay(&capture, &format!("--measure heavy --names {names}"));
        assert!(outcome.code != Some(0) && outcome.stderr.contains(problem), "{outcome:?}");
    }
}
