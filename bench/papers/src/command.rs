//! `flowgauge reproduce`: repeats the experiments of papers.

use crate::documents::{self, Document};
use crate::error::ReproduceError;
use crate::parallel::Progress;
use crate::report::{Page, Report, escape, write_file};
use crate::statistics::Numbers;
use crate::trace::Trace;
use crate::{fridge, p4entropy, p4exp, p4log, rap, reorder, spread, whll};
use flowgauge::reproduce::{Paper, Reproduce};
use flowgauge::{CommandFailure, bar};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Runs the requested reproductions, prints their tables and writes their reports.
///
/// # Errors
/// If options contradict each other, an experiment fails, or a file cannot be written.
pub fn reproduce(options: &Reproduce) -> Result<(), CommandFailure> {
    options.check()?;
    let directory = |what| match (options.what, &options.out) {
        (_, None) => default_directory(what),
        (Paper::All, Some(out)) => out.join(what.name()),
        (_, Some(out)) => out.clone(),
    };
    if !matches!(options.what, Paper::All) {
        return one(options, options.what, &directory(options.what)).map(|_| ());
    }
    let mut numbers = Numbers::default();
    for what in Paper::each().iter().copied() {
        numbers.extend(one(options, what, &directory(what))?);
    }
    let index = index(options)?;
    let mut out = io::stdout().lock();
    for document in Document::ALL {
        let [met, not_met, not_comparable] = documents::count(document, &numbers);
        let title = document.title;
        writeln!(out, "{met} met, {not_met} not met, {not_comparable} not comparable: {title}")
            .map_err(CommandFailure::output)?;
    }
    if let Some(page) = &options.page {
        fs::write(page, documents::page(&numbers)).map_err(|error| {
            CommandFailure::Failed(format!("cannot write {}: {error}", page.display()))
        })?;
        writeln!(out, "page: {}", page.display()).map_err(CommandFailure::output)?;
    }
    writeln!(out, "all reports: {}", index.display()).map_err(CommandFailure::output)
}

/// Writes a page that links to all reports, and returns its path.
fn index(options: &Reproduce) -> Result<PathBuf, CommandFailure> {
    let mut index = Page::new("Experiments of papers, repeated", "flowgauge reproduce");
    index.add("<p class=\"lead\">Each report compares the paper's figures with ours, with plots. All measurements are next to it as CSV files.</p>");
    // The page is next to the reports, or in a directory next to theirs.
    let (directory, reports) = match &options.out {
        Some(out) => (out.clone(), ""),
        None => (default_directory(Paper::All), "../flowgauge-"),
    };
    index.add("<ul>");
    for what in Paper::each().iter().copied() {
        let (name, about) = (what.name(), escape(what.about()));
        index.add(&format!("<li><a href=\"{reports}{name}/index.html\">{name}</a>: {about}</li>"));
    }
    index.add("</ul>");
    Ok(write_file(&directory, "index.html", &index.html())?)
}

/// Runs one reproduction, prints its tables, writes its report, and returns all results.
fn one(options: &Reproduce, what: Paper, directory: &Path) -> Result<Numbers, CommandFailure> {
    let bar = bar(Some(1), what.name());
    let run = if options.trace.is_empty() { repeat } else { replay };
    let report = run(options, what, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let mut report = report?;
    if options.trace.is_empty() {
        report.files.push(("numbers.csv".to_owned(), report.numbers.csv()));
    }
    let page = report.write(directory)?;
    let mut out = io::stdout().lock();
    let written = report.tables.iter().try_for_each(|table| writeln!(out, "{table}"));
    written
        .and_then(|()| writeln!(out, "report: {}", page.display()))
        .map_err(CommandFailure::output)?;
    Ok(report.numbers)
}

/// Runs one reproduction.
fn repeat(
    options: &Reproduce,
    what: Paper,
    progress: &Progress<'_>,
) -> Result<Report, ReproduceError> {
    let often = |quick, usual| if options.quick { quick } else { usual };
    let seeds = |quick, usual| options.seeds.unwrap_or(often(quick, usual));
    Ok(match what {
        Paper::All | Paper::Whll => {
            let seeds = seeds(whll::QUICK_SEEDS, whll::SEEDS);
            let read_skew = options.read_skew;
            whll::run(&whll::Options { seeds, read_skew }, progress)?.report()
        }
        Paper::P4log => p4log::run(often(p4log::QUICK_NUMBERS, p4log::NUMBERS), progress).report(),
        Paper::P4exp => p4exp::run(often(p4exp::QUICK_NUMBERS, p4exp::NUMBERS), progress).report(),
        Paper::P4entropy => {
            let seeds = seeds(p4entropy::QUICK_SEEDS, p4entropy::SEEDS);
            let options = p4entropy::Options { seeds, ..p4entropy::Options::default() };
            p4entropy::run(&options, progress).report()
        }
        Paper::Rap => rap::run(seeds(rap::QUICK_SEEDS, rap::SEEDS), progress).report(),
        Paper::Fridge => fridge::run(seeds(fridge::QUICK_SEEDS, fridge::SEEDS), progress).report(),
        Paper::Reorder => {
            reorder::run(seeds(reorder::QUICK_SEEDS, reorder::SEEDS), progress).report()
        }
        Paper::Spread => spread::run(seeds(spread::QUICK_SEEDS, spread::SEEDS), progress)?.report(),
    })
}

/// Counts captures in the place of generated traffic.
fn replay(
    options: &Reproduce,
    what: Paper,
    progress: &Progress<'_>,
) -> Result<Report, ReproduceError> {
    let Reproduce { window_packets, windows, .. } = *options;
    let trace = Trace { files: options.trace.clone(), window_packets, windows };
    let seeds = options.seeds.unwrap_or(if options.quick { 1 } else { fridge::SEEDS });
    let tables = match what {
        Paper::Whll => whll::replay(&trace, 1, progress)?,
        Paper::P4entropy => p4entropy::replay(&trace, options.sketch)?,
        Paper::Rap => rap::replay(&trace)?,
        Paper::Fridge => fridge::replay(&trace, &options.fridges, seeds, progress)?,
        Paper::Reorder => reorder::replay(&trace)?,
        Paper::Spread => spread::replay(&trace)?,
        // Refused before.
        Paper::All | Paper::P4log | Paper::P4exp => Vec::new(),
    };
    let command = options.trace_command();
    let mut page = Page::new(&format!("Captures: {}", what.about()), &command);
    tables.iter().for_each(|table| page.add(&table.html()));
    let files = (1..)
        .zip(&tables)
        .map(|(number, table)| (format!("table-{number}.csv"), table.csv(&command)))
        .collect();
    Ok(Report { tables, numbers: Numbers::default(), page, files })
}

fn default_directory(what: Paper) -> PathBuf {
    PathBuf::from(format!("flowgauge-{}", what.name()))
}
