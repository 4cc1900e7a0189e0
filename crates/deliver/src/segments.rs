//! How a tensor is cut.

use std::ops::Range;

use thalweg_core::Bytes;
use thalweg_values::Tensor;
use thalweg_wire::deliver::BITMAP_BITS;

/// The least segment that a receiver keeps account of: its bitmap is then at most a 512th of the buffer.
pub(crate) const LEAST_SEGMENT_BYTES: u16 = 64;

/// A tensor of a length in segments of a length; only the last may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segments {
    tensor_bytes: u64,
    segment_bytes: u16,
    count: u32,
}

impl Segments {
    /// `None` where segments are too small, would cut values in two, or are too many to be numbered.
    pub fn new(tensor_bytes: Bytes, segment_bytes: u16) -> Option<Segments> {
        if segment_bytes < LEAST_SEGMENT_BYTES || !segment_bytes.is_multiple_of(4) {
            return None;
        }
        let tensor_bytes = tensor_bytes.as_u64();
        let count = u32::try_from(tensor_bytes.div_ceil(u64::from(segment_bytes))).ok()?;
        Some(Segments { tensor_bytes, segment_bytes, count })
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes
    }

    pub fn segment_bytes(&self) -> u16 {
        self.segment_bytes
    }

    /// Where a segment begins.
    #[inline]
    pub fn offset(&self, index: u32) -> u64 {
        u64::from(index) * u64::from(self.segment_bytes)
    }

    /// How long it is.
    #[inline]
    pub fn bytes(&self, index: u32) -> u16 {
        let left = self.tensor_bytes.saturating_sub(self.offset(index));
        left.min(u64::from(self.segment_bytes)) as u16
    }

    /// The values of a segment. Segments do not cut values in two.
    #[inline]
    pub fn values(&self, index: u32, value_bytes: u64) -> Range<u64> {
        let from = self.offset(index) / value_bytes;
        from..from + u64::from(self.bytes(index)) / value_bytes
    }

    /// The segments that a bitmap from `first` on speaks of. `None` where none begins.
    pub fn window(&self, first: u32) -> Option<Range<u32>> {
        let begins = first.is_multiple_of(BITMAP_BITS) && first < self.count;
        begins.then(|| first..first.saturating_add(BITMAP_BITS).min(self.count))
    }

    /// Which segment begins at `offset` and has `bytes`, if there is one.
    #[inline]
    pub fn index(&self, offset: Bytes, bytes: u16) -> Option<u32> {
        let segment = u64::from(self.segment_bytes);
        let index = offset.as_u64() / segment;
        let is_one = offset.as_u64().is_multiple_of(segment) && index < u64::from(self.count);
        (is_one && self.bytes(index as u32) == bytes).then_some(index as u32)
    }
}

/// Size of one value on the wire.
pub(crate) const fn value_bytes(tensor: &Tensor) -> u64 {
    tensor.element().bytes() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_segment_is_shorter() {
        let segments = Segments::new(Bytes::new(300), 128).unwrap();
        assert_eq!(segments.count(), 3);
        assert_eq!([0, 1, 2].map(|index| segments.bytes(index)), [128, 128, 44]);
        assert_eq!(segments.index(Bytes::new(256), 44), Some(2));
        for (offset, bytes) in [(256, 40), (128, 44), (4, 128), (384, 128), (u64::MAX, 128)] {
            assert_eq!(segments.index(Bytes::new(offset), bytes), None, "{bytes} at {offset}");
        }
        assert_eq!(Segments::new(Bytes::ZERO, 128).map(|none| none.count()), Some(0));
    }

    #[test]
    fn bitmaps_speak_of_windows() {
        let segments = Segments::new(Bytes::new(10_000 * 64), 64).unwrap();
        assert_eq!(segments.window(0), Some(0..8_192));
        assert_eq!(segments.window(8_192), Some(8_192..10_000));
        assert_eq!([64, 8_191, 16_384].map(|first| segments.window(first)), [None, None, None]);
    }

    #[test]
    fn what_cannot_be_kept_account_of_is_refused() {
        for segment_bytes in [0, 60, 66, 1_001] {
            assert_eq!(Segments::new(Bytes::new(300), segment_bytes), None);
        }
        assert_eq!(Segments::new(Bytes::new(u64::MAX), 1_408), None);
    }
}
