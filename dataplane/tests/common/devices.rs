//! Devices, sockets and ports in a network of the test's own.

use crate::common::with_tables;
use flowgauge_dataplane::poll::port::{Ports, af_xdp};
use flowgauge_dataplane::xdp::DeviceCounters;
use flowgauge_dataplane::{Poll, poll};
use flowgauge_testing::{on_veth, skip};
use flowgauge_traffic::veth::{RECEIVER, SENDER, carrier, ip};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

pub fn device_counters(device: &str) -> DeviceCounters {
    DeviceCounters::read(device).unwrap()
}

/// Starts to poll an AF_XDP port.
pub fn polling(port: &str) -> Poll {
    let ports = af_xdp(&port.parse().unwrap(), None).unwrap();
    with_tables(Poll::new(ports, poll::Options::default()))
}

/// Wraps each port.
pub fn wrapped<P, W>(ports: Ports<P>, wrap: impl Fn(P) -> W) -> Ports<W> {
    let Ports { ports, source, gate, interface } = ports;
    Ports { ports: ports.into_iter().map(wrap).collect(), source, gate, interface }
}

/// Sends datagrams to the receiver.
pub fn send(packets: u64) {
    send_of(18, packets);
}

/// Sends datagrams of `bytes` bytes to the receiver.
pub fn send_of(bytes: usize, packets: u64) {
    let socket = UdpSocket::bind((SENDER.1, 0)).unwrap();
    for _ in 0..packets {
        socket.send_to(&vec![0; bytes], (RECEIVER.1, 9)).unwrap();
    }
}

/// Binds a socket whose calls fail rather than wait for ever.
pub fn udp_socket(address: &str, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((address, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Receives a datagram; returns its length and sender. A call with a time limit is not resumed by
/// the kernel after a stop of the process, as other calls are (signal(7)).
pub fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(datagram) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

pub fn ethtool(arguments: &str) -> Result<(), String> {
    let output = Command::new("ethtool")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs a test with each value, in a network of its own each time.
#[track_caller]
pub fn on_veth_with<T: Send + 'static>(
    values: impl IntoIterator<Item = T>,
    test: impl Fn(T) + Copy + Send + 'static,
) {
    for value in values {
        on_veth(move || test(value));
    }
}

/// Runs a test on devices with several queues, after `ethtool` has set them.
pub fn on_queues(
    queues: u32,
    settings: &'static [&'static str],
    test: impl FnOnce() + Send + 'static,
) {
    on_veth(move || {
        ip("link del dev rx").unwrap();
        let end = |name: &str| format!("name {name} numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add {} type veth peer {}", end("rx"), end("tx"))).unwrap();
        for device in ["rx", "tx"] {
            ip(&format!("link set dev {device} addrgenmode none")).unwrap();
            ip(&format!("link set dev {device} up")).unwrap();
        }
        ["rx", "tx"].into_iter().for_each(|device| carrier(device).unwrap());
        ip(&format!("addr add {}/24 dev tx", SENDER.1)).unwrap();
        let neighbour = format!("{} lladdr 02:00:00:00:00:02", RECEIVER.1);
        ip(&format!("neigh add {neighbour} dev tx nud permanent")).unwrap();
        match settings.iter().try_for_each(|setting| ethtool(setting)) {
            Ok(()) => test(),
            Err(error) => skip(format_args!("ethtool ({error})")),
        }
    });
}

pub fn set_mtu(mtu: u32) {
    for device in ["tx", "rx"] {
        ip(&format!("link set dev {device} mtu {mtu}")).unwrap();
    }
}

/// Checks that a device has no XDP program.
#[track_caller]
pub fn assert_no_program(device: &str) {
    let output = Command::new("ip").args(["-details", "link", "show", device]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!said.contains("xdp/id"), "a program is left behind on {device}");
}
