//! The machine around the parts of a collective: one endpoint, operations in, results out.

use thalweg_core::{Check, Machine, NodeId, Operation, Outbox, Packet, Reports, Time, Verdict};
use thalweg_deliver::Offered;
use thalweg_flow::JobClass;
use thalweg_wire::Prefix;
use thalweg_wire::frame::SumFrame;

use crate::carrier::{Carrier, CarrierEvent, NumberedMessage, Phase, Want};
use crate::post::{Counters, Post};

/// One node of a collective: a [`Ring`](crate::ring::Ring), a [`Node`](crate::server::Node) or a
/// [`Mesh`](crate::mesh::Mesh).
///
/// Call [`submit`](Member::submit) at every worker, with the same operations in the same order; they
/// need not wait for each other. [`Machine`] has the rest of the contract. Every operation ends with
/// one event, not always in the order of the calls. Several may be in flight; how far ahead of the
/// others a worker sends is limited by its part's settings.
///
/// **What a failure does.** A member stops with the first failure, fails all its operations and
/// takes no more. Where two members called different operations, everybody stops with a failure that names
/// both. A member that did not talk to a lost node notices nothing, except in a mesh, whose members tell each
/// other: the program that set the job up has to inform the others.
///
/// **What the network can do** is the endpoint's business. Messages that no honest member sends are
/// dropped and counted; memory is bounded whatever comes.
pub struct Member<P: Part> {
    pub(crate) part: P,
    post: Post<P::Event>,
    operations: u64,
    failure: Option<P::Failure>,
}

/// A message that somebody wants to send.
pub struct Offer {
    pub(crate) src: NodeId,
    pub(crate) index: u64,
    pub(crate) bytes: u64,
    pub(crate) frame: Option<SumFrame>,
}

/// The protocol of one role in a collective: it decides who sends what to whom.
pub trait Part {
    /// Input of an operation.
    type Call;
    /// Why an operation cannot begin.
    type Refusal: From<Self::Failure>;
    /// Event that the application receives.
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
        post: &mut Post<Self::Event>,
        src: NodeId,
        message: NumberedMessage,
    ) -> Result<(), Self::Failure>;

    /// Returns the answer to a message that somebody wants to send to it. Only asked where
    /// messages need buffers.
    fn want(&mut self, _offer: &Offer) -> Result<Want, Self::Failure> {
        Ok(Want::Never)
    }

    /// A message of this member has arrived.
    fn on_sent(&mut self, post: &mut Post<Self::Event>, index: u64);

    /// Sends what may be sent. Called after everything else.
    fn advance(&mut self, post: &mut Post<Self::Event>) -> Result<(), Self::Failure>;

    /// Failure for a node that does not answer.
    fn lost(&self, node: NodeId) -> Self::Failure;

    /// Failure for a node that works on something else.
    fn disagrees(&self, node: NodeId) -> Self::Failure {
        self.lost(node)
    }

    /// Panics where its accounts are wrong.
    fn check(&self);

    /// Drops all operations and tells so.
    fn abandon(&mut self, post: &mut Post<Self::Event>, failure: Self::Failure);
}

impl<P: Part> Member<P> {
    pub(crate) fn of(part: P, post: Post<P::Event>) -> Member<P> {
        Member { part, post, operations: 0, failure: None }
    }

