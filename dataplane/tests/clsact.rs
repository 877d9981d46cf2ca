//! Counting by a classifier on the `clsact` queueing discipline, the hook of kernels without TCX,
//! and the choice of the default hook.

use crate::common::assert_contains;
use crate::common::devices::{on_veth_with, send};
use crate::common::kernel::{
    self as common, closed, counted, counted_apart, egress, in_mode, ingress, installed, leaving,
    pinned, pins, refusal, send_and_close, warning, window,
};
use flowgauge_dataplane::xdp::{DIRECTORY, Mode, Options, Xdp, detach, left};
use flowgauge_dataplane::{CountingPoint, Dataplane, Event};
use flowgauge_testing::kernel::Other;
use flowgauge_testing::wait::until;
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::veth::{self, RECEIVER, SENDER};
use std::path::{Path, PathBuf};
use std::process::Command;

fn options() -> Options {
    in_mode(Mode::Clsact)
}

fn keep(adopt: bool, leave: bool) -> Options {
    Options { pins: pinned(adopt, leave), ..options() }
}

/// Starts a run without events.
fn started(places: Vec<CountingPoint>, options: Options) -> Xdp {
    let mut xdp = common::started(places, options);
    assert_eq!(xdp.events().unwrap(), []);
    xdp
}

/// Returns the hook of each program.
fn hooks(xdp: &Xdp) -> Vec<String> {
    xdp.status().programs.into_iter().map(|program| program.hook.unwrap()).collect()
}

