//! Every collective but the sum of floats inside the network: messages directly between ranks.
//!
//! [`Mesh`] takes [`Call`]s, which all ranks make in the same order, and transfers from one rank to
//! another. Data are bytes; where values are combined, of any element type.
//!
//! Way of a call: `op` lays out what this rank has to send and to receive. Operations on data of one
//! length are slices that are given, combined and shared (`layout`, `whole`); the others are parts that
//! go to their receivers directly (`parts`). Everything travels in chunks (`grid`), each with a
//! `trailer` that says what it is, in turn with whatever else goes to that rank (`lanes`). What comes
//! before its call is kept (`early`).
//!
//! **Ranks need not be in step.** A rank that is behind holds up the transfers to it: after
//! [`eager_bytes`](Config::eager_bytes) of each their sender waits for its call. Transfers do not hold
//! up each other, so ranks cannot wait in a circle, as long as all make the same calls. What a rank
//! that runs ahead can fill elsewhere is limited by
//! [`max_early_bytes`](Config::max_early_bytes).
//!
//! **A failure is everybody's.** The rank that notices one tells the others, and every operation ends
//! with a [`Failure`] that names a rank.
//!
//! **Ranks compare their calls** before an operation ends anywhere: every message says which operation it
//! belongs to. In an operation with a root not everybody hears from everybody, so the others send their calls
//! to the root, and end when it has compared them all.

mod call;
mod config;
mod early;
mod event;
mod grid;
mod hub;
mod lanes;
mod layout;
mod lengths;
mod op;
mod parts;
mod points;
mod whole;

pub use call::{Call, Outcome, Request};
pub use config::{Config, TransferOrder};
pub use event::{Event, Failure, SubmitError, Transfer, Wait};

use thalweg_core::{Element, Operation, Time};

use crate::config::ConfigError;
use crate::member::Member;
use crate::post::Post;

use hub::Hub;

/// One rank. [`submit`](Member::submit) begins a [`Call`] or a [`Request`].
pub type Mesh = Member<Hub>;

impl Member<Hub> {
    /// A rank without operations.
    pub fn new(config: Config) -> Result<Mesh, ConfigError> {
        let place = config.check()?;
        let post = Post::new(config.flow.clone(), config.tag, None)?;
        Ok(Member::of(Hub::new(config, place), post))
    }

    /// Begins to send bytes to a rank, which has to [`receive`](Mesh::receive) them with the same tag.
    /// Transfers between two ranks with one tag are received in the order in which they were sent.
    pub fn send(
        &mut self,
        now: Time,
        to: u32,
        tag: u64,
        bytes: Vec<u8>,
    ) -> Result<Transfer, SubmitError> {
        self.begin(now, |hub| hub.send(to, tag, bytes, None))
    }

    /// [`send`](Mesh::send) of values, which the other rank has to receive as the same type, if both know it.
    pub fn send_values(
        &mut self,
        now: Time,
        to: u32,
        tag: u64,
        (element, bytes): (impl Into<Option<Element>>, Vec<u8>),
    ) -> Result<Transfer, SubmitError> {
        self.begin(now, |hub| hub.send(to, tag, bytes, element.into()))
    }

    /// Begins to wait for what a rank sends with this tag.
    pub fn receive(&mut self, now: Time, from: u32, tag: u64) -> Result<Transfer, SubmitError> {
        self.begin(now, |hub| hub.receive(from, tag, (None, None)))
    }

    /// [`receive`](Mesh::receive) of values of a type, of which the length in bytes may be known.
    pub fn receive_values(
        &mut self,
        now: Time,
        from: u32,
        tag: u64,
        (element, bytes): (impl Into<Option<Element>>, Option<u64>),
    ) -> Result<Transfer, SubmitError> {
        self.begin(now, |hub| hub.receive(from, tag, (element.into(), bytes)))
    }

    /// [`receive_values`](Mesh::receive_values) from the first rank whose next transfer with this tag is here.
    pub fn receive_any(
        &mut self,
        now: Time,
        tag: u64,
        (element, bytes): (impl Into<Option<Element>>, Option<u64>),
    ) -> Result<Transfer, SubmitError> {
        self.begin(now, |hub| Ok(hub.receive_any(tag, (element.into(), bytes))))
    }

    /// The ranks that an operation waits for, none if it has ended. Those that are
    /// [not known to have called](Wait::has_called) are the likely culprits of a stall.
    pub fn waits_for(&self, operation: Operation) -> Vec<Wait> {
        self.part.waits(operation)
    }

    fn begin(
        &mut self,
        now: Time,
        command: impl FnOnce(&mut Hub) -> Result<Transfer, SubmitError>,
    ) -> Result<Transfer, SubmitError> {
        if let Some(failure) = self.failure() {
            return Err(failure.into());
        }
        let transfer = command(&mut self.part)?;
        self.advance(now);
        Ok(transfer)
    }
}
