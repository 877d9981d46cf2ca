//! Network services of a run in a build without them: metrics, which a lake adds to, and nothing that
//! reads them. Options of services were refused before.

use crate::config::given::EffectiveSettings;
use crate::config::options::outputs::OutputOptions;
use crate::error::CommandFailure;
use crate::output::status::Publication;
use crate::output::writers::FileProblems;
use flowgauge_ctl::controller::Sink;
use flowgauge_ctl::history::History;
use flowgauge_ctl::identity::Identity;
use flowgauge_ctl::names::Names;
use flowgauge_ctl::output::{Metrics, Origin};
use std::sync::Arc;

/// Stores that services would read.
#[derive(Clone, Default)]
pub(crate) struct Exporters {
    metrics: Metrics,
    pub(crate) configured: EffectiveSettings,
}

/// No servers.
pub(crate) struct RunningExporters;

impl Exporters {
    pub(crate) fn metrics(&self, name: Option<&Arc<str>>) -> Metrics {
        name.map_or_else(|| self.metrics.clone(), |name| self.metrics.of_source(name))
    }

    pub(crate) fn sinks(
        &self,
        _: &OutputOptions,
        _: Option<&Arc<str>>,
        _: &str,
        _: &Origin,
        _: &Names,
        _: &History,
    ) -> Vec<Box<dyn Sink>> {
        Vec::new()
    }

    pub(crate) fn start(
        &self,
        _: &OutputOptions,
        _: &Identity,
        _: &Publication,
        _: &FileProblems,
    ) -> Result<RunningExporters, CommandFailure> {
        Ok(RunningExporters)
    }
}
