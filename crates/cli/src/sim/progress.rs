//! Progress on standard error, where it is a terminal.

use std::time::Duration;

use indicatif::ProgressBar;
use thalweg_report::format::format_span_us;
use thalweg_scenario::Progress;

use crate::progress::styled;

/// A progress bar.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// For one run.
    pub(crate) fn new() -> Bar {
        let template = "{bar:32} {pos}/{len} {prefix}  {msg}  {elapsed}";
        Bar(styled(ProgressBar::no_length(), template))
    }

    /// For a number of runs.
    pub(crate) fn of_runs(runs: u64) -> Bar {
        let template = "{bar:32} {pos}/{len} runs  {elapsed}, {eta} left";
        Bar(styled(ProgressBar::new(runs), template))
    }

    /// Shows how far a run is.
    pub(crate) fn show(&self, progress: &Progress, wall: Duration) {
        let flows = progress.expected_flows.unwrap_or(progress.started_flows);
        let total = flows.saturating_add(progress.expected_sums);
        self.0.set_length(total.max(1));
        self.0.set_position(progress.ended_flows + progress.finished_sums);
        self.0.set_prefix(match (flows, progress.expected_sums) {
            (_, 0) => "flows",
            (0, _) => "sums",
            _ => "flows and sums",
        });
        let hops_per_s = progress.packet_hops as f64 / wall.as_secs_f64().max(1e-9);
        self.0.set_message(format!(
            "{} simulated, {:.1} M hops/s",
            format_span_us(progress.now.as_us_f64()),
            hops_per_s / 1e6
        ));
    }

    /// One more run is over.
    pub(crate) fn run_ended(&self) {
        self.0.inc(1);
    }

    /// Takes the bar away: what follows is the result.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
