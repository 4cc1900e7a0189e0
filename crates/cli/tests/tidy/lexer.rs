//! Tells code, comments and literals apart, no more.

/// A text twice, each of the same shape as the original: what is left out is blank.
#[derive(Default)]
pub struct Split {
    /// Comments and the contents of literals are blank.
    pub code: String,
    /// Everything but comments is blank.
    pub comments: String,
}

/// Splits Rust source, which need not be complete: what is open at the end ends there.
pub fn split(text: &str) -> Split {
    let chars: Vec<char> = text.chars().collect();
    let mut split = Split::default();
    let mut rest = chars.as_slice();
    while !rest.is_empty() {
        let (kind, length) = next_piece(rest);
        let (piece, after) = rest.split_at(length.min(rest.len()));
        split.push(kind, piece);
        rest = after;
    }
    split
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Split {
    fn push(&mut self, kind: Kind, piece: &[char]) {
        for &char in piece {
            let blank = if char == '\n' { '\n' } else { ' ' };
            self.code.push(if kind == Kind::Code { char } else { blank });
            self.comments.push(if kind == Kind::Comment { char } else { blank });
        }
    }
}

/// Kind and length of the piece that `rest`, which is not empty, starts with.
fn next_piece(rest: &[char]) -> (Kind, usize) {
    match rest {
        ['/', '/', ..] => (Kind::Comment, count_until(rest, '\n')),
        ['/', '*', ..] => (Kind::Comment, block_comment_length(rest)),
        ['"', ..] => (Kind::Literal, quoted_length(rest)),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => (Kind::Literal, quoted_length(rest)),
        [first, ..] if is_word(*first) => match raw_string_length(rest) {
            Some(length) => (Kind::Literal, length),
            // A word is taken whole, so that its last character is not read as a prefix.
            None => (Kind::Code, rest.iter().take_while(|char| is_word(**char)).count()),
        },
        _ => (Kind::Code, 1),
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn count_until(rest: &[char], end: char) -> usize {
    rest.iter().position(|&char| char == end).unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment_length(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => depth += 1,
            ['*', '/', ..] => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length up to the quote that closes the first character's, escapes skipped.
fn quoted_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != rest[0] {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of a raw string with any prefix; `None` if no raw string begins here.
fn raw_string_length(rest: &[char]) -> Option<usize> {
    let prefix = match rest {
        ['r', ..] => 1,
        ['b' | 'c', 'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|char| **char == '#').count();
    let body = prefix + hashes + 1;
    if rest.get(body - 1) != Some(&'"') {
        return None;
    }
    let closes = |at: usize| {
        rest[at] == '"' && rest[at + 1..].iter().take_while(|char| **char == '#').count() >= hashes
    };
    let end = (body..rest.len()).find(|&at| closes(at)).unwrap_or(rest.len());
    Some(end + 1 + hashes)
}

#[cfg(test)]
mod tests {
    use super::split;

    /// The words of the code, once both halves are seen to keep the shape of the text.
    fn code(text: &str) -> Vec<String> {
        let split = split(text);
        let shape = |text: &str| text.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
        assert_eq!(shape(&split.code), shape(text));
        assert_eq!(shape(&split.comments), shape(text));
        split.code.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn comments_are_set_apart() {
        let text = "a(); // b\nc /* d /* e */\n f */ g";
        assert_eq!(code(text), ["a();", "c", "g"]);
        assert_eq!(split(text).comments, "     // b\n  /* d /* e */\n f */  ");
    }

    #[test]
    fn contents_of_strings_are_neither_code_nor_comment() {
        let text = r#"x = "a // b \" {" ; y"#;
        assert_eq!(code(text), ["x", "=", ";", "y"]);
        assert_eq!(split(text).comments.trim(), "");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        assert_eq!(code("a br##\"}\"# }\"## b"), ["a", "b"]);
        assert_eq!(code("r#type; br\"\\\" c"), ["r#type;", "c"]);
        assert_eq!(code("for\"{\" d"), ["for", "d"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(code("f<'a>('{', '\\'', 'b')"), ["f<'a>(", ",", ",", ")"]);
    }

    #[test]
    fn a_text_that_ends_early_ends_the_piece() {
        for open in ["\"b", "/* b", "r#\"b", "\"\\", "// b", "'\\"] {
            assert_eq!(code(&format!("a {open}")), ["a"]);
        }
    }
}
