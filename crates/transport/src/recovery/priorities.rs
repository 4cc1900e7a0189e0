//! Loss detection where queues along the path serve strict priorities.
//!
//! Packets of one priority stay in order there, and a packet overtakes only less urgent ones. So the answer to a
//! transmission shows that everything has left the network that was sent before it and is at least as urgent. What
//! is less urgent may still wait: it overtook nothing, and silence about it says nothing for sure. Such a gap is
//! probed with one copy.

use thalweg_core::{PRIORITIES, Span, Time};

use super::{LossDetector, LossThreshold, Transmission};

/// Most doublings of the wait for a probe.
const MAX_DOUBLINGS: u32 = 6;

/// Finds the lost ones among transmissions that have priorities: a [`LossDetector`] for each of them.
///
/// A transmission is lost when a later one that is no more urgent was answered, and either enough left in between,
/// or a reordering window has passed since that answer. The oldest that is awaited is probed when nothing shows its
/// loss for long.
// spec: Q-15
#[derive(Clone, Debug)]
pub struct PriorityLosses<T> {
    by_priority: [LossDetector<T>; PRIORITIES],
    windows: [ReorderingWindow; PRIORITIES],
    /// Transmissions that must be sent in between, for a loss that shows at once.
    threshold: u32,
    /// Transmissions below this number left before an answered one, of whatever priority.
    answered_end: u64,
    /// Time of the next probe, and the oldest transmission in the gap that it is for.
    probe_at: Time,
    gap: Option<u64>,
    /// Probes since an answer showed that the priority of the gap is served.
    doublings: u32,
    /// The last transmission that a probe repeated: its number and priority.
    probed: Option<(u64, u8)>,
}

/// Time that transmissions of a priority may come late.
#[derive(Clone, Copy, Debug)]
struct ReorderingWindow {
    /// The last transmission that was answered and is no more urgent.
    latest: u64,
    /// Transmissions below this number are lost when the window ends.
    below: u64,
    ends: Time,
}

impl ReorderingWindow {
    const CLOSED: ReorderingWindow = ReorderingWindow { latest: 0, below: 0, ends: Time::NEVER };
}

impl<T: Copy> PriorityLosses<T> {
    /// A detector without transmissions. This many must leave after a lost one before loss shows at once.
    pub fn new(threshold: u32) -> PriorityLosses<T> {
        PriorityLosses {
            by_priority: std::array::from_fn(|_| LossDetector::new(LossThreshold::Sent(threshold))),
            windows: [ReorderingWindow::CLOSED; PRIORITIES],
            threshold,
            answered_end: 0,
            probe_at: Time::NEVER,
            gap: None,
            doublings: 0,
            probed: None,
        }
    }

    /// A transmission leaves with a priority.
    #[inline]
    pub fn on_sent(&mut self, number: u64, priority: u8, item: T) {
        self.by_priority[place(priority)].on_sent(number, item);
    }

    /// A transmission was answered; its priority is none where its packet had arrived before, by another one. Returns
    /// the transmission that the last probe repeated, if this shows that it was lost.
    pub fn on_answer(&mut self, number: u64, priority: Option<u8>) -> Option<u64> {
        let of_probed = self.probed.filter(|&(probed, _)| probed == number);
        let priority = priority.or(of_probed.map(|(_, priority)| priority))?;
        for urgent in 0..=place(priority) {
            self.by_priority[urgent].on_answer(number);
            let latest = &mut self.windows[urgent].latest;
            *latest = number.max(*latest);
        }
        self.answered_end = self.answered_end.max(number);
        let (probed, of_probed) = self.probed?;
        if number != probed && priority < of_probed {
            return None;
        }
        self.doublings = 0;
        let is_lost = number >= probed + u64::from(self.threshold);
        if number == probed || is_lost {
            self.probed = None;
        }
        is_lost.then_some(probed)
    }

