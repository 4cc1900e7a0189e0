//! Messages as tensors of which a part may be lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use thalweg_core::{NodeId, Operation, Time};
use thalweg_deliver::{
    Completion, Endpoint, Failure, Importance, LossBound, Lost, Name, Offered, ReceiveCall,
    Received, SendCall, trailer_limit,
};
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::coverage;
use thalweg_wire::frame::SumFrame;

use crate::block::{self, Block, VALUE_BYTES};
use crate::call::Care;
use crate::carrier::{CarrierEvent, NumberedMessage, Older, Phase};
use crate::config::ConfigError;
use crate::delivery::{Contents, Delivery, Results, SumDelivery};

/// A delivery endpoint that sends and receives numbered messages. A message's number is its operation.
///
/// Buffers are posted when a message is offered: its sender knows how long it is, and the part whether
/// this is the time for it.
pub(crate) struct DeliveryCarrier {
    pub endpoint: Endpoint,
    delivery: Delivery,
    /// Number of ranks that contribute to sums.
    ranks: u32,
    /// Number of nodes that send gradients to the same node at the same time.
    senders: u32,
    /// Offers that the part will want later, oldest first.
    later: VecDeque<Offered>,
    /// Frames of the offers whose buffers are being filled.
    frames: BTreeMap<Name, SumFrame>,
    pub lost_bytes: u64,
}

impl DeliveryCarrier {
    pub fn new(
        SumDelivery { delivery, ranks, senders }: SumDelivery,
    ) -> Result<DeliveryCarrier, ConfigError> {
        if delivery.layers == 0 {
            return Err(ConfigError::Zero("layers"));
        }
        let endpoint = Endpoint::new(delivery.endpoint.clone(), delivery.rng.stream("delivery"))?;
        Ok(DeliveryCarrier {
            endpoint,
            delivery,
            ranks,
            senders,
            later: VecDeque::new(),
            frames: BTreeMap::new(),
            lost_bytes: 0,
        })
    }

    pub fn send(&mut self, now: Time, dst: NodeId, message: NumberedMessage) {
        let NumberedMessage { index, care, phase, frame, block, coverage, .. } = message;
        let Block::Tensor(values) = block else { unreachable!("blocks of deliveries are tensors") };
        let has_values = self.delivery.contents == Contents::Values;
        let (note, coverage) =
            (frame.filter(|_| has_values), Some(coverage).filter(|_| has_values));
        let (loss, importance) = match (phase, self.delivery.results) {
            (Phase::Result, Results::Exact) => (LossBound::EXACT, Importance::All),
            _ => (care.loss.unwrap_or(self.delivery.loss), self.delivery.importance),
        };
        // What a worker pulls comes from few servers at a time.
        // spec: M-19
        let senders = match phase {
            Phase::Gradient => self.senders,
            Phase::Result => 1,
        };
        let call = SendCall {
            senders,
            layer: care.layer,
            layers: self.delivery.layers,
            loss,
            importance,
            policy: Arc::clone(&self.delivery.policy),
            note: note.map(|frame| frame.encode()),
            trailer: coverage.map_or_else(Default::default, |own| self.trailer(&own, &values)),
            ..SendCall::new(name(dst, index), values)
        };
        let posted = self.endpoint.post_send(now, call);
        posted.expect("messages have numbers of their own, and their lengths are checked");
    }

    /// Coverage as the trailer of a message. Empty if nothing is missing.
    // spec: T-11
    fn trailer(&self, coverage: &Coverage, values: &Tensor) -> Arc<[u8]> {
        if coverage.is_exact() {
            return Arc::default();
        }
        let bytes = coverage::encode(coverage, self.ranks);
        let is_short = bytes.len() as u64 <= trailer_limit(VALUE_BYTES * values.len());
        if is_short {
            bytes.into()
        } else {
            coverage::encode(&Coverage::Unreported, self.ranks).into()
        }
    }

    /// Coverage of the values of a message as they left. `None` if no member writes that.
    fn coverage(&self, received: &Received) -> Option<Coverage> {
        match &received.trailer[..] {
            [] => Some(Coverage::Exact),
            trailer => coverage::decode(trailer, received.buffer.len(), self.ranks).ok(),
        }
    }

    /// Gives a buffer for a message that was offered. Returns whether it was taken.
    pub fn receive(
        &mut self,
        now: Time,
        offer: &Offered,
        older: Option<Older>,
        phase: Phase,
    ) -> bool {
        let settings = self.delivery.loss;
        let (loss, lost) = match (phase, &older) {
            (Phase::Gradient, _) => (settings, Lost::ReadsZero),
            (Phase::Result, Some(older)) => {
                (older.loss.map_or(settings, |loss| loss.min(settings)), Lost::KeepsValue)
            }
            (Phase::Result, None) => (LossBound::EXACT, Lost::ReadsZero),
        };
        let zeros = || block::zeros(offer.tensor_bytes, self.delivery.contents);
        let buffer = older.map_or_else(zeros, |older| older.values);
        let call = ReceiveCall { name: offer.name, buffer, loss, lost };
        let is_taken = self.endpoint.post_receive(now, call).is_ok();
        if is_taken
            && let Some(frame) = offer.note.as_ref().and_then(|note| SumFrame::decode(note).ok())
        {
            self.frames.insert(offer.name, frame);
        }
        is_taken
    }

    /// Keeps an offer until somebody asks for it. The oldest gives way: its sender asks again.
    pub fn keep(&mut self, offer: Offered) {
        if self.later.len() >= self.delivery.endpoint.early_memory as usize {
            self.later.pop_front();
        }
        self.later.push_back(offer);
    }

    /// Everything that was kept.
    pub fn take_kept(&mut self) -> VecDeque<Offered> {
        std::mem::take(&mut self.later)
    }

    pub fn poll(&mut self) -> Option<CarrierEvent> {
        if let Some(offer) = self.endpoint.poll_offer() {
            return Some(CarrierEvent::Offered(offer));
        }
        Some(match self.endpoint.poll_completion()? {
            Completion::Sent(sent) => CarrierEvent::Sent { index: sent.name.operation.0 },
            Completion::Received(received) => {
                self.lost_bytes += received.lost_bytes;
                let frame = self.frames.remove(&received.name);
                let Some(coverage) = self.coverage(&received) else {
                    return Some(CarrierEvent::Disagrees(received.name.peer));
                };
                let message = NumberedMessage {
                    index: received.name.operation.0,
                    care: Care { layer: received.layer, ..Care::default() },
                    phase: Phase::Gradient,
                    frame,
                    coverage,
                    lost: received.lost_values(),
                    block: Block::Tensor(Arc::new(received.buffer)),
                };
                CarrierEvent::Received { src: received.name.peer, message }
            }
            Completion::Failed(failed) => {
                self.frames.remove(&failed.name);
                match failed.failure {
                    Failure::Silent => CarrierEvent::Lost(failed.name.peer),
                    Failure::Refused(_) => CarrierEvent::Disagrees(failed.name.peer),
                }
            }
        })
    }
}

fn name(peer: NodeId, index: u64) -> Name {
    Name { peer, operation: Operation(index), tensor: 0 }
}
