//! Results of the checks and how they are printed.
//!
//! JSON has every check. The table has the requested checks, worst first: details that are ok are
//! one line, and checks that were not requested are one line at the end.

use super::interface::InterfaceReport;
use flowgauge_ctl::output::escaped;
use serde::Serialize;
use std::cmp::Reverse;
use std::io::{self, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckStatus {
    Ok,
    /// Works with a limitation, or could not be determined.
    Warning,
    No,
}

impl CheckStatus {
    fn name(self) -> &'static str {
        match self {
            CheckStatus::Ok => "ok",
            CheckStatus::Warning => "warning",
            CheckStatus::No => "no",
        }
    }
}

/// Result of one check. Field names are keys of the JSON output.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    check: &'static str,
    /// Object of the check, if there are several.
    subject: Option<String>,
    pub(super) status: CheckStatus,
    /// Whether the backend cannot run if the status is `No`.
    required: bool,
    found: String,
    advice: Option<String>,
    /// Whether it is one of many of its name. Those that are ok are one line of the table.
    #[serde(skip)]
    detail: bool,
    /// Short text about it, if it was not requested. Unless it is ok, the table has only this text.
    #[serde(skip)]
    aside: Option<String>,
}

impl Check {
    pub(super) fn new(
        status: CheckStatus,
        found: impl Into<String>,
        advice: Option<String>,
    ) -> Self {
        Check {
            check: "",
            subject: None,
            status,
            required: true,
            found: found.into(),
            advice,
            detail: false,
            aside: None,
        }
    }

    pub(super) fn ok(found: impl Into<String>) -> Self {
        Self::new(CheckStatus::Ok, found, None)
    }

    pub(super) fn warning(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(CheckStatus::Warning, found, Some(advice.into()))
    }

    pub(super) fn no(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(CheckStatus::No, found, Some(advice.into()))
    }

    /// Names a check, as in the output.
    pub(super) fn named(self, check: &'static str) -> Self {
        Check { check, ..self }
    }

    /// Marks a check as optional for the backend.
    pub(super) fn optional(self) -> Self {
        Check { required: false, ..self }
    }

    /// Marks a check as one of many of its name.
    pub(super) fn detail(self) -> Self {
        Check { detail: true, ..self }
    }

    /// Marks a check as not requested, with a short text about it.
    pub(super) fn not_asked(self, aside: impl Into<String>) -> Self {
        Check { aside: Some(aside.into()), ..self }
    }

    /// Returns the short text about it if the table has only this text.
    fn aside(&self) -> Option<&str> {
        self.aside.as_deref().filter(|_| self.status != CheckStatus::Ok)
    }

    /// Returns its rank in the table: what prevents a run comes first.
    fn rank(&self) -> Reverse<(bool, CheckStatus)> {
        Reverse((self.status == CheckStatus::No && self.required, self.status))
    }

    pub(super) fn about(self, subject: &str) -> Self {
        Check { subject: Some(subject.to_owned()), ..self }
    }

    fn title(&self) -> String {
        // An interface name can contain any characters that root chose.
        self.subject.as_ref().map_or_else(
            || self.check.to_owned(),
            |subject| format!("{} {}", self.check, escaped(subject)),
        )
    }
}

/// Checks of one backend.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    backend: &'static str,
    /// Whether the exit code depends on this backend.
    asked: bool,
    /// Whether the backend can run; `None` if it was not requested.
    can_run: Option<bool>,
    checks: Vec<Check>,
}

impl Group {
    pub(super) fn requested(backend: &'static str, checks: Vec<Check>) -> Self {
        let can_run = !checks.iter().any(|check| check.required && check.status == CheckStatus::No);
        Group { backend, asked: true, can_run: Some(can_run), checks }
    }

    pub(super) fn not_requested(backend: &'static str, check: Check) -> Self {
        Group { backend, asked: false, can_run: None, checks: vec![check] }
    }

    /// Returns the checks of the table, worst first: without those that were not requested, and
    /// with one instead of all details that are ok.
    fn listed(&self) -> Vec<Check> {
        let is_fine = |check: &&Check| check.detail && check.status == CheckStatus::Ok;
        let (fine, all) = (
            self.checks.iter().filter(is_fine).count(),
            self.checks.iter().filter(|check| check.detail).count(),
        );
        let mut has_summary = false;
        let mut listed = Vec::new();
        for check in self.checks.iter().filter(|check| check.aside().is_none()) {
            if !is_fine(&check) {
                listed.push(check.clone());
            } else if !has_summary {
                has_summary = true;
                let number =
                    if fine == all { format!("all {all}") } else { format!("{fine} of {all}") };
                let found = format!("{number} programs load; --format json has each");
                listed.push(Check { subject: None, found, ..check.clone() });
            }
        }
        listed.sort_by_key(Check::rank);
        listed
    }
}

/// All results. Field names are keys of the JSON output.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    can_run: bool,
    version: &'static str,
    backends: Vec<Group>,
    interfaces: Vec<InterfaceReport>,
}

impl DoctorReport {
    pub(super) fn new(backends: Vec<Group>, interfaces: Vec<InterfaceReport>) -> Self {
        let can_run = backends.iter().all(|group| group.can_run != Some(false));
        DoctorReport { can_run, version: env!("CARGO_PKG_VERSION"), backends, interfaces }
    }

    /// Returns the requested backends that cannot run.
    pub(super) fn not_runnable(&self) -> Vec<&'static str> {
        self.backends
            .iter()
            .filter(|group| group.can_run == Some(false))
            .map(|group| group.backend)
            .collect()
    }

    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    pub(super) fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let mut groups: Vec<(&Group, Vec<Check>)> =
            self.backends.iter().map(|group| (group, group.listed())).collect();
        groups.retain(|(_, checks)| !checks.is_empty());
        // Backends that cannot run come first.
        groups.sort_by_key(|(group, _)| group.can_run != Some(false));
        let titles = groups.iter().flat_map(|(_, checks)| checks);
        let width = titles.map(|check| check.title().chars().count()).max().unwrap_or(0);
        for (index, (group, checks)) in groups.iter().enumerate() {
            let verdict = match group.can_run {
                Some(true) => "can run",
                Some(false) => "cannot run",
                None => "not asked about",
            };
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}{}: {verdict}", group.backend)?;
            for check in checks {
                writeln!(
                    out,
                    "  {:<7}  {:<width$}  {}",
                    check.status.name(),
                    check.title(),
                    escaped(&check.found)
                )?;
                if let Some(advice) = &check.advice {
                    writeln!(out, "  {:<7}  {:<width$}  -> {}", "", "", escaped(advice))?;
                }
            }
        }
        let checks = self.backends.iter().flat_map(|group| &group.checks);
        let asides: Vec<String> =
            checks.filter_map(Check::aside).map(|aside| escaped(aside).into_owned()).collect();
        if !asides.is_empty() {
            let asides = asides.join(", ");
            writeln!(out, "\nnot asked for: {asides}; --format json has what to do")?;
        }
        Ok(())
    }
}
