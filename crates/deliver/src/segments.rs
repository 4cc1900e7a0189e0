//! Division of a tensor into segments.

use std::ops::Range;

use thalweg_core::Bytes;
use thalweg_values::Tensor;
use thalweg_wire::deliver::BITMAP_BITS;

/// The least segment that a receiver keeps account of: its bitmap is then at most a 512th of the buffer.
pub(crate) const LEAST_SEGMENT_BYTES: u16 = 64;

/// Length of a trailer that any tensor may have.
const LEAST_TRAILER_LIMIT: u64 = 1_024;

/// Most bytes of the trailer of a tensor: the memory that it takes follows from that of the buffer.
pub const fn trailer_limit(tensor_bytes: u64) -> u64 {
    let limit = tensor_bytes.saturating_add(LEAST_TRAILER_LIMIT);
    if limit < u32::MAX as u64 { limit } else { u32::MAX as u64 }
}

/// A tensor of a length in segments of a length, and its trailer behind it; only the last of each may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segments {
    tensor_bytes: u64,
    trailer_bytes: u32,
    segment_bytes: u16,
    /// Segments of the tensor.
    tensor_count: u32,
    /// All segments.
    count: u32,
}

impl Segments {
    /// `None` where segments are too small, would cut values in two, or are too many to be numbered, and where the
    /// trailer is too long.
    pub fn new(tensor_bytes: Bytes, trailer_bytes: u32, segment_bytes: u16) -> Option<Segments> {
        let tensor_bytes = tensor_bytes.as_u64();
        let is_short = u64::from(trailer_bytes) <= trailer_limit(tensor_bytes);
        let is_whole = segment_bytes.is_multiple_of(4);
        if segment_bytes < LEAST_SEGMENT_BYTES || !is_whole || !is_short {
            return None;
        }
        let count = |bytes: u64| u32::try_from(bytes.div_ceil(u64::from(segment_bytes))).ok();
        let tensor_count = count(tensor_bytes)?;
        let count = tensor_count.checked_add(count(trailer_bytes.into())?)?;
        Some(Segments { tensor_bytes, trailer_bytes, segment_bytes, tensor_count, count })
    }

    /// Number of segments of the tensor and its trailer.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of segments of the tensor. Those of the trailer follow.
    pub fn tensor_count(&self) -> u32 {
        self.tensor_count
    }

    pub fn trailer_bytes(&self) -> u32 {
        self.trailer_bytes
    }

    /// The bytes of the trailer that a segment has. `None` if it is one of the tensor.
    #[inline]
    pub fn trailer(&self, index: u32) -> Option<Range<usize>> {
        let place = index.checked_sub(self.tensor_count)?;
        let from = place as usize * usize::from(self.segment_bytes);
        Some(from..from + usize::from(self.bytes(index)))
    }

    pub fn tensor_bytes(&self) -> u64 {
        self.tensor_bytes
    }

    pub fn segment_bytes(&self) -> u16 {
        self.segment_bytes
    }

    /// Start of a segment.
    #[inline]
    pub fn offset(&self, index: u32) -> u64 {
        u64::from(index) * u64::from(self.segment_bytes)
    }

    /// Length of a segment.
    #[inline]
    pub fn bytes(&self, index: u32) -> u16 {
        let left = match index.checked_sub(self.tensor_count) {
            None => self.tensor_bytes.saturating_sub(self.offset(index)),
            Some(place) => u64::from(self.trailer_bytes).saturating_sub(self.offset(place)),
        };
        left.min(u64::from(self.segment_bytes)) as u16
    }

    /// The values of a segment of the tensor. Segments do not cut values in two.
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

    /// Index of the segment that begins at `offset` and has `bytes`, if there is one.
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
        let segments = Segments::new(Bytes::new(300), 0, 128).unwrap();
        assert_eq!(segments.count(), 3);
        assert_eq!([0, 1, 2].map(|index| segments.bytes(index)), [128, 128, 44]);
        assert_eq!(segments.index(Bytes::new(256), 44), Some(2));
        for (offset, bytes) in [(256, 40), (128, 44), (4, 128), (384, 128), (u64::MAX, 128)] {
            assert_eq!(segments.index(Bytes::new(offset), bytes), None, "{bytes} at {offset}");
        }
        assert_eq!(Segments::new(Bytes::ZERO, 0, 128).map(|none| none.count()), Some(0));
    }

    #[test]
    fn a_trailer_has_segments_of_its_own() {
        let segments = Segments::new(Bytes::new(300), 130, 128).unwrap();
        assert_eq!((segments.tensor_count(), segments.count()), (3, 5));
        assert_eq!([2, 3, 4].map(|index| segments.bytes(index)), [44, 128, 2]);
        let trailer = [2, 3, 4].map(|index| segments.trailer(index));
        assert_eq!(trailer, [None, Some(0..128), Some(128..130)]);
        assert_eq!(segments.index(Bytes::new(4 * 128), 2), Some(4));
        assert_eq!(segments.index(Bytes::new(300), 128), None);
    }

    #[test]
    fn bitmaps_speak_of_windows() {
        let segments = Segments::new(Bytes::new(10_000 * 64), 0, 64).unwrap();
        assert_eq!(segments.window(0), Some(0..8_192));
        assert_eq!(segments.window(8_192), Some(8_192..10_000));
        assert_eq!([64, 8_191, 16_384].map(|first| segments.window(first)), [None, None, None]);
    }

    #[test]
    fn what_cannot_be_kept_account_of_is_refused() {
        for segment_bytes in [0, 60, 66, 1_001] {
            assert_eq!(Segments::new(Bytes::new(300), 0, segment_bytes), None);
        }
        assert_eq!(Segments::new(Bytes::new(u64::MAX), 0, 1_408), None);
        let trailing = |bytes| Segments::new(Bytes::new(300), bytes, 128).map(|own| own.count());
        assert_eq!([1_324, 1_325].map(trailing), [Some(3 + 11), None]);
    }
}
