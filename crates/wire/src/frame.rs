//! The end of a message of a sum: its operation, or why its sender has stopped.
//!
//! Over flows a frame stands behind the values, in space that every message has for it, so that a message which is
//! forwarded is not copied. Over deliveries, where values may be lost, it is the note of the offer: a receiver has
//! it before it gives a buffer. Messages of which only the length is known have none.
// spec: E-11

use thalweg_core::{Fingerprint, Mismatch, Operation};
use thiserror::Error;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use crate::fingerprint::{FingerprintError, FingerprintView};

/// Length of a frame.
pub const SUM_FRAME_BYTES: usize = size_of::<SumFrameView>();

/// Neither form is zero: what real networks carry for a message without values is zeros.
const VALUES: u8 = 1;
const STOP: u8 = 2;

/// The operation of a message, or why its sender has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SumFrame {
    /// The message has values of this operation of its sender.
    Values(CalledOperation),
    /// The sender has stopped, because the operations of these two members differ.
    Stop(Mismatch),
}

/// An operation as a member called it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalledOperation {
    /// The low bits of its number. Where two members have different numbers for the same message, an operation
    /// before it had another number of messages, and a message of that one shows the difference.
    pub number: u32,
    /// Fingerprint of the operation.
    pub fingerprint: Fingerprint,
}

/// The bytes of [`SumFrame::Values`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SumFrameView {
    /// 1 for values; 2 for a stop, which has a [`MismatchView`].
    pub form: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// [`CalledOperation::number`].
    pub number: U32,
    /// [`CalledOperation::fingerprint`].
    pub fingerprint: FingerprintView,
    /// Zero.
    pub reserved_end: [u8; 32],
}

/// The bytes of a [`Mismatch`], at the end of a message whose sender has stopped because of it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct MismatchView {
    /// The form of the frame or trailer.
    pub form: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// The lower rank.
    pub one_rank: U32,
    /// The higher rank.
    pub other_rank: U32,
    /// Operation of the lower rank.
    pub one: FingerprintView,
    /// Operation of the higher rank.
    pub other: FingerprintView,
}

/// Why the end of a message between ranks cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// Less than a frame.
    #[error("the message has {0} bytes: its frame alone has {SUM_FRAME_BYTES}")]
    Short(usize),
    /// A form or a stream that this version does not have.
    #[error("no message has the form {form} with the stream {stream}")]
    Form {
        /// The form.
        form: u8,
        /// The stream; 0 where the form has none.
        stream: u8,
    },
    /// A fingerprint cannot be read.
    #[error(transparent)]
    Fingerprint(#[from] FingerprintError),
    /// Operations that do not differ, or ranks in the wrong order.
    #[error("the two operations do not differ, or their ranks are not in order")]
    Mismatch,
    /// Fields that the form has no use for are not zero.
    #[error("fields that the form has no use for are set: senders must leave them zero")]
    Reserved,
}

impl CalledOperation {
    /// An operation of a member.
    pub fn new(operation: Operation, fingerprint: Fingerprint) -> CalledOperation {
        CalledOperation { number: operation.0 as u32, fingerprint }
    }

    /// Returns whether both are the same operation.
    pub fn is_same(&self, other: &CalledOperation) -> bool {
        self.number == other.number && self.fingerprint.agrees(&other.fingerprint)
    }
}

impl SumFrame {
    /// Returns the bytes of the frame.
    pub fn encode(&self) -> [u8; SUM_FRAME_BYTES] {
        match self {
            SumFrame::Values(called) => transmute!(SumFrameView {
                form: VALUES,
                reserved: [0; 3],
                number: U32::new(called.number),
                fingerprint: FingerprintView::new(&called.fingerprint),
                reserved_end: [0; 32],
            }),
            SumFrame::Stop(mismatch) => transmute!(MismatchView::new(STOP, mismatch)),
        }
    }

    /// Reads a frame.
    pub fn decode(encoded: &[u8; SUM_FRAME_BYTES]) -> Result<SumFrame, FrameError> {
        let view: &SumFrameView = transmute_ref!(encoded);
        let frame = match view.form {
            VALUES => SumFrame::Values(CalledOperation {
                number: view.number.get(),
                fingerprint: view.fingerprint.meaning()?,
            }),
            STOP => SumFrame::Stop(MismatchView::read(encoded)?),
            form => return Err(FrameError::Form { form, stream: 0 }),
        };
        // What is written in another way than we write it means something that we do not know.
        if frame.encode() == *encoded { Ok(frame) } else { Err(FrameError::Reserved) }
    }

    /// Writes the frame over the last bytes of a message. One that is shorter stays as it is.
    pub fn frame(&self, message: &mut [u8]) {
        if let Some(end) = message.last_chunk_mut() {
            *end = self.encode();
        }
    }

    /// Reads the frame at the end of a message.
    pub fn unframe(message: &[u8]) -> Result<SumFrame, FrameError> {
        SumFrame::decode(message.last_chunk().ok_or(FrameError::Short(message.len()))?)
    }
}

