//! Tensors whose values tell where they belong.

use half::bf16;
use thalweg_deliver::{Lost, Received};
use thalweg_values::Tensor;

/// Kind of numbers in a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    Length,
    Full,
    Halves,
}

/// A tensor of which no value is zero, and neighbours differ, as do tensors of other salts.
pub fn tensor(numbers: Numbers, salt: u32, count: usize) -> Tensor {
    match numbers {
        Numbers::Length => Tensor::Length(count as u64),
        Numbers::Full => {
            let value = |at: usize| (salt * 7 + at as u32 % 1_000_000 + 1) as f32;
            Tensor::Values((0..count).map(value).collect())
        }
        Numbers::Halves => {
            let bits = |at: usize| ((at as u32 * 31 + salt * 977) % 0xfff1) as u16 + 1;
            Tensor::Bf16((0..count).map(|at| bf16::from_bits(bits(at))).collect())
        }
    }
}

/// The bits of each value, and how many bytes one has.
fn bits(tensor: &Tensor) -> (Vec<u32>, usize) {
    match tensor {
        Tensor::Length(_) => (Vec::new(), 4),
        Tensor::Values(values) => (values.iter().map(|value| value.to_bits()).collect(), 4),
        Tensor::F16(values) => (values.iter().map(|half| half.to_bits().into()).collect(), 2),
        Tensor::Bf16(values) => (values.iter().map(|half| half.to_bits().into()).collect(), 2),
    }
}

/// Every value is in its place, or reads as a lost one should. Returns how many bytes were lost.
pub fn check(sent: &Tensor, posted: &Tensor, received: &Received, lost: Lost) -> u64 {
    let ((sent_bits, value_bytes), (posted, _)) = (bits(sent), bits(posted));
    let (found, _) = bits(&received.buffer);
    assert_eq!(found.len(), sent_bits.len());
    for (at, &value) in found.iter().enumerate() {
        let segment = (at * value_bytes / usize::from(received.segment_bytes)) as u32;
        let expected = match (received.arrived.contains(segment), lost) {
            (true, _) => sent_bits[at],
            (false, Lost::ReadsZero) => 0,
            (false, Lost::KeepsValue) => posted[at],
        };
        assert_eq!(value, expected, "value {at} of {:?}", received.name);
    }
    let bytes = sent.len() * value_bytes as u64;
    let segment_bytes = u64::from(received.segment_bytes);
    let lost_bytes = (0..received.arrived.len())
        .filter(|&segment| !received.arrived.contains(segment))
        .map(|segment| (bytes - u64::from(segment) * segment_bytes).min(segment_bytes))
        .sum();
    assert_eq!(received.lost_bytes, lost_bytes);
    lost_bytes
}
