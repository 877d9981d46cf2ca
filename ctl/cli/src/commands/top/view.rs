//! Layout of `top`.

use super::drawn::{Place, RunView, Runs, Series, tile_value};
use super::figure::{Figure, Ranked, Shape};
use super::numbers::numbers;
use super::text::{bounds, cut, drawn, formatted, interval, listed};
use super::tiles::{TILES, Tile, TileValue, ranking_heading, ranking_unit};
use flowgauge_ctl::names::Names;
use flowgauge_ctl::output::scaled;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Maximum number of interfaces that are listed, each with both directions in one line.
const MAX_INTERFACES: usize = 10;
/// Widths of a tile's parts: title, value, interval and change. The series has the rest.
const TITLE: usize = 17;
const VALUE: usize = 12;
const INTERVAL: usize = 23;
const CHANGE: usize = 15;
const MIN_SERIES: usize = 8;
const MIN_TILE: usize = TITLE + VALUE + INTERVAL + CHANGE + 4 + MIN_SERIES;
/// Number of columns between two halves of the screen.
const GAP: usize = 2;
/// Widths of the bar of a ranking.
const MIN_BAR: usize = 6;
const MAX_BAR: usize = 40;
/// Maximum width of the text of an entry of a ranking.
const MAX_NOTE: usize = 28;
/// Width from which the list of all numbers is next to the rankings.
const WIDE: u16 = 150;
/// Change against the usual value from which it is marked.
const ODD_CHANGE: f64 = 0.2;

/// Keys, for the key `?`.
const KEYS: [(&str, &str); 9] = [
    ("Tab, →  Shift-Tab, ←", "next, previous run or source; those that ended come last"),
    ("i", "next interface and direction, then all together"),
    ("s", "sort rankings by size, change or name"),
    ("r", "put the next ranking first"),
    ("a", "all numbers, or rankings; wide screens have both"),
    ("↑ ↓ Page Up, Down, Home", "scroll"),
    ("p, space", "pause the screen; the run continues"),
    ("?, h", "these keys"),
    ("q, Esc, Ctrl-C", "quit"),
];

/// Selected run, choices and scroll position.
#[derive(Default)]
pub(super) struct View {
    /// Process id and source of the selected run.
    chosen: Option<(u32, Option<String>)>,
    /// Index of the selected run, which keys change.
    at: usize,
    runs: usize,
    /// Number of runs that have not ended. They come first.
    live: usize,
    /// Whether a run that ended was selected with a key.
    visits_ended: bool,
    /// Selected interface and direction; `None` for the union of all.
    place: Option<Place>,
    /// Interfaces and directions of the selected run.
    places: Vec<Place>,
    /// Whether the keys are in place of the rankings.
    pub(super) shows_keys: bool,
    /// Time of day that the next screen shows.
    pub(super) clock: String,
    scroll: u16,
    pub(super) paused: bool,
    order: Order,
    /// Number of the ranking that is first.
    ranking: usize,
    /// Whether the list of all numbers is in place of the rankings.
    lists_all: bool,
    pub(super) names: Names,
}

/// Order of the rows of a ranking.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Size,
    /// Change since the window before.
    Change,
    Name,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Order::Size => "size",
            Order::Change => "change",
            Order::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Order::Size => Order::Change,
            Order::Change => Order::Name,
            Order::Name => Order::Size,
        }
    }
}

impl View {
    pub(super) fn press(&mut self, key: KeyCode) {
        let step = |view: &mut View, by: usize| {
            if view.runs > 0 {
                (view.at, view.chosen, view.scroll) = ((view.at + by) % view.runs, None, 0);
                (view.visits_ended, view.place) = (view.at >= view.live, None);
            }
        };
        // Any other key closes the keys.
        let showed_keys = std::mem::take(&mut self.shows_keys);
        match key {
            KeyCode::Char('?' | 'h') => self.shows_keys = !showed_keys,
            KeyCode::Char('i') => self.select_next_place(),
            KeyCode::Tab | KeyCode::Right => step(self, 1),
            KeyCode::BackTab | KeyCode::Left => step(self, self.runs.saturating_sub(1)),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('r') => (self.ranking, self.scroll) = (self.ranking + 1, 0),
            KeyCode::Char('a') => (self.lists_all, self.scroll) = (!self.lists_all, 0),
            _ => {}
        }
    }

    /// Selects the next interface and direction; after the last one the union of all.
    fn select_next_place(&mut self) {
        let at = self.places.iter().position(|place| Some(place) == self.place.as_ref());
        self.place = self.places.get(at.map_or(0, |at| at + 1)).cloned();
        self.scroll = 0;
    }