    /// Removes and returns a transmission that is awaited and lost.
    pub fn pop_lost(
        &mut self,
        now: Time,
        is_awaited: impl Fn(&Transmission<T>) -> bool,
    ) -> Option<Transmission<T>> {
        for (losses, window) in self.by_priority.iter_mut().zip(&mut self.windows) {
            if let Some(lost) = losses.pop_lost(&is_awaited) {
                return Some(lost);
            }
            if window.ends <= now {
                let below = window.below;
                if let Some(lost) = losses.pop_expired(&is_awaited, |sent| sent.number < below) {
                    return Some(lost);
                }
                window.ends = Time::NEVER;
            }
        }
        None
    }

    /// Sets times, after answers and losses: the ends of reordering windows, and the next probe, unless nothing is
    /// known of the round trip.
    pub fn set_times(
        &mut self,
        now: Time,
        (window, probe_after): (Span, Option<Span>),
        is_awaited: impl Fn(&Transmission<T>) -> bool,
    ) {
        let mut oldest: Option<u64> = None;
        for (losses, open) in self.by_priority.iter_mut().zip(&mut self.windows) {
            losses.pass_over(&is_awaited);
            let Some(first) = losses.oldest() else { continue };
            if open.ends == Time::NEVER && first.number < open.latest {
                (open.below, open.ends) = (open.latest, now + window);
            }
            oldest = Some(oldest.map_or(first.number, |other| other.min(first.number)));
        }
        let gap = oldest.filter(|&number| number < self.answered_end);
        if gap.is_some() && gap == self.gap {
            return;
        }
        self.gap = gap;
        self.probe_at = match (oldest, probe_after) {
            (Some(_), Some(wait)) => now + wait * (1 << self.doublings),
            _ => Time::NEVER,
        };
    }

    /// Removes and returns the oldest transmission, if it is time for a probe of it.
    pub fn pop_probed(
        &mut self,
        now: Time,
        is_awaited: impl Fn(&Transmission<T>) -> bool,
    ) -> Option<Transmission<T>> {
        if self.probe_at > now {
            return None;
        }
        self.probe_at = Time::NEVER;
        self.gap = None;
        let mut oldest: Option<(u64, u8)> = None;
        for (priority, losses) in (0..).zip(&mut self.by_priority) {
            losses.pass_over(&is_awaited);
            if let Some(first) =
                losses.oldest().filter(|it| oldest.is_none_or(|(number, _)| it.number < number))
            {
                oldest = Some((first.number, priority));
            }
        }
        let (_, priority) = oldest?;
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.probed = oldest;
        self.by_priority[place(priority)].pop_expired(is_awaited, |_| true)
    }

    /// Time at which a loss shows or a probe is due, if nothing is answered until then.
    #[inline]
    pub fn deadline(&self) -> Time {
        self.windows.iter().fold(self.probe_at, |earliest, window| earliest.min(window.ends))
    }

    /// Forgets all transmissions, and keeps their memory.
    pub fn clear(&mut self) {
        self.by_priority.iter_mut().for_each(LossDetector::clear);
        self.windows.iter_mut().for_each(|window| window.ends = Time::NEVER);
        self.probe_at = Time::NEVER;
        self.gap = None;
        self.probed = None;
    }

    /// Begins again, with transmissions that are numbered from 0. Keeps the memory.
    pub fn reset(&mut self) {
        self.clear();
        self.by_priority.iter_mut().for_each(LossDetector::reset);
        self.windows = [ReorderingWindow::CLOSED; PRIORITIES];
        self.answered_end = 0;
        self.doublings = 0;
    }

    /// Panics where transmissions are not in the order of their numbers.
    // spec: T-12
    pub fn check(&self) {
        self.by_priority.iter().for_each(LossDetector::check);
    }
}

