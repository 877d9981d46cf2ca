//! Search for a line rate, between two veth devices.

use flowgauge_bench::line_rate::{Options, measure};
use flowgauge_core::Settings;
use flowgauge_dataplane::poll::port::{AfXdp, FrameSender, Outlet, af_xdp};
use flowgauge_testing::on_veth;
use flowgauge_traffic::veth::{RECEIVER, SENDER};
use std::time::Duration;

fn options(sizes: Vec<usize>, trial: Duration) -> Options {
    let settings = Settings::default();
    Options { sizes, trial, resolution: 0.5, cpus: Vec::new(), settings }
}

fn search() {
    let options = options(vec![64, 1518], Duration::from_millis(30));
    let receiver = || af_xdp(&AfXdp::new(RECEIVER.0), Some(1));
    let sender = || Ok(Box::new(FrameSender::new(SENDER.0)?) as Box<dyn Outlet>);
    let findings = measure(receiver, sender, &options).unwrap();
    let [grid] = findings.grids.as_slice() else { panic!("{:?}", findings.grids) };
    assert_eq!(grid.columns, ["64", "1518"]);
    // Rates depend on the machine, and so does whether one without loss is found. If one is found,
    // all its values must be there.
    for size in 0..2 {
        let found: Vec<bool> = grid.rows.iter().map(|row| row.values[size].is_some()).collect();
        assert!(found.iter().all(|one| *one == found[0]), "{:?}", grid.rows);
    }
    let found = grid.rows[0].values.iter().flatten().count();
    assert!(grid.rows[0].values.iter().flatten().all(|rate| *rate > 0.0));
    let names: Vec<&str> = findings.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names.contains(&"a rotation, 99.9 %"), found > 0, "{names:?}");
    assert_eq!(names.contains(&"between two polls, longest"), found > 0, "{names:?}");
}

#[test]
fn a_search_over_veth_ends_with_rates_and_times() {
    on_veth(search);
}

#[test]
fn a_port_that_refuses_ends_it() {
    let options = options(vec![64], Duration::from_millis(1));
    let receiver = || af_xdp(&AfXdp::new("no-such-device"), Some(1));
    let sender = || Ok(Box::new(FrameSender::new("no-such-device")?) as Box<dyn Outlet>);
    let error = measure(receiver, sender, &options).unwrap_err().to_string();
    assert!(error.contains("no-such-device") && !error.contains('\n'), "{error}");
}
