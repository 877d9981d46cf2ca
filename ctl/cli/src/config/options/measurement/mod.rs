//! Options of the measurements, one file each.
//!
//! Every file declares the clap options of a measurement and implements [`Measurement`], which
//! turns them into settings of the dataplane and of the estimation. `chosen` parses which
//! measurements are on and by which keys, `sketch` the sketches that several of them use.
//!
//! To add a measurement, write such a file, add its `mod`, and add it to the list of
//! `measurements!` below.

pub(crate) mod cardinality;
pub(crate) mod chosen;
pub(crate) mod delay;
pub(crate) mod entropy;
pub(crate) mod frequency;
pub(crate) mod heavy;
pub(crate) mod membership;
pub(crate) mod reorder;
pub(crate) mod sizes;
pub(crate) mod sketch;
pub(crate) mod spread;

use crate::config::Traffic;
use crate::config::given::GivenOption;
use crate::config::options::{Options, first_given};
use clap::Args;
use flowgauge_core::Settings;
use flowgauge_ctl::measurement::Estimation;
use flowgauge_dataplane::MeasurementKind;

macro_rules! measurements {
    ($($module:ident: $args:ident),* $(,)?) => {
        /// Options of all measurements, in the order of the help.
        #[derive(Args, Clone, Debug, Default)]
        #[group(skip)]
        pub(crate) struct MeasurementArgs {
            $(#[command(flatten)]
            pub(crate) $module: $module::$args,)*
        }

        impl MeasurementArgs {
            /// Fills in the dataplane settings of the enabled measurements.
            pub(crate) fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
                $(if options.measures($module::$args::KIND) {
                    self.$module.settings(options, traffic, settings);
                })*
            }

            /// Fills in the estimation settings.
            pub(crate) fn estimation(&self, options: &Options, estimation: &mut Estimation) {
                $(self.$module.estimation(options, estimation);)*
            }

            /// Returns a contradiction among the options, if there is one.
            pub(crate) fn problem(&self, options: &Options, traffic: &Traffic) -> Option<&'static str> {
                None$(.or_else(|| self.$module.problem(options, traffic)))*
            }

            /// Returns the first option that has no effect since its measurement is off, with that
            /// measurement.
            pub(crate) fn idle(&self, options: &Options, given: &[GivenOption]) -> Option<(String, MeasurementKind)> {
                None$(.or_else(|| {
                    let is_idle = $module::$args::IDLE_ALONE && !options.measures($module::$args::KIND);
                    first_given::<$module::$args>(given).filter(|_| is_idle).map(|option| (option, $module::$args::KIND))
                }))*
            }
        }
    };
}

measurements! {
    cardinality: CardinalityArgs,
    entropy: EntropyArgs,
    frequency: FrequencyArgs,
    membership: MembershipArgs,
    heavy: HeavyArgs,
    spread: SpreadArgs,
    sizes: SizesArgs,
    delay: DelayArgs,
    reorder: ReorderArgs,
}

/// Measurements that answer queries for a flow.
pub(crate) const ANSWERING: [MeasurementKind; 2] =
    [MeasurementKind::Frequency, MeasurementKind::Membership];

/// Options of one measurement and their meaning.
pub(crate) trait Measurement: Args {
    const KIND: MeasurementKind;
    /// Whether the options have no effect while the measurement is off.
    const IDLE_ALONE: bool = true;

    /// Fills in the dataplane settings; called only if the measurement is on.
    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings);

    /// Fills in the estimation settings.
    fn estimation(&self, options: &Options, estimation: &mut Estimation) {
        let _ = (options, estimation);
    }

    /// Returns a contradiction among the options, if there is one.
    fn problem(&self, options: &Options, traffic: &Traffic) -> Option<&'static str> {
        let _ = (options, traffic);
        None
    }
}
