//! Queueing disciplines: packets between the network stack and a device on the way out.

use super::netlink::{QueryScope, ROUTE, RTM_GETQDISC, TCMSG, ask, find};
use std::io;

/// Parent of the root discipline, which packets enter first (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;

/// Returns the packets waiting in an interface's queueing discipline plus those it dropped since it
/// was created. A discipline includes the counts of its children. Zero without a discipline.
pub(super) fn read(index: u32) -> io::Result<u64> {
    let answers = ask(ROUTE, RTM_GETQDISC, QueryScope::All, &[0; TCMSG])?;
    Ok(answers.iter().filter_map(|answer| of_root(answer, index)).sum())
}

fn of_root(answer: &[u8], index: u32) -> Option<u64> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    if word(answer, 4)? != index || word(answer, 12)? != ROOT {
        return None;
    }
    let queue = find(find(answer.get(TCMSG..)?, TCA_STATS2)?, TCA_STATS_QUEUE)?;
    let (waiting, dropped) = (word(queue, 0)?, word(queue, 8)?);
    Some(u64::from(waiting) + u64::from(dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(index: u32, parent: u32) -> Vec<u8> {
        let attribute = |kind: u16, value: &[u8]| {
            [&((4 + value.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
        };
        let queue: Vec<u8> = [5_u32, 600, 7, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        let head = [0, index, 0, parent, 0].into_iter().flat_map(u32::to_ne_bytes);
        head.chain(attribute(TCA_STATS2 | 0x8000, &attribute(TCA_STATS_QUEUE, &queue))).collect()
    }

    #[test]
    fn only_the_first_discipline_of_the_interface_is_read() {
        assert_eq!(of_root(&answer(9, ROOT), 9), Some(12));
        assert_eq!(of_root(&answer(8, ROOT), 9), None);
        assert_eq!(of_root(&answer(9, 0x8001_0001), 9), None);
        let whole = answer(9, ROOT);
        // The last two words do not matter.
        for length in 0..whole.len() - 8 {
            assert_eq!(of_root(&whole[..length], 9), None, "{length}");
        }
    }

    #[test]
    fn loopback_has_none() {
        let index = nix::net::if_::if_nametoindex("lo").unwrap();
        assert_eq!(read(index).unwrap(), 0);
    }
}
