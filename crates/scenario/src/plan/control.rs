//! From the name of a congestion control to its settings.

use thalweg_core::{Bytes, Span};
use thalweg_transport::Control;
use thalweg_transport::control::{Fixed, SampledClasses};

use crate::file::DelayClassesWord;

/// Queueing delay that windows by delay accept, as published for Swift.
pub(crate) const QUEUE_TARGET: Span = Span::from_us(25);

/// The control with a name that all transports know, or a window of a size that does not move.
pub(crate) fn named(name: &str) -> Option<Control> {
    let fixed = || Some(Fixed { bytes: name.parse::<Bytes>().ok()?.as_u64() }.into());
    Control::named(name).or_else(fixed)
}

/// Names that all transports know, of the controls that `is_listed` picks.
pub(crate) fn names(is_listed: fn(Control) -> bool) -> String {
    let is_listed = |name: &&&str| Control::named(name).is_some_and(is_listed);
    let names: Vec<_> = Control::NAMES.iter().filter(is_listed).copied().collect();
    format!("\"{}\"", names.join("\", \""))
}

/// The classes that a word of a file means.
// spec: M-17
pub(crate) fn sampled_classes(word: DelayClassesWord) -> SampledClasses {
    match word {
        DelayClassesWord::All => SampledClasses::All,
        DelayClassesWord::MostUrgent => SampledClasses::MostUrgent,
    }
}
