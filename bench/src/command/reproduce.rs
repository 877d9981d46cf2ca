//! `flowgauge reproduce`: repeats the experiments of papers.

use flowgauge::reproduce::{Paper, Reproduce};
use flowgauge::{CommandFailure, bar};
use flowgauge_bench::numbers::Numbers;
use flowgauge_bench::papers::{self, Document};
use flowgauge_bench::parallel::Progress;
use flowgauge_bench::report::html::Page;
use flowgauge_bench::report::{Directory, Table, escape};
use flowgauge_bench::trace::Trace;
use flowgauge_bench::{
    ReproduceError, fridge, p4entropy, p4exp, p4log, rap, reorder, spread, whll,
};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Runs the requested reproductions.
pub(crate) fn execute(options: &Reproduce) -> Result<(), CommandFailure> {
    options.check()?;
    let directory = |what| match (options.what, &options.out) {
        (_, None) => default_directory(what),
        (Paper::All, Some(out)) => out.join(what.name()),
        (_, Some(out)) => out.clone(),
    };
    if !matches!(options.what, Paper::All) {
        return one(options, options.what, &directory(options.what)).map(|_| ());
    }
    let (mut pages, mut numbers) = (Vec::new(), Numbers::default());
    for what in Paper::EACH {
        let (page, found) = one(options, what, &directory(what))?;
        pages.push((what, page));
        numbers.extend(found);
    }
    let index = index(options, &pages)?;
    let mut out = io::stdout().lock();
    for document in Document::ALL {
        let [met, not_met, not_comparable] = papers::count(document, &numbers);
        let title = document.title();
        writeln!(out, "{met} met, {not_met} not met, {not_comparable} not comparable: {title}")
            .map_err(CommandFailure::output)?;
    }
    if let Some(page) = &options.page {
        fs::write(page, papers::page(&numbers)).map_err(|error| {
            CommandFailure::Failed(format!("cannot write {}: {error}", page.display()))
        })?;
        writeln!(out, "page: {}", page.display()).map_err(CommandFailure::output)?;
    }
    writeln!(out, "all reports: {}", index.display()).map_err(CommandFailure::output)
}

/// Writes a page that links to all reports, and returns its path.
fn index(options: &Reproduce, pages: &[(Paper, PathBuf)]) -> Result<PathBuf, CommandFailure> {
    let mut index = Page::new("Experiments of papers, repeated");
    index.lead("Each report compares the paper's figures with ours, with plots. All measurements are next to it as CSV files.");
    // The page is next to the reports, or in a directory next to theirs.
    let (directory, up) = match &options.out {
        Some(out) => (out.clone(), ""),
        None => (default_directory(Paper::All), "../"),
    };
    index.list(pages.iter().map(|(what, page)| {
        let place: Vec<_> = page
            .components()
            .rev()
            .take(2)
            .map(|part| part.as_os_str().to_string_lossy())
            .collect();
        let place: Vec<&str> = place.iter().rev().map(AsRef::as_ref).collect();
        format!(
            "<a href=\"{up}{}\">{}</a>: {}",
            escape(&place.join("/")),
            what.name(),
            escape(what.about())
        )
    }));
    let directory = Directory::create(&directory)?;
    Ok(directory.write("index.html", |file| file.write_all(index.html().as_bytes()))?)
}

/// Tables, results and the path of the page.
type Report = (Vec<Table>, Numbers, PathBuf);

/// Runs one reproduction, prints its tables, and returns the path of its page and all results.
fn one(
    options: &Reproduce,
    what: Paper,
    directory: &Path,
) -> Result<(PathBuf, Numbers), CommandFailure> {
    let bar = bar(Some(1), what.name().to_owned());
    let run = if options.trace.is_empty() { report } else { replay };
    let report = run(options, what, directory, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let (tables, numbers, page) = report?;
    if options.trace.is_empty() {
        Directory::create(directory)?.write("numbers.csv", |file| numbers.csv(file))?;
    }
    let mut out = io::stdout().lock();
    let written = tables.iter().try_for_each(|table| writeln!(out, "{table}"));
    written
        .and_then(|()| writeln!(out, "report: {}", page.display()))
        .map_err(CommandFailure::output)?;
    Ok((page, numbers))
}

/// Runs one reproduction and writes its report.
fn report(
    options: &Reproduce,
    what: Paper,
    directory: &Path,
    progress: &Progress<'_>,
) -> Result<Report, ReproduceError> {
    let seeds =
        |quick, default| options.seeds.unwrap_or(if options.quick { quick } else { default });
    match what {
        Paper::All | Paper::Whll => {
            let options = whll::Options {
                seeds: seeds(whll::QUICK_SEEDS, whll::SEEDS),
                read_skew: options.read_skew,
            };
            let findings = whll::run(&options, progress)?;
            Ok((findings.tables().into(), findings.numbers(), findings.write(directory)?))
        }
        Paper::P4log => {
            let findings = p4log::run(
                if options.quick { p4log::QUICK_NUMBERS } else { p4log::NUMBERS },
                progress,
            )?;
            Ok((findings.tables(), findings.numbers(), findings.write(directory)?))
        }
        Paper::P4exp => {
            let findings = p4exp::run(
                if options.quick { p4exp::QUICK_NUMBERS } else { p4exp::NUMBERS },
                progress,
            )?;
            Ok((findings.tables(), findings.numbers(), findings.write(directory)?))
        }
        Paper::P4entropy => {
            let seeds = seeds(p4entropy::QUICK_SEEDS, p4entropy::SEEDS);
            let findings = p4entropy::run(
                &p4entropy::Options { seeds, ..p4entropy::Options::default() },
                progress,
            )?;
            Ok((findings.tables(), findings.numbers(), findings.write(directory)?))
        }
        Paper::Rap => {
            let findings = rap::run(seeds(rap::QUICK_SEEDS, rap::SEEDS), progress);
            Ok((findings.tables().into(), findings.numbers(), findings.write(directory)?))
        }
        Paper::Fridge => {
            let findings = fridge::run(seeds(fridge::QUICK_SEEDS, fridge::SEEDS), progress);
            Ok((findings.tables().into(), findings.numbers(), findings.write(directory)?))
        }
        Paper::Reorder => {
            let findings = reorder::run(seeds(reorder::QUICK_SEEDS, reorder::SEEDS), progress);
            Ok((findings.tables().into(), findings.numbers(), findings.write(directory)?))
        }
        Paper::Spread => {
            let findings = spread::run(seeds(spread::QUICK_SEEDS, spread::SEEDS), progress)?;
            Ok((findings.tables().into(), findings.numbers(), findings.write(directory)?))
        }
    }
}

/// Counts captures in the place of generated traffic, and writes the tables.
fn replay(
    options: &Reproduce,
    what: Paper,
    directory: &Path,
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
    let mut page = Page::new(&format!("Captures: {}", what.about()));
    tables.iter().for_each(|table| page.table(table));
    page.paragraph(&format!("To repeat: <code>{}</code>", escape(&command)));
    let directory = Directory::create(directory)?;
    for (number, table) in (1..).zip(&tables) {
        let csv = table.csv(&command);
        directory.write(&format!("table-{number}.csv"), |file| file.write_all(csv.as_bytes()))?;
    }
    let page = page.write(&directory, &command)?;
    Ok((tables, Numbers::default(), page))
}

fn default_directory(what: Paper) -> PathBuf {
    PathBuf::from(format!("flowgauge-{}", what.name()))
}
