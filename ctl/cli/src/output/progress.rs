//! Progress bars, on terminals only.

use flowgauge_ctl::Record;
use flowgauge_ctl::controller::Sink;
use flowgauge_ctl::output::escaped;
use flowgauge_dataplane::poll::port::PortSource;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const STYLE: &str = "{msg} {wide_bar} {percent:>3} % {eta:>4} left";
const STYLE_ENDLESS: &str = "{msg} {spinner} {elapsed}";

/// Returns a progress bar on standard error. It is hidden if that is not a terminal, or with
/// --quiet.
#[must_use]
pub fn bar(total: Option<u64>, message: String) -> ProgressBar {
    if !io::stderr().is_terminal() || !tracing::enabled!(tracing::Level::WARN) {
        return ProgressBar::hidden();
    }
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let style = ProgressStyle::with_template(if total.is_some() { STYLE } else { STYLE_ENDLESS });
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(escaped(&message).into_owned());
    bar
}

/// Progress bar that a thread of its own updates from a source of packets.
pub(crate) struct ProgressWatch {
    bar: ProgressBar,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressWatch {
    pub(crate) fn start(source: Arc<dyn PortSource>, message: String) -> Self {
        let bar = bar(source.progress().map(|(_, total)| total), message);
        let done = Arc::new(AtomicBool::new(false));
        if bar.is_hidden() {
            return ProgressWatch { bar, done, thread: None };
        }
        let (ticking, finished) = (bar.clone(), Arc::clone(&done));
        let thread = thread::spawn(move || {
            while !finished.load(Ordering::Relaxed) {
                match source.progress() {
                    Some((position, _)) => ticking.set_position(position),
                    None => ticking.tick(),
                }
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        ProgressWatch { bar, done, thread: Some(thread) }
    }

    /// Returns a sink that hides the bar while it prints.
    pub(crate) fn around<'a>(&self, sink: Box<dyn Sink + 'a>) -> Box<dyn Sink + 'a> {
        Box::new(SuspendedProgress { bar: self.bar.clone(), sink })
    }
}

impl Drop for ProgressWatch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The bar is optional; a panic of its thread is ignored.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

struct SuspendedProgress<'a> {
    bar: ProgressBar,
    sink: Box<dyn Sink + 'a>,
}

impl Sink for SuspendedProgress<'_> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        let Self { bar, sink } = self;
        bar.suspend(|| sink.record(record))
    }
}
