//! Exponential back-off.

use thalweg_core::Span;

/// Largest power of two that a wait is multiplied with. Spans saturate long before.
const DOUBLINGS_MAX: u32 = 40;

/// Number of waits in a row that ended without an answer. Each doubles the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backoff {
    doublings: u32,
}

impl Backoff {
    /// Returns the wait that `base` has become, at most `max`.
    #[inline]
    pub fn wait(self, base: Span, max: Span) -> Span {
        (base * (1 << self.doublings.min(DOUBLINGS_MAX))).min(max)
    }

    /// Doubles the wait: no answer came in time.
    #[inline]
    pub fn back_off(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// Halves the wait: an answer came, but not necessarily to the last transmission.
    #[inline]
    pub fn ease_off(&mut self) {
        self.doublings = self.doublings.saturating_sub(1);
    }

    /// Ends the back-off: an answer came.
    #[inline]
    pub fn reset(&mut self) {
        self.doublings = 0;
    }

    /// Number of waits in a row without an answer.
    #[inline]
    pub fn doublings(self) -> u32 {
        self.doublings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (base, max) = (Span::from_ms(5), Span::from_ms(30));
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..4 {
            waits.push(backoff.wait(base, max));
            backoff.back_off();
        }
        assert_eq!(waits, [5, 10, 20, 30].map(Span::from_ms));
        (0..100).for_each(|_| backoff.back_off());
        assert_eq!(backoff.wait(base, max), max, "a hundred doublings do not overflow");
        backoff.reset();
        backoff.back_off();
        backoff.back_off();
        backoff.ease_off();
        assert_eq!((backoff.wait(base, max), backoff.doublings()), (Span::from_ms(10), 1));
    }
}
