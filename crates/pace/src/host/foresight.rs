//! When the bytes of an iteration become ready, as the iteration before it showed.

use thalweg_core::{Span, Time};

/// Most moments that are remembered of an iteration. Of later ones only the last is.
const MOMENTS_MAX: usize = 32;

/// When the bytes of a flow became ready, in this iteration and in the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Foresight {
    /// First moment of this iteration.
    began: Time,
    current: Vec<Moment>,
    last: Vec<Moment>,
}

/// Bytes of an iteration that were ready at a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    since_begin: Span,
    ready: u64,
}

impl Foresight {
    /// Another iteration begins. One in which nothing got ready shows nothing.
    pub(super) fn begin_iteration(&mut self) {
        if !self.current.is_empty() {
            std::mem::swap(&mut self.current, &mut self.last);
            self.current.clear();
        }
    }

    /// This number of bytes of the iteration is ready now.
    pub(super) fn note(&mut self, now: Time, ready: u64) {
        if self.current.is_empty() {
            self.began = now;
        }
        if self.current.len() == MOMENTS_MAX {
            self.current.pop();
        }
        self.current.push(Moment { since_begin: now.since(self.began), ready });
    }

    /// Bytes that will be ready at a moment if this iteration goes as the one before.
    pub(super) fn ready_by(&self, at: Time) -> u64 {
        if self.current.is_empty() {
            return 0;
        }
        let elapsed = at.since(self.began);
        let until = self.last.iter().take_while(|moment| moment.since_begin <= elapsed);
        until.last().map_or(0, |moment| moment.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    // spec: C-17 machine
    #[test]
    fn an_iteration_is_expected_to_go_as_the_one_before() {
        let mut foresight = Foresight::default();
        foresight.note(at_ms(100), 10);
        foresight.note(at_ms(130), 40);
        assert_eq!(foresight.ready_by(at_ms(500)), 0, "the first one shows nothing of itself");
        foresight.begin_iteration();
        assert_eq!(foresight.ready_by(at_ms(500)), 0, "it has not begun");
        foresight.note(at_ms(1_000), 10);
        let expected = [999, 1_000, 1_029, 1_030, 9_999].map(|ms| foresight.ready_by(at_ms(ms)));
        assert_eq!(expected, [10, 10, 10, 40, 40]);
        foresight.begin_iteration();
        foresight.begin_iteration();
        foresight.note(at_ms(2_000), 1);
        assert_eq!(foresight.ready_by(at_ms(2_000)), 10, "an empty iteration shows nothing");
    }

    #[test]
    fn few_moments_are_remembered_and_the_end_is_one_of_them() {
        let mut foresight = Foresight::default();
        (0..1_000).for_each(|ms| foresight.note(at_ms(ms), ms));
        foresight.begin_iteration();
        foresight.note(at_ms(0), 0);
        assert_eq!(foresight.last.len(), MOMENTS_MAX);
        assert_eq!(foresight.ready_by(at_ms(998)), MOMENTS_MAX as u64 - 2);
        assert_eq!(foresight.ready_by(at_ms(999)), 999);
    }
}
