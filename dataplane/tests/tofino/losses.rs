//! Lost connections and restarted switches.

use crate::common::{assert_contains, persist};
use crate::tofino::answers::{BANK, FRAMES, REGISTERS, asks_for};
use crate::tofino::lab::{
    Lab, PATIENT, Reads, Writes, counting, failure, options, refused, settings, warnings,
};
use flowgauge_dataplane::tofino::Failure;
use flowgauge_dataplane::{Dataplane, Tofino};
use std::time::Duration;

const ANEW: &str = "the switch lost its tables and what it had counted; they are installed again, and the window that is open lacks \
                    what came before";
const ADOPTED: &str =
    "the switch does not know that the connection was lost; going on as the client that it was";
const SAME: &str = "connected again; the switch counted on, nothing is missing";

fn contain(warnings: &[String], text: &str) -> bool {
    warnings.iter().any(|warning| warning == text)
}

#[test]
fn a_lost_connection_loses_nothing() {
    let (lab, mut tofino) = Lab::new(2).started();
    for packets in [0..100, 100..200, 200..300] {
        lab.count(packets.start..packets.start + 50);
        lab.proxy.cut();
        lab.count(packets.start + 50..packets.end);
        lab.assert_holds(&persist(|| tofino.rotate()), packets);
        let warnings = warnings(&mut tofino);
        assert!(contain(&warnings, SAME) && !contain(&warnings, ANEW), "{warnings:?}");
    }
}

/// The system probes a silent switch: a TCP timer is running.
#[test]
#[cfg(target_os = "linux")]
fn a_silent_switch_is_asked_whether_it_is_there() {
    const ESTABLISHED: &str = "01";
    const KEEPALIVE: &str = "02:";
    let (lab, _tofino) = Lab::new(1).started();
    let server = format!(":{:04X}", lab.proxy.address.port());
    let is_asked = || {
        std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, _, remote, state, _, timer, ..] = fields[..] else { return false };
            remote.ends_with(&server) && state == ESTABLISHED && timer.starts_with(KEEPALIVE)
        })
    };
    // While data are unacknowledged, another timer runs.
    assert!((0..1_000).any(|_| is_asked()), "no probe timer runs");
}

/// The switch does not notice the end of a connection, and refuses subscriptions with its number.
#[test]
fn a_connection_that_is_half_open_is_taken_over() {
    let (mut lab, mut tofino) = Lab::new(2).started();
    for packets in [0..100, 100..200, 200..300] {
        lab.count(packets.clone());
        lab.proxy.lose();
        lab.assert_holds(&persist(|| tofino.rotate()), packets);
        let warnings = warnings(&mut tofino);
        let has = |text: &str| contain(&warnings, text);
        assert!(has(ADOPTED) && has(SAME) && !has(ANEW), "{warnings:?}");
    }
    // Once it notices, the number is free.
    lab.proxy.notice();
    lab.count(300..400);
    lab.assert_holds(&persist(|| tofino.rotate()), 300..400);
    // A restarted switch is still detected.
    lab.proxy.lose();
    persist(|| tofino.sample());
    lab.restart();
    let window = persist(|| tofino.rotate());
    assert!(!window.complete);
    assert!(contain(&warnings(&mut tofino), ANEW));
}

#[test]
fn a_connection_that_breaks_within_an_answer_loses_nothing() {
    let (lab, mut tofino) = Lab::new(2).started();
    lab.count(0..100);
    for table in [BANK, FRAMES, REGISTERS] {
        let (proxy, mut cuts) = (lab.proxy.handle(), 1);
        lab.tampering.reads(move |request, answer| {
            if cuts > 0 && asks_for(request, table) {
                cuts -= 1;
                proxy.cut();
                return Reads::Never;
            }
            Reads::Answer(vec![answer], None)
        });
        let failed = failure(tofino.sample());
        assert!(matches!(failed, Failure::Unreachable { .. }), "{failed}");
        lab.assert_holds(&persist(|| tofino.sample()), 0..100);
    }
    lab.assert_holds(&persist(|| tofino.rotate()), 0..100);
}

#[test]
fn a_switch_restarted_within_a_window_makes_only_that_one_incomplete() {
    let (mut lab, mut tofino) = Lab::new(2).started();
    lab.count(0..100);
    lab.assert_holds(&tofino.rotate().unwrap(), 0..100);
    lab.count(100..200);
    lab.restart();
    // The active bank is 0 again, after 1.
    let sample = persist(|| tofino.sample());
    assert!(!sample.complete);
    lab.assert_counted(&sample, 0..0);
    assert!(contain(&warnings(&mut tofino), ANEW));
    lab.count(200..300);
    let window = tofino.rotate().unwrap();
    assert!(!window.complete, "a hundred packets are missing");
    lab.assert_counted(&window, 200..300);
    lab.count(300..400);
    lab.assert_holds(&tofino.rotate().unwrap(), 300..400);
    assert_eq!(warnings(&mut tofino), [""; 0]);
}

