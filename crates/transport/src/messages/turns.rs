//! A queue of senders, by priority and in turn.

use std::collections::VecDeque;

use thalweg_core::PRIORITIES;

/// Places of senders that may send, each at most once: the most urgent first, and in turn among equals. The
/// owner of a place keeps the priority with which it stands here.
///
/// Cheaper than [`Ready`](super::Ready) where ranks are few: a sender that keeps its priority and has no equals
/// stays where it is.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    by_priority: [VecDeque<u32>; PRIORITIES],
    /// A bit for each priority with a sender.
    occupied: u8,
}

impl Turns {
    /// Returns whether nobody may send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// The place whose turn it is.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        self.by_priority.get(self.occupied.trailing_zeros() as usize)?.front().copied()
    }

    /// Ends the turn of the first place, which waits for its next one if it has a priority.
    #[inline]
    pub fn end_turn(&mut self, wanted: Option<u8>) {
        let priority = self.occupied.trailing_zeros() as usize;
        let waiting = &mut self.by_priority[priority];
        let keeps_priority = wanted.map(usize::from) == Some(priority);
        if keeps_priority && waiting.len() == 1 {
            return;
        }
        let first = waiting.pop_front().expect("a place has the turn that it ends");
        if keeps_priority {
            waiting.push_back(first);
            return;
        }
        self.forget_if_empty(priority);
        if let Some(wanted) = wanted {
            self.push(first, wanted);
        }
    }

    /// Ends the turn of the first place as [`end_turn`](Turns::end_turn), but if it keeps its priority, it stays first.
    #[inline]
    pub fn end_turn_in_order(&mut self, wanted: Option<u8>) {
        if wanted.map(u32::from) != Some(self.occupied.trailing_zeros()) {
            self.end_turn(wanted);
        }
    }

    /// Puts a place behind those equals that go before it, and takes it away from the priority that it had.
    pub fn put_in_order(
        &mut self,
        place: u32,
        queued: Option<u8>,
        wanted: u8,
        goes_before: impl Fn(u32) -> bool,
    ) {
        self.put(place, queued, wanted);
        let waiting = &mut self.by_priority[usize::from(wanted)];
        let mut at = waiting.len() - 1;
        while at > 0 && !goes_before(waiting[at - 1]) {
            waiting.swap(at - 1, at);
            at -= 1;
        }
    }

    /// Puts a place behind its equals, and takes it away from the priority that it had.
    #[inline]
    pub fn put(&mut self, place: u32, queued: Option<u8>, wanted: u8) {
        if let Some(queued) = queued {
            self.remove(place, queued);
        }
        self.push(place, wanted);
    }

    #[inline]
    fn push(&mut self, place: u32, priority: u8) {
        self.by_priority[usize::from(priority)].push_back(place);
        self.occupied |= 1 << priority;
    }

    /// Searches: only for a sender that became more urgent while it waited, which is rare.
    #[cold]
    fn remove(&mut self, place: u32, priority: u8) {
        let priority = usize::from(priority);
        self.by_priority[priority].retain(|&waiting| waiting != place);
        self.forget_if_empty(priority);
    }

    #[inline]
    fn forget_if_empty(&mut self, priority: usize) {
        if self.by_priority[priority].is_empty() {
            self.occupied &= !(1 << priority);
        }
    }

    /// All places with their priorities, the next turn first.
    pub fn iter(&self) -> impl Iterator<Item = (u8, u32)> {
        let queues = (0..).zip(&self.by_priority);
        queues.flat_map(|(priority, waiting)| waiting.iter().map(move |&place| (priority, place)))
    }

    /// Panics where a priority is not known to have a sender, or known and has none.
    // spec: T-12
    pub fn check(&self) {
        for (priority, waiting) in self.by_priority.iter().enumerate() {
            let is_occupied = self.occupied >> priority & 1 == 1;
            assert_eq!(is_occupied, !waiting.is_empty(), "a sender waits with priority {priority}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(mut turns: Turns) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(place) = turns.first() {
            turns.check();
            order.push(place);
            turns.end_turn(None);
        }
        assert!(turns.is_empty());
        order
    }

    #[test]
    fn places_can_keep_an_order() {
        let mut turns = Turns::default();
        for place in [4, 1, 3, 5, 2] {
            turns.put_in_order(place, None, 6, |other| other < place);
        }
        turns.end_turn_in_order(Some(6));
        assert_eq!(turns.first(), Some(1), "it stays first");
        turns.end_turn_in_order(Some(7));
        turns.put_in_order(5, Some(6), 3, |other| other < 5);
        assert_eq!(order(turns), [5, 2, 3, 4, 1]);
    }

    #[test]
    fn the_most_urgent_goes_first_and_equals_take_turns() {
        let mut turns = Turns::default();
        for (place, priority) in [(1, 7), (2, 3), (3, 7), (4, 3), (5, 7)] {
            turns.put(place, None, priority);
        }
        turns.put(3, Some(7), 0);
        assert_eq!(order(turns.clone()), [3, 2, 4, 1, 5]);
        turns.end_turn(Some(0));
        assert_eq!(turns.first(), Some(3), "it has no equals");
        turns.end_turn(Some(7));
        turns.end_turn(Some(3));
        assert_eq!(turns.iter().collect::<Vec<_>>(), [(3, 4), (3, 2), (7, 1), (7, 5), (7, 3)]);
        assert_eq!(order(turns), [4, 2, 1, 5, 3]);
    }
}
