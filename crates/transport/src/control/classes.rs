//! Classes of which round trips are read.

use thalweg_core::{Span, Time};

use super::Acked;

/// Classes of packets whose round trips a control by delay reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SampledClasses {
    /// All of them, as published.
    #[default]
    All,
    /// The most urgent class in use. A packet that waits behind a more urgent class says nothing about
    /// congestion.
    // spec: M-17
    MostUrgent,
}

/// Time after which a class without acknowledgements counts as no longer in use.
const CLASS_AGE: Span = Span::from_ms(100);

/// Decides which acknowledgements are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassFilter {
    classes: SampledClasses,
    /// Most urgent class in use, and the time of its last acknowledgement.
    most_urgent: Option<(u8, Time)>,
}

impl ClassFilter {
    pub fn new(classes: SampledClasses) -> ClassFilter {
        ClassFilter { classes, most_urgent: None }
    }

    /// Returns whether packets have to carry their class.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.classes == SampledClasses::MostUrgent
    }

    /// Returns whether the round trip of an acknowledgement is read.
    #[inline]
    pub fn admits(&mut self, acked: &Acked) -> bool {
        if !self.is_on() {
            return true;
        }
        let Some(priority) = acked.priority else { return false };
        let is_behind = self.most_urgent.is_some_and(|(urgent, seen_at)| {
            urgent < priority && acked.now.since(seen_at) <= CLASS_AGE
        });
        if !is_behind {
            self.most_urgent = Some((priority, acked.now));
        }
        !is_behind
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::acked;
    use super::*;

    fn admits(filter: &mut ClassFilter, ms: u64, priority: Option<u8>) -> bool {
        filter.admits(&Acked { now: Time::ZERO + Span::from_ms(ms), priority, ..acked() })
    }

    // spec: M-17 machine
    #[test]
    fn only_the_most_urgent_class_in_use_is_read() {
        let mut filter = ClassFilter::new(SampledClasses::MostUrgent);
        assert!(admits(&mut filter, 0, Some(5)), "the only one so far");
        assert!(admits(&mut filter, 1, Some(2)), "more urgent");
        assert!(!admits(&mut filter, 2, Some(5)), "it waits behind the other");
        assert!(!admits(&mut filter, 3, None), "nobody knows");
        assert!(admits(&mut filter, 4, Some(2)));
        assert!(!admits(&mut filter, 104, Some(5)));
        assert!(admits(&mut filter, 105, Some(5)), "the other is no longer in use");
    }

    #[test]
    fn as_published_every_class_is_read() {
        let mut filter = ClassFilter::new(SampledClasses::All);
        assert!(admits(&mut filter, 0, Some(2)) && admits(&mut filter, 1, Some(5)));
        assert!(admits(&mut filter, 2, None));
    }
}
