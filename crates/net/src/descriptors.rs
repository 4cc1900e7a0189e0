//! Files and sockets that this process may have open.

use crate::sys;

/// Returns the number of descriptors that this process may have, where the system says so. `ulimit -n` sets it.
pub fn limit() -> Option<u64> {
    sys::descriptor_limit().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_a_limit_above_the_standard_streams() {
        assert!(super::limit().is_some_and(|limit| limit > 3));
    }
}
