//! What a measurement is, and the list of all of them.
//!
//! Whatever has to know all measurements is made from the list at the end of this file: settings,
//! banks, names, and what one packet, a merge and a rotation do. A new measurement is a module that
//! implements [`Measurement`], and an entry of the list.

use crate::arrival::Packets;
use crate::counters::Counters;
use crate::hash::Tabulation;
use crate::key::KeyKind;
use crate::needs::Needs;
use crate::observation::Observation;
use crate::observation::Observed;
use crate::parse::{self, Reject};
use crate::sketch::Sharing;
use crate::unopened::Unopened;
use crate::words::Words;
use core::borrow::Borrow;
use core::fmt::Debug;

/// A measurement: what it is told, what it counts in, and what packets do to that.
///
/// What it counts in is of four kinds: a core's own or shared by all cores, and banked or lasting.
/// Of banked memory there are two, one of which is read and cleared while packets are counted in
/// the other; lasting memory is never cleared. Memory is empty when it is zero. A kind that a
/// measurement has no use for is `()`.
pub trait Measurement: Sized {
    /// The name used in options and outputs.
    const NAME: &'static str;
    /// What to measure and how.
    type Settings: Words + Debug + PartialEq;
    /// The settings of those who ask for nothing.
    const DEFAULT: Self::Settings;

    /// A core's own, banked.
    type Own: Empty;
    /// A core's own, lasting.
    type Lasting: Empty;
    /// Shared by all cores, banked.
    type Shared: Empty;
    /// Shared by all cores, lasting.
    type SharedLasting: Empty;
    /// What cores, places and windows have counted together.
    type Sum: Empty;
    /// Exact counts of a bank's packets, for comparison, in memory that does not depend on flows.
    type Exact: Empty;

    /// The first, second and so on of the keys that it measures by; none if it is off.
    fn key(settings: &Self::Settings, nth: usize) -> Option<KeyKind>;

    /// Whether it measures by this key.
    fn uses(settings: &Self::Settings, key: KeyKind) -> bool;

    /// Whether it measures anything.
    fn is_on(settings: &Self::Settings) -> bool;

    /// What it has to know of packets beside their keys, if it is on. When they come takes a look
    /// at a clock for each.
    #[inline(always)]
    fn needs(_: &Self::Settings) -> Needs {
        Needs::NONE
    }

    /// Whether it has to see packets in their order, whoever counts them.
    #[inline(always)]
    fn wants_order(_: &Self::Settings) -> bool {
        false
    }

    /// How much it uses of each kind of memory; nothing if it is off.
    fn used(settings: &Self::Settings) -> Used;

    /// Counts packets.
    fn measure<P: Packets>(
        settings: &Self::Settings,
        parts: Parts<'_, Self>,
        pass: &Pass<'_>,
        packets: &(impl Observed<P> + ?Sized),
    );

    /// Empties what a core has counted, if the measurement is on.
    fn clear(own: &mut Self::Own, settings: &Self::Settings);

    /// Empties what all cores have counted together, if the measurement is on.
    fn clear_shared(_: &Self::Shared, _: &Self::Settings) {}

    /// Empties a sum, if the measurement is on.
    fn clear_sum(sum: &mut Self::Sum, settings: &Self::Settings);

    /// Adds what a core has counted in a window.
    fn merge(sum: &mut Self::Sum, own: &Self::Own, settings: &Self::Settings);

    /// Adds what all cores have counted together in a window.
    fn merge_shared(_: &mut Self::Sum, _: &Self::Shared, _: &Self::Settings) {}

    /// Adds what was counted elsewhere or in another window.
    fn unite(sum: &mut Self::Sum, other: &Self::Sum, settings: &Self::Settings);

    /// Writes what the memory that lasts and is shared has to hold before the first packet.
    fn prepare(_: &Self::SharedLasting, _: &Self::Settings) {}

    /// Adds the lasting memory of another core.
    fn merge_lasting(_: &mut Self::Lasting, _: &Self::Lasting, _: &Self::Settings) {}

    /// Empties lasting memory, if the measurement uses any.
    fn clear_lasting(_: &mut Self::Lasting, _: &Self::Settings) {}

    /// Whether it is on and counts [exactly](Self::Exact) beside what it is.
    fn has_exact(_: &Self::Settings) -> bool {
        false
    }

    /// Counts packets exactly.
    fn measure_exactly(_: &mut Self::Exact, _: &Observation) {}

