//! `flowgauge run --port af_xdp` and `flowgauge generate --to af_xdp` on veth devices in a network
//! namespace of the test.

use crate::common::{Running, Scratch, assert_has, check, generated, number, of_kind, parse, run};
use flowgauge_testing::on_veth;
use flowgauge_traffic::veth::ip;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Command;

/// Run that prints JSON lines, ready once its first window has ended.
struct Count {
    run: Running,
    /// Packets counted and lost.
    packets: u64,
    drops: u64,
}

impl Count {
    fn start(arguments: &str) -> Self {
        let options = "--window 10ms --sample-every never --format json";
        let run = Running::with(&format!("run {arguments} {options}"));
        let mut count = Count { run, packets: 0, drops: 0 };
        count.window();
        count
    }

    fn window(&mut self) {
        let window = self.run.record();
        check(&window);
        self.packets += number(&window, "packets");
        self.drops += dropped(&window);
    }

    /// Reads windows until they have this many packets.
    fn until(&mut self, packets: u64) {
        while self.packets + self.drops < packets {
            self.window();
        }
    }

    /// Ends the run and returns the total.
    fn end(self) -> Value {
        let records = parse(&self.run.end().ended(0).stdout);
        of_kind(&records, "total")[0].clone()
    }
}

fn dropped(record: &Value) -> u64 {
    record["drops"].as_object().unwrap().values().map(|packets| packets.as_u64().unwrap()).sum()
}

