//! From the name of a congestion control to its settings.

use thalweg_core::{Bytes, Span};
use thalweg_transport::Control;
use thalweg_transport::control::{Bbr, Cubic, Dctcp, Fixed, NewReno, SampledClasses, Swift};

use crate::file::DelayClassesWord;

/// Queueing delay that a control by delay accepts, as published for Swift.
pub(crate) const QUEUE_TARGET: Span = Span::from_us(25);

/// Names that all transports know.
pub(crate) const NAMES: &str = "\"dctcp\", \"new-reno\", \"cubic\", \"bbr\", \"swift\"";

/// The control with a name that all transports know, or a window of a size that does not move. Packets may wait
/// in queues for `target`, where the control has one.
pub(crate) fn named(name: &str, target: Span) -> Option<Control> {
    Some(match name {
        "dctcp" => Dctcp::default().into(),
        "new-reno" => NewReno.into(),
        "cubic" => Cubic.into(),
        "bbr" => Bbr.into(),
        "swift" => Swift { target, ..Swift::default() }.into(),
        size => Fixed { bytes: size.parse::<Bytes>().ok()?.as_u64() }.into(),
    })
}

/// The control with the round trip of the longest path, if it needs that.
pub(crate) fn on_path(control: Control, round_trip: Span) -> Control {
    match control {
        Control::Swift(swift) => Swift { base: Some(round_trip), ..swift }.into(),
        other => other,
    }
}

/// The classes that a word of a file means.
// spec: M-17
pub(crate) fn sampled_classes(word: DelayClassesWord) -> SampledClasses {
    match word {
        DelayClassesWord::All => SampledClasses::All,
        DelayClassesWord::MostUrgent => SampledClasses::MostUrgent,
    }
}