    pub(super) fn draw(&mut self, watched: &Runs, frame: &mut Frame<'_>) {
        self.runs = watched.runs.len();
        self.live = watched.runs.iter().filter(|run| !run.has_ended()).count();
        // Runs start and end; keep the selected one.
        let is_chosen = |run: &RunView| Some((run.pid, run.source.clone())) == self.chosen;
        if let Some(at) = watched.runs.iter().position(is_chosen) {
            self.at = at;
        }
        self.at = self.at.min(self.runs.saturating_sub(1));
        // The selection leaves a run that ends, but not one that was selected after its end.
        self.visits_ended &= self.at >= self.live;
        if self.live > 0 && self.at >= self.live && !self.visits_ended {
            (self.at, self.scroll, self.place) = (0, 0, None);
        }
        let run = watched.runs.get(self.at);
        self.chosen = run.map(|run| (run.pid, run.source.clone()));
        let parts = run.map(|run| run.parts.as_slice()).unwrap_or_default();
        self.places = parts.iter().filter_map(|part| part.place.clone()).collect();
        let part = parts.iter().find(|part| part.place.is_some() && part.place == self.place);
        if part.is_none() {
            self.place = None;
        }
        // Numbers are those of the selected part, the state is that of the run.
        let shown = part.or(run);
        let width = usize::from(frame.area().width);
        let mut above = match (run, shown) {
            (Some(run), Some(shown)) => self.above(run, shown, width),
            _ => Vec::new(),
        };
        if run.is_none() {
            let advice = "No flowgauge run on this machine. Start one: `flowgauge run -i eth1`, or `flowgauge demo`.";
            above.extend([Line::from("flowgauge top".bold()), Line::from(advice)]);
        }
        above.extend(watched.notes.iter().map(|note| Line::from(note.clone()).dim()));
        let [top, body, below] = Layout::vertical([
            Constraint::Length(above.len() as u16),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(above), top);
        if self.shows_keys {
            let line = |(key, action): &(&str, &str)| Line::from(format!("  {key:<26} {action}"));
            let keys: Vec<Line<'_>> = KEYS.iter().map(line).collect();
            frame.render_widget(Paragraph::new(keys), body);
        } else if let (Some(run), Some(shown)) = (run, shown) {
            self.body(shown, dimmed(run), frame, body);
        }
        let keys = Line::from(self.keys(width)).add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(keys), below);
    }

    /// Returns the heading, the state of the run and the tiles of the part that is shown.
    fn above(&self, run: &RunView, shown: &RunView, width: usize) -> Vec<Line<'static>> {
        let ended = self.runs - self.live.min(self.runs);
        let place = match (self.runs, ended) {
            (1, _) => String::new(),
            (runs, 0) => format!("{} of {runs}", self.at + 1),
            (runs, ended) => format!("{} of {runs}, {ended} ended", self.at + 1),
        };
        let paused = if self.paused { "PAUSED" } else { "" };
        let right = [paused, window(run).as_str(), place.as_str(), self.clock.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("  ");
        let left = width.saturating_sub(right.chars().count() + 2);
        let heading = match &shown.place {
            Some(place) => format!("{} of {}", placed(place), run.heading),
            None => run.heading.clone(),
        };
        let heading = cut(&heading, left);
        let mut lines = vec![Line::from(vec![
            format!("{heading:<left$}").bold(),
            Span::from("  "),
            Span::from(right),
        ])];
        lines.extend(state(run, width));
        if shown.window.is_some() {
            let tiles = tile_lines(shown, run.alarm.is_some(), width);
            lines.extend(tiles.into_iter().map(|line| line.patch_style(dimmed(run))));
        }
        lines
    }