/// Returns the packets that a command reports as sent, minus those that the interface dropped.
fn sent(arguments: &str) -> u64 {
    let outcome = run(arguments.split_ascii_whitespace());
    let line = &outcome.stdout;
    let number = |before: &str, after: &str| -> u64 {
        let rest = line.split_once(before).unwrap_or_else(|| panic!("'{before}' in '{line}'")).1;
        rest.split(after)
            .next()
            .unwrap()
            .trim()
            .replace(',', "")
            .parse()
            .unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let dropped = number("dropped ", ";");
    let expected = if dropped == 0 { (Some(0), "") } else { (Some(1), "error: tx dropped ") };
    assert_eq!(outcome.code, expected.0, "{outcome:?}");
    assert!(outcome.stderr.starts_with(expected.1), "{outcome:?}");
    assert!(dropped > 0 || outcome.stderr.is_empty(), "{outcome:?}");
    number("tx: ", " packet") - dropped
}

#[test]
fn what_is_sent_is_counted_to_the_packet() {
    on_veth(|| {
        let scratch = Scratch::new("af_xdp");
        let profile = "zipf,packets=5k,rate=100k,ipv6,size=100";
        let capture = generated(&scratch, "capture.pcap", profile);
        let mut count = Count::start("--port af_xdp:rx");
        let mut expected = 0;
        for generate in [
            "unique,packets=5k --rate 50k".to_owned(),
            "burst,packets=5k,rate=20k,vlan=7,period=10ms".to_owned(),
            "sequential,packets=20k --rate max".to_owned(),
            format!("--pcap {capture}"),
            format!("--pcap {capture} --rate 20k"),
            format!("--pcap {capture} --rate max"),
        ] {
            expected += sent(&format!("generate {generate} --to af_xdp:tx"));
            count.until(expected);
            assert_eq!(count.packets + count.drops, expected, "{generate}");
        }
        let total = count.end();
        assert_eq!(number(&total, "packets") + dropped(&total), expected);
        assert!(number(&total, "cpu_ns") > 0 && number(&total, "ipv6_packets") > 0, "{total}");
    });
}

#[test]
fn what_is_sent_as_live_frames_is_counted_to_the_packet() {
    on_veth(|| {
        for of in ["-i rx --xdp-mode native", "--port af_xdp:rx"] {
            let mut count = Count::start(of);
            let mut expected = 0;
            for generate in [
                "unique,packets=5k --rate 50k",
                "burst,packets=5k,rate=20k,vlan=7,period=10ms",
                "zipf,packets=50k,ipv6,size=100 --rate max",
                "sequential,packets=1 --rate max",
            ] {
                expected += sent(&format!("generate {generate} --to live:tx"));
                count.until(expected);
                assert_eq!(count.packets + count.drops, expected, "{of} {generate}");
            }
            let total = count.end();
            assert_eq!(number(&total, "packets") + dropped(&total), expected);
        }
    });
}

#[test]
fn a_capture_is_sent_as_far_as_the_interface_can() {
    on_veth(|| {
        let scratch = Scratch::new("af_xdp-large");
        let capture = generated(&scratch, "large.pcap", "unique,packets=50,rate=10k,size=4000");
        let line = run(["generate", "--pcap", &capture, "--to", "af_xdp:tx"]).quiet();
        assert!(line.starts_with("tx: 0 packets sent"), "{line}");
        assert!(
            line.trim_end().ends_with("50 skipped, which this interface cannot send"),
            "{line}"
        );
        let whole = std::fs::read(capture).unwrap();
        let broken = scratch.write("broken.pcap", &whole[..whole.len() - 7]);
        let outcome = run(["generate", "--pcap", &broken, "--rate", "max", "--to", "af_xdp:tx"]);
        assert_has(&outcome.stdout, &["49 skipped"]);
        outcome.failed(1, &["broken.pcap"]);
    });
}

/// Restart as by a service manager.
#[test]
fn a_killed_run_leaves_the_interface_free() {
    on_veth(|| {
        for _ in 0..10 {
            let mut count = Count::start("--port af_xdp:rx");
            let expected = sent("generate unique,packets=100 --rate max --to af_xdp:tx");
            count.until(expected);
            count.run.signal(Signal::SIGKILL);
            count.run.child.wait().unwrap();
        }
        let total = Count::start("--port af_xdp:rx").end();
        assert_eq!(number(&total, "packets"), 0);
        let links = Command::new("ip").args(["-details", "link", "show"]).output().unwrap();
        assert!(
            !String::from_utf8_lossy(&links.stdout).contains("prog/xdp"),
            "a program is left behind"
        );
    });
}

#[test]
fn refusals_are_one_line() {
    on_veth(|| {
        let refused = |arguments: &str, expected: &str| {
            let outcome = run(arguments.split_ascii_whitespace());
            assert_eq!(outcome.stdout, "", "{arguments}");
            outcome.failed(1, &[expected]);
        };
        refused("run --port af_xdp:nowhere", "nowhere: there is no such interface");
        refused("run --port af_xdp:tx", "use -i tx, or say that you mean it: af_xdp:tx,from-host");
        refused("run --port af_xdp:rx,mode=zero-copy", "use mode=copy");
        refused("run --port af_xdp:rx --cpus 1023", "poll cannot run a worker on CPU 1023");
        refused("generate unique --to af_xdp:nowhere", "nowhere: there is no such interface");
        refused("generate unique --to live:nowhere", "nowhere: there is no such interface");
        refused("generate unique --rate max --to live:tx", "takes no live frames");
        ip("link set dev tx down").unwrap();
        refused("generate unique --rate max --to af_xdp:tx", "is it up");
        refused("generate unique --rate max --to live:tx", "is it up");
    });
}

#[test]
fn what_makes_no_sense_is_told_before_anything_is_opened() {
    for (arguments, expected) in [
        ("run --port af_xdp:", "name an interface"),
        ("run --port af_xdp:eth1:0", "1 to 1024"),
        ("run --port af_xdp:eth1,frames=100", "frames=N (a power of two"),
        ("run --port af_xdp:eth1 --pins /sys/fs/bpf/x", "--pins is for -i and not for --port"),
        ("run --port af_xdp:eth1 --xdp-mode skb", "--xdp-mode is for -i and not for --port"),
        ("run --cpus 3-1", "give CPUs by number"),
        ("run --cpus one", "give CPUs by number"),
        ("run --poll-mode lazy", "use one of adaptive, busy, interrupt"),
        ("generate unique --to af_xdp:", "name an interface"),
        ("generate unique --to af_xdp:eth1 --force", "remove it when sending"),
        ("generate unique --rate fast --to x.pcap", "give packets per second"),
        ("generate unique --rate max --to x.pcap", "needs timestamps"),
        ("generate --pcap x.pcap --to y.pcap", "copy it"),
        ("generate --to af_xdp:eth1", "PROFILE"),
        ("generate unique --to live:", "name an interface"),
        ("generate --pcap x.pcap --to live:eth1", "send a capture with --to af_xdp:eth1"),
        ("generate unique --pcap x.pcap --to af_xdp:eth1", "cannot be used with"),
    ] {
        run(arguments.split_ascii_whitespace()).failed(2, &[expected]);
    }
}

#[test]
fn workers_can_be_pinned_and_polled_on_every_port() {
    for poll_mode in ["adaptive", "busy", "interrupt"] {
        let arguments = format!(
            "run --port memory:unique,packets=5k,rate=100k --cpus 0 --poll-mode {poll_mode} --workers 2 --sample-every never --format json"
        );
        let records = parse(&run(arguments.split_ascii_whitespace()).live());
        let total = of_kind(&records, "total")[0];
        assert_eq!(number(total, "packets"), 5_000);
        assert!(number(total, "cpu_ns") > 0);
    }
}
