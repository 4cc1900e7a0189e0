//! One posted buffer: where segments belong, and whether they are enough.

use thalweg_core::{Body, Bytes, Time};
use thalweg_values::{Bits, Tensor};
use thalweg_wire::deliver::{Data, Refusal};

use crate::budget::{Budget, LossBound, first_segment};
use crate::call::{Failed, Failure, Lost, Name, Note, ReceiveCall, Received};
use crate::segments::{Segments, value_bytes};

/// A buffer that waits to be filled.
pub(crate) struct Receiver {
    pub name: Name,
    /// Time of the last packet from its sender. Means something once they have agreed.
    pub received_at: Time,
    buffer: Tensor,
    loss: LossBound,
    lost: Lost,
    /// Agreement of both ends, once there is one.
    agreed: Option<Agreed>,
}

struct Agreed {
    segments: Segments,
    loss: LossBound,
    layer: u16,
    arrived: Bits,
    budget: Budget,
    trailer: Vec<u8>,
    /// Number of segments of the trailer that have not arrived.
    trailer_left: u32,
}

/// Offer of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub tensor_bytes: Bytes,
    pub trailer_bytes: u32,
    pub segment_bytes: u16,
    pub loss: LossBound,
    pub layer: u16,
    pub note: Option<Note>,
}

/// Outcome of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intake {
    /// It was written to its place.
    Taken,
    /// It had been there before.
    Again,
    /// With it, there is enough.
    Enough,
    /// Nothing is agreed on yet.
    Early,
    /// No honest sender sends it.
    Malformed,
}

impl Receiver {
    pub fn new(call: ReceiveCall) -> Receiver {
        let ReceiveCall { name, buffer, loss, lost } = call;
        Receiver { name, received_at: Time::ZERO, buffer, loss, lost, agreed: None }
    }

    /// Agrees with the sender, or says again what was agreed on. Answers with the loss that both allow,
    /// and whether that is all of the tensor.
    // spec: M-06
    pub fn agree(&mut self, now: Time, offer: &Offer) -> Result<(LossBound, bool), Refusal> {
        self.received_at = now;
        let length = self.buffer.len().checked_mul(value_bytes(&self.buffer));
        if length != Some(offer.tensor_bytes.as_u64()) {
            return Err(Refusal::Length);
        }
        let segments = Segments::new(offer.tensor_bytes, offer.trailer_bytes, offer.segment_bytes)
            .ok_or(Refusal::Segments)?;
        let agreed = self.agreed.get_or_insert_with(|| {
            let loss = self.loss.min(offer.loss);
            Agreed {
                segments,
                loss,
                layer: offer.layer,
                arrived: Bits::new(segments.count()),
                budget: Budget::new(segments.tensor_bytes(), loss),
                trailer: vec![0; segments.trailer_bytes() as usize],
                trailer_left: segments.count() - segments.tensor_count(),
            }
        });
        // A sender that has cut it otherwise before has forgotten its offer.
        if agreed.segments != segments {
            return Err(Refusal::Segments);
        }
        Ok((agreed.loss, agreed.is_enough()))
    }

    /// Returns whether as much is missing as may be lost, once the segment at `offset` has arrived: of those that left
    /// before it in the first pass. Packets that are late because they take other paths count as missing.
    // spec: M-05
    pub fn is_spent(&self, offset: Bytes) -> bool {
        let Some(agreed) = &self.agreed else { return false };
        let (segments, count) = (&agreed.segments, agreed.segments.tensor_count());
        let segment_bytes = u64::from(segments.segment_bytes());
        let index = offset.as_u64() / segment_bytes;
        if index >= u64::from(count) {
            // Segments of the trailer are important in any case.
            return false;
        }
        let first = u64::from(first_segment(self.name.operation, count));
        let place = (index + u64::from(count) - first) % u64::from(count);
        let left_bytes = ((place + 1) * segment_bytes).min(segments.tensor_bytes());
        let missing = left_bytes.saturating_sub(agreed.budget.arrived_bytes());
        missing + segment_bytes > agreed.loss.allowed_bytes(segments.tensor_bytes())
    }

    pub fn is_agreed(&self) -> bool {
        self.agreed.is_some()
    }

