//! The end of a message between two ranks: what the message is.
//!
//! A trailer stands behind the bytes of the message, not before them, so that a receiver cuts it off and hands
//! the bytes out without moving them. Meshes of ranks send such messages, over flows.
// spec: E-11

use thalweg_core::{Fingerprint, Mismatch};

use crate::fingerprint::{decode, decode_mismatch, encode, encode_mismatch};

/// Length of a trailer.
pub const TRAILER_BYTES: usize = 8 * WORDS;

const WORDS: usize = 8;

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

impl Trailer {
    /// The whole message: its bytes, then the trailer.
    pub fn frame(&self, bytes: &[u8]) -> Box<[u8]> {
        let mut message = Vec::with_capacity(bytes.len() + TRAILER_BYTES);
        message.extend_from_slice(bytes);
        message.extend_from_slice(self.words().map(u64::to_le_bytes).as_flattened());
        message.into_boxed_slice()
    }

    /// Cuts the trailer off a message. `None`, and nothing changes, if no rank writes such a trailer.
    pub fn unframe(message: &mut Vec<u8>) -> Option<Trailer> {
        let end = message.last_chunk::<TRAILER_BYTES>()?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(end.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let trailer = Trailer::of_words(&words)?;
        // What is written in another way than we write it means something that we do not know.
        if trailer.words() != words {
            return None;
        }
        message.truncate(message.len() - TRAILER_BYTES);
        Some(trailer)
    }

    /// Codes, the number, the fingerprint, the total, the chunk, the tag.
    fn words(&self) -> [u64; WORDS] {
        let codes = |form: u8, stream: u8| u64::from_le_bytes([form, stream, 0, 0, 0, 0, 0, 0]);
        let of = |form, number, fingerprint, [total, chunk, tag]: [u64; 3]| {
            let [what, length, options] = words_of(fingerprint);
            [codes(form, 0), number, what, length, options, total, chunk, tag]
        };
        match *self {
            Trailer::Operation { stream, fingerprint, total, chunk } => {
                let (code, number, _) = stream.code();
                let mut words = of(0, number, &fingerprint, [total, chunk, 0]);
                words[0] = codes(0, code);
                words
            }
            Trailer::Point { tag, number, fingerprint, total, chunk } => {
                of(1, number, &fingerprint, [total, chunk, tag])
            }
            Trailer::Go { stream } => {
                let (code, number, tag) = stream.code();
                [codes(2, code), number, 0, 0, 0, 0, 0, tag]
            }
            Trailer::Stop { culprit } => [codes(3, 0), culprit.into(), 0, 0, 0, 0, 0, 0],
            Trailer::Called { operation, fingerprint } => of(4, operation, &fingerprint, [0; 3]),
            Trailer::Agreed { operation, fingerprint } => of(5, operation, &fingerprint, [0; 3]),
            Trailer::Differ(mismatch) => {
                let mut words = [codes(6, 0); WORDS];
                let encoded = encode_mismatch(&mismatch);
                for (word, bytes) in words[1..].iter_mut().zip(encoded.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                words
            }
        }
    }

    fn of_words(words: &[u64; WORDS]) -> Option<Trailer> {
        let &[codes, number, what, length, options, total, chunk, tag] = words;
        let [form, stream, ..] = codes.to_le_bytes();
        let fingerprint = || fingerprint_of([what, length, options]);
        Some(match form {
            0 => {
                let stream = StreamId::of_code(stream, number, 0)
                    .filter(|stream| !matches!(stream, StreamId::Point { .. }))?;
                Trailer::Operation { stream, fingerprint: fingerprint()?, total, chunk }
            }
            1 => Trailer::Point { tag, number, fingerprint: fingerprint()?, total, chunk },
            2 => Trailer::Go { stream: StreamId::of_code(stream, number, tag)? },
            3 => Trailer::Stop { culprit: u32::try_from(number).ok()? },
            4 => Trailer::Called { operation: number, fingerprint: fingerprint()? },
            5 => Trailer::Agreed { operation: number, fingerprint: fingerprint()? },
            6 => {
                let [_, rest @ ..] = words.map(u64::to_le_bytes);
                Trailer::Differ(decode_mismatch(rest.as_flattened().try_into().ok()?)?)
            }
            _ => return None,
        })
    }
}

fn words_of(fingerprint: &Fingerprint) -> [u64; 3] {
    let encoded = encode(fingerprint);
    let (words, _) = encoded.as_chunks();
    [0, 1, 2].map(|at| u64::from_le_bytes(words[at]))
}

fn fingerprint_of(words: [u64; 3]) -> Option<Fingerprint> {
    decode(words.map(u64::to_le_bytes).as_flattened().try_into().ok()?)
}

impl StreamId {
    /// Its code, number and tag.
    fn code(self) -> (u8, u64, u64) {
        match self {
            StreamId::Give(operation) => (0, operation, 0),
            StreamId::Share(operation) => (1, operation, 0),
            StreamId::Point { tag, number } => (2, number, tag),
        }
    }

    fn of_code(code: u8, number: u64, tag: u64) -> Option<StreamId> {
        match code {
            0 => Some(StreamId::Give(number)),
            1 => Some(StreamId::Share(number)),
            2 => Some(StreamId::Point { tag, number }),
            _ => None,
        }
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
            assert_eq!(Trailer::unframe(&mut message), Some(trailer));
            assert_eq!(message, b"bytes");
        }
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(Trailer::unframe(&mut vec![0; TRAILER_BYTES - 1]), None);
        let mut message = Trailer::Stop { culprit: 9 }.frame(&[]).into_vec();
        message[TRAILER_BYTES - 1] = 1;
        assert_eq!(Trailer::unframe(&mut message), None, "a field that means nothing is not zero");
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
            if let Some(read) = Trailer::unframe(&mut message) {
                prop_assert_eq!(read.frame(&[]).into_vec(), changed);
            }
        }
    }
}