    /// Draws the rankings, and all numbers if there is room or if a key selected them.
    fn body(&mut self, run: &RunView, style: Style, frame: &mut Frame<'_>, area: Rect) {
        let is_wide = area.width >= WIDE;
        let (rankings, all) = if is_wide {
            let [left, _, right] = Layout::horizontal([
                Constraint::Fill(1),
                Constraint::Length(GAP as u16),
                Constraint::Fill(1),
            ])
            .areas(area);
            (Some(left), Some(right))
        } else if self.lists_all {
            (None, Some(area))
        } else {
            (Some(area), None)
        };
        let mut scrolled = |lines: Vec<Line<'static>>, area: Rect| {
            let most = (lines.len() as u16).saturating_sub(area.height);
            let scroll = self.scroll.min(most);
            let lines = Paragraph::new(lines).style(style).scroll((scroll, 0));
            frame.render_widget(lines, area);
            most
        };
        let mut most = 0;
        if let Some(area) = rankings {
            most = most.max(scrolled(self.rankings(run, usize::from(area.width)), area));
        }
        if let Some(area) = all {
            most = most.max(scrolled(numbers(run, usize::from(area.width), !is_wide), area));
        }
        self.scroll = self.scroll.min(most);
    }

    fn rankings(&self, run: &RunView, width: usize) -> Vec<Line<'static>> {
        let mut rankings: Vec<(&Figure, &Vec<Ranked>)> = run
            .figures
            .iter()
            .filter_map(|figure| match &figure.shape {
                Shape::Ranking(ranked) if !ranked.is_empty() => Some((figure, ranked)),
                _ => None,
            })
            .collect();
        rankings.sort_by_key(|(figure, _)| figure.name != "heavy_flows");
        if !rankings.is_empty() {
            let first = self.ranking % rankings.len();
            rankings.rotate_left(first);
        }
        let mut lines = place_lines(run, width);
        for (figure, ranked) in rankings {
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            lines.extend(self.ranking_lines(figure, ranked, run, width));
        }
        if lines.is_empty() && run.window.is_some() {
            let advice = "no heavy hitters; --measure heavy ranks the largest flows";
            lines.push(Line::from(advice).dim());
        }
        lines
    }

    /// Returns a ranking as a table, with a bar for the size.
    fn ranking_lines(
        &self,
        figure: &Figure,
        ranked: &[Ranked],
        run: &RunView,
        width: usize,
    ) -> Vec<Line<'static>> {
        const SIZE: usize = 11;
        /// Rank and the blanks between columns.
        const FIXED: usize = 4 + SIZE + 4;
        let (factor, unit) = ranking_unit(figure, run.seconds);
        let change = |it: &Ranked| {
            let before = run.before.get(&(figure.identity(), it.name.clone()));
            it.number.value() - before.copied().unwrap_or_default()
        };
        let listed = listed(figure, ranked);
        let mut rows: Vec<(usize, &Ranked)> = listed.into_iter().enumerate().collect();
        match self.order {
            Order::Size => {}
            Order::Change => rows
                .sort_by(|(_, one), (_, other)| change(other).abs().total_cmp(&change(one).abs())),
            Order::Name => rows.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name)),
        }
        let heading = cut(&ranking_heading(figure, run.seconds), width);
        let mut lines = vec![Line::from(heading).add_modifier(Modifier::UNDERLINED)];
        if rows.is_empty() {
            lines.push(Line::from("    none in this window").dim());
        }
        let most = rows.iter().map(|(_, it)| it.number.value()).fold(f64::MIN_POSITIVE, f64::max);
        let names: Vec<String> = rows
            .iter()
            .map(|(_, it)| self.names.named(&it.name).unwrap_or_else(|| it.name.clone()))
            .collect();
        let behind: Vec<String> = rows
            .iter()
            .map(|(_, it)| match self.order {
                Order::Change => {
                    let change = change(it) * factor;
                    let sign = if change < 0.0 { "−" } else { "+" };
                    format!("{sign}{}", formatted(change.abs(), unit))
                }
                Order::Size | Order::Name => bounds(&it.number, factor, unit),
            })
            .collect();
        let longest = |texts: &[String]| {
            texts.iter().map(|text| text.chars().count()).max().unwrap_or_default()
        };
        let note = rows.iter().map(|(_, it)| it.more.chars().count()).max().unwrap_or_default();
        let note = note.min(MAX_NOTE);
        // Names come before bounds, and bounds before long bars. A change is what it is sorted by.
        let needed = if self.order == Order::Change { longest(&behind) } else { 0 };
        let room = width.saturating_sub(FIXED + note);
        let name = longest(&names).clamp(12, room.saturating_sub(MIN_BAR + needed).max(12));
        let left = room.saturating_sub(name);
        let last = if left >= longest(&behind) + MIN_BAR { longest(&behind) } else { 0 };
        let bar = left.saturating_sub(last).clamp(MIN_BAR, MAX_BAR);
        for (((rank, it), shown), behind) in rows.into_iter().zip(names).zip(behind) {
            let value = it.number.value();
            let filled = ((value / most) * bar as f64).ceil().clamp(0.0, bar as f64) as usize;
            let shown = cut(&shown, name);
            let behind = if last > 0 { behind } else { String::new() };
            lines.push(Line::from(vec![
                format!("{:>3} ", rank + 1).dim(),
                Span::from(format!("{shown:<name$} ")),
                format!("{:>SIZE$} ", formatted(value * factor, unit)).bold(),
                format!("{:<bar$} ", "█".repeat(filled)).cyan(),
                Span::from(format!("{:<note$} ", cut(&it.more, note))),
                behind.dim(),
            ]));
        }
        lines
    }

    /// Returns the keys, as many as there is room for.
    fn keys(&self, width: usize) -> String {
        if self.runs == 0 {
            return "q quit".to_owned();
        }
        let pause = if self.paused { "resume" } else { "pause" };
        let order = self.order.name();
        let all = if self.lists_all { "rankings" } else { "all numbers" };
        let keys = [
            Some("q quit".to_owned()),
            Some("? keys".to_owned()),
            (self.runs > 1).then(|| "Tab next run".to_owned()),
            (self.places.len() > 1).then(|| "i next interface".to_owned()),
            Some(format!("s sort: {order}")),
            Some("r ranking".to_owned()),
            (width < usize::from(WIDE)).then(|| format!("a {all}")),
            Some(format!("p {pause}")),
            Some("↑↓ scroll".to_owned()),
        ];
        let mut line = String::new();
        for key in keys.into_iter().flatten() {
            let with = if line.is_empty() { key } else { format!("{line}  {key}") };
            if with.chars().count() > width {
                break;
            }
            line = with;
        }
        format!("{line:<width$}")
    }
}

/// Style of the figures of a run: dimmed once they are no longer those of now.
fn dimmed(run: &RunView) -> Style {
    if run.silent.is_some() { Style::new().dim() } else { Style::new() }
}

fn window(run: &RunView) -> String {
    match run.window {
        Some(window) => {
            let age = run.age + run.silent.unwrap_or_default().as_secs_f64();
            format!("window {window}, {}, {age:.0} s ago", formatted(run.seconds, "seconds"))
        }
        None if run.starting.is_empty() => "no window has ended yet".to_owned(),
        None => "starting".to_owned(),
    }
}

/// Returns whether the run is healthy, or what is wrong and for how long.
fn state(run: &RunView, width: usize) -> Vec<Line<'static>> {
    let line = |text: &str, style: Style| Line::styled(cut(text, width), style);
    let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    if let Some(silent) = run.silent {
        let silent = elapsed(silent.as_secs_f64());
        let text = format!("▲ the run ended {silent} ago, or no longer answers; its last window:");
        return vec![line(&text, red)];
    }
    let mut bad: Vec<String> = run.problems.clone();
    let mut warned: Vec<String> =
        run.starting.iter().map(|starting| format!("starting: {starting}")).collect();
    if let Some(seconds) = run.alarm {
        let what = risen(run).unwrap_or_else(|| {
            let heaviest = first_of(run, "heavy_flows");
            let heaviest = heaviest.map(|(_, it)| format!("; heaviest: {} {}", it.name, it.more));
            let heaviest = heaviest.unwrap_or_default();
            format!("entropies are far outside their usual range{heaviest}")
        });
        bad.push(format!("alarm for {}: {what}", elapsed(seconds)));
    }
    if let Some(seconds) = run.lossy {
        bad.push(format!("packets are lost for {}, {} so far", elapsed(seconds), scaled(run.lost)));
    }
    for figure in &run.figures {
        match (&figure.shape, figure.name.as_str()) {
            (Shape::State(true), "alert_firing") => bad.push(format!("alert: {}", figure.label())),
            (Shape::State(true), "full") => {
                let what = figure.label();
                warned.push(format!(
                    "counters of {what} are full; shorter windows give better numbers"
                ));
            }
            (Shape::Count(late), "late_packets") if *late > 0.0 => {
                warned.push(format!("{} packets came too late for their window", scaled(*late)));
            }
            _ => {}
        }
    }
    // The first window of a run is shorter than the others.
    if run.window.is_some_and(|window| window > 0) && !run.complete && run.lossy.is_none() {
        warned.push("the last window is incomplete".to_owned());
    }
    let yellow = Style::new().fg(Color::Yellow);
    let mut lines: Vec<Line<'static>> =
        bad.iter().map(|text| line(&format!("▲ {text}"), red)).collect();
    lines.extend(warned.iter().map(|text| line(&format!("● {text}"), yellow)));
    if lines.is_empty() && run.window.is_some() {
        let before = if run.lost > 0.0 {
            format!("healthy now; {} packets were lost before", scaled(run.lost))
        } else {
            "healthy: nothing lost, no window late or incomplete".to_owned()
        };
        lines.push(line(&format!("● {before}"), Style::new().fg(Color::Green)));
    }
    lines
}

