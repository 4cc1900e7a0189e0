//! Importance of the values that a packet carries.

/// Importance of the contributions in a packet (M-20). Each contributor decides about its own values; a sum has what
/// all of its parts have, so that switches merge it with one operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SumImportance(u8);

impl SumImportance {
    /// Importance is not reported.
    pub const UNKNOWN: SumImportance = SumImportance(0);
    /// No contribution is important.
    pub const NONE: SumImportance = SumImportance(0b01);
    /// All contributions are important.
    pub const ALL: SumImportance = SumImportance(0b10);
    /// A part of the contributions is important.
    pub const PART: SumImportance = SumImportance(0b11);

    /// Lowest bit of the importance in a byte of a header.
    const SHIFT: u8 = 4;
    /// Bits of the importance in a byte of a header.
    pub(super) const MASK: u8 = 0b11 << SumImportance::SHIFT;

    /// The importance of one contribution.
    #[inline]
    pub const fn of(is_important: bool) -> SumImportance {
        if is_important { SumImportance::ALL } else { SumImportance::NONE }
    }

    /// The two bits: bit 0 says that a part is not important, bit 1 that a part is.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The importance with these two bits.
    #[inline]
    pub const fn from_bits(bits: u8) -> SumImportance {
        SumImportance(bits & 0b11)
    }

    /// The importance of the sum of both.
    #[inline]
    pub const fn with(self, other: SumImportance) -> SumImportance {
        SumImportance(self.0 | other.0)
    }

    /// The bits in the byte of a header.
    #[inline]
    pub(super) const fn in_byte(self) -> u8 {
        self.0 << SumImportance::SHIFT
    }

    /// The importance in the byte of a header.
    #[inline]
    pub(super) const fn read(byte: u8) -> SumImportance {
        SumImportance((byte & SumImportance::MASK) >> SumImportance::SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: M-20 machine
    #[test]
    fn a_sum_has_what_its_parts_have() {
        use SumImportance as Its;
        let all = [Its::UNKNOWN, Its::NONE, Its::ALL, Its::PART];
        for one in all {
            assert_eq!((one.with(one), one.with(Its::UNKNOWN)), (one, one));
            assert_eq!(one.with(Its::PART), Its::PART);
            assert_eq!(Its::read(one.in_byte() | 0b1100_1111), one);
            assert_eq!(Its::from_bits(one.bits()), one);
        }
        assert_eq!(Its::NONE.with(Its::ALL), Its::PART);
        assert_eq!([Its::of(false), Its::of(true)], [Its::NONE, Its::ALL]);
    }
}
