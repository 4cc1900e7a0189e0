//! Messages that must be certain: questions that are repeated until they are answered, and answers.

use thalweg_core::{Bytes, Header};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref,
};

use super::{DeliverError, TensorName};
use crate::prefix::{Kind, Prefix, PrefixView, whole_headers};

/// Shares of loss are counted in this part of the whole.
pub const LOSS_UNIT: u32 = 1_000_000;

/// Largest number of segments in one bitmap: a kilobyte of bits fits every packet.
pub const BITMAP_BITS: u32 = 8_192;

/// The length of a body with the bits of `count` segments.
#[inline]
pub const fn bitmap_bytes(count: u32) -> u32 {
    count.div_ceil(8)
}

/// A question or an answer about a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// About which tensor.
    pub name: TensorName,
    /// Question or answer that it carries.
    pub verb: Verb,
}

/// Question or answer of a control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// The sender has a tensor. Answered by [`Accept`](Verb::Accept), [`Hold`](Verb::Hold),
    /// [`Stop`](Verb::Stop) or [`Refuse`](Verb::Refuse).
    Offer {
        /// Length of the tensor.
        tensor_bytes: Bytes,
        /// Length of a full segment, not zero.
        segment_bytes: u16,
        /// The largest loss that the sender allows, in millionths; below a million.
        loss: u32,
        /// The layer of the model that it belongs to.
        layer: u16,
        /// Length of its trailer, of which nothing may be lost. Its segments follow those of the tensor.
        trailer_bytes: u32,
    },
    /// The receiver has a buffer for the tensor.
    Accept {
        /// The loss that both allow, in millionths; below a million.
        loss: u32,
    },
    /// The receiver has no buffer yet.
    Hold,
    /// Asks for the segments that have arrived. Answered by [`Bitmap`](Verb::Bitmap), [`Stop`](Verb::Stop) or
    /// [`Hold`](Verb::Hold).
    Probe {
        /// The first segment that is asked about.
        first: u32,
    },
    /// Segments that have arrived. The body has a bit for each, the lowest of each byte first, and
    /// zeros behind the last.
    Bitmap {
        /// The first segment it speaks of.
        first: u32,
        /// Number of segments in the body: 1 to [`BITMAP_BITS`].
        count: u32,
    },
    /// Enough has arrived.
    Stop,
    /// The tensor is not wanted.
    Refuse(Refusal),
}

/// Why a tensor is not wanted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// The buffer has another length.
    Length = 1,
    /// The segments are too small for the receiver to keep account of.
    Segments = 2,
    /// The receiver gave the operation up.
    GivenUp = 3,
}

/// The bytes of [`Control`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ControlView {
    /// Of one of the kinds from [`Kind::DeliverOffer`] to [`Kind::DeliverRefuse`].
    pub prefix: PrefixView,
    /// [`TensorName::operation`].
    pub operation: U64,
    /// Length of an offered tensor.
    pub tensor_bytes: U64,
    /// [`TensorName::tensor`].
    pub tensor: U32,
    /// Loss in millionths, of an offer or what is accepted.
    pub loss: U32,
    /// First segment of a probe or a bitmap.
    pub first: U32,
    /// Segments of a bitmap, or length of an offered tensor's trailer.
    pub count: U32,
    /// Length of an offered tensor's segments.
    pub segment_bytes: U16,
    /// Layer of an offered tensor.
    pub layer: U16,
    /// Why a tensor is refused.
    pub reason: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

whole_headers!(DeliverError: Control);

