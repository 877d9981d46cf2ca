//! Events of the dataplane, single delays, the alarm, rules and warnings.

use super::{ControlError, Controller, Sink, Summary};
use crate::flow::ethertype_name;
use crate::measurement::alarm::judge::{self, Verdict};
use crate::measurement::delay::DelaySampleRecord;
use crate::record::Record;
use crate::text::counted;
use flowgauge_core::WindowTotals;
use flowgauge_core::delay::{Admission, DelayKind};
use flowgauge_dataplane::{Dataplane, DelaySample, Event};

/// Maximum number of delay samples passed to a sink at a time.
const MAX_DELAY_SAMPLES: usize = 1024;
/// Frames in a window below which an EtherType is not warned of.
const MIN_UNOPENED_FRAMES: u64 = 100;

impl Summary {
    /// Returns why the alarm judged no window, if there were windows and it judged none.
    #[must_use]
    pub fn unjudged(&self, alarm: &judge::Options) -> Option<String> {
        let Summary { windows, judged_windows, learning_windows, .. } = *self;
        let judge::Options { training, least, .. } = *alarm;
        if windows == 0 || judged_windows > 0 {
            return None;
        }
        let none = format!("the alarm judged none of {}", counted(windows, "window"));
        Some(if 2 * learning_windows >= windows {
            format!(
                "{none}: {training} are needed to learn what is usual; choose a shorter --window"
            )
        } else {
            format!(
                "{none}: {training} of at least {least} packets are needed to learn what is usual, and {learning_windows} had as many; \
                 choose another --window"
            )
        })
    }
}

impl Controller {
    pub(super) fn handle_events(&mut self) -> Result<(), ControlError> {
        let Some((events, _)) = self.attempt("events", Dataplane::events)? else { return Ok(()) };
        for event in events {
            match event {
                Event::TrafficEnded => self.ended = true,
                Event::Warning(warning) => self.warn(warning),
                Event::Notice(notice) => tracing::warn!("{notice}"),
                Event::Choice(choice) => tracing::info!("{choice}"),
                Event::Crossed(key) => {
                    let window = self.open_window();
                    if self.watch.as_mut().is_some_and(|watch| watch.cross(window)) {
                        self.crossed = Some(key);
                    }
                }
                other => tracing::info!("{other:?}"),
            }
        }
        Ok(())
    }

    /// Logs a fault, which the summary states as well.
    fn warn(&mut self, warning: String) {
        tracing::warn!("{warning}");
        self.faults.push(warning);
    }

    /// Reports that an entropy left its bounds in the open window, and takes a sample of it.
    pub(super) fn report_crossing(&mut self, sink: &mut dyn Sink) -> Result<(), ControlError> {
        let Some(key) = self.crossed.take() else { return Ok(()) };
        self.publish_repeats(sink)?;
        let at = self.clock.now();
        let mut records = match self.attempt("sample", Dataplane::sample)? {
            Some((snapshot, taken)) => self.sample(&snapshot, at, 0, taken)?,
            None => Vec::new(),
        };
        let window = self.open_window();
        let mut whole = records.iter_mut().find(|record| !record.part);
        if let Some(watch) = &self.watch {
            watch.log_crossing(window, key, whole.as_deref().map(|record| &record.reports));
            whole.iter_mut().for_each(|record| record.reports.alarm = Some(watch.crossed()));
        }
        self.summary.samples += u64::from(!records.is_empty());
        records.iter().try_for_each(|record| sink.record(record))?;
        Ok(())
    }

    /// Passes delay samples to the sink, if they were asked for.
    pub(super) fn send_pending_delay_samples(
        &mut self,
        sink: &mut dyn Sink,
    ) -> Result<(), ControlError> {
        if self.dataplane.settings().delay.samples
            && let Some((samples, _)) = self.attempt("delays", Dataplane::delay_samples)?
        {
            self.send_delay_samples(self.open_window(), &samples, sink)?;
        }
        Ok(())
    }

    pub(super) fn send_delay_samples(
        &self,
        window: u64,
        samples: &[DelaySample],
        sink: &mut dyn Sink,
    ) -> Result<(), ControlError> {
        let (settings, places) =
            (&self.dataplane.settings().delay, &self.dataplane.capabilities().places);
        let options = &self.plan.options.delay;
        for samples in samples.chunks(MAX_DELAY_SAMPLES) {
            let records: Vec<DelaySampleRecord<'_>> = samples
                .iter()
                .filter_map(|sample| {
                    DelaySampleRecord::of(window, settings, options, places, &self.ends, sample)
                })
                .collect();
            sink.delay_samples(&records)?;
        }
        Ok(())
    }

    /// Judges a window of all places, and returns the shares of requests that fit its traffic.
    pub(super) fn look(&mut self, record: &mut Record) -> Vec<(DelayKind, Admission)> {
        if let Some(watch) = &mut self.watch {
            let packets = record.counters.ipv4.wrapping_add(record.counters.ipv6);
            let is_short = self.is_short || self.stepped.is_some();
            let counted = record.counted.as_ref();
            let alarm = watch.look(record.window, is_short, packets, &record.reports, counted);
            if let Some(alarm) = &alarm {
                self.summary.alarms += u64::from(alarm.raised());
                self.summary.judged_windows += u64::from(alarm.verdict.judged());
                self.summary.learning_windows += u64::from(alarm.verdict == Verdict::Learning);
            }
            record.reports.alarm = alarm;
        }
        match (&mut self.tuner, &record.reports.delay) {
            (Some(tuner), Some(delays)) => {
                tuner.look(delays, record.end_ns.saturating_sub(record.start_ns))
            }
            _ => Vec::new(),
        }
    }

