//! Layout of `top`.

use super::drawn::{Figure, Number, RunView, Runs, Shape};
use flowgauge_ctl::output::scaled;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use std::collections::VecDeque;

/// Characters for the heights of a course.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of a course, in characters.
const COURSE_WIDTH: usize = 24;
/// Number of entries of a ranking that are shown.
const MAX_RANKS: usize = 10;

/// Selected run and scroll position.
#[derive(Default)]
pub(super) struct View {
    /// Process id of the selected run.
    chosen: Option<u64>,
    /// Index of the selected run, which keys change.
    at: usize,
    runs: usize,
    scroll: u16,
    paused: bool,
}

impl View {
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn press(&mut self, key: KeyCode) {
        let step = |view: &mut View, by: usize| {
            if view.runs > 0 {
                (view.at, view.chosen, view.scroll) = ((view.at + by) % view.runs, None, 0);
            }
        };
        match key {
            KeyCode::Tab | KeyCode::Right => step(self, 1),
            KeyCode::BackTab | KeyCode::Left => step(self, self.runs.saturating_sub(1)),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            _ => {}
        }
    }

    pub(super) fn draw(&mut self, watched: &Runs, frame: &mut Frame<'_>) {
        self.runs = watched.runs.len();
        // Runs start and end; keep the selected one.
        if let Some(at) = watched.runs.iter().position(|run| Some(run.pid) == self.chosen) {
            self.at = at;
        }
        self.at = self.at.min(self.runs.saturating_sub(1));
        let run = watched.runs.get(self.at);
        self.chosen = run.map(|run| run.pid);
        let [above, body, below] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let keys = format!(
            "run {} of {}   Tab next run   ↑↓ scroll   p {}   q quit",
            self.at + 1,
            self.runs,
            if self.paused { "resume" } else { "pause" }
        );
        let (heading, mut lines) = match run {
            Some(run) => (heading(run), lines(run, usize::from(body.width))),
            None => {
                let advice = "No flowgauge run on this machine. Start one: `flowgauge run -i eth1`, or `flowgauge demo`.";
                (vec![Line::from("flowgauge top".bold())], vec![Line::from(advice)])
            }
        };
        lines.extend(watched.notes.iter().map(|note| Line::from(note.clone()).dim()));
        let most = (lines.len() as u16).saturating_sub(body.height);
        self.scroll = self.scroll.min(most);
        frame.render_widget(Paragraph::new(heading), above);
        frame.render_widget(Paragraph::new(lines).scroll((self.scroll, 0)), body);
        let keys = if self.runs > 0 { keys } else { "q quit".to_owned() };
        frame.render_widget(
            Paragraph::new(Line::from(keys).add_modifier(Modifier::REVERSED))
                .wrap(Wrap { trim: false }),
            below,
        );
    }
}

fn heading(run: &RunView) -> Vec<Line<'static>> {
    let window = match run.window {
        Some(window) => {
            let cut = if run.complete { "" } else { ", incomplete" };
            format!("window {window}, {:.1} s{cut}, closed {:.0} s ago", run.seconds, run.age)
        }
        None if run.starting.is_empty() => "no window has ended yet".to_owned(),
        None => "starting".to_owned(),
    };
    vec![Line::from(run.heading.clone().bold()), Line::from(window)]
}

fn lines(run: &RunView, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if run.alarm {
        lines.push(
            Line::from(
                "ALARM: the entropies of sources and destinations are far outside their usual range",
            )
            .red()
            .bold(),
        );
    }
    lines.extend(run.starting.iter().map(|starting| Line::from(format!("starting: {starting}"))));
    lines.extend(
        run.problems.iter().map(|problem| Line::from(format!("problem: {problem}")).yellow()),
    );
    let mut title = String::new();
    for figure in &run.figures {
        if !is_worth_a_line(figure, run) {
            continue;
        }
        if figure.title != title {
            title.clone_from(&figure.title);
            let rate = if matches!(figure.shape, Shape::Count(_)) { " per second" } else { "" };
            lines.push(Line::from(Span::styled(
                format!("{title}{rate}"),
                Style::new().add_modifier(Modifier::UNDERLINED),
            )));
        }
        lines.extend(figure_lines(figure, run, width));
    }
    lines
}

