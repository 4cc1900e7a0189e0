//! A kit for tests of machines, behind the feature `testing`: packets that outlive a call, outboxes that
//! keep or discard them, and a [`Shuttle`] that carries them between machines.

mod outbox;
mod shuttle;

pub use outbox::{DiscardOutbox, OwnedBody, OwnedPacket, TestOutbox};
pub use shuttle::Shuttle;
