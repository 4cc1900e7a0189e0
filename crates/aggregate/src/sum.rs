//! Adding one fragment to another, in the little-endian bytes of bodies.

/// Adds fixed-point values with saturation, in place. Says whether any sum left the range.
pub(crate) fn add_fixed(sum: &mut [u8], body: &[u8]) -> bool {
    let mut left = false;
    for (sum, body) in sum.as_chunks_mut::<4>().0.iter_mut().zip(body.as_chunks::<4>().0) {
        let (a, b) = (i32::from_le_bytes(*sum), i32::from_le_bytes(*body));
        left |= a.checked_add(b).is_none();
        *sum = a.saturating_add(b).to_le_bytes();
    }
    left
}

/// Adds floats, in place.
pub(crate) fn add_float(sum: &mut [u8], body: &[u8]) {
    for (sum, body) in sum.as_chunks_mut::<4>().0.iter_mut().zip(body.as_chunks::<4>().0) {
        *sum = (f32::from_le_bytes(*sum) + f32::from_le_bytes(*body)).to_le_bytes();
    }
}
