//! SourceHandle of a source's thread: its interrupt, its configuration changes, and the outputs that all
//! sources of a run share.

mod lines;

pub(crate) use lines::Lines;

use crate::listen::Exporters;
use crate::service;
use crate::status::Publication;
use flowgauge_ctl::clock::Interrupt;
use flowgauge_ctl::controller::Changes;
use std::sync::{Arc, Mutex, PoisonError};

/// Outputs that all sources of a run share.
#[derive(Default)]
pub(crate) struct SharedOutputs {
    pub(crate) exporters: Exporters,
    pub(crate) publication: Publication,
    pub(crate) output: lines::Output,
}

/// SourceHandle of a source's thread. The default is for a run with one source.
#[derive(Default)]
pub(crate) struct SourceHandle {
    /// Its name, if there may be several.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) shared: Arc<SharedOutputs>,
    pub(crate) interrupt: Interrupt,
    pub(crate) changes: Changes,
    /// Heartbeat that the run waits for before it is ready.
    heartbeat: Mutex<Option<service::Heartbeat>>,
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

    /// Returns the heartbeat of its controller.
    pub(crate) fn heartbeat(&self) -> service::Heartbeat {
        let awaited = self.heartbeat.lock().unwrap_or_else(PoisonError::into_inner).take();
        awaited.unwrap_or_else(service::Heartbeat::new)
    }
}
