//! Fingerprints of operations, and of two that differ.
//!
//! A fingerprint travels in the bodies of messages, once a message, and in memory that processes share. It
//! is three words, so that both can hold it.
// spec: E-11

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use thalweg_core::{
    Element, Fingerprint, Mismatch, OperationKind, OperationPolicy, Reduction, SumPath,
};

use crate::deliver::LOSS_UNIT;

/// Length of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 24;

/// Length of the fingerprints of two ranks, with the ranks.
pub const MISMATCH_BYTES: usize = 8 + 2 * FINGERPRINT_BYTES;

/// Stands for a code that is not there.
const NONE: u8 = u8::MAX;
/// Stands for a length or a root that is not there.
const NO_LENGTH: u64 = u64::MAX;
const NO_ROOT: u32 = u32::MAX;

/// Bytes 0 to 3: codes of kind, element, reduction and path; 4 to 7: root; 8 to 15: length in bytes; 16 to
/// 19: loss in millionths; 20 to 23: digest of parts.
pub fn encode(fingerprint: &Fingerprint) -> [u8; FINGERPRINT_BYTES] {
    let Fingerprint { kind, element, bytes, parts, reduction, root, policy } = *fingerprint;
    let mut encoded = [0; FINGERPRINT_BYTES];
    encoded[0] = code(&OperationKind::ALL, kind);
    encoded[1] = element.map_or(NONE, |element| code(&Element::ALL, element));
    encoded[2] = reduction.map_or(NONE, |reduction| code(&Reduction::ALL, reduction));
    encoded[3] = code(&SumPath::ALL, policy.path);
    encoded[4..8].copy_from_slice(&root.unwrap_or(NO_ROOT).to_le_bytes());
    encoded[8..16].copy_from_slice(&bytes.unwrap_or(NO_LENGTH).to_le_bytes());
    encoded[16..20].copy_from_slice(&policy.loss_millionths.to_le_bytes());
    encoded[20..24].copy_from_slice(&parts.to_le_bytes());
    encoded
}

/// A digest of an operation for headers that have no room for its fingerprint: the lower half of SipHash-2-4 with a
/// key of zeros, over the encoded fingerprint and the number of the operation's first fragment. It is never 0. It
/// tells mistakes apart; it withstands nobody who means harm.
///
/// After two ranks have differed, their fragments may have the same numbers and belong to different operations
/// that look alike. The first fragment tells those apart.
pub fn digest(fingerprint: &Fingerprint, first_fragment: u64) -> u32 {
    let mut hasher = SipHasher24::new_with_key(&[0; 16]);
    hasher.write(&encode(fingerprint));
    hasher.write(&first_fragment.to_le_bytes());
    (hasher.finish() as u32).max(1)
}

/// Reads a fingerprint. `None` if no rank writes that.
pub fn decode(encoded: &[u8; FINGERPRINT_BYTES]) -> Option<Fingerprint> {
    let (words, _) = encoded.as_chunks::<4>();
    let [kind, element, reduction, path] = words[0];
    let root = u32::from_le_bytes(words[1]);
    let bytes =
        u64::from(u32::from_le_bytes(words[2])) | u64::from(u32::from_le_bytes(words[3])) << 32;
    let loss_millionths = u32::from_le_bytes(words[4]);
    let fingerprint = Fingerprint {
        kind: *OperationKind::ALL.get(usize::from(kind))?,
        element: optional(&Element::ALL, element)?,
        bytes: (bytes != NO_LENGTH).then_some(bytes),
        parts: u32::from_le_bytes(words[5]),
        reduction: optional(&Reduction::ALL, reduction)?,
        root: (root != NO_ROOT).then_some(root),
        policy: OperationPolicy { path: *SumPath::ALL.get(usize::from(path))?, loss_millionths },
    };
    let Fingerprint { kind, reduction, root, .. } = fingerprint;
    let fits = reduction.is_some() == kind.is_reduction()
        && root.is_some() == kind.has_root()
        && loss_millionths < LOSS_UNIT;
    fits.then_some(fingerprint)
}

/// Both ranks, then both fingerprints.
pub fn encode_mismatch(mismatch: &Mismatch) -> [u8; MISMATCH_BYTES] {
    let Mismatch { one, other } = mismatch;
    let mut encoded = [0; MISMATCH_BYTES];
    encoded[..4].copy_from_slice(&one.0.to_le_bytes());
    encoded[4..8].copy_from_slice(&other.0.to_le_bytes());
    encoded[8..8 + FINGERPRINT_BYTES].copy_from_slice(&encode(&one.1));
    encoded[8 + FINGERPRINT_BYTES..].copy_from_slice(&encode(&other.1));
    encoded
}

