//! The machine around the parts of a collective: one endpoint, operations in, results out.

use thalweg_core::{Machine, NodeId, Operation, Outbox, Packet, Time, Verdict};
use thalweg_flow::{Endpoint, Payload, Received};

use crate::post::{Counters, Post};

/// One node of a collective: a [`Ring`](crate::ring::Ring), a [`Node`](crate::server::Node) or a
/// [`Mesh`](crate::mesh::Mesh).
///
/// Call [`submit`](Member::submit) at every worker, with the same operations in the same order; they
/// need not wait for each other. [`Machine`] has the rest of the contract. Every operation ends with
/// one event, not always in the order of the calls. Several may be on the way; how far ahead of the
/// others a worker sends is limited by its part's settings.
///
/// **What a failure does.** A member stops with the first failure, fails all its operations and
/// takes no more. Who did not talk to the lost node itself notices nothing, except in a mesh, whose
/// members tell each other: whoever set the job up has to tell the others.
///
/// **What the network can do** is the endpoint's business. Messages that no honest member sends are
/// dropped and counted; memory is bounded whatever comes.
pub struct Member<P: Part> {
    pub(crate) part: P,
    post: Post<P::Event>,
    operations: u64,
    failure: Option<P::Failure>,
}

/// Who sends what to whom.
pub trait Part {
    /// What an operation works on.
    type Call;
    /// Why an operation cannot begin.
    type Refusal: From<Self::Failure>;
    /// What the application is told.
    type Event;
    /// Why it cannot go on.
    type Failure: Copy;

    /// Takes in an operation.
    fn add(
        &mut self,
        now: Time,
        operation: Operation,
        call: Self::Call,
    ) -> Result<(), Self::Refusal>;

    /// Takes in a message, from whomever it is.
    fn on_received(
        &mut self,
        now: Time,
        post: &mut Post<Self::Event>,
        src: NodeId,
        index: u64,
        payload: Payload,
    ) -> Result<(), Self::Failure>;

    /// A message of this member has arrived.
    fn on_sent(&mut self, post: &mut Post<Self::Event>, index: u64);

    /// Sends what may be sent. Called after everything else.
    fn advance(&mut self, now: Time, post: &mut Post<Self::Event>) -> Result<(), Self::Failure>;

    /// What it means that a node does not answer.
    fn lost(&self, node: NodeId) -> Self::Failure;

    /// Drops all operations and tells so.
    fn abandon(&mut self, now: Time, post: &mut Post<Self::Event>, failure: Self::Failure);
}

impl<P: Part> Member<P> {
    pub(crate) fn of(part: P, post: Post<P::Event>) -> Member<P> {
        Member { part, post, operations: 0, failure: None }
    }

    /// Begins an operation of all workers: in a ring and with servers, the sum of a tensor.
    /// Operations are numbered from 0, in the order of the calls.
    pub fn submit(&mut self, now: Time, call: P::Call) -> Result<Operation, P::Refusal> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let operation = Operation(self.operations);
        self.part.add(now, operation, call)?;
        self.operations += 1;
        self.advance(now);
        Ok(operation)
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.post.counters
    }

    /// Why it stopped, if it did.
    pub fn failure(&self) -> Option<P::Failure> {
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
                self.stop(now, failure);
            }
        }
        // Most packets end no message, and change nothing for the part.
        if heard && self.failure.is_none() {
            self.advance(now);
        }
    }

    pub(crate) fn advance(&mut self, now: Time) {
        if let Err(failure) = self.part.advance(now, &mut self.post) {
            self.stop(now, failure);
        }
    }

    fn handle(&mut self, now: Time, event: thalweg_flow::Event) -> Result<(), P::Failure> {
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
                    self.part.on_sent(&mut self.post, index);
                }
            }
            thalweg_flow::Event::Failed(sent) => return Err(self.part.lost(sent.dst)),
        }
        Ok(())
    }

    fn stop(&mut self, now: Time, failure: P::Failure) {
        self.failure = Some(failure);
        self.part.abandon(now, &mut self.post, failure);
    }
}

impl<P: Part> Machine for Member<P> {
    type Event = P::Event;

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
    fn poll_event(&mut self) -> Option<P::Event> {
        self.post.events.pop_front()
    }
}