/// Returns a ranking with its first item, if it has one.
fn first_of<'a>(run: &'a RunView, name: &str) -> Option<(&'a Figure, &'a Ranked)> {
    run.figures.iter().find_map(|figure| match &figure.shape {
        Shape::Ranking(ranked) if figure.name == name => Some((figure, ranked.first()?)),
        _ => None,
    })
}

/// Describes an attack by the flow that rose most; `None` if none is known.
fn risen(run: &RunView) -> Option<String> {
    let (figure, first) =
        first_of(run, "alarm_flows").or_else(|| first_of(run, "alarm_fan_out"))?;
    let role = match figure.label_value("key") {
        Some("dst") => "victim",
        Some("src") => "most from",
        _ => "most in",
    };
    let unit = match (figure.label_value("by"), figure.label_value("of")) {
        (Some(unit), _) => unit.to_owned(),
        (None, others) => format!("distinct {}", others.unwrap_or("others")),
    };
    let count = scaled(first.number.value());
    Some(format!("possible flood, {role} {} ({count} {unit}, {})", first.name, first.more))
}

/// Formats a duration for people.
fn elapsed(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Returns the tiles, in two columns where there is room.
fn tile_lines(run: &RunView, is_alarm: bool, width: usize) -> Vec<Line<'static>> {
    let half = width.saturating_sub(GAP) / 2;
    let has_two = half >= MIN_TILE;
    let each = if has_two { half } else { width };
    let tiles = TILES.iter().zip(&run.tiles);
    let line = |(tile, (value, series)): (&Tile, &(Option<TileValue>, Series))| {
        tile_line(tile, value.as_ref(), series, run, is_alarm, each)
    };
    let mut lines: Vec<Line<'static>> = tiles.map(line).collect();
    if has_two {
        let right = lines.split_off(lines.len().div_ceil(2));
        for (left, right) in lines.iter_mut().zip(right) {
            left.spans.push(Span::from(" ".repeat(GAP)));
            left.spans.extend(right.spans);
        }
    }
    lines
}

/// Returns a tile in one line: title, value, interval, series, change against the usual value.
fn tile_line(
    tile: &Tile,
    value: Option<&TileValue>,
    series: &Series,
    run: &RunView,
    is_alarm: bool,
    width: usize,
) -> Line<'static> {
    let Some(it) = value else {
        let has_delays = || run.figures.iter().any(|figure| figure.name == "delay_requests");
        let text = match tile.measure {
            "" => "none".to_owned(),
            _ if tile.title == "p95" && has_delays() => "none in this window".to_owned(),
            measure => format!("off; --measure {measure}"),
        };
        // The name of a percentile does not say what was measured.
        let title = if tile.title == "p95" { "round trip p95" } else { tile.title };
        let text = cut(&format!("{title:<TITLE$} {text}"), width);
        return Line::from(format!("{text:<width$}").dim());
    };
    let title = cut(&[tile.title, &it.label.replace("p95", "")].join(" "), TITLE);
    let interval = if it.low == it.high {
        String::new()
    } else {
        format!("({})", interval(it.low, it.high, tile.unit))
    };
    // Narrow screens have no interval that is longer than its column.
    let interval = if interval.chars().count() > INTERVAL { String::new() } else { interval };
    let room = width.saturating_sub(TITLE + VALUE + INTERVAL + CHANGE + 4).max(MIN_SERIES);
    let (change, is_odd) = change(tile, it, run);
    let change = Span::from(format!("{change:<CHANGE$}"));
    // An alarm is about entropies, however small their change is.
    let is_odd = is_odd || (is_alarm && tile.title == "entropy");
    Line::from(vec![
        Span::from(format!("{title:<TITLE$} ")),
        format!("{:>VALUE$} ", formatted(it.value, tile.unit)).bold(),
        format!("{interval:<INTERVAL$} ").dim(),
        // The last window is always at the same place.
        format!("{:>room$} ", drawn(series, room)).cyan(),
        if is_odd { change.yellow().bold() } else { change.dim() },
    ])
}

/// Names an interface and direction.
fn placed((interface, direction): &Place) -> String {
    let direction = match direction.as_str() {
        "ingress" => "in",
        "egress" => "out",
        other => other,
    };
    format!("{interface} {direction}")
}