    /// Tells the numbers of a sum that its bits can be repeated from, by name.
    fn tell(_: &Self::Sum, _: &Self::Settings, _: &mut dyn FnMut(&'static str, &[u64])) {}
}

/// The settings of a measurement that has nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct OnOff {
    /// Whether to measure.
    pub on: bool,
    /// No padding.
    reserved: [u8; 3],
}

impl OnOff {
    /// Off, as [`Default`], for statics.
    pub const OFF: OnOff = OnOff { on: false, reserved: [0; 3] };
    /// On.
    pub const ON: OnOff = OnOff { on: true, reserved: [0; 3] };
}

/// Memory that nothing was counted in yet: zeros.
pub trait Empty {
    /// Zeros.
    const EMPTY: Self;
}

impl Empty for () {
    const EMPTY: () = ();
}

impl<T: Empty, const N: usize> Empty for [T; N] {
    const EMPTY: [T; N] = [const { T::EMPTY }; N];
}

/// Bytes in use of each kind of memory, from its beginning; multiples of eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Of [`Measurement::Own`].
    pub own: usize,
    /// Of [`Measurement::Lasting`].
    pub lasting: usize,
    /// Of [`Measurement::Shared`].
    pub shared: usize,
    /// Of [`Measurement::SharedLasting`].
    pub shared_lasting: usize,
}

/// What a measurement counts in. Of what it [uses](Measurement::used) nothing, nothing need be
/// there.
pub struct Parts<'a, M: Measurement> {
    /// The core's own, banked.
    pub own: &'a mut M::Own,
    /// The core's own, lasting.
    pub lasting: &'a mut M::Lasting,
    /// Shared by all cores, banked.
    pub shared: &'a M::Shared,
    /// Shared by all cores, lasting.
    pub shared_lasting: &'a M::SharedLasting,
}

/// What measurements have to know beside their settings and the packets.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The words that hashes are made of.
    pub tabulation: &'a Tabulation,
    /// Whether other cores count in memory that is shared.
    pub sharing: Sharing,
    /// As `sharing`, of memory that is a core's own.
    pub own: Sharing,
    /// Length of a slot of staggered registers, in nanoseconds.
    pub slot_ns: u64,
    /// Which bank is counted in, 0 or 1: the other one was that of the window before.
    pub bank: usize,
}

/// Where packets are counted.
pub trait Memory {
    /// Packets and bytes.
    fn counters(&mut self) -> &mut Counters;

    /// What most frames are that count as non-IP.
    fn unopened(&mut self) -> &mut Unopened;

    /// Which of the [banks](crate::state::BANKS) it is.
    fn bank(&self) -> usize;

    /// What a measurement counts in; `None` if there is nothing.
    fn parts<M: Listed>(&mut self, settings: &M::Settings) -> Option<Parts<'_, M>>;

    /// Counts packets that belong to no flow, but for their bytes.
    #[inline(always)]
    fn reject(&mut self, reject: Reject, packets: u32) {
        self.counters().reject(reject, u64::from(packets));
        // Not in the kernel: of other rejects the register of the EtherType holds whatever was
        // there, which the verifier refuses to look at.
        #[cfg(not(target_arch = "bpf"))]
        if let Reject::NonIp(ethertype) = reject {
            self.unopened().vote(ethertype, packets);
        }
    }
}

/// A measurement of the list.
pub trait Listed: Measurement {
    /// Which entry of the list it is.
    const INDEX: usize;

    /// Its settings.
    fn settings(settings: &Settings) -> &Self::Settings;

    /// Its part of a core's bank.
    fn own(bank: &mut Bank) -> &mut Self::Own;

    /// Its part of a core's lasting memory.
    fn lasting(lasting: &mut Lasting) -> &mut Self::Lasting;

    /// Its part of a bank that cores share.
    fn shared(bank: &SharedBank) -> &Self::Shared;

    /// Its part of the lasting memory that cores share.
    fn shared_lasting(lasting: &SharedLasting) -> &Self::SharedLasting;
}