#[test]
fn events_find_the_switch_again_before_anyone_asks() {
    let (mut lab, mut tofino) = Lab::new(1).started();
    lab.restart();
    let mut heard = Vec::new();
    while !contain(&heard, ANEW) {
        heard.extend(warnings(&mut tofino));
    }
    // From here on everything is counted.
    lab.count(0..100);
    let window = tofino.rotate().unwrap();
    assert!(!window.complete);
    lab.assert_counted(&window, 0..100);
}

#[test]
fn a_switch_restarted_during_a_rotation_returns_the_window_or_marks_it_incomplete() {
    // Before the flip, after it, while counters, registers and counters again are copied, and while
    // all are cleared.
    for writes_before in 0..6 {
        let (mut lab, mut tofino) = Lab::new(2).started();
        lab.count(0..100);
        let (proxy, mut writes) = (lab.proxy.handle(), writes_before);
        lab.tampering.writes(move |_| {
            if writes == 0 {
                proxy.cut();
                return Writes::Lost;
            }
            writes -= 1;
            Writes::CarriedOut
        });
        let outcome = tofino.rotate();
        lab.tampering.stop();
        // There are fewer writes than that.
        if let Ok(snapshot) = &outcome {
            lab.assert_holds(snapshot, 0..100);
            continue;
        }
        assert!(failure(outcome).is_transient());
        lab.restart();
        let window = persist(|| tofino.rotate());
        if window.complete {
            assert!(writes_before > 3, "nothing was read");
            lab.assert_holds(&window, 0..100);
            lab.count(100..200);
            // The switch was restarted in this one.
            let next = tofino.rotate().unwrap();
            assert!(!next.complete);
            lab.assert_counted(&next, 100..200);
        } else {
            lab.assert_counted(&window, 0..0);
        }
        lab.count(200..300);
        lab.assert_holds(&tofino.rotate().unwrap(), 200..300);
    }
}

#[test]
fn a_switch_that_is_gone_is_asked_again_after_growing_pauses() {
    let mut lab = Lab::new(1);
    let mut options = lab.options();
    options.back_off = Duration::from_secs(3600);
    let mut tofino = counting(options, lab.settings);
    lab.power_off();
    let accepted = lab.proxy.accepted();
    for attempt in 0..10 {
        let failed = failure(tofino.rotate());
        assert!(matches!(failed, Failure::Unreachable { .. }), "{attempt}: {failed}");
    }
    let attempts = lab.proxy.accepted() - accepted;
    assert!(attempts <= 2, "{attempts} attempts within an hour");
    refused(tofino.sample(), "trying again in ");
}

#[test]
fn a_switch_that_restarts_for_long_is_found_in_the_end() {
    let (mut lab, mut tofino) = Lab::new(1).started();
    lab.count(0..10);
    lab.power_off();
    for _ in 0..20 {
        assert!(failure(tofino.rotate()).is_transient());
        assert!(failure(tofino.sample()).is_transient());
        tofino.events().unwrap();
    }
    lab.restart();
    assert!(!persist(|| tofino.rotate()).complete);
    lab.count(10..20);
    lab.assert_holds(&tofino.rotate().unwrap(), 10..20);
}

#[test]
fn another_program_after_a_restart_is_the_end() {
    let (mut lab, mut tofino) = Lab::new(1).started();
    lab.power_off();
    let other = flowgauge_testing::switch::Switch::new(settings(7), 1).serve();
    lab.proxy.lead_to(Some(other.address()));
    let failed = loop {
        let failed = failure(tofino.rotate());
        if !failed.is_transient() {
            break failed;
        }
    };
    let wanted = "wanted by src, tabulated, 64 registers (-DFLOWGAUGE_PRECISION=6)";
    assert_contains(&failed.to_string(), &[wanted]);
}

#[test]
fn a_missing_server_is_reported_at_once() {
    // No process listens on a port that was just released.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut options = options(listener.local_addr().unwrap());
    options.deadline = PATIENT;
    drop(listener);
    refused(Tofino::connect(options.clone(), settings(6)), "is bf_switchd running there?");
    for address in ["switch", "http://switch:1", "switch:port", ""] {
        options.address = address.to_owned();
        let connected = Tofino::connect(options.clone(), settings(6));
        assert!(!refused(connected, "is not an address of a switch").is_transient());
    }
}
