//! Progress of the demo: bars on a terminal, a few plain lines elsewhere. Always on standard error.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use thalweg_report::format::{format_count, format_percent, format_rate_bps};

use super::cluster::SwitchCounters;
use super::plan::Plan;
use super::training::Snapshot;

/// Number of lines about a tenant's training where there are no bars.
const LINES: usize = 4;

/// Progress of the demo.
pub(super) struct Progress {
    is_terminal: bool,
    all: MultiProgress,
    tenants: Vec<Row>,
    losses: ProgressBar,
    rounds: ProgressBar,
    lost_on_purpose: u64,
}

/// A tenant as it is shown.
struct Row {
    name: String,
    bar: ProgressBar,
    steps: usize,
    /// Number of plain lines that have been written.
    lines: usize,
}

impl Progress {
    pub(super) fn new(plan: &Plan) -> Progress {
        let all = MultiProgress::new();
        let width = plan.tenants.iter().map(|tenant| tenant.name.len()).max().unwrap_or(0);
        let tenants = plan.tenants.iter().map(|tenant| {
            let steps = tenant.lesson.steps;
            let template = format!("{{prefix:{width}}} {{bar:24}} {{pos:>4}}/{{len:4}}  {{msg}}");
            let bar = bar(&all, steps, &template).with_prefix(tenant.name.clone());
            Row { name: tenant.name.clone(), bar, steps, lines: 0 }
        });
        let tenants = tenants.collect();
        let losses = bar(&all, 0, "{msg}");
        Progress {
            is_terminal: std::io::stderr().is_terminal(),
            tenants,
            losses,
            rounds: ProgressBar::hidden(),
            all,
            lost_on_purpose: 0,
        }
    }

    /// A line that stays.
    pub(super) fn say(&self, text: &str) {
        if self.is_terminal {
            // A terminal that is gone shows nothing.
            let _ = self.all.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    /// A tenant has done another step.
    pub(super) fn step(&mut self, tenant: usize, now: &Snapshot) {
        let row = &mut self.tenants[tenant];
        let accuracy = now
            .accuracy
            .map_or(String::new(), |accuracy| format!(", accuracy {}", format_percent(accuracy)));
        let goodput = format_rate_bps(now.goodput_bps);
        let text = format!("loss {:.4}{accuracy}, {goodput}", now.loss);
        if self.is_terminal && now.steps > 0 {
            row.bar.set_position(now.steps as u64);
            row.bar.set_message(text);
        } else if now.steps * LINES >= (row.lines + 1) * row.steps && now.steps > 0 {
            row.lines = now.steps * LINES / row.steps;
            let lost = format_count(self.lost_on_purpose);
            eprintln!(
                "{}: step {} of {}: {text}; the switch has lost {lost} packets",
                row.name, now.steps, row.steps
            );
        }
    }

    /// Shows the losses of the switch so far.
    pub(super) fn lost(&mut self, counters: &SwitchCounters) {
        self.lost_on_purpose = counters.lost_on_purpose;
        let [lost, packets] = [counters.lost_on_purpose, counters.packets].map(format_count);
        self.losses.set_message(format!(
            "the switch has taken in {packets} packets and lost {lost} packets and copies on purpose"
        ));
    }

    /// Starts this number of rounds of comparison; training is over.
    pub(super) fn compare(&mut self, rounds: usize) {
        for row in &self.tenants {
            row.bar.abandon();
        }
        self.losses.abandon();
        self.rounds = bar(&self.all, rounds, "{prefix} {bar:24} {pos:>4}/{len:4}  sums")
            .with_prefix("comparing");
    }

    /// One round of the comparison is done.
    pub(super) fn round(&self) {
        self.rounds.inc(1);
    }

    /// Ends the bars: the result follows.
    pub(super) fn finish(&self) {
        self.rounds.finish_and_clear();
        if self.is_terminal {
            // The bars that stay end without a line break.
            eprintln!();
        }
    }
}

fn bar(all: &MultiProgress, length: usize, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the templates are constants");
    let bar = all.add(ProgressBar::new(length as u64));
    bar.set_style(style.progress_chars("━╸─"));
    bar
}
