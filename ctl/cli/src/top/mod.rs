//! `flowgauge top`: runs of this machine on the terminal, as their windows end.

mod drawn;
mod view;

use crate::error::Failure;
use crate::status;
use clap::Args;
use drawn::Watched;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use view::View;

/// How often runs are asked.
const PERIOD: Duration = Duration::from_millis(500);

/// Watch the runs on this machine on the terminal, as their windows end.
///
/// Shows every number with its bounds and its course over the last windows, the largest flows, losses by cause, and what is wrong. Runs are found as by
/// `flowgauge status`, and need no option for it. Keys: Tab and Shift-Tab choose a run, the arrows and Page Up and Down move, p holds the screen still, q ends.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge run -i eth1 > /dev/null &
  flowgauge top")]
pub(crate) struct Top {}

impl Top {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if !io::stdout().is_terminal() {
            let problem = "top is for a terminal; `flowgauge status` prints the same once, and --format json for programs";
            return Err(Failure::Failed(problem.to_owned()));
        }
        let mut terminal = ratatui::try_init().map_err(|error| Failure::Failed(format!("cannot use the terminal: {error}")))?;
        let outcome = watch(&mut terminal);
        ratatui::restore();
        outcome.map_err(|error| Failure::Failed(format!("cannot use the terminal any longer: {error}")))
    }
}

fn watch(terminal: &mut ratatui::DefaultTerminal) -> io::Result<()> {
    let (mut watched, mut view) = (Watched::default(), View::default());
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            if !view.is_held() {
                let (runs, notes) = status::runs();
                watched.take(&runs, notes);
            }
            due = Instant::now() + PERIOD;
        }
        terminal.draw(|frame| view.draw(&watched, frame))?;
        if !event::poll(due.saturating_duration_since(Instant::now()))? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let ends = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if ends || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(());
            }
            view.press(key.code);
        }
    }
}
