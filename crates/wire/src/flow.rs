//! Packets of reliable messages.
//!
//! A message is cut into packets of `segment_bytes`, numbered from 0; only the last may be shorter.
//! The place of a packet in the message follows from its number, so packets may arrive in any order
//! and be written where they belong at once.

use thalweg_core::{Bytes, Header, JobId, Time};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::transmute_ref;

use crate::prefix::{Kind, Prefix, PrefixError, header_view};
use crate::{CLASS_MAX, flag};

/// A piece of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Job of the packet.
    pub job: JobId,
    /// Number of the job's set-up.
    pub epoch: u32,
    /// The flow, one message each. Not reused within an epoch.
    pub flow: u64,
    /// Length of the whole message.
    pub message_bytes: Bytes,
    /// When this transmission left, by the sender's clock. The receiver only echoes it.
    pub sent_at: Time,
    /// Index of the packet in the message.
    pub index: u32,
    /// Counts the transmissions of the flow, resends too, so that an echo tells a resend from the
    /// original.
    pub transmission: u32,
    /// Payload of a full packet. Never zero.
    pub segment_bytes: u32,
    /// The priority that this packet was first sent with, 0 the most urgent.
    pub priority: u8,
    /// True if its sender waits for the acknowledgement: the receiver does not hold it back.
    pub wants_ack: bool,
}

/// Packets of a message that have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Job of the packet.
    pub job: JobId,
    /// Number of the job's set-up.
    pub epoch: u32,
    /// The flow.
    pub flow: u64,
    /// Echo of [`Data::sent_at`] of the packet that caused it, later by the time for which the receiver held the
    /// acknowledgement back: so the round trip lacks that time.
    pub sent_at: Time,
    /// Bit `i` says that packet `cumulative + 1 + i` has arrived.
    pub sack: u64,
    /// All packets below this number have arrived.
    pub cumulative: u32,
    /// The packet that caused it.
    pub index: u32,
    /// Echo of [`Data::transmission`] of the packet that caused it.
    pub transmission: u32,
    /// True if a queue marked the packet that caused it.
    pub congested: bool,
    /// True if the receiver asks for packet `cumulative` again.
    pub resend: bool,
    /// The class that the packet that caused it arrived in: at most [`CLASS_MAX`].
    pub class: u8,
    /// Number of packets right before `index` that have arrived as well. Counts where the receiver acknowledges
    /// batches, up to `index`.
    pub run: u16,
}

/// Leave to send more of a message, from a receiver that decides who sends when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    /// Job of the packet.
    pub job: JobId,
    /// Number of the job's set-up.
    pub epoch: u32,
    /// The flow.
    pub flow: u64,
    /// Number of transmissions that all credits allow up to this one, beyond those that need none. It only grows,
    /// so that a credit that was lost or overtaken does no harm.
    pub transmissions: u32,
    /// The priority of the packets that it allows, 0 the most urgent; 0 as well where receivers
    /// do not decide that.
    pub priority: u8,
}

/// Why a flow header cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FlowError {
    /// The prefix is not that of the expected packet.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Bits are set that mean nothing in this version.
    #[error("reserved bits of the flow header are set: senders must leave them zero")]
    Reserved,
    /// A class that no packet has.
    #[error("the acknowledged packet claims class {0}: the last is {CLASS_MAX}")]
    Class(u8),
    /// More packets before one than there are.
    #[error("the {run} packets before packet {index} are acknowledged: there are not as many")]
    Run {
        /// The number of packets.
        run: u16,
        /// The packet that they are before.
        index: u32,
    },
    /// Packets without payload would never finish a message.
    #[error("the segment size is zero: it must be the payload of a full packet")]
    EmptySegment,
    /// The packet would lie behind the end of its message.
    #[error("packet {index} of {segment_bytes} bytes begins behind the end of its message")]
    BeyondMessage {
        /// The packet's number.
        index: u32,
        /// Payload of a full packet.
        segment_bytes: u32,
    },
}

header_view! {
    /// The bytes of [`Data`].
    DataView(data: Data), FlowError, (Kind::FlowData, data.job, data.epoch),
    {
        flow: U64 = data.flow,
        message_bytes: U64 = data.message_bytes.as_u64(),
        sent_at: U64 = data.sent_at.as_ps(),
        index: U32 = data.index,
        transmission: U32 = data.transmission,
        segment_bytes: U32 = data.segment_bytes,
        priority: u8 = data.priority,
        flags: u8 = flag(data.wants_ack, WANTS_ACK),
        reserved: [u8; 2] = [0; 2],
    }
}