impl Control {
    /// Writes the whole header, tag zero.
    pub fn encode(&self, header: &mut Header) {
        let prefix = PrefixView::new(self.verb.kind(), self.name.job, self.name.epoch);
        let mut view = ControlView {
            prefix,
            operation: U64::new(self.name.operation),
            tensor: U32::new(self.name.tensor),
            ..ControlView::new_zeroed()
        };
        match self.verb {
            Verb::Offer { tensor_bytes, segment_bytes, loss, layer, trailer_bytes } => {
                view.tensor_bytes = U64::new(tensor_bytes.as_u64());
                view.segment_bytes = U16::new(segment_bytes);
                view.loss = U32::new(loss);
                view.layer = U16::new(layer);
                view.count = U32::new(trailer_bytes);
            }
            Verb::Accept { loss } => view.loss = U32::new(loss),
            Verb::Probe { first } => view.first = U32::new(first),
            Verb::Bitmap { first, count } => {
                view.first = U32::new(first);
                view.count = U32::new(count);
            }
            Verb::Refuse(reason) => view.reason = reason as u8,
            Verb::Hold | Verb::Stop => {}
        }
        *header = transmute!(view);
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Control, DeliverError> {
        let view: &ControlView = transmute_ref!(header);
        let verb = view.verb(prefix.kind())?;
        let name = TensorName::read(prefix, view.operation.get(), view.tensor.get());
        let control = Control { name, verb };
        // What a verb has no use for is zero: then it is written again as it was read.
        let again: ControlView = transmute!(control.to_header());
        if again.rest() == view.rest() { Ok(control) } else { Err(DeliverError::Reserved) }
    }
}

impl Verb {
    /// The kind of its packets.
    pub const fn kind(&self) -> Kind {
        match self {
            Verb::Offer { .. } => Kind::DeliverOffer,
            Verb::Accept { .. } => Kind::DeliverAccept,
            Verb::Hold => Kind::DeliverHold,
            Verb::Probe { .. } => Kind::DeliverProbe,
            Verb::Bitmap { .. } => Kind::DeliverBitmap,
            Verb::Stop => Kind::DeliverStop,
            Verb::Refuse(_) => Kind::DeliverRefuse,
        }
    }
}

impl Refusal {
    fn from_u8(number: u8) -> Option<Refusal> {
        [Refusal::Length, Refusal::Segments, Refusal::GivenUp]
            .into_iter()
            .find(|&reason| reason as u8 == number)
    }
}

impl ControlView {
    fn verb(&self, kind: Kind) -> Result<Verb, DeliverError> {
        Ok(match kind {
            Kind::DeliverOffer => self.offer()?,
            Kind::DeliverAccept => Verb::Accept { loss: self.checked_loss()? },
            Kind::DeliverHold => Verb::Hold,
            Kind::DeliverProbe => Verb::Probe { first: self.first.get() },
            Kind::DeliverBitmap => self.bitmap()?,
            Kind::DeliverStop => Verb::Stop,
            Kind::DeliverRefuse => {
                let reason = Refusal::from_u8(self.reason);
                Verb::Refuse(reason.ok_or(DeliverError::Reason(self.reason))?)
            }
            found => {
                let expected = Kind::DeliverOffer;
                return Err(crate::PrefixError::OtherKind { expected, found }.into());
            }
        })
    }

    fn offer(&self) -> Result<Verb, DeliverError> {
        let (tensor_bytes, segment_bytes) = (self.tensor_bytes.get(), self.segment_bytes.get());
        if segment_bytes == 0 {
            return Err(DeliverError::Segment(0));
        }
        let trailer_bytes = self.count.get();
        let segments = |bytes: u64| bytes.div_ceil(u64::from(segment_bytes));
        let count = segments(tensor_bytes).saturating_add(segments(trailer_bytes.into()));
        if count > u64::from(u32::MAX) {
            return Err(DeliverError::TooManySegments);
        }
        let (loss, layer) = (self.checked_loss()?, self.layer.get());
        let tensor_bytes = Bytes::new(tensor_bytes);
        Ok(Verb::Offer { tensor_bytes, segment_bytes, loss, layer, trailer_bytes })
    }

    fn bitmap(&self) -> Result<Verb, DeliverError> {
        let (first, count) = (self.first.get(), self.count.get());
        let fits = (1..=BITMAP_BITS).contains(&count) && first.checked_add(count).is_some();
        if fits {
            Ok(Verb::Bitmap { first, count })
        } else {
            Err(DeliverError::Bitmap { first, count })
        }
    }

    fn checked_loss(&self) -> Result<u32, DeliverError> {
        let loss = self.loss.get();
        if loss < LOSS_UNIT { Ok(loss) } else { Err(DeliverError::Loss(loss)) }
    }

    /// Everything behind the prefix.
    fn rest(&self) -> &[u8] {
        &self.as_bytes()[crate::prefix::PREFIX_BYTES..]
    }
}
