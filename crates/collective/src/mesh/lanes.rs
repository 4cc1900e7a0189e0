//! Turns of transfers to a rank.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use thalweg_wire::trailer::StreamId;

/// Transfers to one rank.
///
/// Transfers take turns chunk by chunk, so that a short one does not wait for a long one.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Chunks in flight.
    in_flight: u32,
    /// Transfers that may have a chunk to send. Turns go round by name, so that nobody has to keep the rank with
    /// which a transfer stands in a queue of the kit.
    ready: BTreeSet<StreamId>,
    /// Transfer that sent last.
    last: Option<StreamId>,
}

impl Lane {
    /// A transfer may have a chunk to send.
    pub fn wake(&mut self, stream: StreamId) {
        self.ready.insert(stream);
    }

    /// The transfer whose turn it is, if there is room for a chunk.
    pub fn next(&mut self, chunks_at_once: u32) -> Option<StreamId> {
        if self.in_flight >= chunks_at_once {
            return None;
        }
        let after = self.last.and_then(|last| self.ready.range((Excluded(last), Unbounded)).next());
        let stream = after.or_else(|| self.ready.first()).copied();
        self.last = stream;
        stream
    }

    /// The transfer with the fewest bytes left, if there is room for a chunk.
    pub fn shortest(
        &self,
        chunks_at_once: u32,
        bytes_left: impl Fn(StreamId) -> u64,
    ) -> Option<StreamId> {
        if self.in_flight >= chunks_at_once {
            return None;
        }
        self.ready.iter().copied().min_by_key(|&stream| (bytes_left(stream), stream))
    }

    /// A chunk of the transfer whose turn it was is in flight.
    pub fn on_started(&mut self) {
        self.in_flight += 1;
    }

    /// The transfer whose turn it was has nothing to send until it is woken.
    pub fn rest(&mut self, stream: StreamId) {
        self.ready.remove(&stream);
    }

    /// Panics unless this many chunks are counted, which is not more than may be.
    pub fn check(&self, in_flight: usize, chunks_at_once: u32) {
        assert_eq!(self.in_flight as usize, in_flight, "chunks in flight to a rank");
        assert!(self.in_flight <= chunks_at_once, "the number of chunks in flight is bounded");
    }

    /// A chunk is no longer in flight.
    pub fn on_sent(&mut self) {
        self.in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_transfer_goes_first_and_the_first_among_equals() {
        let mut lane = Lane::default();
        let streams = [StreamId::Give(1), StreamId::Give(2), StreamId::Share(1)];
        streams.into_iter().for_each(|stream| lane.wake(stream));
        let shortest = |lane: &Lane, bytes: [u64; 3]| {
            let at = |stream| streams.iter().position(|one| *one == stream).expect("it is there");
            lane.shortest(1, |stream| bytes[at(stream)])
        };
        assert_eq!(shortest(&lane, [5, 5, 5]), Some(streams[0]));
        assert_eq!(shortest(&lane, [5, 4, 5]), Some(streams[1]));
        assert_eq!(shortest(&lane, [5, 4, 0]), Some(streams[2]));
        lane.on_started();
        assert_eq!(shortest(&lane, [5, 4, 0]), None, "there is no room");
    }

    #[test]
    fn transfers_take_turns() {
        let mut lane = Lane::default();
        let [first, second, third] =
            [StreamId::Give(3), StreamId::Share(1), StreamId::Point { tag: 0, number: 0 }];
        [third, first, second].into_iter().for_each(|stream| lane.wake(stream));
        let mut turns = Vec::new();
        while let Some(stream) = lane.next(5) {
            turns.push(stream);
            lane.on_started();
            if stream == second {
                lane.rest(stream);
            }
        }
        assert_eq!(turns, [first, second, third, first, third]);
        lane.on_sent();
        assert_eq!(lane.next(5), Some(first));
    }
}