    /// Takes in a packet whose body is as long as its header says.
    // spec: M-01
    #[inline]
    pub fn take_in(&mut self, now: Time, data: &Data, body: &Body<'_>) -> Intake {
        let Some(agreed) = &mut self.agreed else { return Intake::Early };
        let Some(index) = agreed.segments.index(data.offset, data.payload_bytes) else {
            return Intake::Malformed;
        };
        let trailer = agreed.segments.trailer(index);
        let needs_bytes = trailer.is_some() || !matches!(self.buffer, Tensor::Length(_));
        if matches!(body, Body::Length(_)) && needs_bytes {
            return Intake::Malformed;
        }
        self.received_at = now;
        if !agreed.arrived.insert(index) {
            return Intake::Again;
        }
        match (trailer, body) {
            (Some(trailer), Body::Bytes(bytes)) => {
                agreed.trailer[trailer].copy_from_slice(bytes);
                agreed.trailer_left -= 1;
            }
            (_, body) => {
                if let Body::Bytes(bytes) = body {
                    let values = agreed.segments.values(index, value_bytes(&self.buffer));
                    self.buffer.slice_mut(values).read_le(bytes);
                }
                agreed.budget.add(u64::from(data.payload_bytes));
            }
        }
        if agreed.is_enough() { Intake::Enough } else { Intake::Taken }
    }

    /// Recounts. Panics where the bytes that have arrived are not those of the segments, and where enough has
    /// arrived without an end.
    // spec: T-12
    pub fn check(&self) {
        let Some(agreed) = &self.agreed else { return };
        let Agreed { segments, arrived, budget, .. } = agreed;
        arrived.check();
        assert_eq!(arrived.len(), segments.count(), "every segment has a bit");
        let trailer = segments.tensor_count()..segments.count();
        let left = trailer.clone().filter(|&index| !arrived.contains(index)).count();
        assert_eq!(agreed.trailer_left as usize, left, "segments of the trailer are counted once");
        let of_tensor = arrived.count() - (trailer.len() - left) as u32;
        let full = u64::from(segments.segment_bytes());
        let last = segments.tensor_count().checked_sub(1).filter(|&last| arrived.contains(last));
        let short = last.map_or(0, |last| full - u64::from(segments.bytes(last)));
        let bytes = u64::from(of_tensor) * full - short;
        assert_eq!(budget.arrived_bytes(), bytes, "bytes that have arrived are those of segments");
        assert!(!agreed.is_enough(), "a tensor of which enough has arrived is complete");
    }

    /// Number of segments in a bitmap from `first` on. `None` where no honest sender asks.
    pub fn window(&self, first: u32) -> Option<u32> {
        let window = self.agreed.as_ref()?.segments.window(first)?;
        Some(window.end - window.start)
    }

    /// Writes the bits of a window.
    pub fn write_window(&self, first: u32, count: u32, bytes: &mut [u8]) {
        if let Some(agreed) = &self.agreed {
            agreed.arrived.write(first, count, bytes);
        }
    }

    /// Hands the buffer out: what has not arrived reads as it should.
    // spec: M-07
    pub fn finish(mut self, now: Time) -> Received {
        let agreed = self.agreed.take().expect("enough has arrived, so it was agreed on");
        let Agreed { segments, layer, arrived, budget, trailer, .. } = agreed;
        if self.lost == Lost::ReadsZero {
            let mut from = 0;
            while let Some(index) = arrived.next_absent(from) {
                let values = segments.values(index, value_bytes(&self.buffer));
                self.buffer.slice_mut(values).clear();
                from = index + 1;
            }
        }
        Received {
            name: self.name,
            buffer: self.buffer,
            finished: now,
            layer,
            lost_bytes: segments.tensor_bytes() - budget.arrived_bytes(),
            arrived,
            segment_bytes: segments.segment_bytes(),
            trailer,
        }
    }

    /// Hands the buffer out as it is.
    pub fn fail(self, failure: Failure) -> Failed {
        Failed { name: self.name, failure, buffer: Some(self.buffer) }
    }
}

impl Agreed {
    /// Returns whether enough of the tensor and all of the trailer has arrived.
    #[inline]
    fn is_enough(&self) -> bool {
        self.budget.is_met() && self.trailer_left == 0
    }
}
