//! The machine around the parts of a collective: one endpoint, operations in, sums out.

use thalweg_core::{Machine, NodeId, Operation, Outbox, Packet, Tensor, Time, Verdict};
use thalweg_flow::{Endpoint, Payload, Received};

use crate::event::{Event, Failure, SubmitError};
use crate::post::{Counters, Post};

/// One node of a collective: a [`Ring`](crate::ring::Ring) or a [`Node`](crate::server::Node).
///
/// Call [`submit`](Member::submit) at every worker, with tensors of the same lengths in the same
/// order; they need not wait for each other. [`Machine`] has the rest of the contract. Every
/// operation ends with one [`Event`], not always in the order of the calls. Several may be on the
/// way; how far ahead of the others a worker sends is limited by its part's settings.
///
/// **What a failure does.** A member stops with the first [`Failure`], fails all its operations and
/// takes no more. Who did not talk to the lost node itself notices nothing: whoever set the job up
/// has to tell the others.
///
/// **What the network can do** is the endpoint's business. Messages that no honest member sends are
/// dropped and counted; memory is bounded whatever comes.
pub struct Member<P> {
    part: P,
    post: Post,
    operations: u64,
    failure: Option<Failure>,
}

/// Who sends what to whom.
pub trait Part {
    /// Takes in an operation.
    fn add(&mut self, operation: Operation, tensor: Tensor) -> Result<(), SubmitError>;

    /// Takes in a message, from whomever it is.
    fn on_received(
        &mut self,
        now: Time,
        post: &mut Post,
        src: NodeId,
        index: u64,
        payload: Payload,
    ) -> Result<(), Failure>;

    /// A message of this member has arrived.
    fn on_sent(&mut self, index: u64);

    /// Sends what may be sent. Called after everything else.
    fn advance(&mut self, now: Time, post: &mut Post) -> Result<(), Failure>;

    /// Drops all operations and says which they were.
    fn abandon(&mut self) -> Vec<Operation>;
}

impl<P: Part> Member<P> {
    pub(crate) fn of(part: P, post: Post) -> Member<P> {
        Member { part, post, operations: 0, failure: None }
    }

    /// Begins to sum a tensor over all workers. Operations are numbered from 0, in the order of the
    /// calls.
    pub fn submit(&mut self, now: Time, tensor: Tensor) -> Result<Operation, SubmitError> {
        if let Some(failure) = self.failure {
            return Err(SubmitError::Stopped(failure));
        }
        let operation = Operation(self.operations);
        self.part.add(operation, tensor)?;
        self.operations += 1;
        self.advance(now);
        Ok(operation)
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.post.counters
    }

    /// Why it stopped, if it did.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Its endpoint, to read from.
    pub fn endpoint(&self) -> &Endpoint {
        &self.post.endpoint
    }

    /// Acts on what the endpoint has to say.
    #[inline]
    fn settle(&mut self, now: Time) {
        let mut heard = false;
        while let Some(event) = self.post.endpoint.poll_event() {
            heard = true;
            if self.failure.is_none()
                && let Err(failure) = self.handle(now, event)
            {
                self.stop(failure);
            }
        }
        // Most packets end no message, and change nothing for the part.
        if heard && self.failure.is_none() {
            self.advance(now);
        }
    }

    fn advance(&mut self, now: Time) {
        if let Err(failure) = self.part.advance(now, &mut self.post) {
            self.stop(failure);
        }
    }

    fn handle(&mut self, now: Time, event: thalweg_flow::Event) -> Result<(), Failure> {
        match event {
            thalweg_flow::Event::Received(received) => {
                let Received { src, flow, bytes, body, .. } = received;
                let payload = body.map_or(Payload::Length(bytes), Payload::Bytes);
                match self.post.index(flow) {
                    Some(index) => {
                        self.part.on_received(now, &mut self.post, src, index, payload)?;
                    }
                    None => self.post.refuse(),
                }
            }
            thalweg_flow::Event::Sent(sent) => {
                if let Some(index) = self.post.index(sent.flow) {
                    self.part.on_sent(index);
                }
            }
            thalweg_flow::Event::Failed(sent) => return Err(Failure::Lost(sent.dst)),
        }
        Ok(())
    }

    fn stop(&mut self, failure: Failure) {
        self.failure = Some(failure);
        for operation in self.part.abandon() {
            self.post.events.push_back(Event::Failed { operation, failure });
        }
    }
}

impl<P: Part> Machine for Member<P> {
    type Event = Event;

    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.post.endpoint.handle_packet(now, packet);
        self.settle(now);
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.post.endpoint.handle_timeout(now);
        self.settle(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.post.endpoint.poll_transmit(now, outbox);
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        self.post.endpoint.has_backlog()
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.post.endpoint.poll_timeout()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.post.events.pop_front()
    }
}
