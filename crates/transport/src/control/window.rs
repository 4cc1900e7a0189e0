//! A window with a slow-start threshold.

use thalweg_core::Bytes;

use super::{Acked, Extent};

/// Least window after a reduction: with fewer than two packets in flight, every acknowledgement that is late
/// stops the flow.
const FLOOR_PACKETS: f64 = 2.0;

/// A window with a slow-start threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub bytes: f64,
    /// Below it the window doubles every round trip.
    threshold: f64,
    pub segment: f64,
    /// Marks on transmissions below this number were answered already, and until a later one comes
    /// back, the last reduction has not shown what it did.
    cut_end: u64,
}

impl Window {
    pub fn new(segment: Bytes, initial_packets: u32) -> Window {
        let segment = segment.as_u64() as f64;
        Window {
            bytes: f64::from(initial_packets) * segment,
            threshold: f64::INFINITY,
            segment,
            cut_end: 0,
        }
    }

    #[inline]
    pub fn segments(&self) -> f64 {
        self.bytes / self.segment
    }

    #[inline]
    pub fn in_slow_start(&self) -> bool {
        self.bytes < self.threshold
    }

    /// Returns whether a mark cuts the window: at most once per window of data.
    #[inline]
    pub fn is_marked_anew(&self, acked: &Acked) -> bool {
        acked.congested && acked.transmission >= self.cut_end
    }

    /// Returns whether the flow uses enough of the window to learn from what came back.
    #[inline]
    pub fn may_grow(&self, acked: &Acked) -> bool {
        !acked.in_recovery
            && acked.transmission >= self.cut_end
            && 2.0 * acked.in_flight.as_u64() as f64 >= self.bytes
    }

    /// Doubles the window in a round trip.
    #[inline]
    pub fn grow_by_slow_start(&mut self, acked: &Acked) {
        self.bytes += acked.bytes.as_u64() as f64;
    }

    /// Slow start, then one segment a round trip.
    #[inline]
    pub fn grow_as_reno(&mut self, acked: &Acked) {
        if self.may_grow(acked) {
            if self.in_slow_start() {
                self.grow_by_slow_start(acked);
            } else {
                self.bytes += self.segment * acked.bytes.as_u64() as f64 / self.bytes;
            }
        }
    }

    /// Multiplies the window for a mark, and holds it until the cut shows.
    pub fn cut_for_mark(&mut self, acked: &Acked, factor: f64) {
        self.cut_end = acked.next_transmission;
        self.cut(factor);
    }

    /// Leaves slow start with the window as it is.
    pub fn leave_slow_start(&mut self) {
        self.cut(1.0);
    }

    /// Multiplies the window and leaves slow start.
    pub fn cut(&mut self, factor: f64) {
        self.bytes = (self.bytes * factor).max(FLOOR_PACKETS * self.segment);
        self.threshold = self.bytes;
    }

    /// Begins again with one packet, slowly from `factor` of the old window on.
    pub fn collapse(&mut self, factor: f64) {
        // A timeout of the one packet says nothing new about the window (RFC 5681, 3.1).
        if self.bytes > self.segment {
            self.threshold = (self.bytes * factor).max(FLOOR_PACKETS * self.segment);
        }
        self.bytes = self.segment;
    }

    /// Starts slowly from here on, up to a size that it had before.
    pub fn resume(&mut self, bytes: f64) {
        self.threshold = self.threshold.max(bytes);
    }

    /// Doubles every round trip again, until something cuts it.
    pub fn leave_avoidance(&mut self) {
        self.threshold = f64::INFINITY;
    }

    /// The present size.
    pub fn extent(&self) -> Extent {
        Extent { window: self.whole_bytes(), threshold: Bytes::new(self.threshold as u64) }
    }

    /// Is as large again as it was, if it is smaller.
    pub fn undo(&mut self, before: Extent) {
        self.bytes = self.bytes.max(before.window.as_u64() as f64);
        self.threshold = self.threshold.max(before.threshold.as_u64() as f64);
    }

    /// Keeps its size for another flow, whose transmissions are numbered from 0.
    pub fn restart(&mut self) {
        self.bytes = self.bytes.max(FLOOR_PACKETS * self.segment);
        self.cut_end = 0;
    }

    #[inline]
    pub fn whole_bytes(&self) -> Bytes {
        Bytes::new(self.bytes as u64)
    }
}
