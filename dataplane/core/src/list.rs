//! The list of all measurements, and everything derived from it: settings, banks and loops.
//!
//! A new measurement is a module that implements [`Measurement`] and
//! [`HostMeasurement`](crate::HostMeasurement), and one entry of
//! [`measurements!`](crate::measurements) in this file. One with memory that cores share also needs
//! an entry of `locked_programs!` in `ebpf/src/measure.rs`.
//!
//! From the list the macro `list!` generates the structs with one field per measurement
//! ([`Settings`], [`Bank`], [`PersistentBank`], [`SharedBank`], [`SharedPersistentBank`]) and the implementations
//! of [`Listed`], through which generic code reaches those fields. Loops over all measurements are
//! plain functions whose body is run by `for_each_measurement!`.
//!
//! On the packet path, `measure` passes the packets to each measurement that is on, with its
//! [`MeasurementMemory`] of the [`Memory`]. The submodule `host` has the loops of user space: clear, merge, and
//! exact counts.

use crate::arrival::Packets;
use crate::counters::Counters;
use crate::hash::HashMode;
use crate::key::KeyKind;
use crate::measurement::{MeasureContext, Measurement, MeasurementMemory, UsedBytes};
use crate::needs::RequiredFields;
use crate::observation::Observed;
use crate::parse::{self, Reject};
use crate::requires;
use crate::unopened::CommonEtherType;
use core::borrow::Borrow;
use zerocopy::{FromZeros, Immutable, IntoBytes};

#[cfg(not(target_arch = "bpf"))]
mod host;

#[cfg(not(target_arch = "bpf"))]
pub use host::{Exact, MeasurementKind, SETTINGS_WORDS, WindowTotals};

/// Memory in which packets are counted.
pub trait Memory {
    /// Packets and bytes.
    fn counters(&mut self) -> &mut Counters;

    /// Most frequent EtherType of frames that count as non-IP.
    fn unopened(&mut self) -> &mut CommonEtherType;

    /// Returns the index of the [bank](crate::state::BANKS).
    fn bank(&self) -> usize;

    /// Returns the memory of a measurement; `None` if there is none.
    fn parts<M: Listed>(&mut self, settings: &M::Settings) -> Option<MeasurementMemory<'_, M>>;

    /// Counts rejected packets by cause. The caller counts their bytes.
    #[inline(always)]
    fn reject(&mut self, reject: Reject, packets: u32) {
        self.counters().reject(reject, u64::from(packets));
        // Not in the kernel: for other rejects the EtherType's register is uninitialised, and the
        // verifier refuses to read it.
        #[cfg(not(target_arch = "bpf"))]
        if let Reject::NonIp(ethertype) = reject {
            self.unopened().vote(ethertype, packets);
        }
    }
}

/// Passes the list of measurements to a macro: documentation, module, type and settings type of
/// each.
#[macro_export]
macro_rules! measurements {
    ($callback:ident $($arguments:tt)?) => {
        $callback! {
            $($arguments)?
            "Distinct flows." cardinality: Cardinality($crate::cardinality::Settings),
            "Entropy of traffic over flows, each over a key of its own." entropy: Entropy([$crate::entropy::Settings; $crate::entropy::ENTROPIES]),
            "Packets of any flow." frequency: Frequency($crate::frequency::Settings),
            "Flows seen." membership: Membership($crate::membership::Settings),
            "Flows with the most packets or bytes." heavy: Heavy($crate::heavy::Settings),
            "Keys with the most distinct others." spread: Spread([$crate::spread::Settings; $crate::spread::SPREADS]),
            "Packet lengths." sizes: Sizes($crate::sizes::Settings),
            "Round-trip delays." delay: Delay($crate::delay::Settings),
            "Reordering by prefix." reorder: Reorder($crate::reorder::Settings),
        }
    };
}

