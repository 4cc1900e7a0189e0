//! Progress on standard error, where it is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The bar's steps: finer than anybody can see.
const STEPS: u64 = 10_000;

/// A bar from nothing to all.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Bar {
        let template = "{bar:32} {percent:>3}%  {msg}  {elapsed}, {eta} left";
        Bar(styled(ProgressBar::new(STEPS), template))
    }

    /// Shows how far the run is, from 0 to 1, and what it is at.
    pub(crate) fn show(&self, done: f64, label: &str) {
        if self.0.message() != label {
            self.0.set_message(label.to_owned());
        }
        self.0.set_position((done * STEPS as f64) as u64);
    }

    /// Takes the bar away: what follows is the result.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Returns a bar that looks as all of them do.
pub(crate) fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    bar.with_style(style.progress_chars("━╸─"))
}