/// Returns the interfaces of a run with several interfaces or directions, with ingress and egress
/// in one line.
fn place_lines(run: &RunView, width: usize) -> Vec<Line<'static>> {
    const RATE: usize = 11;
    /// Width of one direction: packets, a blank, bits.
    const SIDE: usize = RATE + 1 + RATE;
    if run.parts.len() < 2 {
        return Vec::new();
    }
    let mut interfaces: Vec<(&str, [Option<&RunView>; 2])> = Vec::new();
    for part in &run.parts {
        let Some((interface, direction)) = &part.place else { continue };
        let at = interfaces.iter().position(|(name, _)| name == interface);
        let at = at.unwrap_or_else(|| {
            interfaces.push((interface.as_str(), [None; 2]));
            interfaces.len() - 1
        });
        if let Some((_, [into, out])) = interfaces.get_mut(at) {
            *(if direction == "egress" { out } else { into }) = Some(part);
        }
    }
    let bits = |sides: &[Option<&RunView>; 2]| -> f64 {
        sides.iter().flatten().filter_map(|part| tile_value(part, "bits")).sum()
    };
    interfaces.sort_by(|(_, one), (_, other)| bits(other).total_cmp(&bits(one)));
    let longest = interfaces.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let name = longest.clamp(12, width.saturating_sub(2 * SIDE + 6).max(12));
    let indented = 4 + name;
    let heading = format!("{:<indented$}{:>SIDE$}  {:>SIDE$}", "interfaces", "in", "out");
    let mut lines = vec![Line::from(cut(&heading, width)).add_modifier(Modifier::UNDERLINED)];
    let side = |part: Option<&RunView>| {
        let rate = |title: &str, unit: &str| {
            let value = part.and_then(|part| tile_value(part, title));
            value.map_or_else(String::new, |value| formatted(value, unit))
        };
        format!("{:>RATE$} {:>RATE$}", rate("packets", "things/s"), rate("bits", "bits/s"))
    };
    for (interface, [into, out]) in interfaces.iter().take(MAX_INTERFACES) {
        let interface = cut(interface, name);
        let line = format!("    {interface:<name$}{}  {}", side(*into), side(*out));
        lines.push(Line::from(cut(&line, width)));
    }
    let hidden = run.places.saturating_sub(run.parts.len());
    if hidden > 0 {
        let text = format!("    and {hidden} less busy interfaces and directions");
        lines.push(Line::from(cut(&text, width)).dim());
    }
    lines
}

