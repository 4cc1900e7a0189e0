//! A model as bytes, to be kept and read again.
//!
//! Version 1, all numbers little-endian: the eight bytes `THALWEGF`; version, flags (1: the start of a
//! flow is a feature), numbers of features, trees, nodes, samples, sizes and destinations as `u32`;
//! beta as `f64`; then the roots (`u32`), the nodes (threshold `f32`, link `u32`), where each node's
//! samples begin, and the end (`u32`), the samples (`u32`), the sizes (`u64`), the destinations
//! (`u64`); and a digest of everything before it. The length follows from the numbers, and is checked
//! before anything is reserved.

use thalweg_core::Digest;
use thiserror::Error;

use crate::bounds::{Model, Options};
use crate::forest::{BuildError, Flat, Forest, Node};

const MAGIC: &[u8; 8] = b"THALWEGF";
const VERSION: u32 = 1;
const USES_START: u32 = 1;

/// Why bytes are no model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FileError {
    /// It begins differently.
    #[error("this is no model: make one with `thalweg predict train`")]
    Magic,
    /// It is newer than this program, or older than any.
    #[error("the model has version {0}, this program reads {VERSION}: train it again")]
    Version(u32),
    /// It does not end where it should.
    #[error("the model is {found} bytes long, not {expected}: it was cut or mixed up")]
    Length {
        /// Length that its counts add up to.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// The digest does not match.
    #[error("the model is damaged: copy it again, or train it again")]
    Digest,
    /// The settings are invalid.
    #[error("the model has settings that are none: train it again")]
    Options,
    /// It is whole, but no forest.
    #[error("the model holds no forest: {0}")]
    Forest(#[from] BuildError),
}

impl Model {
    /// The model as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let forest = &self.forest;
        let flags = if self.options.uses_start { USES_START } else { 0 };
        let mut bytes = MAGIC.to_vec();
        let counts = [
            forest.roots.len(),
            forest.nodes.len(),
            forest.samples.len(),
            forest.sizes.len(),
            self.known.len(),
        ];
        let mut put = |number: u32| bytes.extend(number.to_le_bytes());
        [VERSION, flags, forest.features].into_iter().for_each(&mut put);
        counts.into_iter().for_each(|count| put(count as u32));
        bytes.extend(self.options.beta.to_le_bytes());
        bytes.extend(forest.roots.iter().flat_map(|root| root.to_le_bytes()));
        for node in &forest.nodes {
            bytes.extend(node.threshold.to_le_bytes());
            bytes.extend(node.link.to_le_bytes());
        }
        bytes.extend(forest.sample_from.iter().flat_map(|from| from.to_le_bytes()));
        bytes.extend(forest.samples.iter().flat_map(|rank| rank.to_le_bytes()));
        bytes.extend(forest.sizes.iter().flat_map(|size| size.to_le_bytes()));
        bytes.extend(self.known.iter().flat_map(|known| known.to_le_bytes()));
        let digest = digest(&bytes);
        bytes.extend(digest.to_le_bytes());
        bytes
    }

    /// Reads what [`Model::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Model, FileError> {
        let mut reader = Reader { rest: bytes };
        let head = Head::read(&mut reader)?;
        head.check_length(bytes.len() as u64)?;
        let (content, end) = bytes.split_at(bytes.len() - 8);
        if end != digest(content).to_le_bytes() {
            return Err(FileError::Digest);
        }
        let options = Options { uses_start: head.flags & USES_START != 0, beta: head.beta };
        if head.flags & !USES_START != 0 || options.check().is_err() {
            return Err(FileError::Options);
        }
        let flat = Flat {
            roots: reader.numbers(head.trees),
            nodes: reader.nodes(head.nodes),
            sample_from: reader.numbers(head.nodes + 1),
            samples: reader.numbers(head.samples),
        };
        let sizes = reader.long_numbers(head.sizes);
        let known = reader.long_numbers(head.known);
        if !known.is_sorted() {
            return Err(FileError::Options);
        }
        Ok(Model { forest: Forest::checked(head.features, flat, sizes)?, known, options })
    }
}

struct Head {
    flags: u32,
    beta: f64,
    features: u32,
    trees: usize,
    nodes: usize,
    samples: usize,
    sizes: usize,
    known: usize,
}

/// Magic, eight numbers and beta.
const HEAD_BYTES: u64 = 8 + 8 * 4 + 8;

