//! A segment of a tensor.

use thalweg_core::{Bytes, Header, Time};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::transmute_ref;

use super::{DeliverError, TensorName};
use crate::flag;
use crate::prefix::{Kind, Prefix, header_view};

/// A segment of a tensor, complete in itself.
// spec: M-01
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Tensor of the payload.
    pub name: TensorName,
    /// When it left, by the sender's clock. The receiver only echoes it.
    pub sent_at: Time,
    /// Offset of the payload in the tensor.
    pub offset: Bytes,
    /// The layer of the model that the tensor belongs to.
    pub layer: u16,
    /// Length of the payload. Never zero.
    pub payload_bytes: u16,
    /// True if the sender asks for an [`Ack`](super::Ack).
    pub echo: bool,
}

header_view! {
    /// The bytes of [`Data`].
    DataView(data: Data), DeliverError, (Kind::DeliverData, data.name.job, data.name.epoch),
    {
        operation: U64 = data.name.operation,
        sent_at: U64 = data.sent_at.as_ps(),
        offset: U64 = data.offset.as_u64(),
        tensor: U32 = data.name.tensor,
        layer: U16 = data.layer,
        payload_bytes: U16 = data.payload_bytes,
        flags: u8 = flag(data.echo, ECHO),
        reserved: [u8; 7] = [0; 7],
    }
}

/// Flag of [`Data::echo`].
pub const ECHO: u8 = 1 << 0;

impl Data {
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
