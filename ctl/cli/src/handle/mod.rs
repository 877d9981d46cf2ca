//! What the thread of a source has from the run that it belongs to: what ends it, what changes it, and outputs that it shares with others.

mod lines;

pub(crate) use lines::Lines;

use crate::listen::Outlets;
use crate::service;
use crate::status::Publication;
use flowgauge_ctl::clock::Interrupt;
use flowgauge_ctl::controller::Changes;
use std::sync::{Arc, Mutex, PoisonError};

/// What sources of one run have in common.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) outlets: Outlets,
    pub(crate) publication: Publication,
    pub(crate) output: lines::Output,
}

/// A source, as its thread knows it. The default is that of a run with one source.
#[derive(Default)]
pub(crate) struct Handle {
    /// Its name, if there may be several.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) interrupt: Interrupt,
    pub(crate) changes: Changes,
    /// What its controller shows that it gets on with, if the run is not ready before.
    controller: Mutex<Option<service::Controller>>,
}

impl Handle {
    /// One whose run is not ready before its controller is.
    pub(crate) fn awaited(name: Option<Arc<str>>, shared: Arc<Shared>) -> Self {
        Handle { name, shared, controller: Mutex::new(Some(service::Controller::new())), ..Handle::default() }
    }

    /// What its controller shows that it gets on with.
    pub(crate) fn controller(&self) -> service::Controller {
        let awaited = self.controller.lock().unwrap_or_else(PoisonError::into_inner).take();
        awaited.unwrap_or_else(service::Controller::new)
    }
}
