//! Text from others that is shown to people.

/// Returns whether a character could mislead a reader: it moves the cursor of a terminal, changes the direction
/// of what follows, or is not seen at all. These are the categories Cc and Cf of Unicode, and the separators of lines
/// and paragraphs.
pub fn is_harmful(char: char) -> bool {
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

/// Returns the text with harmful characters written as their numbers, such as `\u{202e}`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if is_harmful(char) { shown.extend(char.escape_unicode()) } else { shown.push(char) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: E-04 machine
    #[test]
    fn what_moves_hides_or_turns_text_is_harmful_and_writing_is_not() {
        let harmful = "\0\n\u{1b}\u{7f}\u{9b}\u{200b}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
                       \u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{2028}\u{061c}\u{e0041}\u{ad}\u{180e}\u{fffb}";
        assert!(harmful.chars().all(is_harmful));
        assert_eq!(printable("a\u{202e}b\n"), "a\\u{202e}b\\u{a}");
        assert!(!"resnet-50/a#1 é ü e\u{301} 訓練 שלום 🙂 – τ ≤ 3".chars().any(is_harmful));
    }
}
