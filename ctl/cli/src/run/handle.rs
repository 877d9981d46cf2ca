//! Handle of a source's thread: its interrupt, its configuration changes, and the outputs that all
//! sources of a run share.

use crate::config::options::outputs::OutputOptions;
use crate::error::{CommandFailure, cannot};
use crate::locked;
use crate::output::listen::Exporters;
use crate::output::status::Publication;
use crate::output::writers::PatientStdout;
use crate::run::service;
use flowgauge_ctl::clock::Interrupt;
use flowgauge_ctl::controller::Changes;
use flowgauge_ctl::identity::Identity;
use flowgauge_dataplane::xdp::ProgramSets;
use flowgauge_dataplane::{Error, HashKey};
use std::env;
use std::sync::{Arc, Mutex, OnceLock};

/// Variable that sets the run's identifier, for results that can be reproduced.
const RUN_VARIABLE: &str = "FLOWGAUGE_RUN";

/// Outputs that all sources of a run share.
#[derive(Default)]
pub(crate) struct SharedOutputs {
    pub(crate) exporters: Exporters,
    pub(crate) publication: Publication,
    pub(crate) stdout: Arc<Mutex<PatientStdout>>,
}

/// Programs in the kernel that sources of a run share if they measure the same.
#[derive(Default)]
pub(crate) struct SharedPrograms {
    pub(crate) sets: ProgramSets,
    /// Random key of these sources, once one needs it: programs contain the words of their hash.
    key: OnceLock<HashKey>,
}

impl SharedPrograms {
    /// Returns the random key, always the same.
    pub(crate) fn random_key(&self) -> Result<HashKey, Error> {
        if let Some(key) = self.key.get() {
            return Ok(key.clone());
        }
        let key = HashKey::random()?;
        Ok(self.key.get_or_init(|| key).clone())
    }
}

/// Handle of a source's thread. The default is for a run with one source.
#[derive(Default)]
pub(crate) struct SourceHandle {
    /// Its name, if there may be several.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) shared: Arc<SharedOutputs>,
    pub(crate) interrupt: Interrupt,
    pub(crate) changes: Changes,
    /// Programs that it shares with other sources of the run, if these are many.
    pub(crate) programs: Option<Arc<SharedPrograms>>,
    /// Heartbeat that the run waits for before it is ready.
    heartbeat: Mutex<Option<service::Heartbeat>>,
    /// Function that reports that counting has begun, if the run wants to know.
    has_begun: Option<Box<dyn Fn() + Send + Sync>>,
    /// Identity of the source's run, once it is needed.
    identity: OnceLock<Identity>,
}

impl SourceHandle {
    /// Returns a handle whose run is not ready until its controller is.
    pub(crate) fn awaited(name: Option<Arc<str>>, shared: Arc<SharedOutputs>) -> Self {
        SourceHandle {
            name,
            shared,
            heartbeat: Mutex::new(Some(service::Heartbeat::new())),
            ..SourceHandle::default()
        }
    }

    /// Sets the function that is called once counting has begun.
    pub(crate) fn reporting(self, has_begun: impl Fn() + Send + Sync + 'static) -> Self {
        SourceHandle { has_begun: Some(Box::new(has_begun)), ..self }
    }

    /// Sets the programs that it shares with other sources.
    pub(crate) fn sharing(self, programs: Option<Arc<SharedPrograms>>) -> Self {
        SourceHandle { programs, ..self }
    }

    /// Reports that counting has begun.
    pub(crate) fn begin(&self) {
        if let Some(has_begun) = &self.has_begun {
            has_begun();
        }
    }

    /// Returns the identity of the source's run, always the same.
    pub(crate) fn identity(&self, outputs: &OutputOptions) -> Result<Identity, CommandFailure> {
        if let Some(identity) = self.identity.get() {
            return Ok(identity.clone());
        }
        let identity = identity(outputs, self.name.as_deref())?;
        Ok(self.identity.get_or_init(|| identity).clone())
    }

    /// Returns the heartbeat of its controller.
    pub(crate) fn heartbeat(&self) -> service::Heartbeat {
        let awaited = locked(&self.heartbeat).take();
        awaited.unwrap_or_else(service::Heartbeat::new)
    }
}

/// Returns the identity of a run: this machine, and an identifier that no other run has. Each
/// source has its own.
pub(crate) fn identity(
    outputs: &OutputOptions,
    source: Option<&str>,
) -> Result<Identity, CommandFailure> {
    let run = match env::var(RUN_VARIABLE).ok().filter(|run| !run.is_empty()) {
        Some(run) => run,
        None => format!(
            "{:016x}",
            getrandom::u64().map_err(cannot("get random numbers from the system"))?
        ),
    };
    let run = source.map_or(run.clone(), |source| format!("{run}-{source}"));
    Ok(Identity { host: outputs.host.as_deref().unwrap_or_default().into(), run: run.into() })
}
