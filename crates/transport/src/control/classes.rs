//! Classes of which round trips are read.

use thalweg_core::Time;

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

/// Round trips without an acknowledgement after which a class counts as no longer in use. Layers of a model take
/// turns within them; a class that waits longer would leave the others without a control.
const CLASS_AGE_ROUND_TRIPS: u64 = 64;

/// Decides which acknowledgements are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassFilter {
    classes: SampledClasses,
    most_urgent: Option<MostUrgent>,
}

/// The most urgent class in use.
#[derive(Clone, Copy, Debug)]
struct MostUrgent {
    priority: u8,
    /// Time at which it is no longer in use if nothing else of it is acknowledged.
    in_use_until: Time,
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
        let is_behind = self
            .most_urgent
            .is_some_and(|urgent| urgent.priority < priority && acked.now <= urgent.in_use_until);
        if let Some(round_trip) = acked.round_trip
            && !is_behind
        {
            let in_use_until = acked.now + round_trip * CLASS_AGE_ROUND_TRIPS;
            self.most_urgent = Some(MostUrgent { priority, in_use_until });
        }
        !is_behind
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Span;

    use super::super::testing::acked;
    use super::*;

    fn admits(filter: &mut ClassFilter, ms: u64, priority: Option<u8>) -> bool {
        let (now, round_trip) = (Time::ZERO + Span::from_ms(ms), Some(Span::from_ms(1)));
        filter.admits(&Acked { now, round_trip, priority, ..acked() })
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
        assert!(!admits(&mut filter, 4 + CLASS_AGE_ROUND_TRIPS, Some(5)));
        assert!(
            admits(&mut filter, 5 + CLASS_AGE_ROUND_TRIPS, Some(5)),
            "the other is no longer in use"
        );
    }

    #[test]
    fn as_published_every_class_is_read() {
        let mut filter = ClassFilter::new(SampledClasses::All);
        assert!(admits(&mut filter, 0, Some(2)) && admits(&mut filter, 1, Some(5)));
        assert!(admits(&mut filter, 2, None));
    }
}
