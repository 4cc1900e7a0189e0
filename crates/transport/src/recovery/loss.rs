//! Loss detection, by the order of answers and by time.
//!
//! Losses are found on transmission numbers, as in QUIC (RFC 9002), not on packet numbers: every transmission,
//! resends included, has a number of its own, in the order of sending. A lost resend is found like any other
//! loss.

use std::collections::VecDeque;

/// Order of answers that shows a transmission to be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossThreshold {
    /// A transmission with a number larger by this much was answered (RFC 9002, 6.1.1).
    Sent(u32),
    /// This many later transmissions were answered. With 0, order shows nothing and only time does.
    Answered(u32),
}

/// A numbered transmission of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmission<T> {
    /// Number in the order of sending.
    pub number: u64,
    /// The item, which may have other transmissions.
    pub item: T,
}

/// Finds the lost ones among transmissions that were sent in order.
///
/// The owner knows which transmissions are awaited: not answered, and not followed by another one of their
/// item. Others are passed over when they are the oldest, so that everything costs constant time for each
/// transmission.
#[derive(Clone, Debug)]
pub struct LossDetector<T> {
    /// Transmissions that were neither given up nor passed over.
    in_order: VecDeque<Transmission<T>>,
    answers: Answers,
}

/// Answers so far, as far as a threshold needs them.
#[derive(Clone, Debug)]
enum Answers {
    /// Transmissions below `lost_below` left at least `later` before one that was answered.
    Sent { later: u32, lost_below: u64 },
    /// The largest numbers that were answered, smallest first: one for each answer that the threshold needs,
    /// and 0 where none came yet.
    Answered(Box<[u64]>),
}

impl<T: Copy> LossDetector<T> {
    /// A detector without transmissions.
    pub fn new(threshold: LossThreshold) -> LossDetector<T> {
        let answers = match threshold {
            LossThreshold::Sent(later) => Answers::Sent { later, lost_below: 0 },
            LossThreshold::Answered(count) => Answers::Answered(vec![0; count as usize].into()),
        };
        LossDetector { in_order: VecDeque::new(), answers }
    }

    /// A detector without transmissions, for which only time shows losses.
    pub fn by_time() -> LossDetector<T> {
        LossDetector::new(LossThreshold::Answered(0))
    }

    /// A transmission leaves.
    #[inline]
    pub fn on_sent(&mut self, number: u64, item: T) {
        self.in_order.push_back(Transmission { number, item });
    }

    /// Forgets all transmissions so far: their order shows nothing.
    pub fn forget(&mut self) {
        self.in_order.clear();
    }

    /// A transmission was answered. Each one counts once.
    #[inline]
    pub fn on_answer(&mut self, number: u64) {
        match &mut self.answers {
            Answers::Sent { later, lost_below } => {
                *lost_below = (number + 1).saturating_sub(u64::from(*later)).max(*lost_below);
            }
            Answers::Answered(largest) => {
                let place = largest.partition_point(|&other| other < number);
                if let Some(last) = place.checked_sub(1) {
                    // The smallest makes room.
                    largest[..place].rotate_left(1);
                    largest[last] = number;
                }
            }
        }
    }

    /// An answer came to a transmission that order showed to be lost, and which was late. From now on as many may be
    /// sent in between, up to `most`. Returns `false` for any other answer.
    pub fn widen(&mut self, number: u64, most: u32) -> bool {
        match &mut self.answers {
            Answers::Sent { later, lost_below } if number < *lost_below => {
                let latest = *lost_below + u64::from(*later) - 1;
                let needed = u32::try_from(latest - number + 1).unwrap_or(u32::MAX);
                *later = needed.min(most).max(*later);
                true
            }
            _ => false,
        }
    }

    /// Removes and returns the oldest transmission that is awaited, if order shows that it is lost.
    #[inline]
    pub fn pop_lost(
        &mut self,
        is_awaited: impl Fn(&Transmission<T>) -> bool,
    ) -> Option<Transmission<T>> {
        let lost_below = match &self.answers {
            Answers::Sent { lost_below, .. } => *lost_below,
            Answers::Answered(largest) => largest.first().copied().unwrap_or(0),
        };
        self.pop_expired(is_awaited, |sent| sent.number < lost_below)
    }