header_view! {
    /// The bytes of [`Ack`].
    AckView(ack: Ack), FlowError, (Kind::FlowAck, ack.job, ack.epoch),
    {
        flow: U64 = ack.flow,
        sent_at: U64 = ack.sent_at.as_ps(),
        sack: U64 = ack.sack,
        cumulative: U32 = ack.cumulative,
        index: U32 = ack.index,
        transmission: U32 = ack.transmission,
        flags: u8 = flag(ack.congested, CONGESTED) | flag(ack.resend, RESEND),
        class: u8 = ack.class,
        run: U16 = ack.run,
    }
}

header_view! {
    /// The bytes of [`Credit`].
    CreditView(credit: Credit), FlowError, (Kind::FlowCredit, credit.job, credit.epoch),
    {
        flow: U64 = credit.flow,
        transmissions: U32 = credit.transmissions,
        priority: u8 = credit.priority,
        reserved: [u8; 27] = [0; 27],
    }
}

/// Flag of [`Data::wants_ack`].
pub const WANTS_ACK: u8 = 1 << 0;
/// Flag of [`Ack::congested`].
pub const CONGESTED: u8 = 1 << 0;
/// Flag of [`Ack::resend`].
pub const RESEND: u8 = 1 << 1;

impl Data {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Data, FlowError> {
        prefix.expect(Kind::FlowData)?;
        let view: &DataView = transmute_ref!(header);
        let data = Data {
            job: prefix.job,
            epoch: prefix.epoch(),
            flow: view.flow.get(),
            message_bytes: Bytes::new(view.message_bytes.get()),
            sent_at: Time::from_ps(view.sent_at.get()),
            index: view.index.get(),
            transmission: view.transmission.get(),
            segment_bytes: view.segment_bytes.get(),
            priority: view.priority,
            wants_ack: view.flags & WANTS_ACK != 0,
        };
        let Data { index, segment_bytes, .. } = data;
        if view.reserved != [0; 2] || view.flags & !WANTS_ACK != 0 {
            Err(FlowError::Reserved)
        } else if segment_bytes == 0 {
            Err(FlowError::EmptySegment)
        } else if index > 0 && data.offset() >= data.message_bytes {
            // An empty message has one packet, 0, which begins at its end.
            Err(FlowError::BeyondMessage { index, segment_bytes })
        } else {
            Ok(data)
        }
    }

    /// Offset of the payload in the message.
    #[inline]
    pub const fn offset(&self) -> Bytes {
        // Two 32-bit factors cannot overflow.
        Bytes::new(self.index as u64 * self.segment_bytes as u64)
    }

    /// Length of the packet's payload: a full segment, or the rest of the message.
    #[inline]
    pub fn payload_bytes(&self) -> u32 {
        let left = self.message_bytes.saturating_sub(self.offset()).as_u64();
        // The minimum with a 32-bit number fits 32 bits.
        left.min(u64::from(self.segment_bytes)) as u32
    }
}

impl Ack {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Ack, FlowError> {
        prefix.expect(Kind::FlowAck)?;
        let view: &AckView = transmute_ref!(header);
        if view.flags & !(CONGESTED | RESEND) != 0 {
            return Err(FlowError::Reserved);
        }
        if u32::from(view.run.get()) > view.index.get() {
            return Err(FlowError::Run { run: view.run.get(), index: view.index.get() });
        }
        if view.class > CLASS_MAX {
            return Err(FlowError::Class(view.class));
        }
        Ok(Ack {
            job: prefix.job,
            epoch: prefix.epoch(),
            flow: view.flow.get(),
            sent_at: Time::from_ps(view.sent_at.get()),
            sack: view.sack.get(),
            cumulative: view.cumulative.get(),
            index: view.index.get(),
            transmission: view.transmission.get(),
            congested: view.flags & CONGESTED != 0,
            resend: view.flags & RESEND != 0,
            class: view.class,
            run: view.run.get(),
        })
    }
}

impl Credit {
    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    #[inline]
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<Credit, FlowError> {
        prefix.expect(Kind::FlowCredit)?;
        let view: &CreditView = transmute_ref!(header);
        if view.reserved != [0; 27] {
            return Err(FlowError::Reserved);
        }
        Ok(Credit {
            job: prefix.job,
            epoch: prefix.epoch(),
            flow: view.flow.get(),
            transmissions: view.transmissions.get(),
            priority: view.priority,
        })
    }
}

#[cfg(test)]
mod tests;
