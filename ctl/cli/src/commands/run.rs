//! `flowgauge run`, and `flowgauge` without a command: count live traffic.

use crate::config::given::{Configuration, fill};
use crate::config::options::run::Run;
use crate::config::value::PortSpec;
use crate::config::{Interfaces, Source};
use crate::error::CommandFailure;
use crate::interfaces::is_pattern;
use crate::locked;
use crate::run::agent;
use crate::run::handle::SourceHandle;
use crate::run::source::count;
use clap::ArgMatches;
use flowgauge_dataplane::allocator::allocate_banks_on_use;
use flowgauge_dataplane::open_files;
use flowgauge_traffic::{Profile, Sources};
use std::time::Duration;

/// Counts the sources that the command line, the environment and the configuration file name. If
/// none is named and `generates`, counts ten seconds of generated traffic in windows of one second,
/// with exact counts next to the estimates.
pub(crate) fn execute(given: &ArgMatches, generates: bool) -> Result<(), CommandFailure> {
    open_files::raise_limit();
    allocate_banks_on_use();
    let configuration = Configuration::read::<Run>(given)?;
    if configuration.file.is_some() {
        return agent::run(given, configuration);
    }
    let (mut run, effective) = (Run::default(), configuration.effective(None));
    fill(&mut run, &effective)?;
    if generates && !run.has_source(&effective) {
        run.port = Some(PortSpec::Memory(demonstration()));
        let options = &mut run.options;
        options.duration = options.duration.or(Some(Duration::from_secs(10)));
        options.window = options.window.or(Some(Duration::from_secs(1)));
        options.truth = Some(true);
    }
    let config = run.resolve(&effective)?;
    config.check_alerts()?;
    if let Source::Interfaces(Interfaces { names, .. }) = &config.source
        && names.iter().any(|name| is_pattern(name))
    {
        return agent::run(given, configuration);
    }
    let handle = SourceHandle::default();
    locked(&handle.shared.exporters.configured).insert(String::new(), effective);
    count(&config, &handle)
}

/// Returns the profile of the demonstration: skewed traffic from many sources, little enough for
/// any machine to count exactly as well.
fn demonstration() -> Profile {
    Profile { rate: Some(200_000.0), ..Profile::new(Sources::Zipf { flows: 100_000, alpha: 1.0 }) }
}
