//! The end of a message between two ranks: what the message is.
//!
//! A trailer stands behind the bytes of the message, not before them, so that a receiver cuts it off and hands
//! the bytes out without moving them. Meshes of ranks send such messages, over flows.
// spec: E-11

use thalweg_core::{Fingerprint, Mismatch};
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref,
};

use crate::fingerprint::FingerprintView;
use crate::frame::{FrameError, MismatchView};

/// Length of a trailer.
pub const TRAILER_BYTES: usize = size_of::<TrailerView>();

/// The form of [`Trailer::Differ`].
const DIFFER: u8 = 6;

/// A transfer between two ranks, as both of them call it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StreamId {
    /// The transfer of an operation's input, to the rank that works on it. Has the operation's number.
    Give(u64),
    /// The transfer of an operation's output. Has the operation's number.
    Share(u64),
    /// A transfer from one rank to another, outside of any operation.
    Point {
        /// The tag that both ranks have given it.
        tag: u64,
        /// Number of transfers between them with this tag before it.
        number: u64,
    },
}

/// The meaning of a trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trailer {
    /// The message is a chunk of an operation's transfer.
    Operation {
        /// The transfer.
        stream: StreamId,
        /// The operation, as the sender has called it.
        fingerprint: Fingerprint,
        /// Length of the transfer in bytes.
        total: u64,
        /// Number of the chunk.
        chunk: u64,
    },
    /// The message is a chunk of a transfer from one rank to another.
    Point {
        /// The tag of the transfer.
        tag: u64,
        /// Number of transfers with this tag before it.
        number: u64,
        /// The transfer, as the sender has called it.
        fingerprint: Fingerprint,
        /// Length of the transfer in bytes.
        total: u64,
        /// Number of the chunk.
        chunk: u64,
    },
    /// The sender has made this call. To the root of an operation.
    Called {
        /// Number of the operation.
        operation: u64,
        /// The operation, as the sender has called it.
        fingerprint: Fingerprint,
    },
    /// All ranks have made the same call. From the root of an operation.
    Agreed {
        /// Number of the operation.
        operation: u64,
        /// The operation.
        fingerprint: Fingerprint,
    },
    /// The sender has made the call that this long transfer to it belongs to.
    Go {
        /// The transfer.
        stream: StreamId,
    },
    /// The sender has stopped because of a rank.
    Stop {
        /// That rank.
        culprit: u32,
    },
    /// The sender has stopped because two ranks differ.
    Differ(Mismatch),
}

/// The bytes of a [`Trailer`]. Fields that a form has no use for are zero; [`Trailer::Differ`] has a
/// [`MismatchView`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TrailerView {
    /// Number of the form.
    pub form: u8,
    /// Code of the [`StreamId`].
    pub stream: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// Number of the operation or of the transfer; the rank because of which the sender has stopped.
    pub number: U64,
    /// Fingerprint of the operation.
    pub fingerprint: FingerprintView,
    /// Length of the transfer in bytes.
    pub total: U64,
    /// Number of the chunk.
    pub chunk: U64,
    /// Tag of a transfer outside of operations.
    pub tag: U64,
}

impl Trailer {
    /// The whole message: its bytes, then the trailer.
    pub fn frame(&self, bytes: &[u8]) -> Box<[u8]> {
        [bytes, &self.encode()].concat().into_boxed_slice()
    }

    /// Cuts the trailer off a message. Nothing changes if it cannot be read.
    pub fn unframe(message: &mut Vec<u8>) -> Result<Trailer, FrameError> {
        let end = message.last_chunk().ok_or(FrameError::Short(message.len()))?;
        let trailer = Trailer::decode(end)?;
        message.truncate(message.len() - TRAILER_BYTES);
        Ok(trailer)
    }

    fn encode(&self) -> [u8; TRAILER_BYTES] {
        transmute!(match *self {
            Trailer::Operation { stream, fingerprint, total, chunk } => {
                let chunk = U64::new(chunk);
                let view = TrailerView { total: U64::new(total), chunk, ..stream.view(0) };
                view.of(&fingerprint)
            }
            Trailer::Point { tag, number, fingerprint, total, chunk } => {
                let (tag, chunk) = (U64::new(tag), U64::new(chunk));
                let view = TrailerView { tag, chunk, ..TrailerView::new(1, number) };
                TrailerView { total: U64::new(total), ..view.of(&fingerprint) }
            }
            Trailer::Go { stream } => stream.view(2),
            Trailer::Stop { culprit } => TrailerView::new(3, culprit.into()),
            Trailer::Called { operation, fingerprint } => {
                TrailerView::new(4, operation).of(&fingerprint)
            }
            Trailer::Agreed { operation, fingerprint } => {
                TrailerView::new(5, operation).of(&fingerprint)
            }
            Trailer::Differ(mismatch) => transmute!(MismatchView::new(DIFFER, &mismatch)),
        })
    }

