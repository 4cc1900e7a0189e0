//! Files and sockets that this process may have open.

use std::io;

use crate::sys;

/// Returns the number of descriptors that this process may have, where the system says so. `ulimit -n` sets it.
pub fn limit() -> Option<u64> {
    sys::descriptor_limit().ok()
}

/// Raises the limit to the most that the system lets this process have (`ulimit -Hn`). Programs begin with a lower one, because
/// old calls of C cannot wait for descriptors beyond 1,023; nothing here uses these calls.
pub fn raise_limit() -> io::Result<()> {
    sys::raise_descriptor_limit()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_the_most_that_the_system_allows_once_it_is_raised() {
        let before = super::limit().expect("there is a limit");
        super::raise_limit().expect("the system allows what it allows");
        let raised = super::limit().expect("there is a limit");
        assert!(raised >= before);
        super::raise_limit().expect("and again");
        assert_eq!(super::limit(), Some(raised));
    }

    #[test]
    fn there_is_a_limit_above_the_standard_streams() {
        assert!(super::limit().is_some_and(|limit| limit > 3));
    }
}
