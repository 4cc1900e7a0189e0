//! What a message says about itself.
//!
//! It stands behind the bytes of the message, not before them, so that a receiver cuts it off and
//! hands the bytes out without moving them.

use thalweg_core::{Combine, Element};

use super::call::{Kind, Terms};

/// Length of what stands behind the bytes of a message.
pub(super) const SEAL_BYTES: usize = 8 * WORDS;

const WORDS: usize = 6;

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
    Operation { stream: StreamId, terms: Terms, total: u64, chunk: u64 },
    /// A chunk of a transfer from one rank to another.
    Point { tag: u64, number: u64, total: u64, chunk: u64 },
    /// The sender has made the call that this long transfer to it belongs to.
    Go { stream: StreamId },
    /// The sender has stopped because of a rank.
    Stop { culprit: u32 },
}

/// Stands for a length that is not known.
const UNKNOWN: u64 = u64::MAX;
/// Stands for an element where values are not combined.
const NO_ELEMENT: u8 = u8::MAX;

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

    /// Codes, the root or culprit, the number, the tag or agreed length, the total, the chunk.
    fn words(&self) -> [u64; WORDS] {
        match *self {
            Letter::Operation { stream, terms, total, chunk } => {
                let (code, number, _) = stream.code();
                let (element, how) = reduction_code(terms.reduction);
                let codes = [0, code, kind_code(terms.kind), element, how, 0, 0, 0];
                let length = terms.bytes.unwrap_or(UNKNOWN);
                [u64::from_le_bytes(codes), terms.root.into(), number, length, total, chunk]
            }
            Letter::Point { tag, number, total, chunk } => {
                [u64::from_le_bytes([1, 0, 0, 0, 0, 0, 0, 0]), 0, number, tag, total, chunk]
            }
            Letter::Go { stream } => {
                let (code, number, tag) = stream.code();
                [u64::from_le_bytes([2, code, 0, 0, 0, 0, 0, 0]), 0, number, tag, 0, 0]
            }
            Letter::Stop { culprit } => [3, culprit.into(), 0, 0, 0, 0],
        }
    }

    fn of_words(&[codes, root, number, third, total, chunk]: &[u64; WORDS]) -> Option<Letter> {
        let [form, stream, kind, element, how, ..] = codes.to_le_bytes();
        let root = u32::try_from(root).ok()?;
        match form {
            0 => {
                let stream = StreamId::of_code(stream, number, 0)
                    .filter(|stream| !matches!(stream, StreamId::Point { .. }))?;
                let kind = *Kind::ALL.get(usize::from(kind))?;
                let reduction = reduction_of_code(element, how)?;
                let bytes = (third != UNKNOWN).then_some(third);
                let fits = reduction.is_some() == kind.is_reduction()
                    && bytes.is_some() == kind.has_one_length();
                let terms = Terms { kind, root, reduction, bytes };
                fits.then_some(Letter::Operation { stream, terms, total, chunk })
            }
            1 => Some(Letter::Point { tag: third, number, total, chunk }),
            2 => StreamId::of_code(stream, number, third).map(|stream| Letter::Go { stream }),
            3 => Some(Letter::Stop { culprit: root }),
            _ => None,
        }
    }
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

const COMBINES: [Combine; 4] = [Combine::Sum, Combine::Product, Combine::Min, Combine::Max];

fn kind_code(kind: Kind) -> u8 {
    code(&Kind::ALL, kind)
}

fn reduction_code(reduction: Option<(Element, Combine)>) -> (u8, u8) {
    match reduction {
        Some((element, how)) => (code(&Element::ALL, element), code(&COMBINES, how)),
        None => (NO_ELEMENT, 0),
    }
}

/// `None` if it is no code.
fn reduction_of_code(element: u8, how: u8) -> Option<Option<(Element, Combine)>> {
    if element == NO_ELEMENT {
        return Some(None);
    }
    let element = Element::ALL.get(usize::from(element))?;
    let how = COMBINES.get(usize::from(how))?;
    Some(Some((*element, *how)))
}

/// The place of a value in a table that has it and is shorter than a byte can count.
fn code<T: PartialEq>(table: &[T], value: T) -> u8 {
    let place = table.iter().position(|entry| *entry == value);
    place.expect("the table has every value") as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letters() -> Vec<Letter> {
        let streams = [
            StreamId::Give(7),
            StreamId::Share(u64::MAX),
            StreamId::Point { tag: u64::MAX, number: 3 },
        ];
        let mut letters: Vec<Letter> = streams.map(|stream| Letter::Go { stream }).into();
        letters.push(Letter::Stop { culprit: 9 });
        letters.push(Letter::Point { tag: 5, number: 6, total: 70, chunk: 8 });
        for kind in Kind::ALL {
            for element in Element::ALL {
                for how in COMBINES {
                    let reduction = kind.is_reduction().then_some((element, how));
                    let bytes = kind.has_one_length().then_some(4_096);
                    let terms = Terms { kind, root: 2, reduction, bytes };
                    let stream = StreamId::Share(11);
                    letters.push(Letter::Operation { stream, terms, total: 100, chunk: 1 });
                }
            }
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
