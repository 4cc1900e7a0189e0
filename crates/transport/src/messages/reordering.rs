//! Packets out of order, and whether what is missing before them was lost.
//!
//! On a single path with strict priorities, packets of one priority stay in order, and a packet overtakes
//! only less urgent ones. Priorities of a flow rise and then fall. So where a packet comes that is no
//! more urgent than the last one in order, everything between the two has left the network: what is
//! missing of it is lost. Before a more urgent packet it may still wait in a queue.

use std::collections::VecDeque;

/// Stands for a packet that has not arrived.
const MISSING: u8 = u8::MAX;

/// The priorities of what came out of order, of one message.
#[derive(Debug, Default)]
pub(crate) struct Reordering {
    /// The priority of the last packet in order, if there is one.
    last_in_order: Option<u8>,
    /// The priorities of the packets after the first missing one, up to the last that came.
    beyond: VecDeque<u8>,
    /// The place in `beyond` of the first that came.
    first_beyond: Option<usize>,
}

impl Reordering {
    /// Begins a message. Keeps the memory of the last one.
    pub fn reset(&mut self) {
        self.last_in_order = None;
        self.beyond.clear();
        self.first_beyond = None;
    }

    /// A packet came for the first time, `ahead` of the first that was missing until now.
    // spec: Q-09
    #[inline]
    pub fn on_arrival(&mut self, ahead: u32, priority: u8) {
        let priority = priority.min(MISSING - 1);
        if ahead > 0 {
            return self.put_aside(ahead as usize - 1, priority);
        }
        self.last_in_order = Some(priority);
        // The fast path: nothing waits behind it.
        if !self.beyond.is_empty() {
            self.close_gap();
        }
    }

    fn put_aside(&mut self, place: usize, priority: u8) {
        if place >= self.beyond.len() {
            self.beyond.resize(place + 1, MISSING);
        }
        self.beyond[place] = priority;
        self.first_beyond = Some(self.first_beyond.map_or(place, |first| first.min(place)));
    }

    /// Puts what waited behind the gap in order, up to the next one.
    fn close_gap(&mut self) {
        while let Some(priority) = self.beyond.pop_front().filter(|&priority| priority != MISSING) {
            self.last_in_order = Some(priority);
        }
        self.first_beyond = self.beyond.iter().position(|&priority| priority != MISSING);
    }

    /// Returns whether the first packet that is missing is lost for sure. If the first packet of all is missing,
    /// there is nothing to compare with, and it is left to the timer like what is more urgent.
    // spec: Q-06
    #[inline]
    pub fn shows_loss(&self) -> bool {
        match (self.last_in_order, self.first_beyond) {
            (Some(before), Some(place)) => self.beyond[place] >= before,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets as they come, by number, with the priority of each number; then whether loss shows.
    fn shows_loss(priorities: &[u8], arrivals: &[usize]) -> bool {
        let mut reordering = Reordering::default();
        let mut arrived = vec![false; priorities.len()];
        for &index in arrivals {
            let missing = arrived.iter().position(|arrived| !arrived).expect("each comes once");
            reordering.on_arrival((index - missing) as u32, priorities[index]);
            arrived[index] = true;
        }
        reordering.shows_loss()
    }

    // spec: machine
    #[test]
    fn a_gap_by_the_priorities_around_it() {
        // (priorities of the packets, arrivals, loss)
        let cases: [(&[u8], &[usize], bool); 14] = [
            // All in order.
            (&[2, 2, 1, 0], &[0, 1, 2], false),
            // The same priority on both sides.
            (&[2, 2, 2, 2], &[0, 2], true),
            // The later one less urgent, what is missing of either priority.
            (&[0, 0, 1], &[0, 2], true),
            (&[0, 1, 1], &[0, 2], true),
            // The later one more urgent: it may have overtaken.
            (&[2, 2, 1], &[0, 2], false),
            (&[2, 1, 1], &[0, 2], false),
            // Nothing before the gap.
            (&[2, 2, 2], &[1, 2], false),
            // The first one beyond the gap counts, not a later one,
            (&[2, 2, 1, 2], &[0, 2, 3], false),
            // in whatever order they come.
            (&[2, 2, 1, 2], &[0, 3, 2], false),
            (&[2, 2, 2, 1], &[0, 3, 2], true),
            // The gap closes,
            (&[2, 2, 2, 2], &[0, 2, 1], false),
            // and another one opens, with another priority before it.
            (&[2, 2, 1, 1, 1], &[0, 2, 4, 1], true),
            (&[2, 2, 1, 1, 0], &[0, 2, 4, 1], false),
            // Up and down: more urgent packets between two equal ones are lost.
            (&[1, 0, 0, 1], &[0, 3], true),
        ];
        for (priorities, arrivals, expected) in cases {
            assert_eq!(
                shows_loss(priorities, arrivals),
                expected,
                "{priorities:?} come as {arrivals:?}"
            );
        }
    }

    #[test]
    fn a_new_message_begins_without_a_past() {
        let mut reordering = Reordering::default();
        reordering.on_arrival(0, 1);
        reordering.on_arrival(1, 1);
        assert!(reordering.shows_loss());
        reordering.reset();
        assert!(!reordering.shows_loss());
        reordering.on_arrival(3, u8::MAX);
        assert!(!reordering.shows_loss());
    }
}
