//! Whether an interface is virtual, over netlink: `/sys` describes the network namespace in which
//! it was mounted.

use super::netlink::{IFINFOMSG, IFLA_INFO_KIND, IFLA_LINKINFO, find};

const IFLA_PARENT_DEV_NAME: u16 = 56;

/// Returns whether a link, as the kernel reports it, is a virtual device: one without hardware
/// queues, such as veth, bridge, macvlan, bond, tun and loopback.
///
/// The kernel names the kind of most virtual devices (`IFLA_INFO_KIND`) and, since Linux 5.14, the
/// hardware behind the others (`IFLA_PARENT_DEV_NAME`, in `/sys` the link `device`). Some drivers
/// of hardware have a kind too.
#[must_use]
pub fn is_virtual_link(link: &[u8]) -> bool {
    let is_loopback = link.get(2..4) == Some(&libc::ARPHRD_LOOPBACK.to_ne_bytes()[..]);
    let attributes = link.get(IFINFOMSG..).unwrap_or_default();
    let has_kind = find(attributes, IFLA_LINKINFO)
        .is_some_and(|information| find(information, IFLA_INFO_KIND).is_some());
    (is_loopback || has_kind) && find(attributes, IFLA_PARENT_DEV_NAME).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::netlink::attribute;

    fn link(hardware: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut link = vec![0; IFINFOMSG];
        link[2..4].copy_from_slice(&hardware.to_ne_bytes());
        link.extend(attributes.concat());
        link
    }

    #[test]
    fn devices_with_a_kind_and_without_hardware_are_virtual() {
        const INFO_SLAVE_KIND: u16 = 4;
        let information =
            |kind, name: &[u8]| attribute(IFLA_LINKINFO | 0x8000, &attribute(kind, name));
        let veth = information(IFLA_INFO_KIND, b"veth\0");
        let parent = attribute(IFLA_PARENT_DEV_NAME, b"0000:00:05.0\0");
        let ethernet = libc::ARPHRD_ETHER;
        assert!(is_virtual_link(&link(ethernet, std::slice::from_ref(&veth))));
        assert!(is_virtual_link(&link(
            libc::ARPHRD_NONE,
            &[information(IFLA_INFO_KIND, b"tun\0")]
        )));
        assert!(is_virtual_link(&link(libc::ARPHRD_LOOPBACK, &[])));
        // Hardware: since Linux 5.14, before, with a kind, and as a part of a bond.
        assert!(!is_virtual_link(&link(ethernet, std::slice::from_ref(&parent))));
        assert!(!is_virtual_link(&link(ethernet, &[])));
        assert!(!is_virtual_link(&link(ethernet, &[veth, parent])));
        assert!(!is_virtual_link(&link(ethernet, &[information(INFO_SLAVE_KIND, b"bond\0")])));
        assert!(!is_virtual_link(&[]));
    }

    #[test]
    fn loopback_is_virtual() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert!(is_virtual_link(&crate::interface::netlink::link(index).unwrap()));
        assert!(crate::interface::netlink::link(u32::MAX >> 1).is_err());
    }
}
