//! gRPC server of a run (`--grpc`).

use super::{EffectiveSettings, Exporters, Setting, access, cannot_listen};
use crate::config::Outputs;
use crate::error::CommandFailure;
use crate::output::status::Publication;
use flowgauge_ctl::identity::Identity;
use flowgauge_ctl::serve::{Server, ServiceState, proto};
use std::sync::Arc;

impl EffectiveSettings {
    fn all(&self) -> Vec<proto::Source> {
        let setting = |setting: &Setting| proto::Setting {
            name: setting.name.clone(),
            values: setting.values.clone(),
            origin: setting.origin.clone(),
        };
        let source = |(name, settings): (&String, &Vec<Setting>)| proto::Source {
            name: name.clone(),
            settings: settings.iter().map(setting).collect(),
        };
        self.sources().iter().map(source).collect()
    }
}

impl Exporters {
    pub(super) fn serve_grpc(
        &self,
        outputs: &Outputs,
        identity: &Identity,
        publication: &Publication,
    ) -> Result<Option<Server>, CommandFailure> {
        let Some(address) = outputs.grpc else { return Ok(None) };
        let access = access(outputs)?;
        let configured = self.configured.clone();
        let state = ServiceState {
            feed: self.feed.clone(),
            problems: Arc::new(publication.problems()),
            status: Arc::new(publication.status()),
            configuration: Arc::new(move || configured.all()),
            host: Arc::clone(&identity.host),
            metrics: self.metrics.clone(),
        };
        let encrypted = if access.encryption.is_some() { " over TLS" } else { "" };
        let server = Server::start_grpc(address, state, access)
            .map_err(|error| cannot_listen("--grpc", address, &error))?;
        eprintln!("serving flowgauge.v1.Agent on grpc://{}{encrypted}", server.address());
        Ok(Some(server))
    }
}
