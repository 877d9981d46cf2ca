//! `flowgauge reproduce`: a paper's experiments again.

use flowgauge::reproduce::{Reproduce, What};
use flowgauge::{Failure, bar};
use flowgauge_bench::parallel::Progress;
use flowgauge_bench::report::html::Page;
use flowgauge_bench::report::{Directory, Table, escape};
use flowgauge_bench::{ReproduceError, fridge, p4entropy, p4exp, p4log, rap, reorder, whll};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Repeats what was asked for.
pub(crate) fn execute(asked: &Reproduce) -> Result<(), Failure> {
    let directory = |what| match (asked.what, &asked.out) {
        (_, None) => default_directory(what),
        (What::All, Some(out)) => out.join(what.name()),
        (_, Some(out)) => out.clone(),
    };
    if !matches!(asked.what, What::All) {
        return one(asked, asked.what, &directory(asked.what)).map(drop);
    }
    let mut pages = Vec::new();
    for what in What::EACH {
        pages.push((what, one(asked, what, &directory(what))?));
    }
    let index = index(asked, &pages)?;
    writeln!(io::stdout(), "all reports: {}", index.display()).map_err(Failure::output)
}

/// Writes a page that leads to all reports; gives its path.
fn index(asked: &Reproduce, pages: &[(What, PathBuf)]) -> Result<PathBuf, Failure> {
    let mut index = Page::new("The papers' experiments again");
    index.lead("Each report has the paper's figures beside ours, with plots. All measurements are beside it, as CSV.");
    // Beside the reports, or in a directory beside theirs.
    let (directory, up) = match &asked.out {
        Some(out) => (out.clone(), ""),
        None => (default_directory(What::All), "../"),
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

/// Runs one reproduction and prints its tables; the path of its page.
fn one(asked: &Reproduce, what: What, directory: &Path) -> Result<PathBuf, Failure> {
    let bar = bar(Some(1), what.name().to_owned());
    let report = report(asked, what, directory, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let (tables, page) = report?;
    let mut out = io::stdout().lock();
    let written = tables.iter().try_for_each(|table| writeln!(out, "{table}"));
    written.and_then(|()| writeln!(out, "report: {}", page.display())).map_err(Failure::output)?;
    Ok(page)
}

/// Runs one reproduction and writes its report; its tables and the path of its page.
fn report(
    asked: &Reproduce,
    what: What,
    directory: &Path,
    progress: &Progress<'_>,
) -> Result<(Vec<Table>, PathBuf), ReproduceError> {
    let seeds = |quick, default| asked.seeds.unwrap_or(if asked.quick { quick } else { default });
    match what {
        What::All | What::Whll => {
            let options = whll::Options {
                seeds: seeds(whll::QUICK_SEEDS, whll::SEEDS),
                read_skew: asked.read_skew,
            };
            let findings = whll::run(&options, progress)?;
            Ok((findings.tables().into(), findings.write(directory)?))
        }
        What::P4log => {
            let findings = p4log::run(
                if asked.quick { p4log::QUICK_NUMBERS } else { p4log::NUMBERS },
                progress,
            )?;
            Ok((findings.tables(), findings.write(directory)?))
        }
        What::P4exp => {
            let findings = p4exp::run(
                if asked.quick { p4exp::QUICK_NUMBERS } else { p4exp::NUMBERS },
                progress,
            )?;
            Ok((findings.tables(), findings.write(directory)?))
        }
        What::P4entropy => {
            let seeds = seeds(p4entropy::QUICK_SEEDS, p4entropy::SEEDS);
            let findings = p4entropy::run(
                &p4entropy::Options { seeds, ..p4entropy::Options::default() },
                progress,
            )?;
            Ok((findings.tables(), findings.write(directory)?))
        }
        What::Rap => {
            let findings = rap::run(seeds(rap::QUICK_SEEDS, rap::SEEDS), progress);
            Ok((findings.tables().into(), findings.write(directory)?))
        }
        What::Fridge => {
            let findings = fridge::run(seeds(fridge::QUICK_SEEDS, fridge::SEEDS), progress);
            Ok((findings.tables().into(), findings.write(directory)?))
        }
        What::Reorder => {
            let findings = reorder::run(seeds(reorder::QUICK_SEEDS, reorder::SEEDS), progress);
            Ok((findings.tables().into(), findings.write(directory)?))
        }
    }
}

fn default_directory(what: What) -> PathBuf {
    PathBuf::from(format!("flowgauge-{}", what.name()))
}
