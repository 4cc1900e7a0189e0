//! Messages that came before the call that they belong to.

use std::collections::BTreeMap;

use super::event::Failure;
use super::points::PointKey;
use thalweg_wire::trailer::{StreamId, Trailer};

/// Messages that a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    /// An operation, from everybody.
    Operation(u64),
    /// A transfer from one rank.
    Point(PointKey),
}

/// A message, and whose it is.
#[derive(Debug)]
pub(super) struct Message {
    pub from: u32,
    pub trailer: Trailer,
    pub body: Vec<u8>,
}

/// The messages, within bounds.
#[derive(Debug)]
pub(super) struct Early {
    waiting: BTreeMap<Key, Vec<Message>>,
    bytes: u64,
    messages: u32,
    max_bytes: u64,
    max_messages: u32,
}

impl Message {
    /// The call that it waits for, if it needs one.
    pub fn key(&self) -> Option<Key> {
        match self.trailer {
            Trailer::Operation { stream, .. } => match stream {
                StreamId::Give(operation) | StreamId::Share(operation) => {
                    Some(Key::Operation(operation))
                }
                StreamId::Point { .. } => None,
            },
            Trailer::Point { tag, number, .. } => Some(Key::Point((self.from, tag, number))),
            Trailer::Called { operation, .. } | Trailer::Agreed { operation, .. } => {
                Some(Key::Operation(operation))
            }
            Trailer::Go { .. } | Trailer::Stop { .. } | Trailer::Differ(_) => None,
        }
    }
}

impl Early {
    pub fn new(max_bytes: u64, max_messages: u32) -> Early {
        Early { waiting: BTreeMap::new(), bytes: 0, messages: 0, max_bytes, max_messages }
    }

    /// Keeps a message until somebody asks for it.
    pub fn keep(&mut self, key: Key, message: Message) -> Result<(), Failure> {
        let bytes = self.bytes.saturating_add(message.body.len() as u64);
        if bytes > self.max_bytes || self.messages == self.max_messages {
            return Err(Failure::TooEarly { rank: message.from });
        }
        self.bytes = bytes;
        self.messages += 1;
        self.waiting.entry(key).or_default().push(message);
        Ok(())
    }

    /// Hands out what a call asks for, in the order in which it came.
    pub fn take(&mut self, key: Key) -> Vec<Message> {
        let messages = self.waiting.remove(&key).unwrap_or_default();
        self.messages -= messages.len() as u32;
        self.bytes -= messages.iter().map(|message| message.body.len() as u64).sum::<u64>();
        messages
    }

    /// The transfers that came early, by rank, tag and number.
    pub fn points(&self) -> impl Iterator<Item = PointKey> + '_ {
        self.waiting.keys().filter_map(|key| match key {
            Key::Point(point) => Some(*point),
            Key::Operation(_) => None,
        })
    }

    /// Recounts. Panics where messages or bytes are counted wrongly.
    // spec: T-12
    pub fn check(&self) {
        let waiting = || self.waiting.values().flatten();
        assert_eq!(self.messages as usize, waiting().count(), "messages that came early");
        let bytes: u64 = waiting().map(|message| message.body.len() as u64).sum();
        assert_eq!(self.bytes, bytes, "bytes that came early");
        let is_bounded = self.bytes <= self.max_bytes && self.messages <= self.max_messages;
        assert!(is_bounded, "what comes early is bounded");
    }

    pub fn clear(&mut self) {
        *self = Early::new(self.max_bytes, self.max_messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(from: u32, bytes: usize) -> Message {
        Message { from, trailer: Trailer::Stop { culprit: 0 }, body: vec![0; bytes] }
    }

    #[test]
    fn room_comes_back_with_the_messages() {
        let mut early = Early::new(10, 3);
        let too_early = |rank| Err(Failure::TooEarly { rank });
        assert_eq!(early.keep(Key::Operation(1), message(4, 6)), Ok(()));
        assert_eq!(early.keep(Key::Operation(1), message(5, 4)), Ok(()));
        assert_eq!(early.keep(Key::Operation(2), message(6, 1)), too_early(6));
        let point = Key::Point((7, 0, 0));
        assert_eq!(early.keep(point, message(7, 0)), Ok(()));
        assert_eq!(early.keep(point, message(7, 0)), too_early(7), "there are three");
        assert!(early.take(Key::Operation(2)).is_empty());
        let ranks: Vec<u32> = early.take(Key::Operation(1)).iter().map(|kept| kept.from).collect();
        assert_eq!(ranks, [4, 5]);
        assert_eq!(early.keep(Key::Operation(2), message(6, 10)), Ok(()));
    }
}
