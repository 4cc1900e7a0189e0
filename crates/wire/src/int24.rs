//! Numbers of three bytes, where a header has no room for four.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The largest number of 24 bits.
pub const U24_MAX: u32 = (1 << 24) - 1;

/// Makes types of three bytes.
macro_rules! three_bytes {
    ($($(#[$doc:meta])* $Name:ident of $Number:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(transparent)]
        pub struct $Name([u8; 3]);

        impl From<$Number> for $Name {
            #[inline]
            fn from(number: $Number) -> $Name {
                $Name::new(number)
            }
        }
    )+};
}

three_bytes! {
    /// A number of 24 bits, little-endian.
    U24 of u32;
    /// A signed number of 24 bits, little-endian, in two's complement.
    I24 of i32;
}

impl U24 {
    /// Zero.
    pub const ZERO: U24 = U24([0; 3]);

    /// The bytes of a number. One that does not fit becomes [`U24_MAX`]: a wrong number must not wrap to
    /// a right one.
    #[inline]
    pub const fn new(value: u32) -> U24 {
        let value = if value < U24_MAX { value } else { U24_MAX };
        let [low, middle, high, _] = value.to_le_bytes();
        U24([low, middle, high])
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        let [low, middle, high] = self.0;
        u32::from_le_bytes([low, middle, high, 0])
    }
}

impl I24 {
    /// The largest number.
    pub const MAX: i32 = (1 << 23) - 1;
    /// The least number.
    pub const MIN: i32 = -(1 << 23);

    /// The bytes of a number. One that does not fit becomes the nearest that does.
    #[inline]
    pub const fn new(value: i32) -> I24 {
        let value = if value > I24::MAX { I24::MAX } else { value };
        let value = if value < I24::MIN { I24::MIN } else { value };
        let [low, middle, high, _] = value.to_le_bytes();
        I24([low, middle, high])
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> i32 {
        let [low, middle, high] = self.0;
        // The shift back copies the sign.
        i32::from_le_bytes([0, low, middle, high]) >> 8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_little_endian() {
        assert_eq!(U24::new(0x01_02_03), U24([3, 2, 1]));
        assert_eq!(I24::new(-2), I24([0xfe, 0xff, 0xff]));
    }

    #[test]
    fn numbers_that_do_not_fit_do_not_wrap() {
        assert_eq!(U24::new(1 << 24).get(), U24_MAX);
        assert_eq!(U24::new(u32::MAX).get(), U24_MAX);
        assert_eq!(I24::new(1 << 23).get(), I24::MAX);
        assert_eq!(I24::new(i32::MIN).get(), I24::MIN);
    }

    proptest! {
        #[test]
        fn numbers_come_back(unsigned in 0..=U24_MAX, signed in I24::MIN..=I24::MAX) {
            prop_assert_eq!(U24::new(unsigned).get(), unsigned);
            prop_assert_eq!(I24::new(signed).get(), signed);
        }
    }
}
