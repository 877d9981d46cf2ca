//! Interfaces without a link header: a tun device in a network of the test's own, counted by every
//! applicable backend.
#![allow(unsafe_code, reason = "tun devices are made by a call of ioctl")]

use crate::common::assert_contains;
use crate::common::devices::polling;
use crate::common::kernel::{MODES, counted_until, in_mode, refusal, started};
use flowgauge_core::Link;
use flowgauge_dataplane::xdp::{Mode, Xdp, link_of};
use flowgauge_dataplane::{CountingPoint, Dataplane, Direction, Event};
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::frame::{IPV4, Ip, UDP, ethernet, udp};
use flowgauge_traffic::veth::ip;
use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Runs a test with a device that is up and has an address; packets written to the file arrive at
/// it.
fn on_device(kind: libc::c_int, test: impl FnOnce(File) + Send + 'static) {
    on_veth(move || {
        let Ok(file) = File::options().read(true).write(true).open("/dev/net/tun") else {
            skip("/dev/net/tun");
            return;
        };
        // SAFETY: a struct of integers, bytes and pointers; each may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = request.ifr_name.iter_mut().zip(b"tun0");
        name.for_each(|(place, byte)| *place = *byte as libc::c_char);
        request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the kernel reads and writes the request.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        ip("link set dev tun0 addrgenmode none").unwrap();
        ip("addr add 10.79.0.1/24 dev tun0").unwrap();
        ip("link set dev tun0 up").unwrap();
        test(file);
    });
}

/// Builds an IPv4 UDP packet with a source per number.
fn packet(number: u8) -> Vec<u8> {
    Ip::new([10, 79, 0, 100 + number], [10, 79, 0, 9], UDP).packet(&udp([1, 9], &[0; 4]))
}

fn ipv6() -> Vec<u8> {
    Ip::new([0xfd; 16], [0xfd; 16], UDP).packet(&udp([1, 9], &[]))
}

/// Returns packets of IPv4, of IPv6 and others, and their bytes.
fn collect(dataplane: &mut dyn Dataplane, expected: u64) -> (u64, u64, u64, u64) {
    let all = counted_until(dataplane, expected);
    (all.ipv4, all.ipv6, all.rejected(), all.bytes)
}

fn xdp(direction: Direction, mode: Mode) -> Xdp {
    started(vec![CountingPoint { interface: "tun0".to_owned(), direction }], in_mode(mode))
}

fn write_packets(mut file: &File) {
    for number in 0..20 {
        file.write_all(&packet(number)).unwrap();
    }
    file.write_all(&ipv6()).unwrap();
}

const EXPECTED: (u64, u64, u64, u64) = (20, 1, 0, 20 * 32 + 48);

#[test]
fn packets_of_a_tun_device_are_ip() {
    for mode in [Mode::Skb, Mode::Tcx, Mode::Clsact] {
        on_device(libc::IFF_TUN, move |file| {
            let mut xdp = xdp(Direction::Ingress, mode);
            write_packets(&file);
            assert_eq!(collect(&mut xdp, 21), EXPECTED, "{mode:?}");
        });
    }
}

#[test]
fn packets_that_leave_a_tun_device_are_ip() {
    on_device(libc::IFF_TUN, |_file| {
        let mut xdp = xdp(Direction::Egress, Mode::Native);
        let socket = UdpSocket::bind("10.79.0.1:0").unwrap();
        (0..20).for_each(|_| assert_eq!(socket.send_to(&[0; 4], "10.79.0.9:9").unwrap(), 4));
        assert_eq!(collect(&mut xdp, 20), (20, 0, 0, 20 * 32));
    });
}

#[test]
fn a_port_of_its_own_reads_a_tun_device_too() {
    on_device(libc::IFF_TUN, |file| {
        let mut poll = polling("tun0,xdp=skb,from-host");
        write_packets(&file);
        assert_eq!(collect(&mut poll, 21), EXPECTED);
    });
}

#[test]
fn packets_of_a_tap_device_have_an_ethernet_header() {
    for mode in MODES {
        on_device(libc::IFF_TAP, move |mut file| {
            let mut xdp = xdp(Direction::Ingress, mode);
            for number in 0..20 {
                let frame = ethernet(&[], IPV4, &packet(number));
                file.write_all(&frame).unwrap();
            }
            assert_eq!(collect(&mut xdp, 20), (20, 0, 0, 20 * 46), "{mode:?}");
        });
    }
}

#[test]
fn native_mode_is_refused_in_words_where_there_is_no_driver_for_it() {
    on_device(libc::IFF_TUN, |_file| {
        let said = refusal(CountingPoint::ingress("tun0"), in_mode(Mode::Native));
        assert_contains(&said, &["--xdp-mode tcx"]);
    });
}

#[test]
fn a_tun_device_is_counted_on_the_tcx_hook_if_no_mode_was_given() {
    on_device(libc::IFF_TUN, |file| {
        let mut xdp = started(vec![CountingPoint::ingress("tun0")], in_mode(None));
        let notice = "tun0 ingress: counting on the TCX hook: it is a virtual device";
        assert_eq!(xdp.events().unwrap(), [Event::Choice(notice.to_owned())]);
        write_packets(&file);
        assert_eq!(collect(&mut xdp, 21), EXPECTED);
    });
}

#[test]
fn link_types_are_those_of_the_kernel() {
    // Ethernet, loopback; PPP, raw IP, tunnels of IP, SIT, GRE, GRE over IPv6, none (tun,
    // WireGuard).
    assert_eq!([1, 772].map(link_of), [Some(Link::Ethernet); 2]);
    assert_eq!([512, 519, 768, 769, 776, 778, 823, 0xfffe].map(link_of), [Some(Link::Ip); 8]);
    // InfiniBand, Fibre Channel, IEEE 802.11, with radiotap.
    assert_eq!([32, 784, 801, 803].map(link_of), [None; 4]);
}
