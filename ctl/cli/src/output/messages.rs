//! Options of messages, and the log on standard error.

use crate::locked;
use crate::output::terminal::{self, Color};
use clap::{ArgAction, Args};
use flowgauge_ctl::output::escaped;
use flowgauge_ctl::status::Warning;
use std::fmt;
use std::io::stderr;
use std::sync::Mutex;
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;
use tracing_subscriber::util::SubscriberInitExt;

/// Last warning or error of the log, for the status.
static LAST_WARNING: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// Options of every command.
#[derive(Args)]
pub struct Messages {
    /// Print errors only, and no progress bars
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,

    /// Print more messages; repeat (-vv) for even more
    ///
    /// The environment variable RUST_LOG overrides -q and -v; it accepts levels per module, such as
    /// RUST_LOG=warn,flowgauge_dataplane=debug.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Messages")]
    verbose: u8,

    /// Use colours: auto (on a terminal, unless NO_COLOR is set), always, never [default: auto]
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        hide_possible_values = true,
        help_heading = "Messages"
    )]
    color: Option<Color>,
}

impl Messages {
    /// Starts logging at the requested level.
    pub fn start(&self) {
        terminal::init(self.color.unwrap_or_default());
        // Other crates log at a lower level, since details of a connection would hide flowgauge's own
        // messages at -v.
        let (others, own) = match (self.quiet, self.verbose) {
            (true, _) => (LevelFilter::ERROR, LevelFilter::ERROR),
            (false, 0) => (LevelFilter::WARN, LevelFilter::WARN),
            (false, 1) => (LevelFilter::WARN, LevelFilter::INFO),
            (false, 2) => (LevelFilter::INFO, LevelFilter::DEBUG),
            _ => (LevelFilter::TRACE, LevelFilter::TRACE),
        };
        let asked = Targets::new().with_default(others).with_target("flowgauge", own);
        let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
        let (filter, problem) = match wanted.map(|wanted| wanted.parse::<Targets>()).transpose() {
            Ok(filter) => (filter.unwrap_or(asked), None),
            Err(error) => (asked, Some(error)),
        };
        // Colours are for terminals: a log file would contain their escape sequences.
        let colours = terminal::colours(&stderr());
        let log = tracing_subscriber::fmt::layer()
            .with_writer(stderr)
            .with_ansi(colours)
            .with_target(false)
            .without_time();
        // Messages contain names of interfaces and files and answers of others; escape what could
        // control the terminal.
        let log = log.fmt_fields(debug_fn(message).delimited(" "));
        registry().with(filter).with(log).with(LastWarning).init();
        if let Some(problem) = problem {
            tracing::warn!("ignoring invalid RUST_LOG: {problem}");
        }
    }
}

/// Writes a field of a message with control characters escaped.
fn message(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => write!(writer, "{}", escaped(&text)),
        name => write!(writer, "{name}={}", escaped(&text)),
    }
}

/// Returns the last warning or error that was logged.
pub(crate) fn last_warning() -> Option<Warning> {
    let last = locked(&LAST_WARNING);
    last.as_ref()
        .map(|(at, text)| Warning { age_ns: at.elapsed().as_nanos() as u64, text: text.clone() })
}

/// Log layer that stores the last warning.
struct LastWarning;

impl<S: Subscriber> Layer<S> for LastWarning {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        *locked(&LAST_WARNING) = Some((Instant::now(), message.0));
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