/// Gives a type of memory `new` and `Default`: nothing counted.
macro_rules! empty {
    ($Name:ident { $($empty:tt)* }) => {
        impl $Name {
            /// Nothing counted.
            #[must_use]
            pub const fn new() -> Self {
                $Name { $($empty)* }
            }
        }

        impl Default for $Name {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}
pub(crate) use empty;

macro_rules! list {
    ($($doc:literal $name:ident: $Kind:ident($Settings:ty),)+) => {
        /// What to measure and how, one field a measurement. Constant while a dataplane runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C, align(4))]
        pub struct Settings {
            $(#[doc = $doc] pub $name: $Settings,)+
            /// Which of a frame's headers say what its flow is.
            pub headers: parse::Settings,
        }

        const _: () = assert!(
            size_of::<Settings>() == 0_usize$(.wrapping_add(size_of::<$Settings>()))+.wrapping_add(size_of::<parse::Settings>()),
            "words without padding between them"
        );

        impl Settings {
            /// As [`Default`], for statics.
            pub const DEFAULT: Settings = Settings { $($name: <crate::$name::$Kind as Measurement>::DEFAULT,)+ headers: parse::Settings::DEFAULT };

            /// What measurements that are on have to know of packets.
            #[inline(always)]
            #[must_use]
            pub fn needs(&self) -> Needs {
                Needs::NONE$(.with(Needs::measurement(<crate::$name::$Kind as Listed>::INDEX), <crate::$name::$Kind as Measurement>::is_on(&self.$name))
                    .with(Needs::key(KeyKind::Src), <crate::$name::$Kind as Measurement>::uses(&self.$name, KeyKind::Src))
                    .with(Needs::key(KeyKind::Dst), <crate::$name::$Kind as Measurement>::uses(&self.$name, KeyKind::Dst))
                    .with(Needs::key(KeyKind::SrcDst), <crate::$name::$Kind as Measurement>::uses(&self.$name, KeyKind::SrcDst))
                    .with(Needs::key(KeyKind::FiveTuple), <crate::$name::$Kind as Measurement>::uses(&self.$name, KeyKind::FiveTuple))
                    .with(<crate::$name::$Kind as Measurement>::needs(&self.$name), <crate::$name::$Kind as Measurement>::is_on(&self.$name)))+
            }

            /// Whether a measurement that is on is by this key.
            #[inline(always)]
            #[must_use]
            pub fn uses(&self, key: KeyKind) -> bool {
                self.needs().has(Needs::key(key))
            }

            /// Whether a measurement that is on has to see packets in their order, whoever counts
            /// them: workers that share a capture count what comes later before what comes earlier.
            #[inline(always)]
            #[must_use]
            pub fn wants_order(&self) -> bool {
                $(<crate::$name::$Kind as Measurement>::wants_order(&self.$name) ||)+ false
            }
        }

        /// Everything that a core counts between two rotations.
        #[derive(Clone, PartialEq, Eq)]
        #[repr(C)]
        pub struct Bank {
            /// Packets and bytes.
            pub counters: Counters,
            /// What most frames are that count as non-IP.
            pub unopened: Unopened,
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Own,)+
        }

        empty!(Bank { counters: Counters::ZERO, unopened: Unopened::NONE, $($name: Empty::EMPTY,)+ });

        impl Bank {
            /// The parts of a bank that are in use, as offsets and lengths in bytes, multiples of
            /// eight: what each measurement uses.
            pub fn used(settings: &Settings) -> impl Iterator<Item = (usize, usize)> {
                [$((core::mem::offset_of!(Bank, $name), <crate::$name::$Kind as Measurement>::used(&settings.$name).own),)+].into_iter()
            }

            /// Makes the bank empty again.
            pub fn clear(&mut self, settings: &Settings) {
                self.counters = Counters::ZERO;
                self.unopened = Unopened::NONE;
                $(<crate::$name::$Kind as Measurement>::clear(&mut self.$name, &settings.$name);)+
            }
        }

        /// What is a core's own and lasts beyond rotations.
        #[derive(Clone, PartialEq, Eq)]
        #[repr(C)]
        pub struct Lasting {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Lasting,)+
        }

        empty!(Lasting { $($name: Empty::EMPTY,)+ });

        impl Lasting {
            /// Adds that of another core.
            pub fn merge(&mut self, other: &Lasting, settings: &Settings) {
                $(<crate::$name::$Kind as Measurement>::merge_lasting(&mut self.$name, &other.$name, &settings.$name);)+
            }

            /// Makes it empty again.
            pub fn clear(&mut self, settings: &Settings) {
                $(<crate::$name::$Kind as Measurement>::clear_lasting(&mut self.$name, &settings.$name);)+
            }

            /// As [`Bank::used`].
            pub fn used(settings: &Settings) -> impl Iterator<Item = (usize, usize)> {
                [$((core::mem::offset_of!(Lasting, $name), <crate::$name::$Kind as Measurement>::used(&settings.$name).lasting),)+].into_iter()
            }
        }

        /// What all cores count in together between two rotations.
        #[repr(C)]
        pub struct SharedBank {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Shared,)+
        }

        empty!(SharedBank { $($name: Empty::EMPTY,)+ });

        impl SharedBank {
            /// Makes it empty again.
            pub fn clear(&self, settings: &Settings) {
                $(<crate::$name::$Kind as Measurement>::clear_shared(&self.$name, &settings.$name);)+
            }
        }

        /// What all cores count in together and lasts beyond rotations.
        #[repr(C)]
        pub struct SharedLasting {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::SharedLasting,)+
        }

        empty!(SharedLasting { $($name: Empty::EMPTY,)+ });

        impl SharedLasting {
            /// Writes what it has to hold before the first packet.
            pub fn prepare(&self, settings: &Settings) {
                $(<crate::$name::$Kind as Measurement>::prepare(&self.$name, &settings.$name);)+
            }

            /// As [`Bank::used`].
            pub fn used(settings: &Settings) -> impl Iterator<Item = (usize, usize)> {
                [$((core::mem::offset_of!(SharedLasting, $name), <crate::$name::$Kind as Measurement>::used(&settings.$name).shared_lasting),)+].into_iter()
            }
        }

        /// What cores, places and windows have counted together, in counters of 64 bits.
        #[derive(PartialEq, Eq)]
        pub struct WideBank {
            /// Packets and bytes.
            pub counters: Counters,
            /// What most frames are that count as non-IP.
            pub unopened: Unopened,
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Sum,)+
        }

        empty!(WideBank { counters: Counters::ZERO, unopened: Unopened::NONE, $($name: Empty::EMPTY,)+ });

        impl WideBank {
            /// Adds what a core has counted in a window.
            pub fn merge(&mut self, own: &Bank, settings: &Settings) {
                self.counters.merge(&own.counters);
                self.unopened.merge(&own.unopened);
                $(<crate::$name::$Kind as Measurement>::merge(&mut self.$name, &own.$name, &settings.$name);)+
            }

            /// Adds what all cores have counted together in a window.
            pub fn merge_shared(&mut self, shared: &SharedBank, settings: &Settings) {
                $(<crate::$name::$Kind as Measurement>::merge_shared(&mut self.$name, &shared.$name, &settings.$name);)+
            }

            /// Adds what was counted elsewhere or in another window.
            pub fn unite(&mut self, other: &WideBank, settings: &Settings) {
                self.counters.merge(&other.counters);
                self.unopened.merge(&other.unopened);
                $(<crate::$name::$Kind as Measurement>::unite(&mut self.$name, &other.$name, &settings.$name);)+
            }

            /// Makes it empty again.
            pub fn clear(&mut self, settings: &Settings) {
                self.counters = Counters::ZERO;
                self.unopened = Unopened::NONE;
                $(<crate::$name::$Kind as Measurement>::clear_sum(&mut self.$name, &settings.$name);)+
            }
        }

        impl WideBank {
            /// Tells the numbers that its bits can be repeated from: of which measurement, what
            /// they are, and all of them. Those of sketches, filters and tables are not told.
            pub fn tell(&self, settings: &Settings, told: &mut dyn FnMut(&'static str, &'static str, &[u64])) {
                $(<crate::$name::$Kind as Measurement>::tell(&self.$name, &settings.$name, &mut |what, numbers| {
                    told(<crate::$name::$Kind as Measurement>::NAME, what, numbers);
                });)+
            }
        }

        /// Exact counts of a bank's packets beside what is estimated, for comparison, in memory
        /// that does not depend on flows.
        pub struct Exact {
            $(#[doc = $doc] pub $name: <crate::$name::$Kind as Measurement>::Exact,)+
        }

        empty!(Exact { $($name: Empty::EMPTY,)+ });

        impl Exact {
            /// Whether these settings count anything exactly.
            #[must_use]
            pub fn is_on(settings: &Settings) -> bool {
                $(<crate::$name::$Kind as Measurement>::has_exact(&settings.$name) ||)+ false
            }

            /// Counts a packet.
            pub fn measure(&mut self, settings: &Settings, packet: &Observation) {
                $(if <crate::$name::$Kind as Measurement>::has_exact(&settings.$name) {
                    <crate::$name::$Kind as Measurement>::measure_exactly(&mut self.$name, packet);
                })+
            }
        }

        /// A measurement of the list, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum MeasurementKind {
            $(#[doc = $doc] $Kind,)+
        }

        impl MeasurementKind {
            /// All kinds.
            pub const ALL: [MeasurementKind; MEASUREMENTS] = [$(MeasurementKind::$Kind,)+];

            /// The name used in options and outputs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(MeasurementKind::$Kind => <crate::$name::$Kind as Measurement>::NAME,)+
                }
            }

            /// Whether settings have it on.
            #[must_use]
            pub fn is_on(self, settings: &Settings) -> bool {
                match self {
                    $(MeasurementKind::$Kind => <crate::$name::$Kind as Measurement>::is_on(&settings.$name),)+
                }
            }

            /// Whether two settings measure it in the same way.
            #[must_use]
            pub fn is_alike(self, one: &Settings, other: &Settings) -> bool {
                match self {
                    $(MeasurementKind::$Kind => one.$name == other.$name,)+
                }
            }

            /// Has settings measure it as others do.
            pub fn take_over(self, settings: &mut Settings, from: &Settings) {
                match self {
                    $(MeasurementKind::$Kind => settings.$name = from.$name,)+
                }
            }

            /// The keys that settings measure it by; none if it is off.
            pub fn keys(self, settings: &Settings) -> impl Iterator<Item = KeyKind> {
                (0..).map_while(move |nth| match self {
                    $(MeasurementKind::$Kind => <crate::$name::$Kind as Measurement>::key(&settings.$name, nth),)+
                })
            }
        }

        /// Counts packets by all measurements that are on, one measurement after the other.
        #[inline(always)]
        pub(crate) fn measure<P: Packets>(
            memory: &mut impl Memory,
            settings: impl Borrow<Settings>,
            needs: Needs,
            pass: &Pass<'_>,
            packets: &(impl Observed<P> + ?Sized),
        ) {
            let settings: &Settings = settings.borrow();
            $(if needs.has(Needs::measurement(<crate::$name::$Kind as Listed>::INDEX)) {
                measure_by::<crate::$name::$Kind, P>(memory, settings, pass, packets);
            })+
        }

        list!(@listed 0_usize; $($name: $Kind,)+);

        /// How much settings use of each kind of memory, measurement by measurement.
        pub fn used(settings: &Settings) -> impl Iterator<Item = Used> {
            [$(<crate::$name::$Kind as Measurement>::used(&settings.$name),)+].into_iter()
        }
    };
    (@listed $index:expr; $name:ident: $Kind:ident, $($rest:tt)*) => {
        impl Listed for crate::$name::$Kind {
            const INDEX: usize = $index;

            #[inline(always)]
            fn settings(settings: &Settings) -> &Self::Settings {
                &settings.$name
            }

            #[inline(always)]
            fn own(bank: &mut Bank) -> &mut Self::Own {
                &mut bank.$name
            }

            #[inline(always)]
            fn lasting(lasting: &mut Lasting) -> &mut Self::Lasting {
                &mut lasting.$name
            }

            #[inline(always)]
            fn shared(bank: &SharedBank) -> &Self::Shared {
                &bank.$name
            }

            #[inline(always)]
            fn shared_lasting(lasting: &SharedLasting) -> &Self::SharedLasting {
                &lasting.$name
            }
        }
        list!(@listed $index.wrapping_add(1); $($rest)*);
    };
    (@listed $index:expr;) => {
        /// Measurements in the list.
        pub const MEASUREMENTS: usize = $index;
    };
}

