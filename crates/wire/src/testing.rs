//! Checks that the tests of all headers share.

use std::fmt::Debug;

use thalweg_core::Header;

/// Checks that these bytes have this meaning, and the other way round.
pub(crate) fn assert_literal<M, E>(
    (bytes, meaning): (&Header, M),
    decode: fn(&Header) -> Result<M, E>,
    to_header: fn(&M) -> Header,
) where
    M: PartialEq + Debug,
    E: PartialEq + Debug,
{
    assert_eq!(to_header(&meaning), *bytes);
    assert_eq!(decode(bytes), Ok(meaning));
}

/// Checks that a header is refused with this error when one of these bits is set in it.
pub(crate) fn assert_refused<M, E>(
    good: &Header,
    bits: impl IntoIterator<Item = (usize, u8)>,
    decode: fn(&Header) -> Result<M, E>,
    error: E,
) where
    M: PartialEq + Debug,
    E: PartialEq + Debug + Copy,
{
    for (at, bit) in bits {
        let mut header = *good;
        header[at] |= 1 << bit;
        assert_eq!(decode(&header), Err(error), "byte {at}, bit {bit}");
    }
}

/// All bits of these bytes.
pub(crate) fn whole(bytes: impl IntoIterator<Item = usize>) -> impl Iterator<Item = (usize, u8)> {
    bytes.into_iter().flat_map(|at| (0..8).map(move |bit| (at, bit)))
}
