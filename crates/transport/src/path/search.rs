//! Search for the largest packets that one path carries.

use thalweg_core::{MTU_BYTES_MAX, MTU_BYTES_MIN, Span, Time, body_bytes_of_mtu};

use crate::recovery::Backoff;

/// MTUs that are tried where the largest one does not pass: those of common links, and steps between them.
const STEPS: [u16; 8] = [6_000, 4_000, 3_000, 2_000, 1_500, 1_400, 1_280, MTU_BYTES_MIN];

/// Tries of the largest size before smaller ones are tried beside it: where it passes, nothing else is sent, and a lost
/// packet is no sign of a narrow path.
const ALONE: u32 = 3;

/// Tries after which a size that was not answered does not pass, if a smaller one was answered.
pub const TRIES: u32 = 8;

/// Tries that a size gets after the first answer at least: before it, nobody may have been there.
const TRIES_ANSWERED: u32 = 5;

/// Tries after which a path is given up that answers nothing.
const TRIES_SILENT: u32 = 24;

/// Time between two tries: doubled after each, up to the longest.
const GAP: Span = Span::from_ms(5);
const GAP_MAX: Span = Span::from_ms(160);

/// The outcome of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathOutcome {
    /// Packets of this MTU pass in both directions.
    Carries(u16),
    /// Nothing was answered: nobody is there, or nobody who answers probes.
    Silent,
}

/// Search for the largest packets that one path carries.
///
/// After every [`poll`](PathSearch::poll) the sizes that it returns are sent, and answers are
/// [confirmed](PathSearch::confirm), until there is an [outcome](PathSearch::outcome).
#[derive(Clone, Debug)]
pub struct PathSearch {
    /// The largest MTU to try.
    most: u16,
    confirmed: Option<u16>,
    tries: u32,
    /// Tries without which there is no outcome.
    tries_min: u32,
    next: Time,
    backoff: Backoff,
}

impl PathSearch {
    /// A search from this MTU downward, which begins at once.
    pub fn new(now: Time, mtu_bytes: u16) -> PathSearch {
        let most = mtu_bytes.clamp(MTU_BYTES_MIN, MTU_BYTES_MAX);
        PathSearch {
            most,
            confirmed: None,
            tries: 0,
            tries_min: TRIES,
            next: now,
            backoff: Backoff::default(),
        }
    }

    /// Returns the MTUs to send probes of now, the largest first.
    pub fn poll(&mut self, now: Time) -> impl Iterator<Item = u16> + use<> {
        let is_due = now >= self.next && self.outcome(now).is_none();
        let (most, confirmed, tries) = (self.most, self.confirmed, self.tries);
        if is_due {
            self.tries += 1;
            self.next = now + self.backoff.wait(GAP, GAP_MAX);
            self.backoff.back_off();
        }
        let steps = STEPS.into_iter().filter(move |step| *step < most && tries >= ALONE);
        let sizes = [most].into_iter().chain(steps);
        sizes.filter(move |size| is_due && confirmed.is_none_or(|confirmed| confirmed < *size))
    }

    /// Returns the MTU that a probe with a body of this length was for. `None` if no probe of this search has that length.
    pub fn mtu_of(&self, body_bytes: usize) -> Option<u16> {
        let mut sizes = [self.most].into_iter().chain(STEPS).filter(|size| *size <= self.most);
        sizes.find(|size| usize::from(body_bytes_of_mtu(*size)) == body_bytes)
    }

    /// Returns the time of the next try, or of the outcome.
    pub fn poll_timeout(&self) -> Time {
        self.next
    }

    /// Takes in the answer to a probe of an MTU.
    pub fn confirm(&mut self, mtu_bytes: u16) {
        let mtu_bytes = mtu_bytes.min(self.most);
        if self.confirmed.is_none() {
            self.tries_min = self.tries_min.max(self.tries + TRIES_ANSWERED);
        }
        self.confirmed = Some(self.confirmed.map_or(mtu_bytes, |before| before.max(mtu_bytes)));
    }

    /// Returns the outcome, if there is one.
    pub fn outcome(&self, now: Time) -> Option<PathOutcome> {
        let has_waited = |tries| self.tries >= tries && now >= self.next;
        match self.confirmed {
            Some(confirmed) if confirmed == self.most || has_waited(self.tries_min) => {
                Some(PathOutcome::Carries(confirmed))
            }
            None if has_waited(TRIES_SILENT) => Some(PathOutcome::Silent),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over a path that carries up to an MTU, and loses what `loses` says of its packets.
    fn search(
        most: u16,
        carries: u16,
        mut loses: impl FnMut(u32) -> bool,
    ) -> (PathOutcome, u32, Span) {
        let mut search = PathSearch::new(Time::ZERO, most);
        let (mut now, mut sent) = (Time::ZERO, 0);
        loop {
            for size in search.poll(now).collect::<Vec<_>>() {
                sent += 1;
                if size <= carries && !loses(sent) {
                    search.confirm(size);
                }
            }
            if let Some(outcome) = search.outcome(now) {
                return (outcome, sent, now.since(Time::ZERO));
            }
            assert!(search.poll_timeout() > now, "time passes");
            now = search.poll_timeout();
        }
    }

    // spec: F-01 machine
    #[test]
    fn a_path_that_carries_all_takes_one_probe() {
        for most in [576, 1_500, 9_000] {
            assert_eq!(search(most, 9_000, |_| false), (PathOutcome::Carries(most), 1, Span::ZERO));
        }
        let most = search(u16::MAX, u16::MAX, |_| false).0;
        assert_eq!(most, PathOutcome::Carries(9_000), "jumbo frames are the most");
    }

    // spec: F-01 machine
    #[test]
    fn a_narrow_path_is_found_by_the_largest_step_that_passes() {
        for (carries, found) in
            [(8_999, 6_000), (4_000, 4_000), (1_500, 1_500), (1_499, 1_400), (600, 576)]
        {
            let (outcome, _, took) = search(9_000, carries, |_| false);
            assert_eq!(outcome, PathOutcome::Carries(found), "{carries}");
            assert!(took < Span::from_s(1), "{took:?}");
        }
        assert_eq!(search(1_500, 1_450, |_| false).0, PathOutcome::Carries(1_400));
    }

    // spec: F-01 machine
    #[test]
    fn losses_are_no_sign_of_a_narrow_path() {
        assert_eq!(search(9_000, 9_000, |sent| sent <= 7).0, PathOutcome::Carries(9_000));
        // Every second packet is lost, and all of the first half second.
        let outcome = search(9_000, 9_000, |sent| sent % 2 == 1 || sent < 60).0;
        assert_eq!(outcome, PathOutcome::Carries(9_000));
    }

    // spec: F-01 machine
    #[test]
    fn silence_is_not_taken_for_a_narrow_path() {
        let (outcome, sent, took) = search(9_000, 0, |_| false);
        assert_eq!(outcome, PathOutcome::Silent);
        assert!(took > Span::from_s(3) && took < Span::from_s(4), "{took:?}");
        assert!(sent < 300, "{sent} probes");
    }
}