/// Returns whether a figure is shown: counts that stay zero, empty ones and states are not.
fn is_worth_a_line(figure: &Figure, run: &RunView) -> bool {
    match &figure.shape {
        Shape::Count(_) => {
            let course = run.courses.get(&(figure.name.clone(), figure.label()));
            course.is_some_and(|course| course.iter().any(|height| *height > 0.0))
        }
        Shape::State(_) => false,
        Shape::Distribution { ranges } => ranges.iter().any(|range| range.count > 0.0),
        Shape::Ranking(ranked) => !ranked.is_empty(),
        Shape::Number(_) => true,
    }
}

fn figure_lines(figure: &Figure, run: &RunView, width: usize) -> Vec<Line<'static>> {
    let unit = figure.unit.as_str();
    let course =
        run.courses.get(&(figure.name.clone(), figure.label())).map(course).unwrap_or_default();
    match &figure.shape {
        Shape::Number(number) => vec![Line::from(format!(
            "  {:<22} {:>12}  {course:<COURSE_WIDTH$}  {}",
            figure.label(),
            formatted(number.value(), unit),
            bounds(number, unit)
        ))],
        Shape::Count(_) => {
            let height = figure.height(run.seconds).unwrap_or_default();
            vec![Line::from(format!(
                "  {:<22} {:>12}  {course}",
                figure.label(),
                formatted(height, unit)
            ))]
        }
        Shape::State(_) => Vec::new(),
        Shape::Ranking(ranked) => {
            let name = width.saturating_sub(50).clamp(16, 60);
            let line = |it: &super::drawn::Ranked| {
                let bounds = bounds(&it.number, unit);
                Line::from(format!(
                    "  {:<name$} {:>12}  {bounds} {}",
                    it.name,
                    formatted(it.number.value(), unit),
                    it.more
                ))
            };
            ranked.iter().take(MAX_RANKS).map(line).collect()
        }
        Shape::Distribution { ranges } => {
            let most = ranges.iter().map(|range| range.count).fold(f64::MIN_POSITIVE, f64::max);
            let filled = ranges.iter().filter(|range| range.count > 0.0);
            let line = |range: &super::drawn::Range| {
                let bar = "█".repeat(((range.count / most) * COURSE_WIDTH as f64).ceil() as usize);
                let between =
                    format!("{} … {}", formatted(range.low, unit), formatted(range.high, unit));
                Line::from(format!(
                    "  {between:<22} {:>12}  {bar}",
                    formatted(range.count, "things")
                ))
            };
            filled.map(line).collect()
        }
    }
}

fn bounds(number: &Number, unit: &str) -> String {
    if number.low() == number.high() {
        String::new()
    } else {
        format!("({} … {})", formatted(number.low(), unit), formatted(number.high(), unit))
    }
}

/// Formats the last heights as a course, relative to zero.
fn course(heights: &VecDeque<f64>) -> String {
    let most = heights
        .iter()
        .copied()
        .filter(|height| height.is_finite())
        .fold(f64::MIN_POSITIVE, f64::max);
    let last = heights.iter().skip(heights.len().saturating_sub(COURSE_WIDTH));
    last.map(|height| HEIGHTS[((height / most * 7.0).round() as usize).min(7)]).collect()
}

