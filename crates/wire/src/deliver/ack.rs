//! The echo of a data packet's time.

use thalweg_core::{Header, Time};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::{DeliverError, TensorName};
use crate::CLASS_MAX;
use crate::prefix::{Kind, Prefix, PrefixView, whole_headers};

/// Echoes the time of a data packet that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Whose packet it answers.
    pub name: TensorName,
    /// Echo of [`Data::sent_at`](super::Data::sent_at).
    pub sent_at: Time,
    /// Whether a queue marked the packet that it answers.
    pub congested: bool,
    /// The class that the packet arrived in: at most [`CLASS_MAX`].
    pub class: u8,
}

/// The bytes of [`Ack`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AckView {
    /// Of kind [`Kind::DeliverAck`].
    pub prefix: PrefixView,
    /// [`TensorName::operation`].
    pub operation: U64,
    /// [`Ack::sent_at`] in picoseconds.
    pub sent_at: U64,
    /// [`TensorName::tensor`].
    pub tensor: U32,
    /// [`CONGESTED`]; the other bits are zero.
    pub flags: u8,
    /// [`Ack::class`].
    pub class: u8,
    /// Zero.
    pub reserved: [u8; 18],
}

/// Flag of [`Ack::congested`].
pub const CONGESTED: u8 = 1 << 0;

whole_headers!(DeliverError: Ack);

impl Ack {
    /// Writes the whole header, tag zero.
    #[inline]
    pub fn encode(&self, header: &mut Header) {
        *header = transmute!(AckView {
            prefix: PrefixView::new(Kind::DeliverAck, self.name.job, self.name.epoch),
            operation: U64::new(self.name.operation),
            sent_at: U64::new(self.sent_at.as_ps()),
            tensor: U32::new(self.name.tensor),
            flags: u8::from(self.congested) * CONGESTED,
            class: self.class,
            reserved: [0; 18],
        });
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Ack, DeliverError> {
        prefix.expect(Kind::DeliverAck)?;
        let view: &AckView = transmute_ref!(header);
        if view.reserved != [0; 18] || view.flags & !CONGESTED != 0 {
            return Err(DeliverError::Reserved);
        }
        if view.class > CLASS_MAX {
            return Err(DeliverError::Class(view.class));
        }
        Ok(Ack {
            name: TensorName::read(prefix, view.operation.get(), view.tensor.get()),
            sent_at: Time::from_ps(view.sent_at.get()),
            congested: view.flags & CONGESTED != 0,
            class: view.class,
        })
    }
}
