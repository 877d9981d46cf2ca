//! Requests to the kernel about its interfaces over netlink: rtnetlink, and the family `netdev` of
//! generic netlink.
//!
//! `flowgauge doctor` only reads; none of these requests changes anything.

use super::{AttachedProgram, InterfaceReport, mode_name, state_name};
use flowgauge_dataplane::netlink::{
    IFINFOMSG, QueryScope, ROUTE, RTM_GETLINK, ask, attribute, attributes, find, word,
};
use flowgauge_dataplane::xdp::is_virtual_link;
use rustix::net::netlink::GENERIC;
use std::collections::HashMap;
use std::io;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
/// Attributes with the program's id in the driver, in the generic path and in hardware, if several
/// are attached.
const IFLA_XDP_EACH_PROG_ID: [u16; 3] = [5, 6, 7];

const GENL_ID_CTRL: u16 = 0x10;
const GENLMSGHDR: usize = 4;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// Returns all interfaces in the network namespace of this process, each with its index.
pub(super) fn links() -> io::Result<Vec<(u32, InterfaceReport)>> {
    let answers = ask(ROUTE, RTM_GETLINK, QueryScope::All, &[0; IFINFOMSG])?;
    Ok(answers.iter().filter_map(|answer| link(answer)).collect())
}

/// Returns the XDP features of each interface's driver, by interface index
/// (`NETDEV_A_DEV_XDP_FEATURES`).
pub(super) fn xdp_features() -> io::Result<HashMap<u32, u64>> {
    let mut request = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    request.extend(attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0"));
    let answers = ask(Some(GENERIC), GENL_ID_CTRL, QueryScope::One, &request)?;
    let family = answers
        .iter()
        .find_map(|answer| find(answer.get(GENLMSGHDR..)?, CTRL_ATTR_FAMILY_ID)?.try_into().ok());
    let family = u16::from_ne_bytes(family.ok_or(io::ErrorKind::InvalidData)?);
    let answers = ask(Some(GENERIC), family, QueryScope::All, &[NETDEV_CMD_DEV_GET, 1, 0, 0])?;
    Ok(answers.iter().filter_map(|answer| features(answer)).collect())
}

fn link(answer: &[u8]) -> Option<(u32, InterfaceReport)> {
    let index = word(answer.get(4..8)?)?;
    let hardware = Some(u16::from_ne_bytes(answer.get(2..4)?.try_into().ok()?));
    let is_virtual = is_virtual_link(answer);
    let mut link = InterfaceReport { hardware, is_virtual, ..InterfaceReport::default() };
    let count = |value: &[u8]| word(value).map(|queues| queues as usize);
    for (kind, value) in attributes(answer.get(IFINFOMSG..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = word(value),
            IFLA_OPERSTATE => link.state = value.first().map(|it| state_name(*it).to_owned()),
            IFLA_LINKINFO => link.driver = find(value, IFLA_INFO_KIND).map(text),
            IFLA_NUM_RX_QUEUES => link.rx_queues = count(value),
            IFLA_NUM_TX_QUEUES => link.tx_queues = count(value),
            IFLA_XDP => {
                let attached = |(place, id)| AttachedProgram { id, mode: mode_name(place) };
                link.program = program(value).map(attached);
            }
            _ => {}
        }
    }
    Some((index, link))
}

/// Returns where an XDP program is attached (1 driver, 2 generic path, 3 hardware, 4 several), and
/// its id.
fn program(value: &[u8]) -> Option<(u8, u32)> {
    let place = *find(value, IFLA_XDP_ATTACHED)?.first()?;
    let number = std::iter::once(IFLA_XDP_PROG_ID)
        .chain(IFLA_XDP_EACH_PROG_ID)
        .find_map(|kind| word(find(value, kind)?));
    (place > 0).then(|| (place, number.unwrap_or(0)))
}

fn features(answer: &[u8]) -> Option<(u32, u64)> {
    let attributes = answer.get(GENLMSGHDR..)?;
    let features = find(attributes, NETDEV_A_DEV_XDP_FEATURES)?.try_into().ok()?;
    Some((word(find(attributes, NETDEV_A_DEV_IFINDEX)?)?, u64::from_ne_bytes(features)))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let nested = [
            attribute(IFLA_XDP_ATTACHED, &[1]),
            attribute(IFLA_XDP_PROG_ID, &77_u32.to_ne_bytes()),
        ]
        .concat();
        let mut answer = vec![0; IFINFOMSG];
        answer[2..4].copy_from_slice(&65534_u16.to_ne_bytes());
        answer[4..8].copy_from_slice(&9_u32.to_ne_bytes());
        answer.extend(attribute(IFLA_IFNAME, b"eth1\0"));
        answer.extend(attribute(IFLA_MTU, &1500_u32.to_ne_bytes()));
        answer.extend(attribute(IFLA_LINKINFO | 0x8000, &attribute(IFLA_INFO_KIND, b"veth\0")));
        answer.extend(attribute(IFLA_XDP | 0x8000, &nested));
        answer
    }

    #[test]
    fn an_interface_is_read_with_its_program() {
        let (index, link) = link(&answer()).unwrap();
        assert_eq!(
            (index, link.hardware, link.name.as_str(), link.mtu),
            (9, Some(65534), "eth1", Some(1500))
        );
        let program = link.program.map(|program| (program.mode, program.id));
        assert_eq!((link.driver.as_deref(), program), (Some("veth"), Some(("native", 77))));
        assert!(link.is_virtual);
    }

    #[test]
    fn no_program_is_none() {
        assert_eq!(program(&attribute(IFLA_XDP_ATTACHED, &[0])), None);
        let several =
            [attribute(IFLA_XDP_ATTACHED, &[4]), attribute(6, &5_u32.to_ne_bytes())].concat();
        assert_eq!(program(&several), Some((4, 5)));
    }

    #[test]
    fn features_belong_to_an_index() {
        let mut answer = vec![NETDEV_CMD_DEV_GET, 1, 0, 0];
        answer.extend(attribute(NETDEV_A_DEV_IFINDEX, &4_u32.to_ne_bytes()));
        answer.extend(attribute(NETDEV_A_DEV_XDP_FEATURES, &0x2b_u64.to_ne_bytes()));
        assert_eq!(features(&answer), Some((4, 0x2b)));
    }

    #[test]
    fn answers_that_are_cut_anywhere_or_lie_about_lengths_are_survived() {
        let whole = answer();
        for length in 0..whole.len() {
            let _ = link(&whole[..length]);
        }
        for lie in 0..=u8::MAX {
            let mut bytes = whole.clone();
            bytes[IFINFOMSG] = lie;
            let _ = link(&bytes);
        }
    }
}
