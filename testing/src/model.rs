//! A switch that runs flowgauge's P4 program in the model, served on loopback.

use flowgauge_bfruntime::server::{RunningServer, Target};
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_dataplane::tofino::Options;
use flowgauge_dataplane::{Dataplane, Tables, Tofino};
use flowgauge_p4_model::{Model, Switch};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Serves a switch on a free port of loopback.
pub fn serve(target: Arc<dyn Target>) -> RunningServer {
    RunningServer::start(([127, 0, 0, 1], 0).into(), None, target).unwrap()
}

/// Returns flowgauge's program, compiled with these macros.
pub fn compiled(macros: impl IntoIterator<Item = (&'static str, u32)>) -> Model {
    let options = flowgauge_p4_model::Options::default();
    let options = macros.into_iter().fold(options, |all, (name, value)| all.define(name, value));
    Model::flowgauge(&options).unwrap()
}

/// Returns a switch that runs flowgauge's program, compiled with these macros.
pub fn switch(macros: impl IntoIterator<Item = (&'static str, u32)>) -> Arc<Switch> {
    Arc::new(Switch::new(compiled(macros), "flowgauge"))
}

/// Returns options of a client for frames that are counted one by one, so that none is in flight
/// when the bank changes. Nothing is given up on a busy machine.
pub fn options(address: SocketAddr) -> Options {
    let mut options = Options::new(address.to_string());
    options.transit = Duration::ZERO;
    options.deadline = Duration::from_secs(600);
    options
}

/// Lets frames arrive at the pipes of a switch in turn.
pub fn arrive(switch: &Switch, frames: &[OwnedFrame]) {
    let mut entrance = switch.enter();
    for (index, frame) in frames.iter().enumerate() {
        entrance.arrive(switch.port(index), &frame.bytes).unwrap();
    }
}

/// A switch with its server.
pub struct ServedSwitch {
    pub switch: Arc<Switch>,
    running: RunningServer,
}

impl ServedSwitch {
    pub fn new(macros: impl IntoIterator<Item = (&'static str, u32)>) -> Self {
        let switch = switch(macros);
        let running = serve(Arc::clone(&switch) as Arc<dyn Target>);
        ServedSwitch { switch, running }
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    pub fn options(&self) -> Options {
        options(self.address())
    }

    /// Connects a client and installs its tables.
    pub fn connect(&self, settings: Settings, tables: &Tables) -> Tofino {
        let mut tofino = Tofino::connect(self.options(), settings).unwrap();
        tofino.install(tables).unwrap();
        tofino
    }
}
