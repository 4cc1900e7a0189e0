//! Fingerprints of operations.
//!
//! A fingerprint travels in the bodies of messages, once a message, and in memory that processes share. It
//! is three words, so that both can hold it.
// spec: E-11

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use thalweg_core::{
    Element, Fingerprint, Operation, OperationKind, OperationPolicy, Reduction, SumPath,
};
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute, transmute_ref};

use crate::deliver::LOSS_UNIT;

/// Length of a fingerprint.
pub const FINGERPRINT_BYTES: usize = size_of::<FingerprintView>();

/// Stands for a code that is not there.
const NONE: u8 = u8::MAX;
/// Stands for a length or a root that is not there.
const NO_LENGTH: u64 = u64::MAX;
const NO_ROOT: u32 = u32::MAX;

/// The bytes of a [`Fingerprint`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FingerprintView {
    /// Place of [`Fingerprint::kind`] in [`OperationKind::ALL`].
    pub kind: u8,
    /// Place of [`Fingerprint::element`] in [`Element::ALL`]; 255 if it is unknown.
    pub element: u8,
    /// Place of [`Fingerprint::reduction`] in [`Reduction::ALL`]; 255 if the operation has no reduction.
    pub reduction: u8,
    /// Place of the path in [`SumPath::ALL`].
    pub path: u8,
    /// [`Fingerprint::root`]; all bits are set if the operation has no root.
    pub root: U32,
    /// [`Fingerprint::bytes`]; all bits are set if the length is unknown.
    pub bytes: U64,
    /// The largest loss in millionths.
    pub loss: U32,
    /// [`Fingerprint::parts`].
    pub parts: U32,
}

/// Why a fingerprint cannot be read. The sender is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FingerprintError {
    /// A code that this version does not have.
    #[error("no fingerprint has the {field} {code}")]
    Code {
        /// Name of the field.
        field: &'static str,
        /// Code that was read.
        code: u8,
    },
    /// A reduction or a root where the operation has none, or none where it has one.
    #[error("the kind of the operation contradicts its reduction or its root")]
    Kind,
    /// A loss of everything or more.
    #[error("a loss of {0} millionths: it must be below a million")]
    Loss(u32),
}

/// Returns the bytes of a fingerprint.
pub fn encode(fingerprint: &Fingerprint) -> [u8; FINGERPRINT_BYTES] {
    transmute!(FingerprintView::new(fingerprint))
}

/// A digest of an operation for headers that have no room for its fingerprint: the lower half of SipHash-2-4 with a
/// key of zeros, over the encoded fingerprint, the number of the operation and the number of its first fragment. It is
/// never 0. It tells mistakes apart; it does not withstand an attacker.
///
/// After two ranks have differed, fragments with the same number may belong to operations that look alike. Either the
/// same operation begins at different fragments then, or different operations begin at the same fragment: both
/// numbers are needed to tell them apart.
pub fn digest(fingerprint: &Fingerprint, operation: Operation, first_fragment: u64) -> u32 {
    let mut hasher = SipHasher24::new_with_key(&[0; 16]);
    hasher.write(&encode(fingerprint));
    hasher.write(&operation.0.to_le_bytes());
    hasher.write(&first_fragment.to_le_bytes());
    (hasher.finish() as u32).max(1)
}

/// Reads a fingerprint.
pub fn decode(encoded: &[u8; FINGERPRINT_BYTES]) -> Result<Fingerprint, FingerprintError> {
    let view: &FingerprintView = transmute_ref!(encoded);
    view.meaning()
}

impl FingerprintView {
    pub(crate) fn new(fingerprint: &Fingerprint) -> FingerprintView {
        let Fingerprint { kind, element, bytes, parts, reduction, root, policy } = *fingerprint;
        FingerprintView {
            kind: code(&OperationKind::ALL, kind),
            element: element.map_or(NONE, |element| code(&Element::ALL, element)),
            reduction: reduction.map_or(NONE, |reduction| code(&Reduction::ALL, reduction)),
            path: code(&SumPath::ALL, policy.path),
            root: U32::new(root.unwrap_or(NO_ROOT)),
            bytes: U64::new(bytes.unwrap_or(NO_LENGTH)),
            loss: U32::new(policy.loss_millionths),
            parts: U32::new(parts),
        }
    }

    pub(crate) fn meaning(&self) -> Result<Fingerprint, FingerprintError> {
        let (root, bytes, loss_millionths) = (self.root.get(), self.bytes.get(), self.loss.get());
        let kind = read(&OperationKind::ALL, self.kind, "kind")?;
        let path = read(&SumPath::ALL, self.path, "path")?;
        let fingerprint = Fingerprint {
            kind,
            element: optional(&Element::ALL, self.element, "element")?,
            bytes: (bytes != NO_LENGTH).then_some(bytes),
            parts: self.parts.get(),
            reduction: optional(&Reduction::ALL, self.reduction, "reduction")?,
            root: (root != NO_ROOT).then_some(root),
            policy: OperationPolicy { path, loss_millionths },
        };
        let Fingerprint { reduction, root, .. } = fingerprint;
        if reduction.is_some() != kind.is_reduction() || root.is_some() != kind.has_root() {
            return Err(FingerprintError::Kind);
        }
        if loss_millionths >= LOSS_UNIT {
            return Err(FingerprintError::Loss(loss_millionths));
        }
        Ok(fingerprint)
    }
}

/// The place of a value in a table that has it and is shorter than a byte can count.
fn code<T: PartialEq>(table: &[T], value: T) -> u8 {
    let place = table.iter().position(|entry| *entry == value);
    place.expect("the table has every value") as u8
}

fn read<T: Copy>(table: &[T], code: u8, field: &'static str) -> Result<T, FingerprintError> {
    table.get(usize::from(code)).copied().ok_or(FingerprintError::Code { field, code })
}

fn optional<T: Copy>(
    table: &[T],
    code: u8,
    field: &'static str,
) -> Result<Option<T>, FingerprintError> {
    if code == NONE { Ok(None) } else { read(table, code, field).map(Some) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_fingerprint() -> impl Strategy<Value = Fingerprint> {
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
        let seventh = Operation(7);
        assert_eq!(digest(&sum(352), seventh, 1_000), 0xee1c_312c);
        let mean = Fingerprint { reduction: Some(Reduction::Mean), ..sum(352) };
        let lengths = (0..10_000).map(|values| digest(&sum(values), seventh, 1_000));
        let places = (0..1_000).map(|first| digest(&sum(352), seventh, first));
        let numbers = (8..1_008).map(|number| digest(&sum(352), Operation(number), 1_000));
        let means = [digest(&mean, seventh, 1_000)];
        let digests: BTreeSet<u32> = lengths.chain(places).chain(numbers).chain(means).collect();
        assert_eq!(digests.len(), 12_001);
        assert!(!digests.contains(&0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        // spec: E-11 machine
        #[test]
        fn every_fingerprint_can_be_read_again(fingerprint in any_fingerprint()) {
            prop_assert_eq!(decode(&encode(&fingerprint)), Ok(fingerprint));
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
                if let Ok(read) = decode(&bytes) {
                    prop_assert_eq!(encode(&read), bytes);
                }
            }
        }
    }
}
