//! The seal of a message of a sum: its operation, or why its sender has stopped.
//!
//! Over flows it stands behind the values, in room that every message has for it, so that a message which
//! goes on is not copied. Over deliveries, where values may be lost, it is the note of the offer: a receiver
//! has it before it gives a buffer. Messages of which only the length is known carry none.
// spec: E-11

use thalweg_core::{Fingerprint, Mismatch, Operation};
use thalweg_deliver::NOTE_BYTES;
use thalweg_flow::Payload;
use thalweg_wire::fingerprint::{
    self, FINGERPRINT_BYTES, MISMATCH_BYTES, decode_mismatch, encode_mismatch,
};

/// Length of a seal.
pub(crate) const SEAL_BYTES: usize = NOTE_BYTES;

/// Neither code is zero: what real networks carry for a message without values is zeros.
const VALUES: u8 = 1;
const STOP: u8 = 2;

/// Length of the code, with the operation's number where there is one. The rest follows.
const CODE_BYTES: usize = 8;

const _: () = assert!(CODE_BYTES + MISMATCH_BYTES == SEAL_BYTES);

/// The operation of a message, or why its sender has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seal {
    /// It has values of this operation of its sender.
    Values(Called),
    /// The sender has stopped, because the operations of these two members differ.
    Stop(Mismatch),
}

/// An operation as a member called it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Called {
    /// The low bits of its number. Where two members have different numbers for the same message, an
    /// operation before it had another number of messages, and a message of that one tells them so.
    pub number: u32,
    pub fingerprint: Fingerprint,
}

impl Called {
    pub fn new(operation: Operation, fingerprint: Fingerprint) -> Called {
        Called { number: operation.0 as u32, fingerprint }
    }

    /// Returns whether both are the same operation.
    pub fn is_same(&self, other: &Called) -> bool {
        self.number == other.number && self.fingerprint.agrees(&other.fingerprint)
    }
}

impl Seal {
    pub fn encode(&self) -> [u8; SEAL_BYTES] {
        let mut encoded = [0; SEAL_BYTES];
        match self {
            Seal::Values(called) => {
                encoded[0] = VALUES;
                encoded[4..CODE_BYTES].copy_from_slice(&called.number.to_le_bytes());
                let place = &mut encoded[CODE_BYTES..][..FINGERPRINT_BYTES];
                place.copy_from_slice(&fingerprint::encode(&called.fingerprint));
            }
            Seal::Stop(mismatch) => {
                encoded[0] = STOP;
                encoded[CODE_BYTES..].copy_from_slice(&encode_mismatch(mismatch));
            }
        }
        encoded
    }

    /// Reads a seal. `None` if no member writes that.
    pub fn decode(encoded: &[u8; SEAL_BYTES]) -> Option<Seal> {
        let (code, rest) = encoded.split_first_chunk::<CODE_BYTES>()?;
        let seal = match code[0] {
            VALUES => Seal::Values(Called {
                number: u32::from_le_bytes(*code.last_chunk()?),
                fingerprint: fingerprint::decode(rest.first_chunk()?)?,
            }),
            STOP => Seal::Stop(decode_mismatch(rest.first_chunk()?)?),
            _ => return None,
        };
        (seal.encode() == *encoded).then_some(seal)
    }

    /// The seal at the end of a message.
    pub fn of_payload(payload: &Payload) -> Option<Seal> {
        let Payload::Bytes(bytes) = payload else { return None };
        Seal::decode(bytes.last_chunk()?)
    }

    /// Writes the seal into the room at the end of a message.
    pub fn write(&self, payload: &mut Payload) {
        if let Payload::Bytes(bytes) = payload
            && let Some(room) = bytes.last_chunk_mut()
        {
            *room = self.encode();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_core::Element;

    use super::*;

    fn seals() -> [Seal; 2] {
        let [one, other] = [704, 1_056].map(|values| Fingerprint::of_sum(Element::F32, values));
        let mismatch = Fingerprint::compare((3, &one), (1, &other)).expect_err("they differ");
        [Seal::Values(Called::new(Operation(7), one)), Seal::Stop(mismatch)]
    }

    #[test]
    fn a_seal_stands_behind_the_values() {
        for seal in seals() {
            let mut payload = Payload::Bytes(vec![7; 4 + SEAL_BYTES].into());
            seal.write(&mut payload);
            assert_eq!(Seal::of_payload(&payload), Some(seal));
            let Payload::Bytes(bytes) = payload else { panic!("it was bytes") };
            assert_eq!(bytes[..4], [7; 4]);
        }
        assert_eq!(Seal::of_payload(&Payload::Bytes(vec![0; SEAL_BYTES].into())), None);
        assert_eq!(Seal::of_payload(&Payload::Bytes(vec![1; SEAL_BYTES - 1].into())), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_as_what_we_write(
            seal in prop::sample::select(seals().to_vec()),
            changes in prop::collection::vec((0..SEAL_BYTES, any::<u8>()), 0..4),
        ) {
            let mut encoded = seal.encode();
            for (place, value) in changes {
                encoded[place] = value;
            }
            if let Some(read) = Seal::decode(&encoded) {
                prop_assert_eq!(read.encode(), encoded);
            }
        }
    }
}
