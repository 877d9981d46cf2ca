//! `flowgauge bench`: what counting costs on this machine.

use crate::error::Failure;
use clap::{Args, Subcommand};
use flowgauge_bench::report::{Cell, Column, Table};
use flowgauge_bench::xdp::{self, Effort, Figure, Limit};

/// Measure what counting costs on this machine.
#[derive(Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Xdp(Xdp),
}

/// Measure the cost of counting in the kernel, next to programs that do nothing.
///
/// It takes turns with an empty program on injected frames, sends packets over veth devices in a network of its own, and reads and
/// rotates a window. It touches no interface of this machine, and takes root or CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN.
#[derive(Args)]
struct Xdp {
    /// A first look: fewer rounds, less steady figures
    #[arg(long)]
    quick: bool,

    /// Fail if a figure breaks the limit that SPECIFICATION.md promises by more than the noise seen in this run
    #[arg(long)]
    check: bool,
}

impl Bench {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let What::Xdp(options) = self.what;
        let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
        let mut figures = xdp::injected(effort)?;
        match xdp::live(effort) {
            Ok(live) => figures.extend(live?),
            Err(need) => tracing::warn!("no live packets: needs {need}"),
        }
        figures.extend(xdp::reading(effort)?);
        println!("{}", table(&figures));
        let broken: Vec<&str> = figures.iter().filter(|figure| figure.breaks_limit()).map(|figure| figure.name.as_str()).collect();
        if options.check && !broken.is_empty() {
            return Err(Failure::Failed(format!("beyond its limit: {}", broken.join("; "))));
        }
        Ok(())
    }
}

fn table(figures: &[Figure]) -> Table {
    let columns = vec![
        Column::text("", "what"),
        Column::number("", "value"),
        Column::number("", "noise"),
        Column::number("", "limit"),
        Column::number("", "ns/packet"),
    ];
    let mut table = Table::new("Cost of counting in the kernel, next to a program that does nothing", columns);
    for figure in figures {
        let limit = match figure.limit {
            None => String::new(),
            Some(Limit::AtMost(most)) => format!("<= {most:.2}"),
            Some(Limit::AtLeast(least)) => format!(">= {least:.2}"),
        };
        let nanoseconds = figure.nanoseconds.map(|nanoseconds| format!("{nanoseconds:.1}")).unwrap_or_default();
        let value = format!("{:.2} {:<2}", figure.value, figure.unit.name());
        let noise = format!("{:.2}", figure.noise);
        table.row(vec![Cell::new(&figure.name), Cell::new(value), Cell::new(noise), Cell::new(limit), Cell::new(nanoseconds)]);
    }
    table
}
