//! A fingerprint of a run: equal digests mean that the same things happened at the same times.

use std::fmt;

/// Folds numbers, in order, into 64 bits. Not a cryptographic hash: it tells runs apart, not
/// attackers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0x2545_f491_4f6c_dd1d)
    }
}

impl Digest {
    /// Takes in one number.
    #[inline]
    pub fn add(&mut self, value: u64) {
        // The fold of a full product costs one multiplication and depends on every bit of both. The
        // sum in front keeps a zero factor from erasing what came before.
        let product =
            u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(self.0.rotate_left(23));
    }

    /// The 64 bits.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn of(values: &[u64]) -> u64 {
        let mut digest = Digest::default();
        values.iter().for_each(|&value| digest.add(value));
        digest.value()
    }

    #[test]
    fn order_and_length_matter() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_eq!(of(&[5, 6, 7]), of(&[5, 6, 7]));
    }

    #[test]
    fn single_bits_tell_digests_apart() {
        let all: BTreeSet<u64> = (0..64).map(|bit| of(&[1 << bit, 9])).collect();
        assert_eq!(all.len(), 64);
    }
}
