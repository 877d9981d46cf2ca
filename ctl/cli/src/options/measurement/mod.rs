//! The options of measurements, a file each.
//!
//! A new measurement is a file with options that are a `Measurement`, its `mod`, and its name in
//! the list below.

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

use crate::config::Given;
use crate::options::{Options, first_given};
use crate::run_config::Traffic;
use clap::Args;
use flowgauge_core::{Settings, SketchKind};
use flowgauge_ctl::measurement::Estimation;
use flowgauge_dataplane::MeasurementKind;

macro_rules! measurements {
    ($($module:ident),* $(,)?) => {
        /// The options of each measurement, in the order of the help.
        #[derive(Args, Clone, Debug, Default)]
        #[group(skip)]
        pub(crate) struct Own {
            $(#[command(flatten)]
            pub(crate) $module: $module::Own,)*
        }

        /// What can be said of each measurement.
        pub(crate) const ALL: &[About] = &[$(About {
            kind: $module::Own::KIND,
            keys: $module::Own::KEYS,
            sketch: $module::Own::SKETCH,
            answers: $module::Own::ANSWERS,
        }),*];

        impl Own {
            /// What the dataplane is to count for the measurements that are on.
            pub(crate) fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings) {
                $(if options.measures($module::Own::KIND) {
                    self.$module.settings(options, traffic, settings);
                })*
            }

            /// What the controller is to make of it.
            pub(crate) fn estimation(&self, options: &Options, estimation: &mut Estimation) {
                $(self.$module.estimation(options, estimation);)*
            }

            /// What does not go together, if anything.
            pub(crate) fn problem(&self, options: &Options, traffic: &Traffic) -> Option<&'static str> {
                None$(.or_else(|| self.$module.problem(options, traffic)))*
            }

            /// The first option that is of no use, since its measurement is off, and that
            /// measurement.
            pub(crate) fn idle(&self, options: &Options, given: &[Given]) -> Option<(String, MeasurementKind)> {
                None$(.or_else(|| {
                    let is_idle = $module::Own::IDLE_ALONE && !options.measures($module::Own::KIND);
                    first_given::<$module::Own>(given).filter(|_| is_idle).map(|option| (option, $module::Own::KIND))
                }))*
            }
        }
    };
}

measurements! {
    cardinality,
    entropy,
    frequency,
    membership,
    heavy,
    sizes,
    delay,
    reorder,
}

/// What can be said of a measurement on the command line.
pub(crate) struct About {
    pub(crate) kind: MeasurementKind,
    /// Keys that it can have at once; none if it counts packets and not flows.
    pub(crate) keys: usize,
    /// Its usual sketch, if it has one.
    pub(crate) sketch: Option<SketchKind>,
    /// Whether it knows something of flows that are asked for.
    pub(crate) answers: bool,
}

/// The options of one measurement, and what they mean.
pub(crate) trait Measurement: Args {
    const KIND: MeasurementKind;
    const KEYS: usize = 1;
    const SKETCH: Option<SketchKind> = None;
    const ANSWERS: bool = false;
    /// Whether nothing else has a use for its options.
    const IDLE_ALONE: bool = true;

    /// What the dataplane is to count; called if it is on.
    fn settings(&self, options: &Options, traffic: &Traffic, settings: &mut Settings);

    /// What the controller is to make of it.
    fn estimation(&self, options: &Options, estimation: &mut Estimation) {
        let _ = (options, estimation);
    }

    /// What does not go together, if anything.
    fn problem(&self, options: &Options, traffic: &Traffic) -> Option<&'static str> {
        let _ = (options, traffic);
        None
    }
}