/// Reads the fingerprints of two ranks. `None` if no rank writes that: also where they agree.
pub fn decode_mismatch(encoded: &[u8; MISMATCH_BYTES]) -> Option<Mismatch> {
    let (ranks, fingerprints) = encoded.split_first_chunk::<8>()?;
    let (ranks, _) = ranks.as_chunks::<4>();
    let (fingerprints, _) = fingerprints.as_chunks::<FINGERPRINT_BYTES>();
    let [one, other] = [0, 1].map(|at| u32::from_le_bytes(ranks[at]));
    let [its, theirs] = [0, 1].map(|at| decode(&fingerprints[at]));
    let mismatch = Fingerprint::compare((one, &its?), (other, &theirs?)).err()?;
    (one < other).then_some(mismatch)
}

/// The place of a value in a table that has it and is shorter than a byte can count.
fn code<T: PartialEq>(table: &[T], value: T) -> u8 {
    let place = table.iter().position(|entry| *entry == value);
    place.expect("the table has every value") as u8
}

/// `None` if it is no code.
fn optional<T: Copy>(table: &[T], code: u8) -> Option<Option<T>> {
    if code == NONE { Some(None) } else { table.get(usize::from(code)).copied().map(Some) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn any_fingerprint() -> impl Strategy<Value = Fingerprint> {
        let kind = prop::sample::select(OperationKind::ALL.to_vec());
        let element = prop::option::of(prop::sample::select(Element::ALL.to_vec()));
        let reduction = prop::sample::select(Reduction::ALL.to_vec());
        let path = prop::sample::select(SumPath::ALL.to_vec());
        let root = 0..NO_ROOT;
        let bytes = prop::option::of(0..NO_LENGTH);
        (kind, element, reduction, path, root, bytes, 0..LOSS_UNIT, any::<u32>()).prop_map(
            |(kind, element, reduction, path, root, bytes, loss_millionths, parts)| Fingerprint {
                kind,
                element,
                bytes,
                parts,
                reduction: kind.is_reduction().then_some(reduction),
                root: kind.has_root().then_some(root),
                policy: OperationPolicy { path, loss_millionths },
            },
        )
    }

    // spec: E-11 machine
    #[test]
    fn digests_tell_operations_apart() {
        let sum = |values| Fingerprint::of_sum(Element::F32, values);
        // From a separate implementation of SipHash: ranks of different releases have to agree.
        assert_eq!(digest(&sum(352), 1_000), 0x6c36_cc19);
        let mean = Fingerprint { reduction: Some(Reduction::Mean), ..sum(352) };
        let lengths = (0..10_000).map(|values| digest(&sum(values), 1_000));
        let places = (0..1_000).map(|first| digest(&sum(352), first));
        let digests: BTreeSet<u32> = lengths.chain(places).chain([digest(&mean, 1_000)]).collect();
        assert_eq!(digests.len(), 11_001);
        assert!(!digests.contains(&0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        // spec: E-11 machine
        #[test]
        fn every_fingerprint_can_be_read_again(fingerprint in any_fingerprint()) {
            prop_assert_eq!(decode(&encode(&fingerprint)), Some(fingerprint));
        }

        // spec: E-11 machine
        #[test]
        fn any_bytes_are_refused_or_read_as_what_we_write(
            fingerprint in any_fingerprint(),
            changes in prop::collection::vec((0..FINGERPRINT_BYTES, any::<u8>()), 0..8),
            noise in any::<[u8; FINGERPRINT_BYTES]>(),
        ) {
            let mut changed = encode(&fingerprint);
            for (place, value) in changes {
                changed[place] = value;
            }
            for bytes in [changed, noise] {
                if let Some(read) = decode(&bytes) {
                    prop_assert_eq!(encode(&read), bytes);
                }
            }
        }

        // spec: E-11 machine
        #[test]
        fn mismatches_are_read_where_two_differ(
            one in any_fingerprint(),
            other in any_fingerprint(),
            ranks in any::<[u32; 2]>(),
            place in 0..MISMATCH_BYTES,
            value in any::<u8>(),
        ) {
            prop_assume!(ranks[0] != ranks[1]);
            let Err(mismatch) = Fingerprint::compare((ranks[0], &one), (ranks[1], &other)) else {
                return Ok(());
            };
            let mut encoded = encode_mismatch(&mismatch);
            prop_assert_eq!(decode_mismatch(&encoded), Some(mismatch));
            encoded[place] = value;
            if let Some(read) = decode_mismatch(&encoded) {
                prop_assert_eq!(encode_mismatch(&read), encoded);
            }
        }
    }
}
