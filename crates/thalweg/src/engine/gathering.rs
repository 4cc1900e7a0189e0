//! Ranks that have not joined, and when to report them.

use thalweg_core::{Span, Time};

use crate::events::Note;

/// Ranks that the job waits for. The registrar repeats them every second; people want to know of changes, and of a wait
/// that is long.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    missing: Vec<u32>,
    /// Time of the first report, and of the last warning or else of the first report. `None` while the job waits for
    /// nobody.
    times: Option<(Time, Time)>,
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
    /// warning whenever the wait has lasted for another `stall_after`.
    // spec: E-02
    pub fn report(&mut self, now: Time, missing: &[u32], stall_after: Span) -> Option<Note> {
        let (began, warned) = *self.times.get_or_insert((now, now));
        let is_long = now.since(warned) >= stall_after;
        if is_long {
            self.times = Some((began, now));
        }
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
        assert_eq!(report(9, &[2]), None);
        assert_eq!(report(11, &[2]), waiting(&[2], 11, true));
        gathering.end();
        assert!(gathering.missing().is_empty());
        let again = gathering.report(Time::ZERO + Span::from_s(200), &[0], Span::from_s(5));
        assert_eq!((again, gathering.missing()), (waiting(&[0], 0, false), &[0][..]));
    }
}
