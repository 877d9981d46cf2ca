//! Arguments that DPDK is started with.
#![cfg(feature = "link")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use flowgauge_dpdk::arguments;

#[test]
fn only_the_named_device_is_taken() {
    for (devargs, pci) in [
        ("0000:03:00.0", true),
        ("03:00.1,rx_burst=1", true),
        ("pci:0000:af:00.0", true),
        ("net_pcap0,rx_pcap=/tmp/a.b:c.0", false),
        ("net_null0", false),
        ("net_af_xdp0,iface=eth0:1.5", false),
        ("", false),
        ("0.0", false),
    ] {
        let expected: &[&str] = if pci { &["-a", devargs] } else { &["--no-pci"] };
        assert_eq!(
            arguments(devargs, "--in-memory --lcores=0"),
            [expected, &["--in-memory", "--lcores=0"]].concat()
        );
    }
}

#[test]
fn given_arguments_hold() {
    assert_eq!(
        arguments("0000:03:00.0", "-b 0000:04:00.0 -l 1"),
        ["-b", "0000:04:00.0", "-l", "1"]
    );
    assert_eq!(
        arguments("net_null0", "--allow=0000:04:00.0 -l1-3"),
        ["--allow=0000:04:00.0", "-l1-3"]
    );
    let [bus, lcores, no_huge] = &arguments("net_null0", "--no-huge")[..] else {
        panic!("three arguments")
    };
    assert_eq!((&bus[..], &no_huge[..]), ("--no-pci", "--no-huge"));
    let processor: usize = lcores.strip_prefix("--lcores=0@").unwrap().parse().unwrap();
    assert!(processor < 1024);
}
