//! What a message says about itself.
//!
//! It stands behind the bytes of the message, not before them, so that a receiver cuts it off and
//! hands the bytes out without moving them.

use thalweg_core::{Fingerprint, Mismatch};
use thalweg_wire::fingerprint::{decode, decode_mismatch, encode, encode_mismatch};

/// Length of what stands behind the bytes of a message.
pub(super) const SEAL_BYTES: usize = 8 * WORDS;

const WORDS: usize = 8;

/// A transfer between two ranks, as both of them call it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum StreamId {
    /// Of an operation: to whoever works on it.
    Give(u64),
    /// Of an operation: to whoever gets what came of it.
    Share(u64),
    /// From one rank to another, the `number`-th between them with this tag.
    Point { tag: u64, number: u64 },
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Letter {
    /// A chunk of an operation's transfer.
    Operation { stream: StreamId, fingerprint: Fingerprint, total: u64, chunk: u64 },
    /// A chunk of a transfer from one rank to another.
    Point { tag: u64, number: u64, fingerprint: Fingerprint, total: u64, chunk: u64 },
    /// The sender has made this call. To the root of an operation.
    Called { operation: u64, fingerprint: Fingerprint },
    /// All ranks have made the same call. From the root of an operation.
    Agreed { operation: u64, fingerprint: Fingerprint },
    /// The sender has made the call that this long transfer to it belongs to.
    Go { stream: StreamId },
    /// The sender has stopped because of a rank.
    Stop { culprit: u32 },
    /// The sender has stopped because two ranks differ.
    Differ(Mismatch),
}

impl Letter {
    /// The whole message.
    pub fn seal(&self, bytes: &[u8]) -> Box<[u8]> {
        let mut message = Vec::with_capacity(bytes.len() + SEAL_BYTES);
        message.extend_from_slice(bytes);
        message.extend_from_slice(self.words().map(u64::to_le_bytes).as_flattened());
        message.into_boxed_slice()
    }

    /// Cuts off what a message says about itself. `None` if no honest rank says that.
    pub fn open(message: &mut Vec<u8>) -> Option<Letter> {
        let seal = message.last_chunk::<SEAL_BYTES>()?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(seal.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let letter = Letter::of_words(&words)?;
        // What is written in another way than we write it means something that we do not know.
        if letter.words() != words {
            return None;
        }
        message.truncate(message.len() - SEAL_BYTES);
        Some(letter)
    }

    /// Codes, the number, the fingerprint, the total, the chunk, the tag.
    fn words(&self) -> [u64; WORDS] {
        let codes = |form: u8, stream: u8| u64::from_le_bytes([form, stream, 0, 0, 0, 0, 0, 0]);
        let of = |form, number, fingerprint, [total, chunk, tag]: [u64; 3]| {
            let [what, length, options] = words_of(fingerprint);
            [codes(form, 0), number, what, length, options, total, chunk, tag]
        };
        match *self {
            Letter::Operation { stream, fingerprint, total, chunk } => {
                let (code, number, _) = stream.code();
                let mut words = of(0, number, &fingerprint, [total, chunk, 0]);
                words[0] = codes(0, code);
                words
            }
            Letter::Point { tag, number, fingerprint, total, chunk } => {
                of(1, number, &fingerprint, [total, chunk, tag])
            }
            Letter::Go { stream } => {
                let (code, number, tag) = stream.code();
                [codes(2, code), number, 0, 0, 0, 0, 0, tag]
            }
            Letter::Stop { culprit } => [codes(3, 0), culprit.into(), 0, 0, 0, 0, 0, 0],
            Letter::Called { operation, fingerprint } => of(4, operation, &fingerprint, [0; 3]),
            Letter::Agreed { operation, fingerprint } => of(5, operation, &fingerprint, [0; 3]),
            Letter::Differ(mismatch) => {
                let mut words = [codes(6, 0); WORDS];
                let encoded = encode_mismatch(&mismatch);
                for (word, bytes) in words[1..].iter_mut().zip(encoded.as_chunks().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                words
            }
        }
    }

    fn of_words(words: &[u64; WORDS]) -> Option<Letter> {
        let &[codes, number, what, length, options, total, chunk, tag] = words;
        let [form, stream, ..] = codes.to_le_bytes();
        let fingerprint = || fingerprint_of([what, length, options]);
        Some(match form {
            0 => {
                let stream = StreamId::of_code(stream, number, 0)
                    .filter(|stream| !matches!(stream, StreamId::Point { .. }))?;
                Letter::Operation { stream, fingerprint: fingerprint()?, total, chunk }
            }
            1 => Letter::Point { tag, number, fingerprint: fingerprint()?, total, chunk },
            2 => Letter::Go { stream: StreamId::of_code(stream, number, tag)? },
            3 => Letter::Stop { culprit: u32::try_from(number).ok()? },
            4 => Letter::Called { operation: number, fingerprint: fingerprint()? },
            5 => Letter::Agreed { operation: number, fingerprint: fingerprint()? },
            6 => {
                let [_, rest @ ..] = words.map(u64::to_le_bytes);
                Letter::Differ(decode_mismatch(rest.as_flattened().try_into().ok()?)?)
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

    fn letters() -> Vec<Letter> {
        let streams = [
            StreamId::Give(7),
            StreamId::Share(u64::MAX),
            StreamId::Point { tag: u64::MAX, number: 3 },
        ];
        let mut letters: Vec<Letter> = streams.map(|stream| Letter::Go { stream }).into();
        letters.push(Letter::Stop { culprit: 9 });
        for kind in OperationKind::ALL {
            let fingerprint = Fingerprint {
                element: Some(Element::I16),
                bytes: Some(4_096),
                reduction: kind.is_reduction().then_some(Reduction::Mean),
                root: kind.has_root().then_some(2),
                ..Fingerprint::new(kind)
            };
            let stream = StreamId::Share(11);
            letters.push(Letter::Operation { stream, fingerprint, total: 100, chunk: 1 });
            letters.push(Letter::Point { tag: 5, number: 6, fingerprint, total: 70, chunk: 8 });
            letters.push(Letter::Called { operation: 3, fingerprint });
            letters.push(Letter::Agreed { operation: u64::MAX, fingerprint });
            let other = Fingerprint { bytes: Some(1), ..fingerprint };
            let compared = Fingerprint::compare((4, &other), (1, &fingerprint));
            letters.push(Letter::Differ(compared.expect_err("they differ")));
        }
        letters
    }

    #[test]
    fn every_letter_can_be_read_again() {
        for letter in letters() {
            let mut message = letter.seal(b"bytes").into_vec();
            assert_eq!(message.len(), 5 + SEAL_BYTES);
            assert_eq!(Letter::open(&mut message), Some(letter));
            assert_eq!(message, b"bytes");
        }
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(Letter::open(&mut vec![0; SEAL_BYTES - 1]), None);
        let mut message = Letter::Stop { culprit: 9 }.seal(&[]).into_vec();
        message[SEAL_BYTES - 1] = 1;
        assert_eq!(Letter::open(&mut message), None, "a field that means nothing is not zero");
    }

    proptest! {
        #[test]
        fn what_can_be_read_is_what_we_write(
            letter in prop::sample::select(letters()),
            place in 0..SEAL_BYTES,
            value in any::<u8>(),
        ) {
            let mut message = letter.seal(&[]).into_vec();
            message[place] = value;
            let changed = message.clone();
            if let Some(read) = Letter::open(&mut message) {
                prop_assert_eq!(read.seal(&[]).into_vec(), changed);
            }
        }
    }
}
