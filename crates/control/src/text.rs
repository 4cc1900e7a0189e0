//! Texts that headers carry.

/// Returns whether a text can be sent in a header: printable ASCII, at least one character.
pub(crate) fn is_sendable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_carry_printable_ascii() {
        assert!(is_sendable("Az 09~!"));
        for not in ["", "é", "a\n", "\u{7f}"] {
            assert!(!is_sendable(not), "{not:?}");
        }
    }
}
