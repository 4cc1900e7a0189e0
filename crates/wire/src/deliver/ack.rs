//! The echo of a data packet's time.

use thalweg_core::{Header, LAST_PRIORITY, Time};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::{DeliverError, TensorName};
use crate::prefix::{Kind, PrefixView};

/// Echoes the time of a data packet that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Whose packet it answers.
    pub name: TensorName,
    /// Echo of [`Data::sent_at`](super::Data::sent_at).
    pub sent_at: Time,
    /// Whether a queue marked the packet that it answers.
    pub congested: bool,
    /// Strict priority with which the packet that it answers arrived, 0 the most urgent of 8.
    // spec: M-17
    pub priority: u8,
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
    /// [`Ack::priority`].
    pub priority: u8,
    /// Zero.
    pub reserved: [u8; 18],
}

/// Flag of [`Ack::congested`].
pub const CONGESTED: u8 = 1 << 0;

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
            priority: self.priority,
            reserved: [0; 18],
        });
    }

    /// Reads a header. Does not look at the tag.
    #[inline]
    pub fn decode(header: &Header) -> Result<Ack, DeliverError> {
        let view: &AckView = transmute_ref!(header);
        let prefix = view.prefix.expect(Kind::DeliverAck)?;
        let is_reserved = view.flags & !CONGESTED != 0 || view.priority > LAST_PRIORITY;
        if view.reserved != [0; 18] || is_reserved {
            return Err(DeliverError::Reserved);
        }
        Ok(Ack {
            name: TensorName::read(prefix, view.operation.get(), view.tensor.get()),
            sent_at: Time::from_ps(view.sent_at.get()),
            congested: view.flags & CONGESTED != 0,
            priority: view.priority,
        })
    }
}
