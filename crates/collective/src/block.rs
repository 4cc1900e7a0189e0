//! Blocks: the values of one message, in single precision.
//!
//! Over flows they are little-endian bytes, with room for a frame behind them from the first hop to the last, so that
//! a message which goes on is not copied. Over deliveries they are a tensor: the buffer that a message arrives in
//! is the one that it is sent on from, and its values are converted where they meet the wire.

use std::ops::Range;
use std::sync::Arc;

use thalweg_core::Bytes;
use thalweg_flow::Payload;
use thalweg_values::{Tensor, float, sum};
use thalweg_wire::frame::SUM_FRAME_BYTES;

use crate::delivery::Contents;

/// Size of a value.
pub(crate) const VALUE_BYTES: u64 = 4;

/// The values of a message.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Block {
    /// The message of a flow.
    Bytes(Payload),
    /// A tensor in single precision. Messages to several nodes share it.
    Tensor(Arc<Tensor>),
}

/// The form of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// For flows.
    Bytes,
    /// For deliveries.
    Tensor,
}

impl Block {
    /// A block with a copy of some values, which may change while the copy is sent.
    pub fn copy(tensor: &Tensor, range: Range<u64>, form: Form) -> Block {
        match form {
            Form::Tensor => Block::Tensor(Arc::new(widened(tensor, range))),
            Form::Bytes if matches!(tensor, Tensor::Length(_)) => {
                Block::Bytes(length(range.end - range.start))
            }
            Form::Bytes => {
                let values = tensor.slice(range);
                let mut bytes =
                    vec![0; values.wide_bytes() as usize + SUM_FRAME_BYTES].into_boxed_slice();
                values.widen_le(&mut bytes);
                Block::Bytes(Payload::Bytes(bytes))
            }
        }
    }

    /// A block without values, with room for a frame.
    pub fn empty(form: Form) -> Block {
        match form {
            Form::Bytes => Block::Bytes(Payload::Bytes(vec![0; SUM_FRAME_BYTES].into())),
            Form::Tensor => Block::Tensor(Arc::new(Vec::new().into())),
        }
    }

    /// Returns whether the values are known, and not only their number.
    pub fn has_values(&self) -> bool {
        match self {
            Block::Bytes(payload) => matches!(payload, Payload::Bytes(_)),
            Block::Tensor(tensor) => !matches!(**tensor, Tensor::Length(_)),
        }
    }

    /// Size of the message, with the frame.
    pub fn bytes(&self) -> Bytes {
        match self {
            Block::Bytes(payload) => payload.bytes(),
            Block::Tensor(tensor) => {
                let frame = if self.has_values() { SUM_FRAME_BYTES as u64 } else { 0 };
                Bytes::new(VALUE_BYTES * tensor.len() + frame)
            }
        }
    }

    /// Returns whether the message is longer than one with this number of values. What a peer has a member keep is
    /// bounded by it, before anything else is known of the message.
    // spec: E-12
    pub fn is_longer_than(&self, values: u64) -> bool {
        let most = values.saturating_mul(VALUE_BYTES).saturating_add(SUM_FRAME_BYTES as u64);
        self.bytes().as_u64() > most
    }

    /// Size of the values.
    pub fn value_bytes(&self, is_framed: bool) -> u64 {
        match self {
            Block::Bytes(payload) => {
                let frame = if is_framed { SUM_FRAME_BYTES as u64 } else { 0 };
                payload.bytes().as_u64().saturating_sub(frame)
            }
            Block::Tensor(tensor) => VALUE_BYTES * tensor.len(),
        }
    }

    /// Returns whether the block can stand for these values. A tensor that is only a length takes real bytes as
    /// well: drivers of real networks send zeros for a length, and no frame.
    pub fn fits(&self, tensor: &Tensor, range: &Range<u64>, is_framed: bool) -> bool {
        self.value_bytes(is_framed) == (range.end - range.start) * VALUE_BYTES
            && (is_framed || matches!(tensor, Tensor::Length(_)))
    }

    /// Adds values to a block that [`fits`](Block::fits) them. What is unknown on one side is unknown in the sum.
    pub fn add_values(&mut self, tensor: &Tensor, range: Range<u64>) {
        let is_known = self.has_values() && !matches!(tensor, Tensor::Length(_));
        match self {
            Block::Bytes(Payload::Bytes(sums)) if is_known => tensor.slice(range).add_le(sums),
            Block::Bytes(payload) => *payload = length(range.end - range.start),
            Block::Tensor(sums) => match Arc::make_mut(sums) {
                Tensor::Values(sums) if is_known => tensor.slice(range).add(sums),
                sums => *sums = Tensor::Length(range.end - range.start),
            },
        }
    }

