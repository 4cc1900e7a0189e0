//! Probes of paths: packets as long as those of data, which are answered by packets of the same length.
// spec: F-01

use thalweg_core::{Header, JobId};
use thiserror::Error;
use zerocopy::byteorder::little_endian::U32;
use zerocopy::transmute_ref;

use crate::prefix::{Kind, Prefix, PrefixError, header_view};

/// A probe of the path to a node, or its answer. The body is padding, of any bytes: its length is what is probed, and the
/// tag covers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathProbe {
    /// Job whose key seals it.
    pub job: JobId,
    /// Epoch of that key.
    pub epoch: u32,
    /// Number by which its sender knows it. Echoed.
    pub number: u32,
    /// True in the answer.
    pub is_answer: bool,
}

header_view! {
    /// The bytes of [`PathProbe`].
    PathProbeView(probe: PathProbe), PathError, (probe.kind(), probe.job, probe.epoch),
    {
        number: U32 = probe.number,
        reserved: [u8; 36] = [0; 36],
    }
}

/// The reason why the header of a probe cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PathError {
    /// The prefix is not that of the expected packet.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Bits are set that mean nothing in this version.
    #[error("reserved bits of the path probe are set: senders must leave them zero")]
    Reserved,
}

impl PathProbe {
    fn kind(&self) -> Kind {
        if self.is_answer { Kind::PathAnswer } else { Kind::PathProbe }
    }

    /// Reads a header whose prefix was [read](crate::peek) before. Does not look at the tag.
    pub fn decode_checked(prefix: Prefix, header: &Header) -> Result<PathProbe, PathError> {
        let is_answer = prefix.kind() == Kind::PathAnswer;
        prefix.expect(if is_answer { Kind::PathAnswer } else { Kind::PathProbe })?;
        let view: &PathProbeView = transmute_ref!(header);
        if view.reserved != [0; 36] {
            return Err(PathError::Reserved);
        }
        let number = view.number.get();
        Ok(PathProbe { job: prefix.job, epoch: prefix.epoch(), number, is_answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_literal, assert_refused, whole};

    const PROBE: PathProbe = PathProbe {
        job: JobId(0x1122_3344_5566_7788),
        epoch: 1,
        number: 0x0a0b_0c0d,
        is_answer: false,
    };

    const BYTES: Header = [
        0x54, 0x57, 0x22, 4, 1, 0, 0, 0, // magic, versions, kind, epoch, lane
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // job
        0, 0, 0, 0, 0, 0, 0, 0, // tag
        0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0, // number, reserved
        0, 0, 0, 0, 0, 0, 0, 0, // reserved
        0, 0, 0, 0, 0, 0, 0, 0, // reserved
        0, 0, 0, 0, 0, 0, 0, 0, // reserved
        0, 0, 0, 0, 0, 0, 0, 0, // reserved
    ];

    // spec: F-01 machine
    #[test]
    fn literal_bytes_have_their_meaning_and_back() {
        assert_literal((&BYTES, PROBE), PathProbe::decode, PathProbe::to_header);
        let mut answer = BYTES;
        answer[3] = 5;
        let meaning = PathProbe { is_answer: true, ..PROBE };
        assert_literal((&answer, meaning), PathProbe::decode, PathProbe::to_header);
    }

    #[test]
    fn reserved_bits_and_other_kinds_are_refused() {
        assert_refused(&BYTES, whole(28..64), PathProbe::decode, PathError::Reserved);
        for kind in (0..=255).filter(|kind| ![4, 5].contains(kind)) {
            let mut header = BYTES;
            header[3] = kind;
            assert!(PathProbe::decode(&header).is_err(), "kind {kind}");
        }
    }
}
