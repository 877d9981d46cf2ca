//! `flowgauge demo`: the live page, with traffic that is worth a look.

use crate::count::count;
use crate::error::Failure;
use crate::handle::Handle;
use crate::options::Options;
use crate::run_config::{Listen, Source};
use crate::value;
use clap::Args;
use flowgauge_dataplane::MeasurementKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Flows that are asked for: the largest one, a smaller one, and one that is not there.
const ASKED: [&str; 3] = ["10.42.118.216", "10.71.218.209", "192.0.2.1"];
/// Where the page is, unless that is taken.
const PORT: u16 = 9420;
/// How long it goes on: exact counts of everything take memory.
const USUAL: Duration = Duration::from_secs(3600);
const WINDOW: Duration = Duration::from_millis(500);
/// Show the live page, with generated traffic and an attack in it.
///
/// Prints where the page is; open it in a browser. Everything is measured, with exact counts beside
/// the estimates. After 22 seconds, and every half minute from then on, a flood of many sources to
/// one destination raises the alarm. It needs no root and no network. Ctrl-C ends it.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge demo
  flowgauge demo --listen 8080 --duration 5m")]
pub(crate) struct Demo {
    /// Where the page is: a port of this machine [default: 9420, or if that is taken any that is
    /// free]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen)]
    listen: Option<SocketAddr>,

    /// Stop after this time [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true)]
    duration: Option<Duration>,
}

impl Demo {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let options = Options {
            window: Some(WINDOW),
            duration: Some(self.duration.unwrap_or(USUAL)),
            alarm: Some(true),
            truth: Some(true),
            query: ASKED
                .iter()
                .map(|flow| value::query(flow))
                .collect::<Result<_, _>>()
                .map_err(Failure::Failed)?,
            ..Options::default().with_measurements(MeasurementKind::ALL.to_vec())
        };
        let mut config = options.resolve(Source::Demo, &[])?;
        let address = self.listen.unwrap_or((Ipv4Addr::LOCALHOST, PORT).into());
        config.outputs.listen = Some(Listen { address, anywhere: self.listen.is_none() });
        config.outputs.format = None;
        count(&config, &Handle::default())
    }
}
