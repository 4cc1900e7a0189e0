//! Two levels in one byte: there are never more than four.

/// The largest level that half a byte holds.
const HALF_MAX: u8 = 0xf;

/// `lower` in the lower half, `upper` in the upper. What does not fit becomes [`HALF_MAX`], which no
/// branch has: a wrong level must not wrap to a right one.
#[inline]
pub(super) const fn pack(lower: u8, upper: u8) -> u8 {
    half(lower) | (half(upper) << 4)
}

/// The lower and the upper half.
#[inline]
pub(super) const fn unpack(byte: u8) -> (u8, u8) {
    (byte & HALF_MAX, byte >> 4)
}

const fn half(level: u8) -> u8 {
    if level < HALF_MAX { level } else { HALF_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_half() {
        assert_eq!(pack(1, 2), 0x21);
        assert_eq!(unpack(0x43), (3, 4));
        assert_eq!((pack(16, 0), pack(0, 255)), (0x0f, 0xf0));
    }
}