    /// Passes the current usual range of each entropy to a dataplane that watches them itself.
    pub(super) fn bound(&mut self) -> Result<(), ControlError> {
        let first = self.dataplane.capabilities().watches_from;
        let Some((watch, first)) = self.watch.as_ref().zip(first) else { return Ok(()) };
        let bounds = watch.bounds(first);
        if !bounds.is_empty()
            && self.attempt("bounds", |dataplane| dataplane.watch(&bounds))?.is_none()
        {
            tracing::warn!(
                "{} did not accept the new range of usual entropies; it uses the previous one",
                self.interface()
            );
        }
        Ok(())
    }

    /// Sets the shares of requests that the window after the open one admits.
    pub(super) fn admit(
        &mut self,
        admissions: &[(DelayKind, Admission)],
    ) -> Result<(), ControlError> {
        if !admissions.is_empty()
            && self.attempt("admit", |dataplane| dataplane.admit(admissions))?.is_none()
        {
            tracing::warn!(
                "{} did not accept the shares of requests that fit the traffic; it uses the previous ones",
                self.interface()
            );
        }
        Ok(())
    }

    /// Logs rules that start or stop firing.
    pub(super) fn log_alerts(&mut self, record: &Record) {
        let (origin, window) = (record.origin(), record.window);
        for alert in &record.alerts {
            if alert.firing && self.firing.insert(alert.rule.clone()) {
                tracing::warn!("{origin}, window {window}: ALERT {alert}");
            } else if !alert.firing && self.firing.remove(&alert.rule) {
                tracing::warn!("{origin}, window {window}: no longer certain: {alert}");
            }
        }
    }

    /// Warns of full counters, once in a run: a window that is too long for its traffic is hardly
    /// the only one.
    pub(super) fn warn_of_full_counters(&mut self, record: &Record) {
        let full = record.reports.all().rev().filter(|(_, report)| report.is_full());
        let full: Vec<&str> = full.map(|(name, _)| name).collect();
        if full.is_empty() || std::mem::replace(&mut self.warned_of_full_counters, true) {
            return;
        }
        let names = full.join(" and ");
        self.warn(format!(
            "{}, window {}: counters of {names} are full, since flows have 2 billion packets and more; intervals allow for it; \
             shorter windows (--window) give exact counts",
            record.interface, record.window
        ));
    }

    /// Warns once if most frames have one EtherType that is not opened.
    pub(super) fn warn_of_unopened(&mut self, bank: &WindowTotals) {
        if !self.warned_of_unopened
            && let Some(warning) = unopened_warning(bank)
        {
            self.warned_of_unopened = true;
            self.warn(warning);
        }
    }
}

/// Returns a warning if more than half of a window's frames have one EtherType that is not opened.
fn unopened_warning(bank: &WindowTotals) -> Option<String> {
    let packets = bank.counters.packets();
    let (ethertype, frames) = bank.unopened.most()?;
    if packets < MIN_UNOPENED_FRAMES || frames.saturating_mul(2) <= packets {
        return None;
    }
    let share = u128::from(frames) * 100 / u128::from(packets);
    let name = ethertype_name(ethertype).map(|name| format!(" ({name})")).unwrap_or_default();
    Some(format!(
        "most frames (at least {share} %) are of EtherType 0x{ethertype:04x}{name}, which flowgauge does not open; they count as non-IP"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_core::{Bank, Settings, Zeroed};

    fn bank(frames: impl IntoIterator<Item = (u16, u32)>, ip: u64) -> Box<WindowTotals> {
        let mut bank = Bank::boxed();
        bank.counters.ipv4 = ip;
        for (ethertype, frames) in frames {
            bank.counters.non_ip += u64::from(frames);
            (0..frames).for_each(|_| bank.unopened.vote(ethertype, 1));
        }
        let mut all = WindowTotals::boxed();
        all.merge(&bank, &Settings::default());
        all
    }

    #[test]
    fn an_ethertype_of_most_frames_is_named_with_its_share() {
        let warning = unopened_warning(&bank([(0x88cc, 97), (0x0806, 1)], 2)).unwrap();
        assert!(
            warning.contains("at least 96 %") && warning.contains("0x88cc (LLDP)"),
            "{warning}"
        );
    }

    #[test]
    fn nothing_is_said_of_half_of_few_and_of_frames_without_ethertype() {
        assert_eq!(unopened_warning(&bank([(0x88cc, 99)], 0)), None);
        assert_eq!(unopened_warning(&bank([(0x88cc, 100)], 100)), None);
        assert_eq!(unopened_warning(&bank([(0, 1000)], 0)), None);
        assert_eq!(unopened_warning(&bank([(0x88cc, 400), (0x88e5, 400), (0x0806, 400)], 0)), None);
        assert_eq!(unopened_warning(&bank([], 1000)), None);
    }
}