    /// Removes and returns the oldest transmission that is awaited, if its time has come.
    #[inline]
    pub fn pop_expired(
        &mut self,
        is_awaited: impl Fn(&Transmission<T>) -> bool,
        is_expired: impl Fn(&Transmission<T>) -> bool,
    ) -> Option<Transmission<T>> {
        self.pass_over(is_awaited);
        let oldest = self.in_order.front()?;
        if is_expired(oldest) { self.in_order.pop_front() } else { None }
    }

    /// Forgets the oldest transmissions that are not awaited.
    #[inline]
    pub fn pass_over(&mut self, is_awaited: impl Fn(&Transmission<T>) -> bool) {
        while self.in_order.front().is_some_and(|oldest| !is_awaited(oldest)) {
            self.in_order.pop_front();
        }
    }

    /// Transmissions that were neither given up nor passed over, the oldest first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Transmission<T>> {
        self.in_order.iter()
    }

    /// The oldest transmission that was neither given up nor passed over.
    #[inline]
    pub fn oldest(&self) -> Option<&Transmission<T>> {
        self.in_order.front()
    }

    /// Returns the item of a transmission that was neither given up nor passed over.
    #[inline]
    pub fn find(&self, number: u64) -> Option<T> {
        let oldest = self.in_order.front()?;
        // Most answers are to the oldest.
        if oldest.number == number {
            return Some(oldest.item);
        }
        // Its place, where no number was left out.
        let guess = self.in_order.get(number.checked_sub(oldest.number)? as usize);
        if let Some(sent) = guess.filter(|sent| sent.number == number) {
            return Some(sent.item);
        }
        let place = self.in_order.binary_search_by_key(&number, |sent| sent.number).ok()?;
        Some(self.in_order[place].item)
    }

    /// Forgets all transmissions, and keeps their memory.
    pub fn clear(&mut self) {
        self.in_order.clear();
    }

    /// Begins again, with transmissions that are numbered from 0. Keeps the memory.
    pub fn reset(&mut self) {
        self.clear();
        match &mut self.answers {
            Answers::Sent { lost_below, .. } => *lost_below = 0,
            Answers::Answered(largest) => largest.fill(0),
        }
    }

    /// Panics where transmissions are not in the order of their numbers.
    // spec: T-12
    pub fn check(&self) {
        let numbers = self.in_order.iter().map(|sent| sent.number);
        assert!(numbers.is_sorted(), "transmissions leave in the order of their numbers");
        if let Answers::Answered(largest) = &self.answers {
            assert!(largest.is_sorted(), "answered numbers are kept in their order");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Sends after leaving out this many numbers.
        Send(u64),
        /// Answers one of the transmissions so far, whatever became of it.
        Answer(usize),
        /// Ends the wait for one of them without an answer.
        Supersede(usize),
        /// All that was sent counts as given up.
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..3u64).prop_map(Step::Send),
            6 => any::<usize>().prop_map(Step::Answer),
            1 => any::<usize>().prop_map(Step::Supersede),
            1 => Just(Step::Clear),
        ]
    }

    fn threshold() -> impl Strategy<Value = LossThreshold> {
        prop_oneof![
            (1..6u32).prop_map(LossThreshold::Sent),
            (0..6u32).prop_map(LossThreshold::Answered),
        ]
    }

    /// The rules, on all that was ever sent and answered.
    #[derive(Default)]
    struct Oracle {
        sent: Vec<u64>,
        answered: BTreeSet<u64>,
        awaited: BTreeSet<u64>,
    }

    impl Oracle {
        fn lost(&self, threshold: LossThreshold) -> Vec<u64> {
            let is_lost = |number: u64| {
                let later = self.answered.range(number + 1..);
                match threshold {
                    LossThreshold::Sent(count) => {
                        later.clone().any(|&other| other >= number + u64::from(count))
                    }
                    LossThreshold::Answered(0) => false,
                    LossThreshold::Answered(count) => later.count() >= count as usize,
                }
            };
            self.awaited.iter().copied().filter(|&number| is_lost(number)).collect()
        }
    }

    fn take(detector: &mut LossDetector<u64>, oracle: &mut Oracle, step: Step) {
        let pick =
            |numbers: &[u64], place: usize| numbers.get(place % numbers.len().max(1)).copied();
        match step {
            Step::Send(left_out) => {
                let number = oracle.sent.last().map_or(0, |last| last + 1) + left_out;
                detector.on_sent(number, !number);
                oracle.sent.push(number);
                oracle.awaited.insert(number);
            }
            Step::Answer(place) => {
                let Some(number) = pick(&oracle.sent, place) else { return };
                oracle.awaited.remove(&number);
                if oracle.answered.insert(number) {
                    detector.on_answer(number);
                }
            }
            Step::Supersede(place) => {
                let Some(number) = pick(&oracle.sent, place) else { return };
                oracle.awaited.remove(&number);
            }
            Step::Clear => {
                oracle.awaited.clear();
                detector.clear();
            }
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_looking_at_every_transmission(
            threshold in threshold(),
            steps in prop::collection::vec(step(), 1..300),
        ) {
            let mut detector = LossDetector::new(threshold);
            let mut oracle = Oracle::default();
            for step in steps {
                take(&mut detector, &mut oracle, step);
                let expected = oracle.lost(threshold);
                let mut found = Vec::new();
                while let Some(lost) = detector.pop_lost(|sent| oracle.awaited.contains(&sent.number)) {
                    prop_assert_eq!(lost.item, !lost.number);
                    found.push(lost.number);
                }
                prop_assert_eq!(&found, &expected, "after {:?}", step);
                found.iter().for_each(|number| { oracle.awaited.remove(number); });
                detector.check();
                let kept: BTreeSet<u64> = detector.iter().map(|sent| sent.number).collect();
                prop_assert!(kept.is_superset(&oracle.awaited), "{:?} are forgotten", oracle.awaited);
                for &number in &oracle.sent {
                    prop_assert_eq!(detector.find(number), kept.contains(&number).then_some(!number));
                }
            }
        }
    }

    #[test]
    fn time_takes_the_oldest_that_are_awaited_and_stops_at_the_first_that_is_young() {
        let mut detector = LossDetector::by_time();
        (0..6).for_each(|number| detector.on_sent(number, number * 10));
        (2..6).for_each(|number| detector.on_answer(number));
        let is_awaited = |sent: &Transmission<u64>| sent.number != 0;
        assert_eq!(detector.pop_lost(is_awaited), None, "order shows nothing");
        let pop = |detector: &mut LossDetector<u64>, until| {
            detector.pop_expired(is_awaited, |sent| sent.item <= until).map(|sent| sent.number)
        };
        assert_eq!([25, 25, 25].map(|until| pop(&mut detector, until)), [Some(1), Some(2), None]);
        detector.pass_over(|sent| sent.number > 4);
        assert_eq!(detector.iter().map(|sent| sent.number).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_detector_that_was_wrong_waits_for_longer() {
        let mut detector = LossDetector::new(LossThreshold::Sent(3));
        (0..40).for_each(|number| detector.on_sent(number, ()));
        detector.on_answer(9);
        let lost =
            |detector: &mut LossDetector<()>| detector.pop_lost(|_| true).map(|it| it.number);
        assert_eq!(
            (0..7).map(|_| lost(&mut detector)).collect::<Vec<_>>(),
            (0..7).map(Some).collect::<Vec<_>>()
        );
        assert!(!detector.widen(7, 300), "it was not given up");
        assert!(detector.widen(4, 300), "5 places late");
        detector.on_answer(12);
        assert_eq!(lost(&mut detector), None, "now 6 have to be sent in between");
        detector.on_answer(13);
        assert_eq!(lost(&mut detector), Some(7));
        detector.widen(0, 8);
        detector.on_answer(17);
        assert_eq!(
            [lost(&mut detector), lost(&mut detector), lost(&mut detector)],
            [Some(8), Some(9), None],
            "at most 8"
        );
    }

    #[test]
    fn a_detector_that_begins_again_knows_no_answers() {
        for threshold in [LossThreshold::Sent(2), LossThreshold::Answered(2)] {
            let mut detector = LossDetector::new(threshold);
            (5..9).for_each(|number| detector.on_answer(number));
            detector.reset();
            detector.on_sent(0, ());
            assert_eq!(detector.pop_lost(|_| true), None, "{threshold:?}");
        }
    }
}
