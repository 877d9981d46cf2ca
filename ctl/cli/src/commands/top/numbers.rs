//! List of all numbers of a run.

use super::drawn::RunView;
use super::figure::{Figure, Number, Range, Ranked, Shape};
use super::text::{bounds, drawn, formatted, listed};
use super::tiles::{ranking_heading, ranking_unit};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};

/// Width of a series, in characters.
const SERIES_WIDTH: usize = 24;
/// Width of a label.
const LABEL: usize = 22;
/// Number of entries of a ranking.
const MAX_RANKS: usize = 10;

/// Returns every number of a run; with rankings unless they are shown next to it.
pub(super) fn numbers(run: &RunView, width: usize, with_rankings: bool) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut title = String::new();
    let mut tables: Vec<&str> = Vec::new();
    for figure in &run.figures {
        let is_ranking = matches!(figure.shape, Shape::Ranking(_));
        if !is_worth_a_line(figure, run) || (is_ranking && !with_rankings) {
            continue;
        }
        if figure.percentile().is_some() {
            if !tables.contains(&figure.name.as_str()) {
                tables.push(&figure.name);
                lines.push(heading(&figure.title));
                lines.extend(percentile_lines(&figure.name, run, width));
                title.clear();
            }
            continue;
        }
        let titled = match figure.shape {
            Shape::Count(_) => format!("{} per second", figure.title),
            Shape::Ranking(_) => ranking_heading(figure, run.seconds),
            _ => figure.title.clone(),
        };
        if titled != title {
            lines.push(heading(&titled));
            title = titled;
        }
        lines.extend(figure_lines(figure, run, width));
    }
    lines
}

fn heading(title: &str) -> Line<'static> {
    Line::from(Span::styled(title.to_owned(), Style::new().add_modifier(Modifier::UNDERLINED)))
}

/// Returns the percentiles of all figures of a name as a table, one row for each label; with their
/// intervals below where all of them fit.
fn percentile_lines(name: &str, run: &RunView, width: usize) -> Vec<Line<'static>> {
    let mut percentiles: Vec<&str> = Vec::new();
    let mut rows: Vec<(String, Vec<(&str, &Number)>)> = Vec::new();
    let mut unit = "";
    for figure in run.figures.iter().filter(|figure| figure.name == name) {
        let (Some(percentile), Shape::Number(number)) = (figure.percentile(), &figure.shape) else {
            continue;
        };
        unit = &figure.unit;
        if !percentiles.contains(&percentile) {
            percentiles.push(percentile);
        }
        let label = figure.label_of_all_percentiles();
        let at = rows.iter().position(|(row, _)| *row == label);
        match at.and_then(|at| rows.get_mut(at)) {
            Some((_, cells)) => cells.push((percentile, number)),
            None => rows.push((label, vec![(percentile, number)])),
        }
    }
    let share = |percentile: &str| percentile.parse::<f64>().unwrap_or(f64::INFINITY);
    percentiles.sort_by(|one, other| share(one).total_cmp(&share(other)));
    let room = width.saturating_sub(2 + LABEL) / percentiles.len().max(1);
    let column = room.clamp(9, 20);
    let line = |label: &str, cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>column$}")).collect();
        Line::from(format!("  {label:<LABEL$}{}", cells.concat()))
    };
    let named: Vec<String> =
        percentiles.iter().map(|percentile| format!("p{percentile}")).collect();
    let mut lines = vec![line("", &named).dim()];
    for (label, cells) in rows {
        let found = |percentile: &&str| {
            cells.iter().find(|(it, _)| it == percentile).map(|(_, number)| *number)
        };
        let numbers: Vec<Option<&Number>> = percentiles.iter().map(found).collect();
        let value = |number: &Number| formatted(number.value(), unit);
        let interval = |number: &Number| bounds(number, 1.0, unit);
        let values: Vec<String> =
            numbers.iter().map(|number| number.map_or_else(String::new, value)).collect();
        let intervals: Vec<String> =
            numbers.iter().map(|number| number.map_or_else(String::new, interval)).collect();
        lines.push(line(&label, &values));
        let fits = intervals.iter().all(|interval| interval.chars().count() < column);
        if fits && intervals.iter().any(|interval| !interval.is_empty()) {
            lines.push(line("", &intervals).dim());
        }
    }
    lines
}

/// Returns whether a figure is listed: counts that stay zero, empty ones and states are not.
fn is_worth_a_line(figure: &Figure, run: &RunView) -> bool {
    match &figure.shape {
        Shape::Count(_) => {
            let series = run.series.get(&(figure.name.clone(), figure.label()));
            series.is_some_and(|series| series.iter().any(|height| *height > 0.0))
        }
        Shape::State(_) => false,
        Shape::Distribution { ranges } => ranges.iter().any(|range| range.count > 0.0),
        Shape::Ranking(ranked) => !listed(figure, ranked).is_empty(),
        Shape::Number(_) => true,
    }
}

fn figure_lines(figure: &Figure, run: &RunView, width: usize) -> Vec<Line<'static>> {
    let unit = figure.unit.as_str();
    let series = run
        .series
        .get(&(figure.name.clone(), figure.label()))
        .map(|series| drawn(series, SERIES_WIDTH))
        .unwrap_or_default();
    match &figure.shape {
        Shape::Number(number) => vec![Line::from(format!(
            "  {:<LABEL$} {:>12}  {series:<SERIES_WIDTH$}  {}",
            figure.label(),
            formatted(number.value(), unit),
            bounds(number, 1.0, unit)
        ))],
        Shape::Count(_) => {
            let height = figure.height(run.seconds).unwrap_or_default();
            vec![Line::from(format!(
                "  {:<LABEL$} {:>12}  {series}",
                figure.label(),
                formatted(height, unit)
            ))]
        }
        Shape::State(_) => Vec::new(),
        Shape::Ranking(ranked) => {
            let name = width.saturating_sub(50).clamp(16, 60);
            let (factor, unit) = ranking_unit(figure, run.seconds);
            let line = |it: &Ranked| {
                let bounds = bounds(&it.number, factor, unit);
                Line::from(format!(
                    "  {:<name$} {:>12}  {bounds} {}",
                    it.name,
                    formatted(it.number.value() * factor, unit),
                    it.more
                ))
            };
            listed(figure, ranked).into_iter().take(MAX_RANKS).map(line).collect()
        }
        Shape::Distribution { ranges } => {
            let most = ranges.iter().map(|range| range.count).fold(f64::MIN_POSITIVE, f64::max);
            let filled = ranges.iter().filter(|range| range.count > 0.0);
            let line = |range: &Range| {
                let bar = "█".repeat(((range.count / most) * SERIES_WIDTH as f64).ceil() as usize);
                let between =
                    format!("{} … {}", formatted(range.low, unit), formatted(range.high, unit));
                Line::from(format!(
                    "  {between:<LABEL$} {:>12}  {bar}",
                    formatted(range.count, "things")
                ))
            };
            filled.map(line).collect()
        }
    }
}