    /// Adds a block of the same length. What is unknown in one is unknown in the sum.
    pub fn add(&mut self, other: &Block) {
        match (&mut *self, other) {
            (Block::Bytes(Payload::Bytes(sums)), Block::Bytes(Payload::Bytes(values))) => {
                sum::add_float(sums, values);
            }
            (Block::Tensor(sums), Block::Tensor(values)) => {
                match (Arc::make_mut(sums), &**values) {
                    (Tensor::Values(sums), Tensor::Values(values)) => float::add(values, sums),
                    (sums, values) => *sums = Tensor::Length(sums.len().min(values.len())),
                }
            }
            // Of what is only a length, there is no frame.
            _ => *self = Block::Bytes(Payload::Length(self.bytes().min(other.bytes()))),
        }
    }

    /// Writes the block over values that it [`fits`](Block::fits).
    pub fn write(&self, tensor: &mut Tensor, range: Range<u64>) {
        match self {
            Block::Bytes(Payload::Bytes(bytes)) => tensor.slice_mut(range).round_le(bytes),
            Block::Bytes(Payload::Length(_)) => {}
            Block::Tensor(sums) => {
                if let Some(sums) = sums.values() {
                    tensor.slice_mut(range).round(sums);
                }
            }
        }
    }
}

/// A copy of some values in single precision.
pub(crate) fn widened(tensor: &Tensor, range: Range<u64>) -> Tensor {
    if matches!(tensor, Tensor::Length(_)) {
        return Tensor::Length(range.end - range.start);
    }
    let mut wide = vec![0.0; (range.end - range.start) as usize];
    tensor.slice(range).widen(&mut wide);
    wide.into()
}

/// A buffer for a message with values of this many bytes.
pub(crate) fn zeros(bytes: u64, contents: Contents) -> Tensor {
    let values = bytes / VALUE_BYTES;
    match contents {
        Contents::Lengths => Tensor::Length(values),
        Contents::Values => vec![0.0; values as usize].into(),
    }
}

/// The message of a flow with this number of values that nobody reads.
fn length(values: u64) -> Payload {
    Payload::Length(Bytes::new(values * VALUE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: [Form; 2] = [Form::Bytes, Form::Tensor];

    fn block(values: &[f32], form: Form) -> Block {
        Block::copy(&Tensor::from(values.to_vec()), 0..values.len() as u64, form)
    }

    fn unknown(values: u64, form: Form) -> Block {
        Block::copy(&Tensor::Length(values), 0..values, form)
    }

    #[test]
    fn flows_carry_little_endian_bytes_with_room_for_a_frame() {
        let tensor = Tensor::from(vec![9.0, 1.0, -2.5]);
        let mut expected = vec![0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0];
        expected.extend([0; SUM_FRAME_BYTES]);
        let block = Block::copy(&tensor, 1..3, Form::Bytes);
        assert_eq!(block, Block::Bytes(Payload::Bytes(expected.into())));
        assert_eq!(unknown(2, Form::Bytes), Block::Bytes(Payload::Length(Bytes::new(8))));
    }

    #[test]
    fn both_forms_have_the_same_size() {
        let sizes = |form| {
            let block = block(&[1.0, 2.0], form);
            let empty = Block::empty(form);
            (block.bytes(), block.value_bytes(true), unknown(3, form).bytes(), empty.bytes())
        };
        assert_eq!(sizes(Form::Bytes), sizes(Form::Tensor));
    }

    #[test]
    fn sums_are_written_where_they_belong() {
        for form in FORMS {
            let mut tensor = Tensor::from(vec![1.0, 2.0, 3.0, 4.0]);
            let mut sum = block(&[10.0, 20.0], form);
            sum.add_values(&tensor, 1..3);
            assert_eq!(sum, block(&[12.0, 23.0], form));
            sum.add(&block(&[0.5, f32::INFINITY], form));
            sum.write(&mut tensor, 2..4);
            assert_eq!(tensor, Tensor::from(vec![1.0, 2.0, 12.5, f32::INFINITY]));
        }
    }

    #[test]
    fn what_is_unknown_stays_unknown() {
        for form in FORMS {
            let mut sum = block(&[1.0], form);
            sum.add(&unknown(1, form));
            assert_eq!(sum, unknown(1, form));
            let mut sum = block(&[1.0], form);
            sum.add_values(&Tensor::Length(5), 2..3);
            assert_eq!(sum, unknown(1, form));
        }
    }

    #[test]
    fn a_block_fits_by_length_and_kind() {
        for form in FORMS {
            let (values, two) = (Tensor::from(vec![0.0; 4]), block(&[1.0, 2.0], form));
            assert!(two.fits(&values, &(0..2), true));
            assert!(!two.fits(&values, &(0..2), false));
            assert!(!unknown(2, form).fits(&values, &(0..2), false));
            assert!(!two.fits(&values, &(0..1), true));
            assert!(two.fits(&Tensor::Length(4), &(0..2), true));
            assert!(unknown(2, form).fits(&Tensor::Length(4), &(0..2), false));
        }
    }
}
