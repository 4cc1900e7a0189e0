//! Reports of something that lasts.

use crate::time::{Span, Time};

/// The longest time between two reports.
const GAP_MAX: Span = Span::from_s(600);

/// Times of reports about something that lasts: every time is twice as long after the one before as that was, up to ten
/// minutes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reminder {
    at: Time,
    gap: Span,
}

impl Reminder {
    /// A report was made now; the next one is due after that time.
    pub fn new(now: Time, gap: Span) -> Reminder {
        Reminder { at: now, gap }
    }

    /// Returns whether a report is due, and takes it for made then.
    pub fn is_due(&mut self, now: Time) -> bool {
        if now.since(self.at) < self.gap {
            return false;
        }
        self.at = now;
        // A first gap that is longer than the longest stays as it is.
        self.gap = (self.gap * 2).min(GAP_MAX).max(self.gap);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_become_rare() {
        let at = |s: u64| Time::ZERO + Span::from_s(s);
        let mut reminder = Reminder::new(at(100), Span::from_s(5));
        let due: Vec<u64> = (1..3_000).filter(|s| reminder.is_due(at(100 + s))).collect();
        assert_eq!(due, [5, 15, 35, 75, 155, 315, 635, 1_235, 1_835, 2_435]);
        let mut reminder = Reminder::new(at(0), Span::from_s(900));
        let due: Vec<u64> = (1..2_000).filter(|s| reminder.is_due(at(*s))).collect();
        assert_eq!(due, [900, 1_800]);
    }
}
