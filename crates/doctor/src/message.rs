//! Messages between a doctor and a peer that answers: questions and answers of equal length.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every message, with the version of the format.
const MAGIC: [u8; 8] = *b"thwgdoc1";

/// Length of the fixed part, and the least of a message.
pub const HEADER_BYTES: usize = size_of::<Header>();

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Counted and answered.
    Question,
    /// Counted and not answered.
    Count,
    /// The answer to a question.
    Answer,
}

/// The fixed part of a message. In a question the fields behind `sent_ns` are zero.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Header {
    magic: [u8; 8],
    kind: u8,
    /// 1 if the peer's kernel coalesced packets of this run into larger ones.
    pub is_coalesced: u8,
    /// MTU of the peer's interface.
    pub mtu_bytes: U16,
    /// Number of the question within its run.
    pub sequence: U32,
    /// Random number of the run.
    pub run: U64,
    /// The asker's monotonic clock.
    pub sent_ns: U64,
    /// Packets of this run that the peer has received.
    pub packets: U64,
    /// Bytes of UDP payload behind the first arrival.
    pub bytes: U64,
    /// Time from the first arrival to the last.
    pub lasted_ns: U64,
    /// The peer's wall clock, nanoseconds since 1970.
    pub wall_ns: U64,
    /// A port that the peer's kernel chose, as it does for sessions.
    pub session_port: U16,
    reserved: [u8; 6],
}

impl Header {
    /// A question, or a packet that is only counted.
    pub fn new(kind: Kind, run: u64, sequence: u32, sent_ns: u64) -> Header {
        Header {
            magic: MAGIC,
            kind: code(kind),
            sequence: sequence.into(),
            run: run.into(),
            sent_ns: sent_ns.into(),
            ..Header::default()
        }
    }

    /// Reads the fixed part of a datagram. `None` if it is no message of this format.
    pub fn parse(datagram: &[u8]) -> Option<(Header, Kind)> {
        let (header, _) = Header::read_from_prefix(datagram).ok()?;
        let kind = [Kind::Question, Kind::Count, Kind::Answer]
            .into_iter()
            .find(|kind| code(*kind) == header.kind)?;
        (header.magic == MAGIC).then_some((header, kind))
    }

    /// Makes an answer of a question.
    pub fn into_answer(self) -> Header {
        Header { kind: code(Kind::Answer), ..self }
    }
}

const fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Question => 0,
        Kind::Count => 1,
        Kind::Answer => 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for kind in [Kind::Question, Kind::Count, Kind::Answer] {
            let header = Header::new(kind, 7, 8, 9);
            assert_eq!(Header::parse(header.as_bytes()), Some((header, kind)));
        }
    }

    proptest! {
        #[test]
        fn other_datagrams_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Header::parse(&bytes), None);
        }

        #[test]
        fn a_changed_first_byte_is_refused(at in 0..9_usize, by in 3..=u8::MAX) {
            let mut bytes = Header::new(Kind::Question, 1, 2, 3).as_bytes().to_vec();
            bytes[at] ^= by;
            prop_assert_eq!(Header::parse(&bytes), None);
        }
    }
}
