//! `flowgauge demo`: the live page with generated traffic that shows every chart.

use crate::count::count;
use crate::error::CommandFailure;
use crate::handle::SourceHandle;
use crate::options::Options;
use crate::run_config::{Listen, Source};
use crate::value;
use clap::Args;
use flowgauge_ctl::filter::MatchExpression;
use flowgauge_dataplane::MeasurementKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Flows to query: the largest, a smaller one, and one that does not occur.
const QUERIES: [&str; 3] = ["10.42.118.216", "10.71.218.209", "192.0.2.1"];
/// Default port of the page.
const DEFAULT_PORT: u16 = 9420;
/// Default duration. Exact reordering stores every connection of the run.
const DEFAULT_DURATION: Duration = Duration::from_secs(3600);
const WINDOW: Duration = Duration::from_millis(500);
/// Show the live page with generated traffic that contains an attack.
///
/// Prints the address of the page; open it in a browser. Enables all measurements, with exact
/// counts next to the estimates. After 22 seconds, and every 30 seconds from then on, a flood from
/// many sources to one destination raises the alarm. Requires neither root nor a network. Press
/// Ctrl-C to stop.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge demo
  flowgauge demo --listen 8080 --duration 5m")]
pub(crate) struct Demo {
    /// Address or local port of the page [default: 9420, or any free port if it is in use]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen)]
    listen: Option<SocketAddr>,

    /// Stop after this time [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true)]
    duration: Option<Duration>,

    /// Count only packets that match an expression, as in `flowgauge run`
    #[arg(long = "match", value_name = "EXPRESSION")]
    matching: Option<MatchExpression>,
}

impl Demo {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        let options = Options {
            window: Some(WINDOW),
            duration: Some(self.duration.unwrap_or(DEFAULT_DURATION)),
            alarm: Some(true),
            truth: Some(true),
            matching: self.matching,
            query: QUERIES
                .iter()
                .map(|flow| value::query(flow))
                .collect::<Result<_, _>>()
                .map_err(CommandFailure::Failed)?,
            ..Options::default().with_measurements(MeasurementKind::ALL.to_vec())
        };
        let mut config = options.resolve(Source::Demo, &[])?;
        let address = self.listen.unwrap_or((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into());
        config.outputs.listen = Some(Listen { address, anywhere: self.listen.is_none() });
        config.outputs.format = None;
        count(&config, &SourceHandle::default())
    }
}
