//! Entropies that the switch makes and watches itself: it sends a digest when one leaves its
//! bounds.

use super::{HIGHEST, IN_INTEGERS, KIND, LOWEST};
use crate::error::Failure;
use crate::tofino::names;
use crate::tofino::program::number;
use flowgauge_bfruntime::proto;
use flowgauge_bfruntime::schema::{FieldKind, Schema, SchemaError};
use flowgauge_core::{KeyKind, Settings};

const DIGEST: &str = "entropy_alarms";
/// What is in a digest.
const BANK: &str = "bank";

/// Packets of a window from which on a program watches.
pub(in crate::tofino) const FIRST: u64 = 1 << 10;

/// What a program needs to watch, for an operator who wants it to.
pub(in crate::tofino) const ADVICE: &str = "the program tells of no flood before a window ends; \
    compile it with -DFLOWGAUGE_ENTROPY_BITS=1 -DFLOWGAUGE_ENTROPY_ALARM=1 if it should";

/// The digests of a program that watches an entropy.
pub(in crate::tofino) struct Alarms {
    /// Which entropy.
    pub(in crate::tofino) key: KeyKind,
    digest: u32,
    bank: (u32, FieldKind),
    /// Whether the open window was told. Each pipe tells by itself.
    told: bool,
}

impl Alarms {
    /// Finds what a program that measures so watches, if anything.
    pub(in crate::tofino) fn find(
        schema: &Schema,
        settings: &Settings,
    ) -> Result<Option<Self>, Failure> {
        let digest = match schema.filter(DIGEST) {
            Ok(digest) => digest,
            Err(SchemaError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(Failure::program(error)),
        };
        let wrong = |what: &str| {
            Failure::program(format!("{} has no {what}; is it p4/flowgauge.p4?", digest.name))
        };
        let field = digest.fields.iter().find(|field| field.name.rsplit('.').next() == Some(BANK));
        let field = field.ok_or_else(|| wrong("field bank"))?;
        field.kind.bits().map_err(Failure::program)?;
        let is_watched = |key: &KeyKind| {
            [LOWEST, HIGHEST]
                .iter()
                .all(|part| schema.table(&names::by_key(IN_INTEGERS, *key, part)).is_ok())
        };
        let key =
            KIND.keys(settings).find(is_watched).ok_or_else(|| wrong("entropy with thresholds"))?;
        Ok(Some(Alarms {
            key,
            digest: digest.id,
            bank: (field.id, field.kind.clone()),
            told: false,
        }))
    }

    /// Another window is open.
    pub(in crate::tofino) fn next_window(&mut self) {
        self.told = false;
    }

    /// Takes digests in. Says whether they tell for the first time that the entropy of the open
    /// window has left its bounds.
    pub(in crate::tofino) fn receive(
        &mut self,
        digests: &proto::DigestList,
        open: Option<usize>,
    ) -> bool {
        if digests.digest_id != self.digest {
            return false;
        }
        let (id, kind) = &self.bank;
        let bank = |digest: &proto::TableData| {
            digest.fields.iter().find_map(|part| kind.decode(number(part, *id)?).ok())
        };
        let is_open = |digest| open.is_some() && bank(digest) == open.map(|open| open as u64);
        digests.data.iter().any(is_open) && !std::mem::replace(&mut self.told, true)
    }
}