/// Formats a number with its unit.
fn formatted(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    match unit {
        "ratio" => format!("{:.2} %", value * 100.0),
        "seconds" => match value.abs() {
            0.0 => "0 s".to_owned(),
            size if size < 1e-6 => format!("{:.0} ns", value * 1e9),
            size if size < 1e-3 => format!("{:.1} µs", value * 1e6),
            size if size < 1.0 => format!("{:.1} ms", value * 1e3),
            _ => format!("{value:.2} s"),
        },
        "bits" => format!("{value:.3} bit"),
        "bytes" => {
            let scaled = scaled(value);
            if scaled.contains(' ') { format!("{scaled}B") } else { format!("{scaled} B") }
        }
        _ => scaled(value).trim_end().to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::{Value, json};

    fn status_of(window: u64, flows: f64) -> Value {
        json!({
            "pid": 7, "backend": "poll", "interface": "eth1", "version": "0.1.0", "problems": ["a window is overdue"],
            "last_window": { "window": window, "start_ns": 0, "end_ns": 2_000_000_000_u64, "age_ns": 3_000_000_000_u64, "complete": false, "alarm": true },
            "figures": [
                { "name": "distinct_flows", "title": "distinct flows", "unit": "things", "labels": { "key": "src" },
                  "number": { "value": flows, "low": flows * 0.9, "high": null } },
                { "name": "packets", "title": "IP packets", "unit": "things", "labels": { "family": "ipv4" }, "count": 4000.0 },
                { "name": "lost", "title": "lost packets", "unit": "things", "labels": { "cause": "ring" }, "count": 0.0 },
                { "name": "heavy", "title": "heaviest flows", "unit": "bytes", "ranking": [
                    { "name": "10.0.0.1", "number": { "value": 1500.0, "low": 1000.0, "high": 1500.0 }, "more": "12 %" } ] },
                { "name": "delays", "title": "delays", "unit": "seconds", "distribution": { "sum": 1.0, "ranges": [
                    { "low": 0.001, "high": 0.002, "count": 5.0 }, { "low": 0.002, "high": 0.004, "count": 0.0 } ] } },
                { "name": "newer", "title": "of a newer version", "unit": "things", "unheard": 1 },
            ],
        })
    }

    fn screen(view: &mut View, watched: &Runs) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
        terminal.draw(|frame| view.draw(watched, frame)).unwrap();
        let rows = terminal.backend().buffer().content().chunks(100);
        rows.map(|row| {
            row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n"
        })
        .collect()
    }

    #[test]
    fn a_run_is_drawn_with_bounds_and_courses() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        for (window, flows) in [(0, 100.0), (1, 200.0), (1, 200.0), (2, 800.0)] {
            watched.take(&[status_of(window, flows)], vec!["a note".to_owned()]);
        }
        let screen = screen(&mut view, &watched);
        let has = |text: &str| assert!(screen.contains(text), "{text}:\n{screen}");
        has(
            "run 7: poll eth1, flowgauge 0.1.0\nwindow 2, 2.0 s, incomplete, closed 3 s ago\nALARM",
        );
        has("problem: a window is overdue");
        // One character per window, not per status.
        has("  ▂▃█  ");
        has("(720");
        has("… ∞)");
        has("IP packets per second\n  ipv4                         2.00 k");
        has("10.0.0.1");
        has("1.00 ms … 2.00 ms".replace("1.00", "1.0").replace("2.00", "2.0").as_str());
        has("a note");
        has("run 1 of 1");
        assert!(!screen.contains("lost") && !screen.contains("newer"), "{screen}");
    }

    #[test]
    fn a_run_that_starts_says_so() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let mut run = json!({ "pid": 7, "backend": "xdp", "interface": "eth1", "version": "0.1.0", "problems": [],
            "starting": ["counting has not started"], "failed": ["b: it has failed"] });
        watched.take(&[run.clone()], Vec::new());
        let starting = screen(&mut view, &watched);
        let expected = "run 7: xdp eth1, flowgauge 0.1.0\nstarting\nstarting: counting has not started\nproblem: b: it has failed\n";
        assert!(starting.starts_with(expected), "{starting}");
        run["starting"] = json!([]);
        watched.take(&[run], Vec::new());
        let begun = screen(&mut view, &watched);
        assert!(
            begun.contains("no window has ended yet") && !begun.contains("starting"),
            "{begun}"
        );
    }

    #[test]
    fn keys_choose_among_runs_that_come_and_go() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        assert!(screen(&mut view, &watched).contains("No flowgauge run"));
        view.press(KeyCode::Tab);
        let run = |pid: u64| {
            let mut run = status_of(0, 1.0);
            run["pid"] = pid.into();
            run
        };
        watched.take(&[run(7), run(9)], Vec::new());
        assert!(screen(&mut view, &watched).starts_with("run 7"));
        view.press(KeyCode::Tab);
        assert!(screen(&mut view, &watched).starts_with("run 9"));
        watched.take(&[run(5), run(9), run(7)], Vec::new());
        assert!(
            screen(&mut view, &watched).starts_with("run 9"),
            "the one that is looked at stays"
        );
        view.press(KeyCode::Tab);
        assert!(screen(&mut view, &watched).starts_with("run 5"));
        view.press(KeyCode::BackTab);
        assert!(screen(&mut view, &watched).starts_with("run 9"));
        watched.take(&[run(7)], Vec::new());
        assert!(screen(&mut view, &watched).starts_with("run 7"));
        // Scrolling stops at the end.
        (0..99).for_each(|_| view.press(KeyCode::PageDown));
        assert!(screen(&mut view, &watched).contains("ms"));
        view.press(KeyCode::Char('p'));
        assert!(view.is_paused() && screen(&mut view, &watched).contains("resume"));
    }
}
