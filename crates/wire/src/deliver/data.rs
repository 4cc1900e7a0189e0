//! A segment of a tensor.

use thalweg_core::{Bytes, Header, Time};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use super::{DeliverError, TensorName};
use crate::prefix::{Kind, Prefix, PrefixView, whole_headers};

/// A segment of a tensor, complete in itself.
// spec: M-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Whose it is.
    pub name: TensorName,
    /// When it left, by the sender's clock. The receiver only echoes it.
    pub sent_at: Time,
    /// Where its payload begins in the tensor.
    pub offset: Bytes,
    /// The layer of the model that the tensor belongs to.
    pub layer: u16,
    /// How much payload it has. Never zero.
    pub payload_bytes: u16,
    /// Whether the sender asks for an [`Ack`](super::Ack).
    pub echo: bool,
}

/// The bytes of [`Data`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DataView {
    /// Of kind [`Kind::DeliverData`].
    pub prefix: PrefixView,
    /// [`TensorName::operation`].
    pub operation: U64,
    /// [`Data::sent_at`] in picoseconds.
    pub sent_at: U64,
    /// [`Data::offset`].
    pub offset: U64,
    /// [`TensorName::tensor`].
    pub tensor: U32,
    /// [`Data::layer`].
    pub layer: U16,
    /// [`Data::payload_bytes`].
    pub payload_bytes: U16,
    /// [`ECHO`]; the other bits are zero.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

/// Flag of [`Data::echo`].
pub const ECHO: u8 = 1 << 0;

whole_headers!(DeliverError: Data);

impl Data {
    /// Writes the whole header, tag zero.
    #[inline]
    pub fn encode(&self, header: &mut Header) {
        *header = transmute!(DataView {
            prefix: PrefixView::new(Kind::DeliverData, self.name.job, self.name.epoch),
            operation: U64::new(self.name.operation),
            sent_at: U64::new(self.sent_at.as_ps()),
            offset: U64::new(self.offset.as_u64()),
            tensor: U32::new(self.name.tensor),
            layer: U16::new(self.layer),
            payload_bytes: U16::new(self.payload_bytes),
            flags: u8::from(self.echo) * ECHO,
            reserved: [0; 7],
        });
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Data, DeliverError> {
        prefix.expect(Kind::DeliverData)?;
        let view: &DataView = transmute_ref!(header);
        if view.reserved != [0; 7] || view.flags & !ECHO != 0 {
            return Err(DeliverError::Reserved);
        }
        let (offset, payload_bytes) = (view.offset.get(), view.payload_bytes.get());
        if payload_bytes == 0 {
            return Err(DeliverError::Empty);
        }
        if offset.checked_add(u64::from(payload_bytes)).is_none() {
            return Err(DeliverError::BeyondTensor);
        }
        Ok(Data {
            name: TensorName::read(prefix, view.operation.get(), view.tensor.get()),
            sent_at: Time::from_ps(view.sent_at.get()),
            offset: Bytes::new(offset),
            layer: view.layer.get(),
            payload_bytes,
            echo: view.flags & ECHO != 0,
        })
    }
}
