//! Rules about what is measured, and who is told.

use crate::webhook::Webhook;
use clap::Args;
use flowgauge_ctl::alert::Rule;

/// Rules, and who hears of them.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Alerts {
    /// Alert when a figure is certainly above or below a bound, such as 'distinct_flows > 1M' or 'entropy{key=src} < 3'
    ///
    /// Figures have the names of their metrics, without flowgauge_; labels choose one of several. A rule with > fires if even the low end of the figure's
    /// interval is above the bound, one with < if even the high end is below. The option may be repeated.
    #[arg(long, value_name = "RULE", help_heading = "Alerts")]
    pub(crate) alert: Vec<Rule>,

    /// Also tell this HTTP server when a rule begins and ceases to fire: POST of a JSON object, such as to http://127.0.0.1:8080/alerts
    #[arg(long, value_name = "URL", help_heading = "Alerts")]
    pub(crate) alert_webhook: Option<Webhook>,
}

impl Alerts {
    /// What does not go together, if anything.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let idle = self.alert_webhook.is_some() && self.alert.is_empty();
        idle.then_some("--alert-webhook is for rules; add an --alert, or leave it out")
    }
}