/// The place of a priority. Those beyond the last count as the last.
#[inline]
fn place(priority: u8) -> usize {
    usize::from(priority).min(PRIORITIES - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THRESHOLD: u32 = 3;
    const WINDOW: Span = Span::from_us(5);
    const PROBE_AFTER: Span = Span::from_us(40);

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    /// A detector with what was answered, and the times of the answers.
    struct Bench {
        losses: PriorityLosses<u64>,
        sent: Vec<(u64, u8)>,
        /// Number, priority, time of the answer.
        answered: Vec<(u64, u8, Time)>,
        given_up: Vec<u64>,
        probe_after: Option<Span>,
    }

    impl Bench {
        fn new(priorities: &[u8]) -> Bench {
            let mut bench = Bench {
                losses: PriorityLosses::new(THRESHOLD),
                sent: Vec::new(),
                answered: Vec::new(),
                given_up: Vec::new(),
                probe_after: Some(PROBE_AFTER),
            };
            priorities.iter().for_each(|&priority| bench.send(priority));
            bench
        }

        fn send(&mut self, priority: u8) {
            let number = self.sent.len() as u64;
            self.losses.on_sent(number, priority, number);
            self.sent.push((number, priority));
        }

        fn awaits(&self, number: u64) -> bool {
            self.answered.iter().all(|&(other, ..)| other != number)
                && !self.given_up.contains(&number)
        }

        /// Lets time pass, and gives what is found lost.
        fn wait_until(&mut self, now: Time) -> Vec<u64> {
            let answered: Vec<u64> = self.answered.iter().map(|&(number, ..)| number).collect();
            let mut found = Vec::new();
            while let Some(lost) =
                self.losses.pop_lost(now, |sent| !answered.contains(&sent.number))
            {
                found.push(lost.item);
            }
            self.given_up.extend(&found);
            let times = (WINDOW, self.probe_after);
            self.losses.set_times(now, times, |sent| !answered.contains(&sent.number));
            self.losses.check();
            found
        }

        fn answer(&mut self, us: u64, number: u64) -> (Vec<u64>, Option<u64>) {
            let priority = self.sent[number as usize].1;
            self.answered.push((number, priority, at(us)));
            let of_probe = self.losses.on_answer(number, Some(priority));
            (self.wait_until(at(us)), of_probe)
        }

        fn probe(&mut self, us: u64) -> Option<u64> {
            let answered: Vec<u64> = self.answered.iter().map(|&(number, ..)| number).collect();
            let probed = self.losses.pop_probed(at(us), |sent| !answered.contains(&sent.number))?;
            self.given_up.push(probed.number);
            Some(probed.number)
        }

        /// Transmissions that are lost by the rule, where an answer counts that came by this time.
        fn lost_by_rule(&self, by: Time) -> Vec<u64> {
            let shows = |number: u64, priority: u8, &(other, of_other, when): &(u64, u8, Time)| {
                let is_far = other >= number + u64::from(THRESHOLD);
                other > number && of_other >= priority && (is_far || when <= by)
            };
            let lost = self.sent.iter().filter(|&&(number, priority)| {
                self.answered.iter().any(|answer| shows(number, priority, answer))
            });
            lost.map(|&(number, _)| number).collect()
        }
    }

    // spec: Q-15 machine
    #[test]
    fn what_is_at_least_as_urgent_and_was_sent_before_is_lost() {
        // (priorities, answered, lost at once)
        let cases: [(&[u8], u64, &[u64]); 6] = [
            (&[2, 2, 2, 2, 2], 4, &[0, 1]),
            // The later one is less urgent.
            (&[0, 1, 1, 2, 2], 4, &[0, 1]),
            // The later one is more urgent: it may have overtaken them.
            (&[2, 2, 2, 2, 1], 4, &[]),
            // Only those that it cannot have overtaken.
            (&[2, 1, 2, 1, 1], 4, &[1]),
            (&[3, 0, 1, 2, 2], 4, &[1]),
            // Not enough left in between.
            (&[2, 2, 2, 2, 2], 2, &[]),
        ];
        for (priorities, answered, lost) in cases {
            let mut bench = Bench::new(priorities);
            assert_eq!(bench.answer(1, answered).0, lost, "{priorities:?}, {answered}");
        }
    }

    // spec: Q-15 machine
    #[test]
    fn what_left_just_before_has_a_reordering_window() {
        let mut bench = Bench::new(&[2, 2, 1]);
        assert_eq!(bench.answer(10, 1).0, []);
        assert_eq!(bench.losses.deadline(), at(15));
        assert_eq!(bench.wait_until(at(14)), []);
        assert_eq!(bench.wait_until(at(15)), [0]);
        // In time.
        let mut bench = Bench::new(&[2, 2, 1]);
        bench.answer(10, 1);
        bench.answer(12, 0);
        assert_eq!(bench.wait_until(at(15)), []);
    }

    // spec: Q-15 machine
    #[test]
    fn a_gap_before_what_is_more_urgent_is_probed_once_and_later_again() {
        let mut bench = Bench::new(&[2, 2, 1, 1, 1, 1]);
        bench.answer(10, 2);
        assert_eq!(bench.losses.deadline(), at(50));
        // Other answers change nothing about the gap.
        bench.answer(30, 3);
        assert_eq!((bench.losses.deadline(), bench.probe(49)), (at(50), None));
        assert_eq!(bench.probe(50), Some(0));
        assert_eq!(bench.probe(50), None);
        // The probe is answered: the next one waits twice as long, since nothing shows that the others are lost.
        bench.send(0);
        bench.answer(60, 6);
        assert_eq!(bench.losses.deadline(), at(140));
        // Its own priority is served: the wait is as at the beginning, and the first one was lost.
        bench.send(2);
        let (lost, of_probe) = bench.answer(70, 7);
        assert_eq!((lost, of_probe), (vec![4, 1], Some(0)));
        assert_eq!(bench.wait_until(at(75)), [5]);
        assert_eq!(bench.losses.deadline(), Time::NEVER, "nothing is awaited");
    }

    // spec: Q-15 machine
    #[test]
    fn a_probe_of_what_was_late_shows_no_loss() {
        let mut bench = Bench::new(&[2, 1, 1, 1, 2]);
        bench.answer(10, 2);
        assert_eq!(bench.probe(50), Some(0));
        bench.given_up.clear();
        assert_eq!(bench.answer(55, 0).1, None, "it came after all");
        assert_eq!(bench.answer(60, 4).1, None);
        // The probe came first, so that nothing is awaited of the packet.
        let mut bench = Bench::new(&[2, 1, 1, 1, 2]);
        bench.answer(10, 2);
        assert_eq!(bench.probe(50), Some(0));
        assert_eq!(bench.losses.on_answer(0, None), None);
        assert_eq!(bench.answer(60, 4).1, None);
    }

    #[test]
    fn a_detector_that_begins_again_knows_no_answers() {
        let mut bench = Bench::new(&[2; 9]);
        bench.answer(10, 1);
        bench.answer(11, 8);
        bench.losses.reset();
        assert_eq!(bench.losses.deadline(), Time::NEVER);
        bench.losses.on_sent(0, 2, 0);
        assert_eq!(bench.losses.pop_lost(at(99), |_| true), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_looking_at_every_transmission(
            steps in prop::collection::vec((0..10u64, 0..4u8, any::<usize>()), 1..200),
        ) {
            let mut bench = Bench::new(&[]);
            bench.probe_after = None;
            let mut now = 0;
            for (kind, priority, pick) in steps {
                now += u64::from(priority);
                while bench.losses.deadline() <= at(now) {
                    bench.wait_until(bench.losses.deadline());
                }
                let open: Vec<u64> =
                    (0..bench.sent.len() as u64).filter(|&number| bench.awaits(number)).collect();
                match kind {
                    0..5 => bench.send(priority),
                    5..8 if !open.is_empty() => {
                        // Mostly in order.
                        let place = if pick % 3 == 0 { pick % open.len() } else { 0 };
                        bench.answer(now, open[place]);
                    }
                    _ => drop(bench.wait_until(at(now))),
                }
                let by = |span: Span| Time::from_ps(at(now).as_ps().saturating_sub(span.as_ps()));
                let due = bench.lost_by_rule(by(WINDOW));
                for number in &bench.given_up {
                    prop_assert!(due.contains(number), "{number} is given up too early");
                }
                // A window may have to wait for the end of another one.
                let overdue = bench.lost_by_rule(by(WINDOW * 2));
                let late = overdue.iter().filter(|&&number| bench.awaits(number));
                if kind >= 8 {
                    prop_assert_eq!(late.count(), 0);
                }
            }
        }
    }
}
