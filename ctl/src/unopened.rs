//! Warns of traffic that consists mostly of one EtherType that the parser does not open.

use flowgauge_core::WindowTotals;

/// Frames in a window below which there is no warning.
const MIN_FRAMES: u64 = 100;

/// Returns a warning if more than half of a window's frames have one EtherType that is not opened.
pub(crate) fn warning(bank: &WindowTotals) -> Option<String> {
    let packets = bank.counters.packets();
    let (ethertype, frames) = bank.unopened.most()?;
    if packets < MIN_FRAMES || frames.saturating_mul(2) <= packets {
        return None;
    }
    let share = u128::from(frames) * 100 / u128::from(packets);
    let name = name(ethertype).map(|name| format!(" ({name})")).unwrap_or_default();
    Some(format!(
        "most frames (at least {share} %) are of EtherType 0x{ethertype:04x}{name}, which flowgauge does not open; they count as non-IP"
    ))
}

/// Returns the common name of an EtherType.
pub(crate) fn name(ethertype: u16) -> Option<&'static str> {
    Some(match ethertype {
        0x0806 => "ARP",
        0x22f0 => "AVTP",
        0x8137 => "IPX",
        0x8808 => "flow control",
        0x8809 => "slow protocols, LACP among them",
        0x8847 | 0x8848 => "MPLS with neither IP nor Ethernet in it, or with too many labels",
        0x8863 => "PPPoE discovery",
        0x888e => "802.1X",
        0x8892 => "PROFINET",
        0x88a2 => "ATA over Ethernet",
        0x88a4 => "EtherCAT",
        0x88b8 => "GOOSE",
        0x88ba => "sampled values",
        0x88cc => "LLDP",
        0x88e5 => "MACsec, encrypted",
        0x88f7 => "PTP",
        0x8902 => "CFM",
        0x8906 => "FCoE",
        0x8915 => "RoCE",
        0x894f => "NSH with neither IP nor Ethernet in it",
        0x9000 => "loopback test",
        0x8100 | 0x88a8 | 0x9100 => "VLAN tags, too many of them",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::{Bank, Settings, Zeroed};

    fn bank(frames: impl IntoIterator<Item = (u16, u32)>, ip: u64) -> Box<WindowTotals> {
        let mut bank = Bank::boxed();
        bank.counters.ipv4 = ip;
        for (ethertype, frames) in frames {
            bank.counters.non_ip += u64::from(frames);
            (0..frames).for_each(|_| bank.unopened.vote(ethertype, 1));
        }
        let mut all = WindowTotals::boxed();
        all.merge(&bank, &Settings::default());
        all
    }

    #[test]
    fn an_ethertype_of_most_frames_is_named_with_its_share() {
        let warning = warning(&bank([(0x88cc, 97), (0x0806, 1)], 2)).unwrap();
        assert!(
            warning.contains("at least 96 %") && warning.contains("0x88cc (LLDP)"),
            "{warning}"
        );
    }

    #[test]
    fn nothing_is_said_of_half_of_few_and_of_frames_without_ethertype() {
        assert_eq!(warning(&bank([(0x88cc, 99)], 0)), None);
        assert_eq!(warning(&bank([(0x88cc, 100)], 100)), None);
        assert_eq!(warning(&bank([(0, 1000)], 0)), None);
        assert_eq!(warning(&bank([(0x88cc, 400), (0x88e5, 400), (0x0806, 400)], 0)), None);
        assert_eq!(warning(&bank([], 1000)), None);
    }
}