    fn decode(encoded: &[u8; TRAILER_BYTES]) -> Result<Trailer, FrameError> {
        let view: &TrailerView = transmute_ref!(encoded);
        let [number, total, chunk, tag] =
            [view.number, view.total, view.chunk, view.tag].map(U64::get);
        let fingerprint = || view.fingerprint.meaning();
        let unknown = FrameError::Form { form: view.form, stream: view.stream };
        let trailer = match view.form {
            0 => match view.stream_id().ok_or(unknown)? {
                StreamId::Point { .. } => return Err(unknown),
                stream => Trailer::Operation { stream, fingerprint: fingerprint()?, total, chunk },
            },
            1 => Trailer::Point { tag, number, fingerprint: fingerprint()?, total, chunk },
            2 => Trailer::Go { stream: view.stream_id().ok_or(unknown)? },
            3 => Trailer::Stop { culprit: number as u32 },
            4 => Trailer::Called { operation: number, fingerprint: fingerprint()? },
            5 => Trailer::Agreed { operation: number, fingerprint: fingerprint()? },
            DIFFER => Trailer::Differ(MismatchView::read(encoded)?),
            _ => return Err(unknown),
        };
        // What is written in another way than we write it means something that we do not know.
        if trailer.encode() == *encoded { Ok(trailer) } else { Err(FrameError::Reserved) }
    }
}

impl TrailerView {
    fn new(form: u8, number: u64) -> TrailerView {
        TrailerView { form, number: U64::new(number), ..TrailerView::new_zeroed() }
    }

    /// The same with a fingerprint.
    fn of(self, fingerprint: &Fingerprint) -> TrailerView {
        TrailerView { fingerprint: FingerprintView::new(fingerprint), ..self }
    }

    fn stream_id(&self) -> Option<StreamId> {
        let number = self.number.get();
        match self.stream {
            0 => Some(StreamId::Give(number)),
            1 => Some(StreamId::Share(number)),
            2 => Some(StreamId::Point { tag: self.tag.get(), number }),
            _ => None,
        }
    }
}

impl StreamId {
    /// The bytes of a trailer that is about this transfer.
    fn view(self, form: u8) -> TrailerView {
        let (stream, number, tag) = match self {
            StreamId::Give(operation) => (0, operation, 0),
            StreamId::Share(operation) => (1, operation, 0),
            StreamId::Point { tag, number } => (2, number, tag),
        };
        TrailerView { stream, tag: U64::new(tag), ..TrailerView::new(form, number) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::{Element, OperationKind, Reduction};

    use super::*;

    fn trailers() -> Vec<Trailer> {
        let streams = [
            StreamId::Give(7),
            StreamId::Share(u64::MAX),
            StreamId::Point { tag: u64::MAX, number: 3 },
        ];
        let mut trailers: Vec<Trailer> = streams.map(|stream| Trailer::Go { stream }).into();
        trailers.push(Trailer::Stop { culprit: 9 });
        for kind in OperationKind::ALL {
            let fingerprint = Fingerprint {
                element: Some(Element::I16),
                bytes: Some(4_096),
                reduction: kind.is_reduction().then_some(Reduction::Mean),
                root: kind.has_root().then_some(2),
                ..Fingerprint::new(kind)
            };
            let stream = StreamId::Share(11);
            trailers.push(Trailer::Operation { stream, fingerprint, total: 100, chunk: 1 });
            trailers.push(Trailer::Point { tag: 5, number: 6, fingerprint, total: 70, chunk: 8 });
            trailers.push(Trailer::Called { operation: 3, fingerprint });
            trailers.push(Trailer::Agreed { operation: u64::MAX, fingerprint });
            let other = Fingerprint { bytes: Some(1), ..fingerprint };
            let compared = Fingerprint::compare((4, &other), (1, &fingerprint));
            trailers.push(Trailer::Differ(compared.expect_err("they differ")));
        }
        trailers
    }

    #[test]
    fn every_trailer_can_be_read_again() {
        for trailer in trailers() {
            let mut message = trailer.frame(b"bytes").into_vec();
            assert_eq!(message.len(), 5 + TRAILER_BYTES);
            assert_eq!(Trailer::unframe(&mut message), Ok(trailer));
            assert_eq!(message, b"bytes");
        }
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(Trailer::unframe(&mut vec![0; TRAILER_BYTES - 1]), Err(FrameError::Short(63)));
        let mut message = Trailer::Stop { culprit: 9 }.frame(&[]).into_vec();
        message[TRAILER_BYTES - 1] = 1;
        assert_eq!(Trailer::unframe(&mut message), Err(FrameError::Reserved), "it has no tag");
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_what_we_write(
            trailer in prop::sample::select(trailers()),
            place in 0..TRAILER_BYTES,
            value in any::<u8>(),
        ) {
            let mut message = trailer.frame(&[]).into_vec();
            message[place] = value;
            let changed = message.clone();
            if let Ok(read) = Trailer::unframe(&mut message) {
                prop_assert_eq!(read.frame(&[]).into_vec(), changed);
            }
        }
    }
}