impl Head {
    fn read(reader: &mut Reader<'_>) -> Result<Head, FileError> {
        let found = reader.rest.len() as u64;
        if reader.take(MAGIC.len()) != Some(MAGIC) {
            return Err(FileError::Magic);
        }
        let short = FileError::Length { expected: HEAD_BYTES, found };
        match reader.number().ok_or(short)? {
            VERSION => {}
            other => return Err(FileError::Version(other)),
        }
        let mut number = || reader.number().ok_or(short);
        let (flags, features) = (number()?, number()?);
        let mut count = || number().map(|count| count as usize);
        Ok(Head {
            flags,
            features,
            trees: count()?,
            nodes: count()?,
            samples: count()?,
            sizes: count()?,
            known: count()?,
            beta: f64::from_bits(reader.long_number().ok_or(short)?),
        })
    }

    fn check_length(&self, found: u64) -> Result<(), FileError> {
        let narrow = self.trees as u64 + 3 * self.nodes as u64 + 1 + self.samples as u64;
        let wide = self.sizes as u64 + self.known as u64;
        let expected = HEAD_BYTES + 4 * narrow + 8 * wide + 8;
        if expected == found { Ok(()) } else { Err(FileError::Length { expected, found }) }
    }
}

/// Takes numbers from the front. The counts that it is asked for were checked against the length.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn long_number(&mut self) -> Option<u64> {
        self.take(8).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn numbers(&mut self, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| self.number()).collect()
    }

    fn long_numbers(&mut self, count: usize) -> Vec<u64> {
        (0..count).map_while(|_| self.long_number()).collect()
    }

    fn nodes(&mut self, count: usize) -> Vec<Node> {
        let node =
            |_| Some(Node { threshold: f32::from_bits(self.number()?), link: self.number()? });
        (0..count).map_while(node).collect()
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut digest = Digest::default();
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| digest.add(u64::from_le_bytes(*word)));
    rest.iter().for_each(|byte| digest.add(u64::from(*byte)));
    digest.value()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bounds::tests::model;

    fn bytes() -> Vec<u8> {
        model(60, 1, Options { uses_start: true, beta: 0.9 }).encode()
    }

    /// The same bytes with a digest that fits them.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len().saturating_sub(8));
        let digest = digest(&bytes);
        bytes.extend(digest.to_le_bytes());
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        for options in [Options::default(), Options { uses_start: true, beta: 0.9 }] {
            let model = model(60, 1, options);
            assert!(Model::decode(&model.encode()).unwrap() == model);
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let with = |at: usize, value: u32| {
            let mut bytes = bytes();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            Model::decode(&sealed(bytes)).map(drop).unwrap_err()
        };
        assert_eq!(Model::decode(b"").unwrap_err(), FileError::Magic);
        assert_eq!(with(0, 0), FileError::Magic);
        assert_eq!(with(8, 2), FileError::Version(2));
        assert_eq!(with(12, 6), FileError::Options);
        assert_eq!(with(16, 17), FileError::Forest(BuildError::Features(17)));
        // Four thousand million trees: refused by length, before memory is asked for.
        assert!(matches!(with(20, u32::MAX), FileError::Length { .. }));
        assert_eq!(with(44, u32::MAX), FileError::Options, "beta is no number");
        let mut damaged = bytes();
        damaged[60] ^= 1;
        assert_eq!(Model::decode(&damaged).unwrap_err(), FileError::Digest);
    }

    proptest! {
        #[test]
        fn a_damaged_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut bytes = bytes();
            *at.get_mut(&mut bytes) ^= 1 << bit;
            prop_assert!(Model::decode(&bytes).is_err());
        }

        #[test]
        fn a_part_is_no_model(length in any::<prop::sample::Index>()) {
            let bytes = bytes();
            prop_assert!(Model::decode(&bytes[..length.index(bytes.len())]).is_err());
        }

        #[test]
        fn any_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Model::decode(&bytes).is_err());
            let mut announced = MAGIC.to_vec();
            announced.extend(VERSION.to_le_bytes());
            announced.extend(bytes);
            prop_assert!(Model::decode(&sealed(announced)).is_err());
        }

        /// Behind a digest that fits, whatever is read is sound: every flow gets an answer.
        #[test]
        fn what_passes_the_digest_answers(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            values in prop::array::uniform16(any::<f32>()),
        ) {
            let mut bytes = bytes();
            let content = bytes.len() - 8;
            for (at, value) in changes {
                // Behind the counts, or the length would not fit.
                let at = 44 + at.index(content - 44);
                bytes[at] = value;
            }
            if let Ok(model) = Model::decode(&sealed(bytes)) {
                let (least, greatest) = model.forest().range(&values);
                prop_assert!(least <= greatest);
                let scratch = &mut crate::Scratch::default();
                let (low, high) = model.forest().quantiles(&values, 0.1, 0.9, scratch);
                prop_assert!(least <= low && low <= high && high <= greatest);
            }
        }
    }
}
