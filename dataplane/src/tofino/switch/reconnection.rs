//! Reconnection to a switch, and restoration of its tables.

use super::{Rotation, Switch};
use crate::error::Failure;
use crate::tofino::options::Options;
use crate::tofino::program::Program;
use crate::tofino::session::Session;
use crate::tofino::table::DesiredState;
use flowgauge_bfruntime::schema::Schema;
use std::time::{Duration, Instant};

/// Delay before the next reconnection attempt.
#[derive(Default)]
pub(super) struct BackOff {
    /// Earliest time of the next attempt, and the delay after that.
    next: Option<(Instant, Duration)>,
}

impl BackOff {
    /// Returns the time until the next attempt is allowed.
    pub(super) fn remaining(&self) -> Duration {
        self.next.map_or(Duration::ZERO, |(next, _)| next.saturating_duration_since(Instant::now()))
    }

    fn failed(&mut self, first: Duration) {
        let wait = self.next.map_or(first, |(_, wait)| (wait * 2).min(Options::LONGEST_BACK_OFF));
        self.next = Some((Instant::now() + wait, wait));
    }

    fn succeeded(&mut self) {
        self.next = None;
    }
}

impl Switch {
    /// Opens a session unless one is open.
    pub(super) async fn reach(&mut self) -> Result<(), Failure> {
        if let Some(session) = &mut self.session
            && let Some(why) = session.is_lost()
        {
            self.session = None;
            if self.counting.is_some() {
                self.notice(&format!("the connection was lost: {why}"));
            }
        }
        if self.session.is_some() {
            return Ok(());
        }
        let remaining = self.back_off.remaining();
        if !remaining.is_zero() {
            return Err(Failure::Unreachable {
                problem: format!("the connection was lost; trying again in {remaining:.1?}"),
            });
        }
        match self.reopen().await {
            Ok(session) => {
                self.back_off.succeeded();
                self.session = Some(session);
                Ok(())
            }
            Err(failure) => {
                self.back_off.failed(self.options.back_off);
                Err(failure)
            }
        }
    }

    async fn reopen(&mut self) -> Result<Session, Failure> {
        let opened = self.open_after_our_own().await;
        let (session, schema, is_adopted) = opened.map_err(|failure| match failure {
            // While a switch starts, its program is not loaded yet.
            Failure::Refused { code, problem, .. } => {
                Failure::Refused { code, problem, transient: true }
            }
            failure => failure,
        })?;
        let forward = self.options.forward.clone();
        let program = Program::fitting(schema, self.program.settings, forward)?;
        self.staggered.iter().try_for_each(|staggered| {
            staggered.check(&program.schema, &program.statement, &program.settings)
        })?;
        self.program = program;
        if is_adopted {
            let lost = if self.learns() {
                "; digests, of delays one by one and of alarms, are missing until it does"
            } else {
                ""
            };
            self.notice(&format!(
                "the switch does not know that the connection was lost; going on as the client that it was{lost}"
            ));
        }
        Ok(session)
    }

    /// Opens a session. Returns also whether it continues the subscription of the previous session:
    /// a switch needs a moment to notice that a session has ended, and never does if the connection
    /// was lost silently.
    async fn open_after_our_own(&self) -> Result<(Session, Schema, bool), Failure> {
        const POLL_INTERVAL: Duration = Duration::from_millis(1);
        const MAX_WAIT: Duration = Duration::from_millis(200);
        let begin = Instant::now();
        loop {
            match Session::open(&self.options, self.learns()).await {
                Err(Failure::Taken { .. }) if begin.elapsed() < MAX_WAIT => {
                    tokio::time::sleep(POLL_INTERVAL).await
                }
                Err(taken @ Failure::Taken { .. }) => {
                    let Ok((session, schema)) = Session::adopt(&self.options).await else {
                        return Err(taken);
                    };
                    return Ok((session, schema, true));
                }
                opened => return opened.map(|(session, schema)| (session, schema, false)),
            }
        }
    }

    /// Opens a session unless one is open, and restores the switch's tables.
    pub(super) async fn restored(&mut self) -> Result<(), Failure> {
        self.reach().await?;
        let verified = self.session.as_ref().is_some_and(|session| session.verified);
        let Some(counting) = &self.counting else { return Ok(()) };
        if !counting.damaged && verified {
            return Ok(());
        }
        let (desired, damaged, batch) =
            (counting.desired.clone(), counting.damaged, self.options.batch);
        // A change of the inactive bank's filter that failed is repeated by the next rotation.
        let ignored = counting.is_filter_unknown.then_some(counting.active & 1 ^ 1);
        if !damaged && self.with_any(async |client| client.holds(&desired, ignored).await).await? {
            // An unanswered write may have been carried out or not.
            self.with_any(async |client| client.set_changing(None, &desired, batch).await).await?;
            self.verified();
            self.notice("connected again; the switch counted on, nothing is missing");
            return Ok(());
        }
        self.restart(&desired).await
    }

    /// Installs everything again and continues counting in the open window.
    pub(super) async fn restart(&mut self, desired: &DesiredState) -> Result<(), Failure> {
        if let Some(counting) = &mut self.counting {
            counting.damaged = true;
            counting.gap = true;
            counting.rotation = match std::mem::replace(&mut counting.rotation, Rotation::None) {
                Rotation::Read(closed) | Rotation::Cleared(closed) => Rotation::Cleared(closed),
                Rotation::None | Rotation::Flipping | Rotation::Flipped => Rotation::None,
            };
        }
        let begun = self.begin(desired).await?;
        if let Some(counting) = &mut self.counting {
            counting.damaged = false;
            counting.is_filter_unknown = false;
            counting.active = 0;
            counting.pipes = begun.pipes;
            counting.ports = begun.ports.map(|new| match counting.ports.take() {
                Some(before) => before.followed_by(new),
                None => new,
            });
        }
        self.verified();
        let warning = "the switch lost its tables and what it had counted; they are installed again, and the window that is open \
                       lacks what came before";
        self.warn(warning.to_owned());
        Ok(())
    }

    /// Detects a lost connection and restores it; a failed attempt is repeated by the next call.
    pub(super) async fn look_after(&mut self) {
        if let Some(session) = &mut self.session {
            session.lost().await;
        }
        match self.restored().await {
            Ok(()) => self.read_ports(false).await,
            Err(failure) => tracing::debug!("{}: {failure}", self.options.address),
        }
    }
}
