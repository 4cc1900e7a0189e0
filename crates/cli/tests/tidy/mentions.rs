//! Requirement ids in comments.

use crate::source::{Role, Source};

/// What announces ids in a comment.
const MARKER: &str = "spec:";

/// One id in one comment.
#[derive(Debug, PartialEq)]
pub struct Mention {
    pub id: String,
    pub role: Role,
    /// File and line, for messages.
    pub place: String,
}

/// Every id that a comment names, and a problem for every marker with none.
pub fn all(sources: &[Source]) -> (Vec<Mention>, Vec<String>) {
    let (mut mentions, mut malformed) = (Vec::new(), Vec::new());
    for source in sources {
        for (line, comment) in source.comments.lines().enumerate() {
            let place = format!("{}:{}", source.path, line + 1);
            let role = if source.is_test(line) { Role::Test } else { source.role };
            match ids(comment) {
                Ok(ids) => mentions.extend(ids.into_iter().map(|id| Mention {
                    id,
                    role,
                    place: place.clone(),
                })),
                Err(found) => malformed.push(format!(
                    "{place}: {found}: write ids as a letter, a hyphen and two digits, with commas \
                     between them"
                )),
            }
        }
    }
    (mentions, malformed)
}

/// A capital letter, a hyphen, two digits.
pub fn is_id(word: &str) -> bool {
    matches!(word.as_bytes(), [b'A'..=b'Z', b'-', b'0'..=b'9', b'0'..=b'9'])
}

/// The ids after the marker of a comment, or what is wrong with them.
fn ids(comment: &str) -> Result<Vec<String>, String> {
    let Some((before, after)) = comment.split_once(MARKER) else { return Ok(Vec::new()) };
    let is_separator = |char: char| !char.is_alphanumeric() && char != '-';
    let words = || after.split(is_separator);
    if let Some(word) = words().find(|word| is_nearly_id(word)) {
        return Err(format!("`{word}` is not an id"));
    }
    let ids: Vec<String> = words().filter(|word| is_id(word)).map(String::from).collect();
    // In the middle of a sentence it may be an ordinary word.
    let is_marker = before.chars().all(|char| "/!*# ".contains(char));
    if ids.is_empty() && is_marker {
        return Err("no id after the marker".into());
    }
    Ok(ids)
}

/// A capital letter, a hyphen and any number of digits but two.
fn is_nearly_id(word: &str) -> bool {
    match word.as_bytes() {
        [b'A'..=b'Z', b'-', digits @ ..] => {
            digits.len() != 2 && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{all, ids};
    use crate::source::{Role, Source};

    #[test]
    fn a_comment_may_hold_several_ids() {
        assert_eq!(ids("// spec: A-07"), Ok(vec!["A-07".into()]));
        assert_eq!(ids("  /// spec: A-07, T-10."), Ok(vec!["A-07".into(), "T-10".into()]));
        assert_eq!(ids("    # spec: A-07"), Ok(vec!["A-07".into()]));
        assert_eq!(ids("// merges (spec: A-07)"), Ok(vec!["A-07".into()]));
        assert_eq!(ids("// A-07 without the marker"), Ok(vec![]));
        assert_eq!(ids("// as the spec: says"), Ok(vec![]));
    }

    #[test]
    fn a_marker_without_a_proper_id_is_malformed() {
        assert_eq!(ids("// spec: a-07"), Err("no id after the marker".into()));
        assert_eq!(ids("# spec: none"), Err("no id after the marker".into()));
        assert_eq!(ids("// spec: A-07, A-8"), Err("`A-8` is not an id".into()));
        assert_eq!(ids("// spec: A-123"), Err("`A-123` is not an id".into()));
    }

    #[test]
    fn mentions_know_whether_they_stand_in_a_test() {
        let text = "// spec: A-01\nfn a() {}\nlet b = \"// spec: A-02\";\n\
                    #[cfg(test)]\nmod tests {\n// spec: A-03\n}\n// spec: none\n";
        let (mentions, malformed) = all(&[Source::new("crates/a/src/b.rs", text)]);
        let found: Vec<(&str, Role, &str)> = mentions
            .iter()
            .map(|mention| (mention.id.as_str(), mention.role, mention.place.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("A-01", Role::Code, "crates/a/src/b.rs:1"),
                ("A-03", Role::Test, "crates/a/src/b.rs:6"),
            ]
        );
        assert_eq!(malformed.len(), 1);
        assert!(malformed[0].starts_with("crates/a/src/b.rs:8: no id after the marker"));
    }
}
