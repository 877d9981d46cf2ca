//! Last warning of the log, for the status.

use super::report::Warning;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Process-wide, like the log.
static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// Returns the last warning or error that was logged.
pub(super) fn last() -> Option<Warning> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.as_ref()
        .map(|(at, text)| Warning { age_ns: at.elapsed().as_nanos() as u64, text: text.clone() })
}

/// Log layer that stores the last warning.
pub(crate) struct LastWarning;

impl<S: Subscriber> Layer<S> for LastWarning {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() > Level::WARN {
            return;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), message.0));
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