/// Runs an expression for each measurement, with its type as `$M`.
macro_rules! for_each_measurement {
    ($M:ident => $block:expr) => {
        $crate::measurements!(for_each_listed ($M => $block))
    };
}
macro_rules! for_each_listed {
    (($M:ident => $block:expr) $($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {{
        $({
            type $M = $crate::$name::$Kind;
            $block;
        })+
    }};
}
#[cfg(not(target_arch = "bpf"))]
pub(crate) use {for_each_listed, for_each_measurement};

macro_rules! list {
    ($($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {
        /// Settings of all measurements. They do not change while a dataplane runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
        #[repr(C)]
        pub struct Settings {
            /// Hash of keys, for all measurements. With [`HashMode::Crc32`], rows of sketches and
            /// filters are tabulated nonetheless.
            pub hash: HashMode,
            $(#[doc = $doc] pub $name: $Settings,)+
            /// Header of a frame that defines its flow.
            pub headers: parse::Settings,
        }

        impl Settings {
            /// The same as [`Default`], usable in constants.
            pub const DEFAULT: Settings = Settings {
                hash: HashMode::Tabulated,
                $($name: <crate::$name::$Kind as Measurement>::DEFAULT,)+
                headers: parse::Settings::DEFAULT,
            };
        }

        /// Per-core memory of a window.
        #[derive(Clone, PartialEq, Eq, FromZeros)]
        #[repr(C)]
        pub struct Bank {
            /// Packets and bytes.
            pub counters: Counters,
            /// Most frequent EtherType of frames that count as non-IP.
            pub unopened: CommonEtherType,
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::PerCore,)+
        }

        /// Per-core memory that persists across windows.
        #[derive(Clone, PartialEq, Eq, FromZeros)]
        #[repr(C)]
        pub struct PersistentBank {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Persistent,)+
        }

        /// Memory of a window that all cores share.
        #[derive(FromZeros)]
        #[repr(C)]
        pub struct SharedBank {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Shared,)+
        }

        /// Memory that all cores share and that persists across windows.
        #[derive(FromZeros)]
        #[repr(C)]
        pub struct SharedPersistentBank {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::SharedPersistent,)+
        }

        /// Position of each measurement in the list.
        #[repr(usize)]
        enum Index {
            $($Kind,)+
        }

        /// Number of measurements in the list.
        pub const MEASUREMENTS: usize = [$(Index::$Kind),+].len();

        $(impl Listed for crate::$name::$Kind {
            const INDEX: usize = Index::$Kind as usize;
            const OWN_OFFSET: usize = core::mem::offset_of!(Bank, $name);
            const PERSISTENT_OFFSET: usize = core::mem::offset_of!(PersistentBank, $name);
            const SHARED_PERSISTENT_OFFSET: usize = core::mem::offset_of!(SharedPersistentBank, $name);

            #[inline(always)]
            fn settings(settings: &Settings) -> &Self::Settings {
                &settings.$name
            }

            #[inline(always)]
            fn core(bank: &mut Bank) -> &mut Self::PerCore {
                &mut bank.$name
            }

            #[inline(always)]
            fn persistent(persistent: &mut PersistentBank) -> &mut Self::Persistent {
                &mut persistent.$name
            }

            #[inline(always)]
            fn shared(bank: &SharedBank) -> &Self::Shared {
                &bank.$name
            }

            #[inline(always)]
            fn shared_persistent(persistent: &SharedPersistentBank) -> &Self::SharedPersistent {
                &persistent.$name
            }
        })+
    };
}
measurements!(list);

const _: () = RequiredFields::check_room(KeyKind::ALL.len(), MEASUREMENTS);

/// A measurement of the list, with access to its fields in the generated structs.
pub trait Listed: Measurement {
    /// Position in the list.
    const INDEX: usize;
    /// Byte offset of its field in [`Bank`].
    const OWN_OFFSET: usize;
    /// Byte offset of its field in [`PersistentBank`].
    const PERSISTENT_OFFSET: usize;
    /// Byte offset of its field in [`SharedPersistentBank`].
    const SHARED_PERSISTENT_OFFSET: usize;

    /// Returns its settings.
    fn settings(settings: &Settings) -> &Self::Settings;

    /// Returns its field of a core's bank.
    fn core(bank: &mut Bank) -> &mut Self::PerCore;

    /// Returns its field of a core's persistent memory.
    fn persistent(persistent: &mut PersistentBank) -> &mut Self::Persistent;

    /// Returns its field of a shared bank.
    fn shared(bank: &SharedBank) -> &Self::Shared;

    /// Returns its field of the shared persistent memory.
    fn shared_persistent(persistent: &SharedPersistentBank) -> &Self::SharedPersistent;
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Settings {
    /// Returns settings that measure distinct flows only.
    #[must_use]
    pub const fn only(cardinality: crate::cardinality::Settings) -> Settings {
        Settings { cardinality, ..Settings::DEFAULT }
    }

    /// Returns the settings with another hash.
    #[must_use]
    pub const fn with_hash(self, hash: HashMode) -> Settings {
        Settings { hash, ..self }
    }

    /// Returns the packet fields that the measurements that are on need, and a bit for each of
    /// these measurements.
    #[inline(always)]
    #[must_use]
    pub fn needs(&self) -> RequiredFields {
        let mut needs = RequiredFields::NONE;
        for_each_measurement!(M => {
            let settings = M::settings(self);
            let is_on = M::is_on(settings);
            needs = needs.with(RequiredFields::measurement(M::INDEX), is_on).with(M::needs(settings), is_on);
            for key in M::keys(settings) {
                needs = match key {
                    Some(key) => needs.and(RequiredFields::key(key)),
                    None => needs,
                };
            }
        });
        needs
    }

    /// Returns whether packets must be counted in the order of their arrival, across workers that
    /// share a capture.
    #[inline(always)]
    #[must_use]
    pub fn wants_order(&self) -> bool {
        let mut wants_order = false;
        for_each_measurement!(M => wants_order |= M::wants_order(M::settings(self)));
        wants_order
    }

    /// Returns the bytes that each measurement uses of each kind of memory.
    #[must_use]
    pub fn used(&self) -> [UsedBytes; MEASUREMENTS] {
        let mut used = [UsedBytes::default(); MEASUREMENTS];
        let mut each = used.iter_mut();
        for_each_measurement!(M => if let Some(used) = each.next() {
            *used = M::used(M::settings(self));
        });
        used
    }
}

/// Counts packets with every measurement that is on, one measurement after the other.
#[inline(always)]
pub(crate) fn measure<P: Packets>(
    memory: &mut impl Memory,
    settings: impl Borrow<Settings>,
    needs: RequiredFields,
    pass: &MeasureContext<'_>,
    packets: &(impl Observed<P> + ?Sized),
) {
    let settings: &Settings = settings.borrow();
    for_each_measurement!(M => if requires!(needs, RequiredFields::measurement(M::INDEX)) {
        measure_by::<M, P>(memory, settings, pass, packets);
    });
}

/// Counts packets with one measurement. The caller has checked that it is on.
#[inline(always)]
pub(crate) fn measure_by<M: Listed, P: Packets>(
    memory: &mut impl Memory,
    settings: &Settings,
    pass: &MeasureContext<'_>,
    packets: &(impl Observed<P> + ?Sized),
) {
    let settings = M::settings(settings);
    if let Some(parts) = memory.parts::<M>(settings) {
        M::measure(settings, parts, pass, packets);
    }
}
