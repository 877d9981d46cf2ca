//! Loops over measurements in user space: clearing, merging, totals.

use super::{
    Bank, Listed, MEASUREMENTS, PersistentBank, Settings, SharedBank, SharedPersistentBank,
    for_each_listed, for_each_measurement,
};
use crate::counters::Counters;
use crate::host::HostMeasurement;
use crate::key::KeyKind;
use crate::measurement::Measurement;
use crate::needs::RequiredFields;
use crate::observation::Observation;
use crate::unopened::CommonEtherType;
use zerocopy::FromZeros;

macro_rules! list {
    ($($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {
        /// Totals over cores, sources and windows, in counters of 64 bits.
        #[derive(PartialEq, Eq, FromZeros)]
        #[repr(C)]
        pub struct WindowTotals {
            /// Packets and bytes.
            pub counters: Counters,
            /// Most frequent EtherType of frames that count as non-IP.
            pub unopened: CommonEtherType,
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as HostMeasurement>::Totals,)+
        }

        /// Exact counts of a bank's packets beside estimates, for comparison, in memory whose size
        /// does not depend on the number of flows.
        #[derive(FromZeros)]
        #[repr(C)]
        pub struct Exact {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as HostMeasurement>::Exact,)+
        }

        /// Measurement of the list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum MeasurementKind {
            $(#[doc = $doc] $Kind,)+
        }

        impl MeasurementKind {
            /// All measurements.
            pub const ALL: [MeasurementKind; MEASUREMENTS] = [$(MeasurementKind::$Kind,)+];
        }

        $(impl HostListed for crate::$name::$Kind {
            const KIND: MeasurementKind = MeasurementKind::$Kind;

            fn settings_mut(settings: &mut Settings) -> &mut Self::Settings {
                &mut settings.$name
            }

            fn core_ref(bank: &Bank) -> &Self::PerCore {
                &bank.$name
            }

            fn persistent_ref(persistent: &PersistentBank) -> &Self::Persistent {
                &persistent.$name
            }

            fn totals(bank: &WindowTotals) -> &Self::Totals {
                &bank.$name
            }

            fn totals_mut(bank: &mut WindowTotals) -> &mut Self::Totals {
                &mut bank.$name
            }

            fn exact(exact: &mut Exact) -> &mut Self::Exact {
                &mut exact.$name
            }
        })+
    };
}
crate::measurements!(list);

/// As [`Listed`], for the structs of user space.
trait HostListed: HostMeasurement + Listed {
    const KIND: MeasurementKind;
    fn settings_mut(settings: &mut Settings) -> &mut Self::Settings;
    fn core_ref(bank: &Bank) -> &Self::PerCore;
    fn persistent_ref(persistent: &PersistentBank) -> &Self::Persistent;
    fn totals(bank: &WindowTotals) -> &Self::Totals;
    fn totals_mut(bank: &mut WindowTotals) -> &mut Self::Totals;
    fn exact(exact: &mut Exact) -> &mut Self::Exact;
}

/// Runs an expression for each measurement that is on, with its type as `$M`.
macro_rules! for_each_that_is_on {
    ($settings:expr, $M:ident => $block:expr) => {
        for_each_measurement!($M => if $M::is_on($M::settings($settings)) {
            $block
        })
    };
}

/// Words of 32 bits in [`Settings`].
pub const SETTINGS_WORDS: usize = size_of::<Settings>() / size_of::<u32>();

impl Settings {
    /// Returns whether a measurement that is on counts by this key.
    #[must_use]
    pub fn uses(&self, key: KeyKind) -> bool {
        self.needs().has(RequiredFields::key(key))
    }

    /// Returns whether any measurement other than distinct flows is on.
    #[must_use]
    pub fn beyond_cardinality(&self) -> bool {
        MeasurementKind::ALL
            .into_iter()
            .any(|kind| kind != MeasurementKind::Cardinality && kind.is_on(self))
    }

    /// Returns whether any measurement uses per-core persistent memory.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.used().iter().any(|used| used.persistent > 0)
    }

    /// Returns whether any measurement uses shared banked memory.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.used().iter().any(|used| used.shared > 0)
    }

    /// Returns the settings as words, for pins and tests; little-endian.
    #[must_use]
    pub fn words(&self) -> [u32; SETTINGS_WORDS] {
        zerocopy::transmute!(*self)
    }
}

/// Offset and length, in bytes, of the part of each measurement's field that is in use.
type Extents = [(usize, usize); MEASUREMENTS];

impl Bank {
    /// Returns the parts in use; lengths are multiples of eight.
    #[must_use]
    pub fn used(settings: &Settings) -> Extents {
        let mut extents = settings.used().map(|used| (0, used.own));
        for_each_measurement!(M => set_offset(&mut extents, M::INDEX, M::OWN_OFFSET));
        extents
    }

    /// Empties the bank.
    pub fn clear(&mut self, settings: &Settings) {
        self.counters = Counters::ZERO;
        self.unopened = CommonEtherType::NONE;
        for_each_that_is_on!(settings, M => {
            M::clear_core(M::core(self), M::settings(settings));
        });
    }
}

fn set_offset(extents: &mut Extents, index: usize, offset: usize) {
    if let Some((start, _)) = extents.get_mut(index) {
        *start = offset;
    }
}

