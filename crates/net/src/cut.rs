//! Segmentation of received GSO batches.

use crate::message::Arrival;

/// Reason why a GSO batch is dropped whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Uncuttable {
    /// It did not fit the buffer.
    Truncated,
    /// The segment length is invalid.
    BadSegment,
}

/// The length to cut by: the sender chose it, so it is checked. Never zero, and at most the length
/// of the arrival, unless that is empty.
pub(crate) fn segment_bytes(arrival: &Arrival, buffer_bytes: usize) -> Result<usize, Uncuttable> {
    if arrival.bytes > buffer_bytes {
        return Err(Uncuttable::Truncated);
    }
    match arrival.segment_bytes {
        None => Ok(arrival.bytes.max(1)),
        Some(claimed) => match usize::try_from(claimed) {
            Ok(claimed) if (1..=arrival.bytes).contains(&claimed) => Ok(claimed),
            _ => Err(Uncuttable::BadSegment),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: usize, segment: Option<i32>) -> Result<usize, Uncuttable> {
        let arrival = Arrival { bytes, segment_bytes: segment, ..Arrival::default() };
        segment_bytes(&arrival, 65_536)
    }

    #[test]
    fn single_datagrams_stay_whole() {
        assert_eq!(cut(1_000, None), Ok(1_000));
        assert_eq!(cut(65_536, None), Ok(65_536));
        assert_eq!(cut(0, None), Ok(1));
    }

    #[test]
    fn honest_lengths_cut() {
        assert_eq!(cut(1_000, Some(1_000)), Ok(1_000));
        assert_eq!(cut(1_000, Some(300)), Ok(300));
        assert_eq!(cut(1_000, Some(1)), Ok(1));
    }

    #[test]
    fn hostile_lengths_do_not() {
        for claimed in [0, -1, i32::MIN, 1_001, i32::MAX] {
            assert_eq!(cut(1_000, Some(claimed)), Err(Uncuttable::BadSegment), "{claimed}");
        }
        assert_eq!(cut(0, Some(0)), Err(Uncuttable::BadSegment));
    }

    #[test]
    fn what_the_buffer_could_not_hold_is_not_read() {
        assert_eq!(cut(65_537, None), Err(Uncuttable::Truncated));
        assert_eq!(cut(usize::MAX, Some(8)), Err(Uncuttable::Truncated));
    }
}
