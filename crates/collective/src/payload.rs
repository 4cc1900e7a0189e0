//! Values in messages: 32-bit floats, little-endian, or only their length.
//!
//! Behind the values every message has room for a seal, from the first hop to the last.

use std::ops::Range;

use thalweg_core::Bytes;
use thalweg_flow::Payload;
use thalweg_values::{Tensor, float, sum};

use crate::delivery::Contents;
use crate::seal::SEAL_BYTES;

/// Size of a value.
pub(crate) const VALUE_BYTES: u64 = 4;

/// What a message with a copy of these values consists of.
pub(crate) fn cut(tensor: &Tensor, range: Range<u64>) -> Payload {
    match tensor {
        Tensor::Length(_) => length((range.end - range.start) * VALUE_BYTES),
        // In messages sums are in single precision, so that they are rounded once.
        values => {
            let values = values.slice(range);
            let bytes = values.wide_bytes() as usize + SEAL_BYTES;
            let mut bytes = vec![0; bytes].into_boxed_slice();
            values.widen_le(&mut bytes);
            Payload::Bytes(bytes)
        }
    }
}

/// Whether a message can stand for these values. A tensor that is only a length takes real bytes
/// too: drivers of real networks send zeros for a length, and no seal.
pub(crate) fn fits(
    tensor: &Tensor,
    range: &Range<u64>,
    payload: &Payload,
    is_sealed: bool,
) -> bool {
    value_bytes(payload, is_sealed) == (range.end - range.start) * VALUE_BYTES
        && (is_sealed || matches!(tensor, Tensor::Length(_)))
}

/// Length of the values of a message.
pub(crate) fn value_bytes(payload: &Payload, is_sealed: bool) -> u64 {
    let room = if is_sealed { SEAL_BYTES as u64 } else { 0 };
    payload.bytes().as_u64().saturating_sub(room)
}

/// A message without values, with room for a seal.
pub(crate) fn empty() -> Payload {
    Payload::Bytes(vec![0; SEAL_BYTES].into())
}

/// Adds values to a message that [`fits`] them.
pub(crate) fn add_values(payload: &mut Payload, tensor: &Tensor, range: Range<u64>) {
    let unknown = length((range.end - range.start) * VALUE_BYTES);
    match (&mut *payload, tensor) {
        (Payload::Bytes(_), Tensor::Length(_)) | (Payload::Length(_), _) => *payload = unknown,
        (Payload::Bytes(sums), values) => values.slice(range).add_le(sums),
    }
}

/// Adds a message to one of the same length. What is unknown in one is unknown in the sum.
pub(crate) fn add(payload: &mut Payload, other: &Payload) {
    match (&mut *payload, other) {
        (Payload::Bytes(sums), Payload::Bytes(values)) => {
            sum::add_float(sums, values);
        }
        // Of what is only a length, there is no seal.
        _ => *payload = Payload::Length(payload.bytes().min(other.bytes())),
    }
}

/// Writes a message that [`fits`] over the values.
pub(crate) fn write(tensor: &mut Tensor, range: Range<u64>, payload: &Payload) {
    if let Payload::Bytes(bytes) = payload {
        tensor.slice_mut(range).round_le(bytes);
    }
}

/// The values of a message that has room for a seal.
pub(crate) fn into_tensor(payload: Payload) -> Tensor {
    match payload {
        Payload::Length(bytes) => Tensor::Length(bytes.as_u64() / VALUE_BYTES),
        Payload::Bytes(bytes) => {
            let mut values = vec![0.0; (bytes.len() - SEAL_BYTES) / VALUE_BYTES as usize];
            float::read_le(&bytes, &mut values);
            values.into()
        }
    }
}

/// The message of all values of a tensor.
pub(crate) fn of_tensor(tensor: Tensor) -> Payload {
    let values = tensor.len();
    cut(&tensor, 0..values)
}

/// A buffer for a message of so many bytes.
pub(crate) fn zeros(bytes: u64, contents: Contents) -> Tensor {
    let values = bytes / VALUE_BYTES;
    match contents {
        Contents::Lengths => Tensor::Length(values),
        Contents::Values => vec![0.0; values as usize].into(),
    }
}

/// A message of so many bytes that nobody reads.
fn length(bytes: u64) -> Payload {
    Payload::Length(Bytes::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Payload {
        cut(&Tensor::from(values.to_vec()), 0..values.len() as u64)
    }

    #[test]
    fn values_travel_little_endian() {
        let tensor = Tensor::from(vec![9.0, 1.0, -2.5]);
        let mut expected = vec![0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0];
        expected.extend([0; SEAL_BYTES]);
        assert_eq!(cut(&tensor, 1..3), Payload::Bytes(expected.into()));
        assert_eq!(into_tensor(cut(&tensor, 1..3)), Tensor::from(vec![1.0, -2.5]));
        assert_eq!(cut(&Tensor::Length(3), 1..3), length(8));
    }

    #[test]
    fn sums_are_written_where_they_belong() {
        let mut tensor = Tensor::from(vec![1.0, 2.0, 3.0, 4.0]);
        let mut payload = bytes(&[10.0, 20.0]);
        add_values(&mut payload, &tensor, 1..3);
        assert_eq!(payload, bytes(&[12.0, 23.0]));
        add(&mut payload, &bytes(&[0.5, f32::INFINITY]));
        write(&mut tensor, 2..4, &payload);
        assert_eq!(tensor, Tensor::from(vec![1.0, 2.0, 12.5, f32::INFINITY]));
    }

    #[test]
    fn what_is_unknown_stays_unknown() {
        let mut payload = bytes(&[1.0]);
        add(&mut payload, &length(4));
        assert_eq!(payload, length(4));
        let mut payload = bytes(&[1.0]);
        add_values(&mut payload, &Tensor::Length(5), 2..3);
        assert_eq!(payload, length(4));
    }

    #[test]
    fn a_message_fits_by_length_and_kind() {
        let values = Tensor::from(vec![0.0; 4]);
        assert!(fits(&values, &(0..2), &bytes(&[1.0, 2.0]), true));
        assert!(!fits(&values, &(0..2), &bytes(&[1.0, 2.0]), false));
        assert!(!fits(&values, &(0..2), &length(8), false));
        assert!(!fits(&values, &(0..1), &bytes(&[1.0, 2.0]), true));
        assert!(fits(&Tensor::Length(4), &(0..2), &bytes(&[1.0, 2.0]), true));
        assert!(fits(&Tensor::Length(4), &(0..2), &length(8), false));
    }
}
