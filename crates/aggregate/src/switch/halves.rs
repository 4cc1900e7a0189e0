//! Sums of 16-bit values: in single precision while they lie here, rounded when they are sent.
// spec: F-02

use thalweg_values::Half;

use super::aggregator::Array;

impl Array {
    /// Begins the sums at a place with the values of a body.
    pub(super) fn take_halves(&mut self, half: Half, place: u32, body: &[u8]) {
        let (lower, upper) = body.split_at(self.lower_bytes(body));
        let (lower_sums, upper_sums) = self.sums_mut(place);
        half.take(lower, lower_sums);
        half.take(upper, upper_sums);
    }

    /// Adds the values of a body to the sums at a place.
    pub(super) fn add_halves(&mut self, half: Half, place: u32, body: &[u8]) {
        let (lower, upper) = body.split_at(self.lower_bytes(body));
        let (lower_sums, upper_sums) = self.sums_mut(place);
        half.add(lower, lower_sums);
        half.add(upper, upper_sums);
    }

    /// Writes the sums at a place into a body. The sums stay as they are, so that they are rounded to the same values
    /// each time.
    pub(super) fn round_halves(&self, half: Half, place: u32, body: &mut [u8]) {
        let (lower, upper) = body.split_at_mut(self.lower_bytes(body));
        let (first, second) = self.sum_places(place);
        half.round(&self.values[first..first + self.slot_bytes], lower);
        half.round(&self.values[second..second + self.slot_bytes], upper);
    }

    /// Bytes of a body whose sums lie where those of 32-bit values do.
    fn lower_bytes(&self, body: &[u8]) -> usize {
        body.len().min(self.slot_bytes / 2)
    }

    /// Beginnings of both parts of the sums at a place.
    fn sum_places(&self, place: u32) -> (usize, usize) {
        let first = self.values_from + place as usize * self.slot_bytes;
        (first, first + self.len() as usize * self.slot_bytes)
    }

    fn sums_mut(&mut self, place: u32) -> (&mut [u8], &mut [u8]) {
        let (first, second) = self.sum_places(place);
        let (lower, upper) = self.values.split_at_mut(second);
        (&mut lower[first..first + self.slot_bytes], &mut upper[..self.slot_bytes])
    }
}