/// Returns the notices and choices at the start of a run.
fn notices(xdp: &mut Xdp) -> Vec<String> {
    let events = xdp.events().unwrap().into_iter();
    events
        .map(|event| match event {
            Event::Notice(text) | Event::Choice(text) => text,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn tc(arguments: &str) -> String {
    let output = Command::new("tc").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the interface and `ingress` or `egress`, in the syntax of `tc`.
fn at(place: &CountingPoint) -> String {
    format!("dev {} {}", place.interface, place.direction.name())
}

fn filters(place: &CountingPoint) -> String {
    tc(&format!("filter show {}", at(place)))
}

fn has_clsact(interface: &str) -> bool {
    tc(&format!("qdisc show dev {interface}")).contains("clsact")
}

/// Adds a filter that returns `verdict` for every packet. Among filters of one priority, a later
/// one runs before the others.
fn add_filter(place: &CountingPoint, priority: u16, verdict: u32) {
    let code = format!("1,6 0 0 {verdict}");
    let mut command = Command::new("tc");
    let (interface, direction) = (place.interface.as_str(), place.direction.name());
    command.args(["filter", "add", "dev", interface, direction, "pref", &priority.to_string()]);
    let status =
        command.args(["protocol", "all", "bpf", "da", "bytecode", &code]).status().unwrap();
    assert!(status.success());
}

/// Returns whether a device segments TCP (TSO); `None` without `ethtool`.
fn segments(device: &str) -> Option<bool> {
    let output = Command::new("ethtool").args(["-k", device]).output().ok()?;
    let features = String::from_utf8(output.stdout).ok()?;
    let state =
        features.lines().find_map(|line| line.strip_prefix("tcp-segmentation-offload: "))?;
    Some(state.starts_with("on"))
}

const OK: u32 = 0;
const SHOT: u32 = 2;

#[test]
fn every_packet_is_counted_once_and_nothing_stays() {
    on_veth(|| {
        let mut xdp = started(vec![ingress(), egress()], options());
        assert!(has_clsact(RECEIVER.0) && has_clsact(SENDER.0));
        for packets in [10, 500] {
            send(packets);
            let snapshot = window(&mut xdp, 2 * packets);
            assert_eq!(counted_apart(&snapshot), [packets; 2]);
            assert!(snapshot.complete);
        }
        assert_eq!(hooks(&xdp), ["clsact"; 2]);
        drop(xdp);
        assert!(!has_clsact(RECEIVER.0) && !has_clsact(SENDER.0));
    });
}

#[test]
fn both_directions_of_an_interface_share_one_queueing_discipline() {
    on_veth(|| {
        let first = started(vec![ingress()], options());
        let second = started(vec![leaving("rx")], options());
        drop(first);
        assert!(has_clsact(RECEIVER.0), "the other filter is there");
        drop(second);
        assert!(!has_clsact(RECEIVER.0));
    });
}

#[test]
fn filters_behind_see_what_was_counted() {
    on_veth(|| {
        let mut behind = started(vec![ingress()], options());
        let mut first = started(vec![ingress()], options());
        // A filter that drops packets runs after both.
        add_filter(&ingress(), 2, SHOT);
        send(20);
        for xdp in [&mut first, &mut behind] {
            until(|| counted(&xdp.sample().unwrap()) >= 20);
        }
        drop(first);
        send(5);
        assert_eq!(counted(&window(&mut behind, 25)), 25);
        drop(behind);
        assert!(has_clsact(RECEIVER.0) && filters(&ingress()).contains("pref 2 bpf"), "of others");
    });
}

#[test]
fn a_queueing_discipline_of_others_stays() {
    on_veth(|| {
        tc("qdisc add dev rx clsact");
        drop(started(vec![ingress()], options()));
        assert!(has_clsact(RECEIVER.0));
        assert_eq!(filters(&ingress()), "");
    });
}

/// Returns commands that remove the filter, each with its counting point.
fn removals() -> Vec<(CountingPoint, String)> {
    let of = |place: CountingPoint| {
        let filter = format!("filter del {} pref 1", at(&place));
        let qdisc = format!("qdisc del dev {} clsact", place.interface);
        [filter, qdisc].map(|removal| (place.clone(), removal))
    };
    [ingress(), egress()].into_iter().flat_map(of).collect()
}

#[test]
fn a_removed_filter_is_recreated_and_reported() {
    for (place, removal) in removals() {
        for options in [options(), keep(false, false)] {
            let (place, removal) = (place.clone(), removal.clone());
            on_veth(move || {
                let mut xdp = started(vec![place.clone()], options);
                send(10);
                assert!(window(&mut xdp, 10).complete);
                tc(&removal);
                send(500);
                assert_contains(&warning(&mut xdp), &["its program was not attached", "missing"]);
                assert_eq!(send_and_close(&mut xdp, 7), (7, false));
                assert_eq!(send_and_close(&mut xdp, 8), (8, true));
                drop(xdp);
                assert!(!has_clsact(&place.interface));
            });
        }
    }
}

#[test]
fn a_filter_attached_earlier_is_moved_behind() {
    on_veth_with([ingress(), egress()], |place| {
        let mut xdp = started(vec![place.clone()], options());
        add_filter(&place, 1, OK);
        send(20);
        assert_contains(&warning(&mut xdp), &["was attached before this one", "the first again"]);
        assert_eq!(send_and_close(&mut xdp, 5), (5, false));
        assert_eq!(send_and_close(&mut xdp, 6), (6, true));
        drop(xdp);
        assert!(filters(&place).contains("bytecode"), "it is of others");
    });
}

#[test]
fn a_place_that_a_filter_of_another_kind_has_is_refused() {
    on_veth(|| {
        tc("qdisc add dev rx clsact");
        tc("filter add dev rx ingress pref 1 protocol all u32 match u32 0 0 flowid 1:1");
        let error = refusal(ingress(), options());
        assert_contains(&error, &["another kind or protocol has priority 1"]);
        assert!(filters(&ingress()).contains("u32"));
    });
}

#[test]
fn a_queueing_discipline_without_egress_is_refused_for_what_leaves() {
    on_veth(|| {
        tc("qdisc add dev rx handle ffff: ingress");
        let error = refusal(leaving("rx"), options());
        assert_contains(&error, &["'ingress' sees no packets that leave"]);
        let mut xdp = started(vec![ingress()], options());
        send(30);
        assert_eq!(counted(&window(&mut xdp, 30)), 30);
        drop(xdp);
        assert!(tc("qdisc show dev rx").contains("qdisc ingress"));
    });
}

#[test]
fn what_is_left_counting_is_adopted() {
    on_veth_with([ingress(), egress()], |place| {
        let mut first = started(vec![place.clone()], keep(false, true));
        send(10);
        assert_eq!(counted(&window(&mut first, 10)), 10);
        first.published(0).unwrap();
        send(20);
        drop(first);
        send(30);
        // By the attached hook, without a request.
        let (mut second, adopted) =
            installed(vec![place.clone()], Options { mode: None, ..keep(true, false) });
        assert_eq!(adopted.unwrap().next_window, 1);
        assert_eq!(second.events().unwrap(), []);
        send(40);
        assert_eq!(closed(&mut second, 90), (90, true));
        drop(second);
        assert!(!has_clsact(&place.interface));
        assert_eq!(pins(), Vec::<PathBuf>::new());
    });
}

#[test]
fn what_is_left_counting_is_adopted_by_its_own_mode_only() {
    on_veth(|| {
        drop(started(vec![ingress()], keep(false, true)));
        let other = Options { mode: Some(Mode::Tcx), ..keep(true, false) };
        let error = refusal(ingress(), other);
        assert_contains(&error, &["it counts with --xdp-mode clsact, not tcx"]);
        assert_contains(&refusal(ingress(), keep(false, false)), &["--adopt"]);
        assert_eq!(detach(Path::new(DIRECTORY), None).unwrap(), ["rx ingress"]);
    });
}

#[test]
fn a_filter_removed_between_runs_is_recreated_on_adoption() {
    on_veth(|| {
        drop(started(vec![ingress()], keep(false, true)));
        send(10);
        tc("qdisc del dev rx clsact");
        send(20);
        let (mut xdp, adopted) = installed(vec![ingress()], keep(true, false));
        assert!(adopted.is_some());
        assert_contains(&warning(&mut xdp), &["attached again"]);
        send(5);
        assert_eq!(closed(&mut xdp, 15), (15, false));
    });
}

#[test]
fn detaching_removes_the_filter_and_only_an_unused_queueing_discipline() {
    on_veth_with([false, true], |shared| {
        drop(started(vec![ingress(), egress()], keep(false, true)));
        if shared {
            add_filter(&ingress(), 5, OK);
        }
        let found = left(Path::new(DIRECTORY)).unwrap();
        assert!(found.iter().all(|left| left.adoptable) && found.len() == 2, "{found:?}");
        assert!(filters(&ingress()).contains("flowgauge"));
        assert_eq!(detach(Path::new(DIRECTORY), None).unwrap(), ["rx ingress", "tx egress"]);
        assert_eq!((has_clsact(RECEIVER.0), has_clsact(SENDER.0)), (shared, false));
        assert!(!filters(&ingress()).contains("flowgauge"));
        assert_eq!(pins(), Vec::<PathBuf>::new());
    });
}

#[test]
fn a_filter_whose_pins_are_gone_is_detached_or_replaced() {
    on_veth_with([false, true], |replaced| {
        drop(started(vec![ingress()], keep(false, true)));
        let [place] = &pins()[..] else { panic!() };
        std::fs::remove_file(place.join("program")).unwrap();
        if replaced {
            let (mut xdp, adopted) = installed(vec![ingress()], keep(false, false));
            assert_eq!(adopted, None);
            let [notice] = &notices(&mut xdp)[..] else { panic!() };
            assert_contains(notice, &["a killed flowgauge left is removed"]);
            send(10);
            assert_eq!(counted(&window(&mut xdp, 10)), 10);
            assert_eq!(filters(&ingress()).matches("direct-action").count(), 1);
        } else {
            std::fs::remove_dir_all(place).unwrap();
            let [one] = &left(Path::new(DIRECTORY)).unwrap()[..] else { panic!() };
            assert!(!one.adoptable);
            assert_eq!(detach(Path::new(DIRECTORY), Some("rx")).unwrap(), ["rx ingress"]);
            assert!(!has_clsact(RECEIVER.0));
        }
    });
}

#[test]
fn pins_that_others_removed_are_restored() {
    on_veth(|| {
        let mut xdp = started(vec![ingress()], keep(false, false));
        let [place] = &pins()[..] else { panic!() };
        std::fs::remove_file(place.join("program")).unwrap();
        let [notice] = &notices(&mut xdp)[..] else { panic!() };
        assert!(notice.contains("pins were removed by others and are restored"), "{notice}");
        assert!(place.join("program").exists());
        std::fs::remove_file(place.join("program")).unwrap();
        drop(xdp);
        assert!(!has_clsact(RECEIVER.0), "also without its pin");
    });
}

#[test]
fn a_virtual_device_without_native_mode_is_counted_on_the_tcx_hook() {
    on_veth(|| {
        // A MACVLAN device has no native XDP.
        veth::ip("link add link rx name mac0 type macvlan mode bridge").unwrap();
        veth::ip("link set mac0 up").unwrap();
        let place = CountingPoint::ingress("mac0");
        let (mut xdp, _) = installed(vec![place], in_mode(None));
        let [notice] = &notices(&mut xdp)[..] else { panic!() };
        assert_eq!(notice, "mac0 ingress: counting on the TCX hook: it is a virtual device");
        assert_eq!(hooks(&xdp), ["tcx"]);
    });
}

#[test]
fn a_veth_is_counted_in_the_stack_and_its_peer_keeps_its_offloads() {
    on_veth(|| {
        let Some(before) = segments(SENDER.0) else { return skip("ethtool") };
        assert!(before, "nothing to turn off");
        let (mut xdp, _) = installed(vec![ingress(), egress()], in_mode(None));
        let [notice] = &notices(&mut xdp)[..] else { panic!() };
        let choice = "rx ingress: counting on the TCX hook: it is a virtual device";
        assert!(notice.starts_with(choice), "{notice}");
        assert_contains(notice, &["--xdp-mode native"]);
        assert_eq!(hooks(&xdp), ["tcx", "tcx"]);
        assert_eq!(segments(SENDER.0), Some(true));
        send(10);
        assert_eq!(counted(&window(&mut xdp, 20)), 20);
        drop(xdp);
        let mut xdp = started(vec![ingress(), egress()], in_mode(Mode::Native));
        assert_eq!(hooks(&xdp), ["native", "tcx"]);
        assert_eq!(segments(SENDER.0), Some(false), "XDP sees one packet at a time");
        send(10);
        assert_eq!(counted(&window(&mut xdp, 20)), 20);
    });
}

#[test]
fn the_hook_of_a_missing_interface_is_unknown() {
    on_veth(|| {
        let places = vec![ingress(), CountingPoint::ingress("later")];
        let (xdp, _) = installed(places, in_mode(None));
        let hooks: Vec<_> = xdp.status().programs.into_iter().map(|program| program.hook).collect();
        assert_eq!(hooks, [Some("tcx".to_owned()), None]);
    });
}

/// A program of a killed run is adopted at its own hook, even if a new run would choose another.
#[test]
fn a_native_program_is_adopted_without_a_mode_and_stays() {
    on_veth(|| {
        let native = Options { mode: Some(Mode::Native), ..keep(false, true) };
        drop(started(vec![ingress()], native));
        send(10);
        let (mut xdp, adopted) =
            installed(vec![ingress()], Options { mode: None, ..keep(true, false) });
        assert!(adopted.is_some());
        assert_eq!(xdp.events().unwrap(), []);
        assert_eq!(hooks(&xdp), ["native"]);
        send(10);
        assert_eq!(counted(&window(&mut xdp, 20)), 20);
    });
}

#[test]
fn packets_behind_a_generic_xdp_program_are_counted_in_the_stack() {
    on_veth_with([None, Some(Mode::Tcx), Some(Mode::Clsact)], |mode| {
        let _other = Other::xdp().attach_generic("rx").unwrap();
        let (mut xdp, _) = installed(vec![ingress()], in_mode(mode));
        send(10);
        assert_eq!(window(&mut xdp, 10).bank.counters.ipv4, 10, "{mode:?}");
    });
}

#[test]
fn packets_are_counted_beside_another_xdp_program_if_no_mode_was_given() {
    on_veth(|| {
        let _other = Other::xdp().attach("rx").unwrap();
        let (mut xdp, _) = installed(vec![ingress()], in_mode(None));
        assert_eq!(hooks(&xdp), ["tcx"]);
        send(10);
        assert_eq!(counted(&window(&mut xdp, 10)), 10);
        // An explicit mode is never replaced by another.
        let error = refusal(ingress(), in_mode(Mode::Native));
        assert_contains(&error, &["another XDP program is attached"]);
    });
}
