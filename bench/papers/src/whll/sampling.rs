//! Samples at fixed intervals next to a Poisson process, on traffic in periodic bursts (Figure 2.10).
//!
//! The question is what samples see, not what they estimate: the share of samples that are in a
//! burst, against the share of time that bursts take. The Poisson times are those of the
//! controller's schedule.

use super::DURATION;
use crate::report::svg::{Axis, Chart, Tone};
use crate::report::{Cell, Column, Table};
use crate::statistics::Spread;
use flowgauge_ctl::clock::nanoseconds;
use flowgauge_ctl::schedule::{Action, Intervals, Schedule};
use std::time::Duration;

/// Period of the bursts.
const PERIOD: Duration = Duration::from_secs(10);

/// Shares of the period that bursts take.
pub(super) const UTILISATIONS: [f64; 3] = [0.1, 0.5, 0.9];

/// Fixed interval, and mean of the Poisson process: half of the period, so that fixed samples see
/// two instants of it.
const INTERVAL: Duration = Duration::from_secs(5);

/// Compared phases of fixed samples.
const PHASES: u32 = 100;

/// Returns the share of samples that are in a burst, in percent.
fn busy(times: impl Iterator<Item = u64>, utilisation: f64) -> f64 {
    let (mut inside, mut all) = (0_u64, 0_u64);
    for time in times {
        let place = (time % nanoseconds(PERIOD)) as f64 / nanoseconds(PERIOD) as f64;
        inside += u64::from(place < utilisation);
        all += 1;
    }
    inside as f64 / all.max(1) as f64 * 100.0
}

/// Returns the share for fixed samples that begin at each phase of the interval.
fn fixed(utilisation: f64) -> impl Iterator<Item = (f64, f64)> {
    (0..PHASES).map(move |phase| {
        let share = f64::from(phase) / f64::from(PHASES);
        let first = INTERVAL.mul_f64(share);
        let times =
            (nanoseconds(first)..nanoseconds(DURATION)).step_by(nanoseconds(INTERVAL) as usize);
        (share, busy(times, utilisation))
    })
}

/// Returns the share for a Poisson process with this seed.
fn poisson(utilisation: f64, seed: u64) -> f64 {
    let intervals = Intervals {
        window: None,
        sample_every: Some(INTERVAL),
        duration: Some(DURATION),
        align: false,
    };
    let mut schedule = Schedule::new(0, intervals, seed);
    let mut times = Vec::new();
    while let Some(due) = schedule.peek().filter(|due| due.action == Action::Read) {
        times.push(due.at);
        schedule.pop();
    }
    busy(times.into_iter(), utilisation)
}

fn poissons(utilisation: f64, seeds: u64) -> Option<Spread> {
    Spread::from_values((1..=seeds).map(|seed| poisson(utilisation, seed)))
}

/// Returns the shares for each utilisation as a table.
pub(super) fn table(seeds: u64) -> Table {
    let caption = format!(
        "Share of samples in bursts in %, {} s of bursts every {} s, a sample every {} s (Figure 2.10)",
        DURATION.as_secs(),
        PERIOD.as_secs(),
        INTERVAL.as_secs()
    );
    let columns = vec![
        Column::number("", "time in bursts"),
        Column::number("fixed interval, by phase", "lowest"),
        Column::number("fixed interval, by phase", "highest"),
        Column::number("Poisson, one run", "mean"),
        Column::number("Poisson, one run", "deviation"),
        Column::number("Poisson, one run", "runs"),
    ];
    let mut table = Table::new(caption, columns);
    for utilisation in UTILISATIONS {
        let shares: Vec<f64> = fixed(utilisation).map(|(_, share)| share).collect();
        let low = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let high = shares.iter().copied().fold(0.0, f64::max);
        let mut row =
            [utilisation * 100.0, low, high].map(|share| Cell::new(format!("{share:.0}"))).to_vec();
        row.extend(poissons(utilisation, seeds).map_or_else(Default::default, |spread| {
            [
                Cell::new(format!("{:.1}", spread.mean)),
                Cell::new(format!("{:.1}", spread.deviation)),
                Cell::new(spread.count),
            ]
        }));
        table.row(row);
    }
    table
}

/// Returns the shares by the phase of fixed samples, with the range of the Poisson process.
pub(super) fn chart(seeds: u64) -> Chart {
    let (x, y) = (
        Axis::linear("phase of fixed samples, intervals", 0.0, 1.0),
        Axis::linear("samples in bursts, %", 0.0, 100.0),
    );
    let chart = Chart::new("Figure 2.10: fixed intervals and a Poisson process", x, y);
    let tones = [Tone::First, Tone::Second, Tone::Third];
    UTILISATIONS.into_iter().zip(tones).fold(chart, |chart, (utilisation, tone)| {
        let name = format!("{:.0} % of the time", utilisation * 100.0);
        let chart = match poissons(utilisation, seeds) {
            Some(Spread { low, high, .. }) => {
                chart.band(&format!("{name}, Poisson"), tone, [(0.0, low, high), (1.0, low, high)])
            }
            None => chart,
        };
        chart.line(&format!("{name}, fixed"), tone, fixed(utilisation))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_testing::chance::of_mean;

    #[test]
    fn a_fixed_interval_sees_its_phase_and_a_poisson_process_the_time() {
        for (utilisation, shares) in
            UTILISATIONS.into_iter().zip([[0.0, 50.0], [50.0, 50.0], [50.0, 100.0]])
        {
            // Two instants of each period, half a period apart, are in its burst or are not.
            assert!(fixed(utilisation).all(|(_, share)| shares.contains(&share)), "{utilisation}");
            let spread = poissons(utilisation, 100).unwrap();
            // The number of samples of a run varies, and with it the share; 264 are expected.
            let deviation = (utilisation * (1.0 - utilisation) / 264.0).sqrt() * 100.0;
            let allowed = of_mean(1.1 * deviation, 100);
            assert!((spread.mean - utilisation * 100.0).abs() <= allowed, "{spread:?}");
        }
        assert!(table(2).to_string().contains("Figure 2.10"));
    }
}
