//! Replies that wait to be sent.

use std::collections::VecDeque;

/// Replies that wait for room in an outbox, oldest first, up to a limit. What arrives decides how many replies
/// there are, so their number must have one.
#[derive(Clone, Debug)]
pub struct Replies<T> {
    waiting: VecDeque<T>,
    max: usize,
}

impl<T> Replies<T> {
    /// No replies yet, and at most `max` later.
    pub fn new(max: u32) -> Replies<T> {
        Replies { waiting: VecDeque::new(), max: max as usize }
    }

    /// Queues a reply. Returns false if there is no room, and the reply is dropped as the network could have
    /// done.
    #[inline]
    pub fn push(&mut self, reply: T) -> bool {
        let has_room = self.waiting.len() < self.max;
        if has_room {
            self.waiting.push_back(reply);
        }
        has_room
    }

    /// The reply that waits longest. It stays until [`Replies::pop`], since an outbox may have no room for it.
    #[inline]
    pub fn front(&self) -> Option<&T> {
        self.waiting.front()
    }

    /// Removes the reply that waits longest: it was sent, or nobody needs it any more.
    #[inline]
    pub fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// Returns whether no reply waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Panics where more replies wait than may.
    // spec: T-12
    pub fn check(&self) {
        assert!(self.waiting.len() <= self.max, "the number of waiting replies is bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_leave_in_order_and_none_is_kept_beyond_the_limit() {
        let mut replies = Replies::new(2);
        assert!(replies.is_empty());
        assert!(replies.push(1) && replies.push(2));
        assert!(!replies.push(3), "no room");
        assert_eq!(replies.front(), Some(&1));
        assert_eq!(replies.front(), Some(&1), "it stays until it was sent");
        replies.pop();
        assert!(replies.push(4));
        replies.check();
        replies.pop();
        assert_eq!(replies.front(), Some(&4));
    }
}
