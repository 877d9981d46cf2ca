//! Alarms of entropies that the switch computes and watches itself: it sends a digest when one
//! leaves its usual range.

use super::{ALARM, DEFINITIONS, KIND, StatedSettings};
use crate::error::Failure;
use crate::tofino::entries::DigestField;
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::{KeyKind, Settings};

const DIGEST: &str = "entropy_alarms";
/// Field of a digest.
const BANK: &str = "bank";

/// Packets in a window from which on a program watches.
pub(in crate::tofino) const FIRST: u64 = 1 << 10;

/// Advice for an operator on the compiler options for watching.
pub(in crate::tofino) const ADVICE: &str = "the program tells of no flood before a window ends; \
    compile it with -DFLOWGAUGE_ENTROPY_BITS=1 -DFLOWGAUGE_ENTROPY_ALARM=1 if it should";

/// Receiver of the digests of a program that watches an entropy.
pub(in crate::tofino) struct Alarms {
    /// Key of the entropy.
    pub(in crate::tofino) key: KeyKind,
    digest: u32,
    bank: DigestField,
    /// Whether the open window was reported. Each pipe reports separately.
    reported: bool,
}

impl Alarms {
    /// Finds the entropy that a program with these settings watches, if any.
    pub(in crate::tofino) fn find(
        schema: &Schema,
        program: &StatedSettings,
        settings: &Settings,
    ) -> Result<Option<Self>, Failure> {
        if !program.is_on(ALARM)? {
            return Ok(None);
        }
        let digest = schema.filter(DIGEST).map_err(Failure::program)?;
        let bank = DigestField::find(digest, BANK)?;
        let key = program.key(DEFINITIONS[0])?;
        if !KIND.keys(settings).any(|measured| measured == key) {
            return Err(Failure::lacks(format!("{} has no entropy with thresholds", digest.name)));
        }
        Ok(Some(Alarms { key, digest: digest.id, bank, reported: false }))
    }

    /// Resets the state for the next window.
    pub(in crate::tofino) fn next_window(&mut self) {
        self.reported = false;
    }

    /// Processes digests. Returns whether they are the first to report that the entropy of the open
    /// window has left its usual range.
    pub(in crate::tofino) fn receive(
        &mut self,
        digests: &proto::DigestList,
        open: Option<usize>,
    ) -> bool {
        if digests.digest_id != self.digest {
            return false;
        }
        let is_open =
            |digest| open.is_some() && self.bank.read(digest) == open.map(|open| open as u64);
        digests.data.iter().any(is_open) && !std::mem::replace(&mut self.reported, true)
    }
}