/// Returns the change of a value against what the run says is usual, and whether it is unusual.
fn change(
    tile: &Tile,
    &TileValue { value, usual, .. }: &TileValue,
    run: &RunView,
) -> (String, bool) {
    if tile.title == "drops" {
        let all =
            if run.lost > 0.0 { format!("{} in all", scaled(run.lost)) } else { "none".to_owned() };
        return (all, value > 0.0);
    }
    let Some(usual) = usual else { return ("no history yet".to_owned(), false) };
    if usual <= 0.0 || !value.is_finite() {
        return (String::new(), false);
    }
    let change = (value - usual) / usual;
    let text = match change {
        change if change.abs() < 0.01 => "as usual".to_owned(),
        change if change >= 10.0 => format!("× {:.0} usual", change + 1.0),
        change => format!("{:+.0} % usual", change * 100.0),
    };
    // Shorter delays and less reordering are no reason to look.
    let less_is_fine = matches!(tile.unit, "seconds" | "ratio");
    let is_odd = if less_is_fine { change > ODD_CHANGE } else { change.abs() > ODD_CHANGE };
    (text, is_odd)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use flowgauge_ctl::status::StatusReport;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde::Deserialize;
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    fn take(watched: &mut Runs, runs: &[Value], notes: Vec<String>, now: Instant) {
        let runs: Vec<StatusReport> =
            runs.iter().map(|run| StatusReport::deserialize(run).unwrap()).collect();
        watched.take(&runs, notes, now);
    }

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

    fn screen_of(view: &mut View, watched: &Runs, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(watched, frame)).unwrap();
        let rows = terminal.backend().buffer().content().chunks(width.into());
        rows.map(|row| {
            row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned() + "\n"
        })
        .collect()
    }

    fn screen(view: &mut View, watched: &Runs) -> String {
        screen_of(view, watched, 100, 24)
    }

    /// First window of the attack.
    const ATTACK: u64 = 37;

    /// Returns a window of a run with every tile; from [`ATTACK`] on there is an attack.
    fn busy(window: u64) -> Value {
        let is_attack = window >= ATTACK;
        let packets = if is_attack { 30_000.0 } else { 10_000.0 + 500.0 * (window % 3) as f64 };
        let flow = |name: &str, value: f64, share: &str| json!({ "name": name, "number": { "value": value, "low": value * 0.9, "high": value }, "more": share });
        // Packets before the attack, per second.
        let usual = |per: f64| (window >= 30).then_some(5250.0 * per);
        json!({
            "pid": 7, "backend": "xdp", "interface": "eth1", "version": "0.1.0",
            "last_window": { "window": window, "start_ns": window * 2_000_000_000, "end_ns": (window + 1) * 2_000_000_000, "age_ns": 600_000_000_u64, "complete": true,
                "alarm": is_attack, "drops": { "ring": if is_attack { 120 } else { 0 } } },
            "figures": [
                { "name": "packets", "title": "IP packets", "unit": "things", "labels": { "family": "ipv4" }, "count": packets, "usual": usual(1.0) },
                { "name": "packets", "title": "IP packets", "unit": "things", "labels": { "family": "ipv6" }, "count": 500.0, "usual": usual(250.0 / 5250.0) },
                { "name": "traffic", "title": "bytes of all packets", "unit": "bytes", "count": packets * 700.0, "usual": usual(700.0) },
                { "name": "distinct_flows", "title": "distinct flows", "unit": "things", "labels": { "key": "src" },
                  "number": { "value": packets / 10.0, "low": packets / 11.0, "high": packets / 9.0 }, "usual": usual(0.2) },
                { "name": "entropy", "title": "entropy", "unit": "bits", "labels": { "key": "src" },
                  "number": { "value": 8.125, "low": 8.0, "high": 8.25 }, "usual": usual(8.125 / 5250.0) },
                { "name": "delay", "title": "delays", "unit": "seconds", "labels": { "kind": "dns", "percentile": "95" },
                  "number": { "value": 0.5, "low": 0.4, "high": 0.6 } },
                { "name": "delay", "title": "delays", "unit": "seconds", "labels": { "kind": "tcp-data", "percentile": "50" },
                  "number": { "value": 0.001, "low": 0.0009, "high": 0.0011 } },
                { "name": "delay", "title": "delays", "unit": "seconds", "labels": { "kind": "tcp-data", "percentile": "95" },
                  "number": { "value": 0.0123, "low": 0.011, "high": 0.0135 }, "usual": usual(0.0123 / 5250.0) },
                { "name": "lost_packets", "title": "lost packets", "unit": "things", "labels": { "cause": "ring" }, "count": if is_attack { 120.0 } else { 0.0 } },
                { "name": "late_packets", "title": "late packets", "unit": "things", "count": 0.0 },
                { "name": "heavy_flows", "title": "heaviest flows", "unit": "things", "labels": { "by": "packets", "key": "src" }, "ranking": [
                    flow("10.0.0.2", packets * 0.5, "50.00 %"), flow("10.0.0.10", packets * 0.2, "20.00 %"), flow("2001:db8::77", 400.0, "4.00 %") ] },
                { "name": "reordering_prefixes", "title": "prefixes that reorder", "unit": "ratio", "ranking": [ flow("10.0.0.0/24", 0.02, "") ] },
            ],
        })
    }

    /// Compares whole screens with files. `TEST_BLESS=1` writes them.
    #[test]
    fn the_first_screen_at_three_sizes() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        (0..=ATTACK)
            .for_each(|window| take(&mut watched, &[busy(window)], Vec::new(), Instant::now()));
        for (width, height) in [(80, 24), (120, 36), (200, 50)] {
            let screen = screen_of(&mut view, &watched, width, height);
            let path = format!(
                "{}/src/commands/top/screens/{width}x{height}.txt",
                env!("CARGO_MANIFEST_DIR")
            );
            if std::env::var_os("TEST_BLESS").is_some() {
                std::fs::write(&path, &screen).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(screen, expected, "{path}");
            assert!(screen.lines().all(|line| line.chars().count() <= width.into()), "{screen}");
        }
    }

    #[test]
    fn a_screen_that_begins_in_an_attack_shows_what_was_before() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let mut status = busy(ATTACK);
        // The last value is that of this window.
        status["series"] = json!({
            "packets ipv4": [5000.0, 5250.0, 15_000.0], "packets ipv6": [250.0, 250.0, 250.0],
            // Figures of other tiles come first in the order of names.
            "entropy dst": [1.0, 1.0, 1.0], "entropy src": [null, 8.125, 8.125],
            "delay dns 95": [0.5, 0.5, 0.5], "delay tcp-data 95": [0.01, 0.02, 0.0123],
            "tcp_segments all": [100.0, 0.0, 1.0], "tcp_segments out-of-order": [5.0, 0.0, 1.0],
        });
        take(&mut watched, &[status], Vec::new(), Instant::now());
        let series = |title: &str| -> Vec<f64> {
            let index = TILES.iter().position(|tile| tile.title == title).unwrap();
            watched.runs[0].tiles[index].1.iter().copied().collect()
        };
        assert_eq!(series("packets"), [5250.0, 5500.0, 15_250.0]);
        // A status has values of half the precision.
        assert_eq!(series("p95"), [f64::from(0.01_f32), f64::from(0.02_f32), 0.0123]);
        assert_eq!(series("out of order")[..2], [0.05, 0.0]);
        assert!(series("entropy")[0].is_nan() && series("distinct").len() == 1);
        let screen = screen(&mut view, &watched);
        let line = screen.lines().find(|line| line.starts_with("packets")).unwrap();
        assert!(line.contains("+177 % usual"), "{screen}");
        // A run without enough windows does not know what is usual.
        take(&mut watched, &[busy(3)], Vec::new(), Instant::now());
        assert!(screen_of(&mut view, &watched, 100, 24).contains("no history yet"));
    }

    #[test]
    fn rankings_are_sorted_by_size_change_or_name() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        (0..=ATTACK)
            .for_each(|window| take(&mut watched, &[busy(window)], Vec::new(), Instant::now()));
        let mut order = |expected: [&str; 3], key: &str| {
            let screen = screen(&mut view, &watched);
            let places = expected.map(|name| screen.rfind(&format!(" {name} ")).unwrap());
            assert!(places.is_sorted() && screen.contains(&format!("sort: {key}")), "{screen}");
            view.press(KeyCode::Char('s'));
        };
        order(["10.0.0.2", "10.0.0.10", "2001:db8::77"], "size");
        order(["10.0.0.2", "10.0.0.10", "2001:db8::77"], "change");
        order(["10.0.0.10", "10.0.0.2", "2001:db8::77"], "name");
        order(["10.0.0.2", "10.0.0.10", "2001:db8::77"], "size");
        view.press(KeyCode::Char('r'));
        let other = screen(&mut view, &watched);
        let headings = [
            "prefixes, share of segments out of order",
            "heaviest flows by src, packets per second",
        ];
        let places = headings.map(|heading| other.find(heading).unwrap());
        assert!(places.is_sorted(), "{other}");
    }

    #[test]
    fn losses_and_alarms_last_until_they_end() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        (0..=ATTACK + 1)
            .for_each(|window| take(&mut watched, &[busy(window)], Vec::new(), Instant::now()));
        let during = screen(&mut view, &watched);
        assert!(
            during.contains("alarm for 4 s") && during.contains("heaviest: 10.0.0.2"),
            "{during}"
        );
        assert!(during.contains("packets are lost for 4 s, 240 so far"), "{during}");
        let mut over = busy(0);
        over["last_window"]["window"] = 9.into();
        take(&mut watched, &[over], Vec::new(), Instant::now());
        let after = screen(&mut view, &watched);
        assert!(after.contains("healthy now; 240 packets were lost before"), "{after}");
    }

    #[test]
    fn an_alarm_names_its_victim() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let mut run = busy(ATTACK);
        run["figures"].as_array_mut().unwrap().push(json!({
            "name": "alarm_flows", "title": "flows that are larger than usual, in an alarm", "unit": "things", "labels": { "by": "packets", "key": "dst" },
            "ranking": [{ "name": "192.0.2.1", "number": { "value": 400.0, "low": 400.0, "high": 400.0 }, "more": "usually 12" }] }));
        take(&mut watched, &[run], Vec::new(), Instant::now());
        let text = screen(&mut view, &watched);
        let expected = "alarm for 2 s: possible flood, victim 192.0.2.1 (400 packets, usually 12)";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn every_source_of_a_run_has_a_screen() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let mut run = json!({ "pid": 7, "problems": ["b: it is slow"], "sources": [] });
        for name in ["a", "b"] {
            let mut source = busy(3);
            source["source"] = name.into();
            run["sources"].as_array_mut().unwrap().push(source);
        }
        take(&mut watched, &[run], Vec::new(), Instant::now());
        let first = screen(&mut view, &watched);
        assert!(first.starts_with("run 7: xdp a,") && first.contains("1 of 2"), "{first}");
        assert!(first.contains("b: it is slow"), "{first}");
        view.press(KeyCode::Tab);
        assert!(screen(&mut view, &watched).starts_with("run 7: xdp b,"));
    }

    #[test]
    fn a_run_is_drawn_with_bounds_and_courses() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        for (window, flows) in [(0, 100.0), (1, 200.0), (1, 200.0), (2, 800.0)] {
            let notes = vec!["a note".to_owned()];
            take(&mut watched, &[status_of(window, flows)], notes, Instant::now());
        }
        view.press(KeyCode::Char('a'));
        let screen = screen_of(&mut view, &watched, 100, 40);
        let has = |text: &str| assert!(screen.contains(text), "{text}:\n{screen}");
        has("run 7: poll eth1, flowgauge 0.1.0");
        has("window 2, 2.00 s, 3 s ago\n▲ a window is overdue\n▲ alarm for 6 s");
        has("● the last window is incomplete");
        // One character per window, not per status.
        has("  ▂▃█  ");
        has("(720");
        has("… ∞)");
        has("IP packets per second\n  ipv4                         2.00 k");
        has("10.0.0.1");
        has("1.00 ms … 2.00 ms".replace("1.00", "1.0").replace("2.00", "2.0").as_str());
        has("a note");
        assert!(!screen.contains("lost") && !screen.contains("newer"), "{screen}");
    }

    #[test]
    fn a_run_that_starts_says_so() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let mut run = json!({ "pid": 7, "backend": "xdp", "interface": "eth1", "version": "0.1.0", "problems": [],
            "starting": ["counting has not started"], "failed": ["b: it has failed"] });
        take(&mut watched, &[run.clone()], Vec::new(), Instant::now());
        let starting = screen(&mut view, &watched);
        let expected = "starting\n▲ b: it has failed\n● starting: counting has not started\n";
        assert!(starting.contains(expected), "{starting}");
        run["starting"] = json!([]);
        take(&mut watched, &[run], Vec::new(), Instant::now());
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
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        take(&mut watched, &[run(7), run(9)], Vec::new(), at(0));
        assert!(screen(&mut view, &watched).starts_with("run 7"));
        view.press(KeyCode::Tab);
        assert!(screen(&mut view, &watched).starts_with("run 9"));
        take(&mut watched, &[run(5), run(9), run(7)], Vec::new(), at(1));
        assert!(
            screen(&mut view, &watched).starts_with("run 9"),
            "the one that is looked at stays"
        );
        view.press(KeyCode::Tab);
        assert!(screen(&mut view, &watched).starts_with("run 5"));
        view.press(KeyCode::BackTab);
        assert!(screen(&mut view, &watched).starts_with("run 9"));
        take(&mut watched, &[run(5), run(7)], Vec::new(), at(3));
        let late = screen(&mut view, &watched);
        assert!(late.starts_with("run 9") && late.contains("3 of 3"), "one late answer: {late}");
        take(&mut watched, &[run(7)], Vec::new(), at(15));
        let live = screen(&mut view, &watched);
        assert!(live.starts_with("run 7") && !live.contains("no longer"), "{live}");
        assert!(live.contains("1 of 3, 2 ended"), "{live}");
        view.press(KeyCode::BackTab);
        for _ in 0..2 {
            let ended = screen(&mut view, &watched);
            assert!(ended.starts_with("run 9") && ended.contains("3 of 3, 2 ended"), "{ended}");
            assert!(ended.contains("▲ the run ended 14 s ago, or no longer answers"), "{ended}");
        }
        view.press(KeyCode::Tab);
        assert!(screen(&mut view, &watched).starts_with("run 7"));
        take(&mut watched, &[run(7)], Vec::new(), at(603));
        let only = screen(&mut view, &watched);
        assert!(only.starts_with("run 7") && !only.contains("ended"), "{only}");
        // Scrolling stops at the end.
        view.press(KeyCode::Char('a'));
        (0..99).for_each(|_| view.press(KeyCode::PageDown));
        assert!(screen(&mut view, &watched).contains("ms"));
        view.press(KeyCode::Char('p'));
        assert!(view.paused && screen(&mut view, &watched).contains("resume"));
    }

    #[test]
    fn interfaces_and_directions_are_side_by_side_and_one_at_a_time() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let part = |interface: &str, direction: &str, packets: f64| {
            let mut part = busy(3);
            part["interface"] = interface.into();
            part["direction"] = direction.into();
            part["figures"][0]["count"] = packets.into();
            part["figures"][1]["count"] = 0.into();
            part
        };
        let mut run = busy(3);
        run["parts"] = json!([
            part("eth1", "ingress", 2000.0),
            part("eth1", "egress", 4000.0),
            part("eth2", "ingress", 6000.0)
        ]);
        run["places"] = json!(vec![json!({ "interface": "eth1", "direction": "ingress" }); 4]);
        take(&mut watched, &[run], Vec::new(), Instant::now());
        let all = screen(&mut view, &watched);
        let line = |screen: &str, start: &str| {
            let found = screen.lines().find(|line| line.trim_start().starts_with(start));
            found.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(&all, "interfaces"), "interfaces in out");
        assert_eq!(line(&all, "eth1"), "eth1 1.00 k/s 28.0 Mbit/s 2.00 k/s 28.0 Mbit/s");
        assert_eq!(line(&all, "eth2"), "eth2 3.00 k/s 28.0 Mbit/s");
        assert!(all.contains("and 1 less busy") && all.contains("i next interface"), "{all}");
        assert!(all.starts_with("run 7: xdp eth1,"), "{all}");
        let mut next = || {
            view.press(KeyCode::Char('i'));
            screen(&mut view, &watched)
        };
        for (heading, packets) in [
            ("eth1 in of run 7: xdp eth1,", "1.00 k/s"),
            ("eth1 out of run 7: xdp eth1,", "2.00 k/s"),
            ("eth2 in of run 7: xdp eth1,", "3.00 k/s"),
        ] {
            let shown = next();
            assert!(shown.starts_with(heading), "{shown}");
            assert!(line(&shown, "packets").contains(packets), "{shown}");
            assert_eq!(line(&shown, "interfaces"), "", "{shown}");
        }
        assert!(next().starts_with("run 7"));
    }

    #[test]
    fn the_clock_and_the_keys_are_shown() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        take(&mut watched, &[busy(3)], Vec::new(), Instant::now());
        view.clock = "12:34:56".to_owned();
        let first = screen_of(&mut view, &watched, 80, 24);
        assert!(first.lines().next().unwrap().ends_with("  12:34:56"), "{first}");
        assert!(first.starts_with("run 7: xdp eth1, flowgauge 0.1.0 "), "{first}");
        for key in ['?', 'h'] {
            view.press(KeyCode::Char(key));
            let keys = screen(&mut view, &watched);
            assert!(view.shows_keys && keys.contains("next interface and direction"), "{keys}");
            assert!(!keys.contains("heaviest flows by"), "{keys}");
            view.press(KeyCode::Esc);
            assert!(!view.shows_keys);
        }
        assert!(screen(&mut view, &watched).contains("heaviest flows by"));
    }

    #[test]
    fn entries_without_an_event_are_left_out_unless_they_are_queried() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        let entry = |name: &str, value: f64| json!({ "name": name, "number": { "value": value, "low": 0.0, "high": 0.8 }, "more": "0 of 41 segments" });
        let ranking = |name: &str, entries: Value| json!({ "name": name, "title": name, "unit": "ratio", "labels": { "key": "src" }, "ranking": entries });
        let mut run = busy(3);
        run["figures"] = json!([
            ranking(
                "reordering_prefixes",
                json!([entry("10.0.1.0/24", 0.1), entry("10.0.2.0/24", 0.0)])
            ),
            ranking("asked_flows", json!([entry("192.0.2.1", 0.0)])),
        ]);
        take(&mut watched, &[run.clone()], Vec::new(), Instant::now());
        let shown = screen(&mut view, &watched);
        assert!(shown.contains("10.0.1.0/24") && shown.contains("0 of 41 segments"), "{shown}");
        assert!(!shown.contains("10.0.2.0/24") && shown.contains("192.0.2.1"), "{shown}");
        run["figures"] =
            json!([ranking("reordering_prefixes", json!([entry("10.0.2.0/24", 0.0)]))]);
        run["last_window"]["window"] = 4.into();
        take(&mut watched, &[run], Vec::new(), Instant::now());
        let none = screen(&mut view, &watched);
        assert!(none.contains("none in this window") && !none.contains("10.0.2"), "{none}");
    }

    #[test]
    fn percentiles_of_a_kind_are_one_row() {
        let (mut watched, mut view) = (Runs::default(), View::default());
        take(&mut watched, &[busy(3)], Vec::new(), Instant::now());
        view.press(KeyCode::Char('a'));
        let screen = screen_of(&mut view, &watched, 100, 40);
        assert_eq!(screen.matches("\ndelays\n").count(), 1, "{screen}");
        let row = |start: &str| {
            let mut lines = screen.lines().filter(|line| line.trim_start().starts_with(start));
            lines.next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("p50"), "p50 p95", "{screen}");
        assert_eq!(row("tcp-data"), "tcp-data 1.0 ms 12.3 ms", "{screen}");
        assert_eq!(row("dns"), "dns 500.0 ms", "{screen}");
    }
}
