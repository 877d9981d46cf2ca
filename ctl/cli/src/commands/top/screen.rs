//! Terminal loop of `top`.

use super::drawn::Runs;
use super::view::View;
use crate::commands::status;
use crate::error::{CommandFailure, cannot};
use flowgauge_ctl::names::Names;
use jiff::Zoned;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io;
use std::time::{Duration, Instant};

/// Interval of the queries to runs.
const QUERY_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn show(names: Names) -> Result<(), CommandFailure> {
    let mut terminal = ratatui::try_init().map_err(cannot("use the terminal"))?;
    let outcome = watch(&mut terminal, names);
    ratatui::restore();
    outcome.map_err(|error| CommandFailure::Failed(format!("the terminal failed: {error}")))
}

fn watch(terminal: &mut ratatui::DefaultTerminal, names: Names) -> io::Result<()> {
    let (mut watched, mut view) = (Runs::default(), View::default());
    view.names = names;
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            if !view.paused {
                let (runs, notes) = status::runs();
                watched.take(&runs, notes, Instant::now());
            }
            due = Instant::now() + QUERY_INTERVAL;
        }
        view.clock = Zoned::now().strftime("%H:%M:%S").to_string();
        terminal.draw(|frame| view.draw(&watched, frame))?;
        if !event::poll(due.saturating_duration_since(Instant::now()))? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let ends =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            let closes_keys = key.code == KeyCode::Esc && view.shows_keys;
            if ends || (!closes_keys && matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)) {
                return Ok(());
            }
            view.press(key.code);
        }
    }
}