/// Counts packets by one measurement, which is on.
#[inline(always)]
pub(crate) fn measure_by<M: Listed, P: Packets>(
    memory: &mut impl Memory,
    settings: &Settings,
    pass: &Pass<'_>,
    packets: &(impl Observed<P> + ?Sized),
) {
    let settings = M::settings(settings);
    if let Some(parts) = memory.parts::<M>(settings) {
        M::measure(settings, parts, pass, packets);
    }
}

/// Hands the list of measurements to a macro: documentation, module, type and type of settings of
/// each.
#[macro_export]
macro_rules! measurements {
    ($callback:ident) => {
        $callback! {
            "Distinct flows." cardinality: Cardinality($crate::cardinality::Settings),
            "How traffic is spread over flows, each over a key of its own." entropy: Entropy([$crate::entropy::Settings; $crate::entropy::ENTROPIES]),
            "Packets of any flow." frequency: Frequency($crate::frequency::Settings),
            "Which flows were seen." membership: Membership($crate::membership::Settings),
            "The flows with the most packets or bytes." heavy: Heavy($crate::heavy::Settings),
            "How long packets are." sizes: Sizes($crate::sizes::Settings),
            "How long answers take." delay: Delay($crate::delay::Settings),
            "Which prefixes reorder packets." reorder: Reorder($crate::reorder::Settings),
        }
    };
}
measurements!(list);
