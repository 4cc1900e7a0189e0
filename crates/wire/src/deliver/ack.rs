//! The echo of a data packet's time.

use thalweg_core::{Header, Time};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::transmute_ref;

use super::{DeliverError, TensorName};
use crate::prefix::{Kind, Prefix, header_view};
use crate::{CLASS_MAX, flag};

/// Echoes the time of a data packet that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Tensor of the packet that it answers.
    pub name: TensorName,
    /// Echo of [`Data::sent_at`](super::Data::sent_at).
    pub sent_at: Time,
    /// True if a queue marked the packet that it answers.
    pub congested: bool,
    /// True if as much of the tensor is missing as may be lost.
    pub is_spent: bool,
    /// The class that the packet arrived in: at most [`CLASS_MAX`].
    pub class: u8,
    /// Bytes of all data packets of the sender that have arrived, this one included. Wraps around.
    pub arrived_bytes: u64,
    /// Arrival of the packet, by the receiver's clock.
    pub arrived_at: Time,
}

header_view! {
    /// The bytes of [`Ack`].
    AckView(ack: Ack), DeliverError, (Kind::DeliverAck, ack.name.job, ack.name.epoch),
    {
        operation: U64 = ack.name.operation,
        sent_at: U64 = ack.sent_at.as_ps(),
        tensor: U32 = ack.name.tensor,
        flags: u8 = flag(ack.congested, CONGESTED) | flag(ack.is_spent, SPENT),
        class: u8 = ack.class,
        reserved: [u8; 2] = [0; 2],
        arrived_bytes: U64 = ack.arrived_bytes,
        arrived_at: U64 = ack.arrived_at.as_ps(),
    }
}

/// Flag of [`Ack::congested`].
pub const CONGESTED: u8 = 1 << 0;

/// Flag of [`Ack::is_spent`].
pub const SPENT: u8 = 1 << 1;

impl Ack {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Ack, DeliverError> {
        prefix.expect(Kind::DeliverAck)?;
        let view: &AckView = transmute_ref!(header);
        if view.reserved != [0; 2] || view.flags & !(CONGESTED | SPENT) != 0 {
            return Err(DeliverError::Reserved);
        }
        if view.class > CLASS_MAX {
            return Err(DeliverError::Class(view.class));
        }
        Ok(Ack {
            name: TensorName::read(prefix, view.operation.get(), view.tensor.get()),
            sent_at: Time::from_ps(view.sent_at.get()),
            congested: view.flags & CONGESTED != 0,
            is_spent: view.flags & SPENT != 0,
            class: view.class,
            arrived_bytes: view.arrived_bytes.get(),
            arrived_at: Time::from_ps(view.arrived_at.get()),
        })
    }
}