impl MismatchView {
    pub(crate) fn new(form: u8, mismatch: &Mismatch) -> MismatchView {
        let Mismatch { one, other } = mismatch;
        MismatchView {
            form,
            reserved: [0; 7],
            one_rank: U32::new(one.0),
            other_rank: U32::new(other.0),
            one: FingerprintView::new(&one.1),
            other: FingerprintView::new(&other.1),
        }
    }

    /// Reads the operations of two ranks. Does not look at the first eight bytes.
    pub(crate) fn read(encoded: &[u8; SUM_FRAME_BYTES]) -> Result<Mismatch, FrameError> {
        let view: &MismatchView = transmute_ref!(encoded);
        let (one, other) = (view.one.meaning()?, view.other.meaning()?);
        let ranks = [view.one_rank, view.other_rank].map(U32::get);
        match Fingerprint::compare((ranks[0], &one), (ranks[1], &other)) {
            Err(mismatch) if ranks[0] < ranks[1] => Ok(mismatch),
            _ => Err(FrameError::Mismatch),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::Element;

    use super::*;
    use crate::fingerprint::tests::any_fingerprint;

    fn any_frame() -> impl Strategy<Value = SumFrame> {
        (any::<u32>(), any_fingerprint(), any_fingerprint(), any::<u32>()).prop_map(
            |(number, fingerprint, other, rank)| match Fingerprint::compare(
                (number, &fingerprint),
                (rank, &other),
            ) {
                Err(mismatch) if number != rank => SumFrame::Stop(mismatch),
                _ => SumFrame::Values(CalledOperation { number, fingerprint }),
            },
        )
    }

    /// A sum of 704 floats as operation 0x0102 of its caller.
    const VALUES_BYTES: [u8; SUM_FRAME_BYTES] = [
        1, 0, 0, 0, 2, 1, 0, 0, // form, reserved, number
        0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // kind, element, reduction, path, root
        0x00, 0x0b, 0, 0, 0, 0, 0, 0, // bytes
        0, 0, 0, 0, 0, 0, 0, 0, // loss, parts
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved_end
    ];

    // spec: E-11 machine
    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        let sum = |values| Fingerprint::of_sum(Element::F32, values);
        let values = SumFrame::Values(CalledOperation::new(Operation(0x0102), sum(704)));
        assert_eq!(values.encode(), VALUES_BYTES);
        assert_eq!(SumFrame::decode(&VALUES_BYTES), Ok(values));
        let mismatch = Fingerprint::compare((3, &sum(704)), (1, &sum(1_056)));
        let stop = SumFrame::Stop(mismatch.expect_err("they differ"));
        let mut bytes = [0; SUM_FRAME_BYTES];
        bytes[..16].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]);
        bytes[16..40].copy_from_slice(&crate::fingerprint::encode(&sum(1_056)));
        bytes[40..].copy_from_slice(&VALUES_BYTES[8..32]);
        assert_eq!(stop.encode(), bytes);
        assert_eq!(SumFrame::decode(&bytes), Ok(stop));
    }

    #[test]
    fn every_rule_is_checked() {
        let broken = |at: usize, value: u8| {
            let mut encoded = VALUES_BYTES;
            encoded[at] = value;
            SumFrame::decode(&encoded)
        };
        assert_eq!(broken(0, 0), Err(FrameError::Form { form: 0, stream: 0 }));
        assert_eq!(broken(0, 2), Err(FrameError::Fingerprint(FingerprintError::Kind)));
        let unknown = FingerprintError::Code { field: "element", code: 12 };
        assert_eq!(broken(9, 12), Err(unknown.into()));
        for reserved in (1..4).chain(32..SUM_FRAME_BYTES) {
            assert_eq!(broken(reserved, 1), Err(FrameError::Reserved), "byte {reserved}");
        }
        assert_eq!(SumFrame::unframe(&VALUES_BYTES[1..]), Err(FrameError::Short(63)));
    }

    proptest! {
        #[test]
        fn a_frame_stands_behind_the_values(frame in any_frame(), values in any::<[u8; 4]>()) {
            let mut message = [&values[..], &[7; SUM_FRAME_BYTES]].concat();
            frame.frame(&mut message);
            prop_assert_eq!(SumFrame::unframe(&message), Ok(frame));
            prop_assert_eq!(&message[..4], values);
        }

        // spec: E-11 machine
        #[test]
        fn any_bytes_are_refused_or_read_as_what_we_write(
            frame in any_frame(),
            changes in prop::collection::vec((0..SUM_FRAME_BYTES, any::<u8>()), 0..4),
        ) {
            let mut encoded = frame.encode();
            for (place, value) in changes {
                encoded[place] = value;
            }
            if let Ok(read) = SumFrame::decode(&encoded) {
                prop_assert_eq!(read.encode(), encoded);
            }
        }
    }
}
