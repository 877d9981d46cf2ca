//! `flowgauge demo`: the live page with generated traffic that shows every chart.

use crate::config::Source;
use crate::config::options::Options;
use crate::config::options::outputs::OutputOptions;
use crate::config::value;
use crate::error::CommandFailure;
use crate::run::handle::SourceHandle;
use crate::run::source::count;
use clap::Args;
use flowgauge_ctl::filter::MatchExpression;
use flowgauge_dataplane::MeasurementKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
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
    ///
    /// An address that other machines can reach requires --listen-cert, --listen-key and
    /// --listen-token-file.
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen)]
    listen: Option<SocketAddr>,

    /// TLS certificate chain for --listen (PEM)
    #[arg(long, value_name = "FILE")]
    listen_cert: Option<PathBuf>,

    /// TLS private key for --listen (PEM); must not be world-readable
    #[arg(long, value_name = "FILE")]
    listen_key: Option<PathBuf>,

    /// Require the bearer token in this file (browsers: any user, token as password)
    #[arg(long, value_name = "FILE")]
    listen_token_file: Option<PathBuf>,

    /// Stop after this time [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true)]
    duration: Option<Duration>,

    /// Count only packets that match an expression, as in `flowgauge run`
    #[arg(long = "match", value_name = "EXPRESSION")]
    matching: Option<MatchExpression>,
}

impl Demo {
    pub(crate) fn execute(self) -> Result<(), CommandFailure> {
        let address = self.listen.unwrap_or((Ipv4Addr::LOCALHOST, DEFAULT_PORT).into());
        // The options of `run`, so that they are checked as there.
        let outputs = OutputOptions {
            listen: Some(address),
            listen_anywhere: self.listen.is_none(),
            listen_cert: self.listen_cert,
            listen_key: self.listen_key,
            listen_token_file: self.listen_token_file,
            ..OutputOptions::default()
        };
        let options = Options {
            outputs,
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
        config.outputs.format = None;
        count(&config, &SourceHandle::default())
    }
}
