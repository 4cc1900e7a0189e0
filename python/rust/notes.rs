//! Notes of a session, for a log.

use thalweg::Note;

/// Whether a note is worth a warning.
pub(crate) fn is_warning(note: &Note) -> bool {
    match note {
        Note::Stalled(_)
        | Note::Disconnected(_)
        | Note::Unpaced(_)
        | Note::Underflowed { .. }
        | Note::Rescaled { .. } => true,
        Note::Waiting(_) | Note::SetUp { .. } => false,
    }
}

/// The note for people.
pub(crate) fn in_words(note: &Note) -> String {
    match note {
        Note::Waiting(ranks) => format!("waiting for ranks {ranks:?} to join"),
        Note::SetUp { epoch } => format!("set up (epoch {epoch})"),
        Note::Stalled(text) => text.clone(),
        Note::Disconnected(text) => format!("the server does not answer: {text}"),
        Note::Unpaced(text) => format!("nobody says when to send any more: {text}"),
        Note::Underflowed { values, scale } => format!(
            "{values} values so far were too small for fixed point with {scale} steps to 1 and count as zero: \
             use floats or a larger scale"
        ),
        Note::Rescaled { scale } => format!(
            "sums left the range of fixed point, which has {scale} steps to 1 from now on: use floats, or \
             smaller values"
        ),
    }
}
