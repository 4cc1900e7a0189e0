//! Ranks that have not joined, and when to report them.

use thalweg_core::{Reminder, Span, Time};

use crate::events::Note;

/// Ranks that the job waits for. The registrar repeats them every second; people want to know of changes, and of a wait
/// that is long.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    missing: Vec<u32>,
    /// Time of the first report, and of the warnings. `None` while the job waits for nobody.
    times: Option<(Time, Reminder)>,
}

impl Gathering {
    /// Ranks that had not joined when the registrar last named them.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// All ranks have joined.
    pub fn end(&mut self) {
        *self = Gathering::default();
    }

    /// Returns the report that is due when the registrar names the ranks that are missing: when these change, and as a
    /// warning when the wait has lasted for `stall_after`, and then more and more rarely.
    // spec: E-02
    pub fn report(&mut self, now: Time, missing: &[u32], stall_after: Span) -> Option<Note> {
        let (began, warnings) =
            self.times.get_or_insert_with(|| (now, Reminder::new(now, stall_after)));
        let (began, is_long) = (*began, warnings.is_due(now));
        let is_changed = self.missing != missing;
        self.missing = missing.to_vec();
        let report = Note::Waiting { ranks: missing.to_vec(), since: now.since(began), is_long };
        (is_changed || is_long).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-02 machine
    #[test]
    fn a_wait_is_reported_when_it_changes_and_again_when_it_is_long() {
        let mut gathering = Gathering::default();
        let mut report = |at_s: u64, missing: &[u32]| {
            let now = Time::ZERO + Span::from_s(100 + at_s);
            gathering.report(now, missing, Span::from_s(5))
        };
        let waiting = |ranks: &[u32], since_s, is_long| {
            Some(Note::Waiting { ranks: ranks.to_vec(), since: Span::from_s(since_s), is_long })
        };
        assert_eq!(report(0, &[1, 2]), waiting(&[1, 2], 0, false));
        assert_eq!(report(1, &[1, 2]), None);
        assert_eq!(report(2, &[2]), waiting(&[2], 2, false));
        assert_eq!(report(4, &[2]), None);
        assert_eq!(report(5, &[2]), waiting(&[2], 5, true));
        assert_eq!(report(14, &[2]), None);
        assert_eq!(report(16, &[2]), waiting(&[2], 16, true));
        assert_eq!(report(35, &[2]), None, "warnings become rare");
        assert_eq!(report(36, &[2]), waiting(&[2], 36, true));
        gathering.end();
        assert!(gathering.missing().is_empty());
        let again = gathering.report(Time::ZERO + Span::from_s(200), &[0], Span::from_s(5));
        assert_eq!((again, gathering.missing()), (waiting(&[0], 0, false), &[0][..]));
    }
}