impl PersistentBank {
    /// Adds the memory of another core.
    pub fn merge(&mut self, other: &PersistentBank, settings: &Settings) {
        for_each_that_is_on!(settings, M => {
            M::merge_persistent(M::persistent(self), M::persistent_ref(other), M::settings(settings));
        });
    }

    /// Empties the memory.
    pub fn clear(&mut self, settings: &Settings) {
        for_each_that_is_on!(settings, M => {
            M::clear_persistent(M::persistent(self), M::settings(settings));
        });
    }

    /// Returns the parts in use; lengths are multiples of eight.
    #[must_use]
    pub fn used(settings: &Settings) -> Extents {
        let mut extents = settings.used().map(|used| (0, used.persistent));
        for_each_measurement!(M => set_offset(&mut extents, M::INDEX, M::PERSISTENT_OFFSET));
        extents
    }
}

impl SharedBank {
    /// Empties the bank.
    pub fn clear(&self, settings: &Settings) {
        for_each_that_is_on!(settings, M => {
            M::clear_shared(M::shared(self), M::settings(settings));
        });
    }
}

impl SharedPersistentBank {
    /// Writes the content that measurements need before the first packet.
    pub fn prepare(&self, settings: &Settings) {
        for_each_that_is_on!(settings, M => {
            M::prepare(M::shared_persistent(self), M::settings(settings));
        });
    }

    /// Returns the parts in use; lengths are multiples of eight.
    #[must_use]
    pub fn used(settings: &Settings) -> Extents {
        let mut extents = settings.used().map(|used| (0, used.shared_persistent));
        for_each_measurement!(M => set_offset(&mut extents, M::INDEX, M::SHARED_PERSISTENT_OFFSET));
        extents
    }
}

impl WindowTotals {
    /// Adds a core's bank.
    pub fn merge(&mut self, own: &Bank, settings: &Settings) {
        self.counters.merge(&own.counters);
        self.unopened.merge(&own.unopened);
        for_each_that_is_on!(settings, M => {
            M::merge_core(M::totals_mut(self), M::core_ref(own), M::settings(settings));
        });
    }

    /// Adds a shared bank.
    pub fn merge_shared(&mut self, shared: &SharedBank, settings: &Settings) {
        for_each_that_is_on!(settings, M => {
            M::merge_shared(M::totals_mut(self), M::shared(shared), M::settings(settings));
        });
    }

    /// Adds totals of another source or window.
    pub fn unite(&mut self, other: &WindowTotals, settings: &Settings) {
        self.counters.merge(&other.counters);
        self.unopened.merge(&other.unopened);
        for_each_that_is_on!(settings, M => {
            M::merge_totals(M::totals_mut(self), M::totals(other), M::settings(settings));
        });
    }

    /// Empties the totals.
    pub fn clear(&mut self, settings: &Settings) {
        self.counters = Counters::ZERO;
        self.unopened = CommonEtherType::NONE;
        for_each_that_is_on!(settings, M => M::clear_totals(M::totals_mut(self), M::settings(settings)));
    }

    /// Calls `visit` for each counter that identifies the content: measurement, name and numbers.
    /// Sketches, filters and tables have none.
    pub fn tell(
        &self,
        settings: &Settings,
        visit: &mut dyn FnMut(&'static str, &'static str, &[u64]),
    ) {
        for_each_that_is_on!(settings, M => {
            M::for_each_counter(M::totals(self), M::settings(settings), &mut |name, numbers| {
                visit(M::NAME, name, numbers);
            });
        });
    }
}

impl Exact {
    /// Returns whether these settings ask for any exact count.
    #[must_use]
    pub fn is_on(settings: &Settings) -> bool {
        let mut is_on = false;
        for_each_that_is_on!(settings, M => is_on |= M::has_exact(M::settings(settings)));
        is_on
    }

    /// Counts a packet exactly.
    pub fn measure(&mut self, settings: &Settings, packet: &Observation) {
        for_each_that_is_on!(settings, M => if M::has_exact(M::settings(settings)) {
            M::measure_exactly(M::exact(self), packet);
        });
    }
}

/// Runs an expression for the measurement of this kind, with its type as `$M`.
macro_rules! for_kind {
    ($kind:expr, $M:ident => $block:expr) => {
        for_each_measurement!($M => if $M::KIND == $kind {
            $block
        })
    };
}

impl MeasurementKind {
    /// Returns the name in options and outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut name = "";
        for_kind!(self, M => name = M::NAME);
        name
    }

    /// Returns whether it is on.
    #[must_use]
    pub fn is_on(self, settings: &Settings) -> bool {
        let mut is_on = false;
        for_kind!(self, M => is_on = M::is_on(M::settings(settings)));
        is_on
    }

    /// Returns whether two settings measure it in the same way.
    #[must_use]
    pub fn is_alike(self, one: &Settings, other: &Settings) -> bool {
        let mut is_alike = false;
        for_kind!(self, M => is_alike = M::settings(one) == M::settings(other));
        is_alike
    }

    /// Copies its settings from `from`.
    pub fn take_over(self, settings: &mut Settings, from: &Settings) {
        for_kind!(self, M => *M::settings_mut(settings) = *M::settings(from));
    }

    /// Returns the keys that it counts by; empty if it is off.
    pub fn keys(self, settings: &Settings) -> impl Iterator<Item = KeyKind> {
        let mut keys = [None; crate::measurement::MAX_KEYS];
        for_kind!(self, M => keys = M::keys(M::settings(settings)));
        keys.into_iter().flatten()
    }
}