    /// Begins an operation of all workers: in a ring and with servers, the sum of a tensor.
    /// Operations are numbered from 0, in the order of the calls.
    pub fn submit(&mut self, now: Time, call: impl Into<P::Call>) -> Result<Operation, P::Refusal> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let operation = Operation(self.operations);
        self.part.add(now, operation, call.into())?;
        self.operations += 1;
        self.advance(now);
        self.ask_again();
        Ok(operation)
    }

    /// Counts so far.
    pub fn counters(&self) -> Counters {
        self.post.counters()
    }

    /// Why it stopped, if it did.
    pub fn failure(&self) -> Option<P::Failure> {
        self.failure
    }

    /// Number of its messages that have not arrived, as far as it knows.
    pub fn outgoing(&self) -> usize {
        self.post.carrier.outgoing()
    }

    /// Number of packets that it sent again.
    pub fn retransmissions(&self) -> u64 {
        self.post.carrier.retransmissions()
    }

    /// Sets the payload of the packets of messages that begin from now on.
    // spec: F-01
    pub fn set_segment_bytes(&mut self, segment_bytes: u16) {
        self.post.carrier.set_segment_bytes(segment_bytes);
    }

    /// Has all packets travel in a class from now on.
    // spec: C-16
    pub fn set_class(&mut self, now: Time, class: JobClass) {
        self.post.carrier.set_class(now, class);
    }

    /// Counts of the transport, where messages may lose a part.
    pub fn delivery_stats(&self) -> Option<thalweg_deliver::Stats> {
        self.post.carrier.delivery_stats()
    }

    /// Takes in a packet whose prefix the caller has [read](thalweg_wire::peek).
    #[inline]
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        self.post.carrier.handle_checked(now, prefix, packet);
        self.settle(now);
    }

    /// Acts on what the endpoint has to say.
    #[inline]
    fn settle(&mut self, now: Time) {
        self.post.now = now;
        let mut has_event = false;
        while let Some(event) = self.post.carrier.poll() {
            has_event = true;
            if self.failure.is_none()
                && let Err(failure) = self.handle(event)
            {
                self.stop(failure);
            }
        }
        // Most packets end no message, and change nothing for the part.
        if has_event && self.failure.is_none() {
            self.advance(now);
        }
    }

    pub(crate) fn advance(&mut self, now: Time) {
        self.post.now = now;
        if let Err(failure) = self.part.advance(&mut self.post) {
            self.stop(failure);
        }
    }

    fn handle(&mut self, event: CarrierEvent) -> Result<(), P::Failure> {
        match event {
            CarrierEvent::Received { src, message } => {
                self.part.on_received(&mut self.post, src, message)?;
            }
            CarrierEvent::Unnumbered => self.post.refuse(),
            CarrierEvent::Sent { index } => self.part.on_sent(&mut self.post, index),
            CarrierEvent::Offered(offer) => self.answer(offer)?,
            CarrierEvent::Lost(node) => return Err(self.part.lost(node)),
            CarrierEvent::Disagrees(node) => return Err(self.part.disagrees(node)),
        }
        Ok(())
    }

    /// Gives a buffer for a message, if this is the time for it.
    fn answer(&mut self, offer: Offered) -> Result<(), P::Failure> {
        let want = self.part.want(&Offer {
            src: offer.name.peer,
            index: offer.name.operation.0,
            bytes: offer.tensor_bytes,
            frame: offer.note.as_ref().and_then(|note| SumFrame::decode(note).ok()),
        })?;
        let Carrier::Deliver(carrier) = &mut self.post.carrier else { return Ok(()) };
        let is_taken = match want {
            Want::Gradient => carrier.receive(self.post.now, &offer, None, Phase::Gradient),
            Want::Result(older) => carrier.receive(self.post.now, &offer, older, Phase::Result),
            Want::Later => {
                carrier.keep(offer);
                true
            }
            Want::Never => false,
        };
        if !is_taken {
            self.post.refuse();
        }
        Ok(())
    }

    /// Asks again about messages that were offered too early.
    fn ask_again(&mut self) {
        let Carrier::Deliver(carrier) = &mut self.post.carrier else { return };
        for offer in carrier.take_kept() {
            if self.failure.is_none()
                && let Err(failure) = self.answer(offer)
            {
                self.stop(failure);
            }
        }
    }

    fn stop(&mut self, failure: P::Failure) {
        self.failure = Some(failure);
        self.part.abandon(&mut self.post, failure);
    }
}

// spec: T-12
impl<P: Part> Check for Member<P> {
    fn check(&self) {
        self.post.carrier.check();
        // A part that has failed is not used any more.
        if self.failure.is_none() {
            self.part.check();
        }
    }
}

impl<P: Part> Machine for Member<P> {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        self.post.carrier.handle_packet(now, packet);
        self.settle(now);
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.post.carrier.handle_timeout(now);
        self.settle(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        self.post.carrier.poll_transmit(now, outbox);
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        self.post.carrier.has_backlog()
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.post.carrier.poll_timeout()
    }
}

impl<P: Part> Reports for Member<P> {
    type Event = P::Event;

    #[inline]
    fn poll_event(&mut self) -> Option<P::Event> {
        self.post.events.pop_front()
    }
}
