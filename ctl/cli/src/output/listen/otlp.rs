//! Exporter to a metrics collector (`--otlp`).

use super::{Exporters, token};
use crate::config::{Otlp, Outputs};
use crate::error::CommandFailure;
use crate::output::writers::FileProblems;
use flowgauge_ctl::identity::Identity;
use flowgauge_ctl::otlp::{Collector, Exporter};
use std::io;

impl Exporters {
    pub(super) fn export(
        &self,
        outputs: &Outputs,
        identity: &Identity,
        problems: &FileProblems,
    ) -> Result<Option<Exporter>, CommandFailure> {
        let Some(Otlp { url, every, authority, token: secret }) = &outputs.otlp else {
            return Ok(None);
        };
        let failed = |error: io::Error| {
            CommandFailure::Failed(format!("cannot send metrics to {url}: {error}"))
        };
        let token = token("--otlp-token-file", secret.as_deref())?;
        let collector = Collector::new(url, authority.as_deref(), token).map_err(failed)?;
        let resource = vec![
            ("service.name", "flowgauge".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", identity.run.to_string()),
            ("host.name", identity.host.to_string()),
        ];
        let problems = problems.clone();
        let report = move |problem: String| {
            tracing::warn!("{problem}");
            problems.add(problem);
        };
        Exporter::start(collector, *every, resource, self.metrics.clone(), report)
            .map(Some)
            .map_err(failed)
    }
}
