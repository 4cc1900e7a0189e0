//! Texts from elsewhere, as they can be shown to people.

/// Returns whether a character controls a terminal, cannot be seen, or reorders the characters beside it: the categories
/// Cc and Cf of Unicode, and the separators of lines and paragraphs.
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{890}'..='\u{891}'
                | '\u{8e2}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{110cd}'
                | '\u{13430}'..='\u{1343f}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Returns a text with a mark in place of every [hidden](is_hidden) character.
pub fn visible(text: &str) -> String {
    text.chars().map(|char| if is_hidden(char) { '\u{fffd}' } else { char }).collect()
}

/// Returns whether a text can be sent in a header: printable ASCII, at least one character.
pub(crate) fn is_sendable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-04 machine
    #[test]
    fn what_hides_or_reorders_is_replaced_and_writing_is_not() {
        for hidden in
            ['\0', '\u{1b}', '\u{7f}', '\u{9b}', '\u{ad}', '\u{200b}', '\u{202e}', '\u{2067}']
        {
            assert!(is_hidden(hidden), "{hidden:?}");
            assert_eq!(visible(&format!("a{hidden}b")), "a\u{fffd}b");
        }
        for hidden in ['\u{2028}', '\u{feff}', '\u{fffb}', '\u{e0041}', '\u{61c}', '\u{180e}'] {
            assert!(is_hidden(hidden), "{hidden:?}");
        }
        for shown in ["resnet-50/a#1", "größe", "训练", "τ ≤ 3", "e\u{301}", "\u{1f600}"] {
            assert_eq!(visible(shown), shown);
        }
    }

    #[test]
    fn headers_carry_printable_ascii() {
        assert!(is_sendable("Az 09~!"));
        for not in ["", "é", "a\n", "\u{7f}"] {
            assert!(!is_sendable(not), "{not:?}");
        }
    }
}
