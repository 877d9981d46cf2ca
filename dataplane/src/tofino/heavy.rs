//! Heavy hitters: the slots of a pipe as they are read, and the table that they make.

use flowgauge_core::heavy::{self, Entry, PRECISION_STAGES};
use flowgauge_core::{FlowKey, Heavy, KeyKind, hash};

/// What an array holds of heavy hitters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// How many packets there were.
    Packets,
    /// Signatures and counts of a stage; counts are one more than they were.
    Flows(usize),
    /// Inherited counts and versions of IP, of both stages.
    Origin,
    /// A word of the keys and the one behind it, of both stages.
    Words(usize),
}

/// Words of a key: two addresses of four, ports, protocol. An IPv4 address is the last of its four.
const WORDS: usize = 10;

/// What was read of one pipe.
#[derive(Default)]
pub(super) struct Pipe {
    packets: u32,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    signature: u32,
    count: u32,
    inherited: u32,
    version: u32,
    words: [u32; WORDS],
}

impl Pipe {
    pub(super) fn set(&mut self, part: Part, settings: &heavy::Settings, index: usize, [first, second]: [u32; 2]) {
        let slots = settings.slots();
        let slot = match part {
            Part::Packets => {
                self.packets = first;
                return;
            }
            Part::Flows(stage) => stage * (slots / PRECISION_STAGES) + index,
            Part::Origin | Part::Words(_) => index,
        };
        self.slots.resize(slots, Slot::default());
        let Some(slot) = self.slots.get_mut(slot) else { return };
        match part {
            Part::Packets => {}
            Part::Flows(_) => (slot.signature, slot.count) = (first, second.wrapping_sub(1)),
            Part::Origin => (slot.inherited, slot.version) = (first, second),
            Part::Words(word) => slot.words.iter_mut().skip(word).zip([first, second]).for_each(|(word, value)| *word = value),
        }
    }

    /// Fills an empty table. Tells how many slots changed hands while they were read, and are left free.
    pub(super) fn fill(&self, settings: &heavy::Settings, table: &mut Heavy) -> usize {
        table.set_totals(self.packets, self.packets.into());
        let mut changed = 0;
        for (index, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.count != 0) {
            match slot.entry(settings.key) {
                Some(entry) => table.set_slot(index, &entry),
                None => changed += 1,
            }
        }
        changed
    }
}

impl Slot {
    /// The flow, if count and key are of one.
    fn entry(&self, kind: KeyKind) -> Option<Entry> {
        let Slot { signature, count, inherited, .. } = *self;
        let key = self.key(kind)?;
        let is_whole = inherited < count && hash::crc32(key.as_bytes()) == signature;
        is_whole.then_some(Entry { signature, key, count: count.into(), inherited: inherited.into() })
    }

    fn key(&self, kind: KeyKind) -> Option<FlowKey> {
        let [s0, s1, s2, s3, d0, d1, d2, d3, ports, protocol] = self.words.map(u32::to_be_bytes);
        let (src, dst) = match self.version {
            4 => (s3.to_vec(), d3.to_vec()),
            6 => ([s0, s1, s2, s3].concat(), [d0, d1, d2, d3].concat()),
            _ => return None,
        };
        let [.., protocol] = protocol;
        let bytes = match kind {
            KeyKind::Src => src,
            KeyKind::Dst => dst,
            KeyKind::SrcDst => [src, dst].concat(),
            KeyKind::FiveTuple => [&src[..], &dst, &ports, &[protocol]].concat(),
        };
        Some(FlowKey::new(&bytes))
    }
}
