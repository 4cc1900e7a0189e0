//! Settings of an MTU.
// spec: F-01

use thalweg_core::{MTU_BYTES_MAX, MTU_BYTES_MIN};

use crate::error::Error;

/// Text about values to choose in place of an MTU that is out of range.
pub(crate) const MTU_RANGE: &str = "choose 576 to 9000";

/// Returns whether packets can have this MTU.
pub(crate) fn is_mtu(mtu_bytes: u16) -> bool {
    (MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&mtu_bytes)
}

/// Refuses a setting that no packets can have.
pub(crate) fn check_mtu(mtu_bytes: Option<u16>) -> Result<(), Error> {
    match mtu_bytes.filter(|bytes| !is_mtu(*bytes)) {
        Some(bytes) => Err(Error::config(format!("mtu is {bytes}: {MTU_RANGE}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        for bytes in [None, Some(576), Some(1_500), Some(9_000)] {
            assert!(check_mtu(bytes).is_ok(), "{bytes:?}");
        }
        for bytes in [0, 575, 9_001, u16::MAX] {
            let text = check_mtu(Some(bytes)).unwrap_err().to_string();
            assert!(text.contains(&format!("mtu is {bytes}: choose 576 to 9000")), "{text}");
        }
    }
}
