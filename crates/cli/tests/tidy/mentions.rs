//! Requirement ids in comments.

use std::collections::BTreeSet;

use crate::place::{self, Place};
use crate::source::{Role, Source};

/// Word that announces ids in a comment.
const MARKER: &str = "spec:";

/// One id in one comment.
#[derive(Debug, PartialEq)]
pub struct Mention {
    pub id: String,
    pub role: Role,
    /// Places the test runs at. Empty outside of tests.
    pub places: BTreeSet<Place>,
    /// File and line, for messages.
    pub at: String,
}

/// Every id that a comment names, and a problem for every comment that is not written as it has to be.
pub fn all(sources: &[Source]) -> (Vec<Mention>, Vec<String>) {
    let (mut mentions, mut problems) = (Vec::new(), Vec::new());
    for source in sources {
        for (line, comment) in source.comments.lines().enumerate() {
            let at = format!("{}:{}", source.path, line + 1);
            let role = if source.is_test(line) { Role::Test } else { source.role };
            match names(comment).and_then(|names| names.checked(role)) {
                Ok(Names { ids, places }) => mentions.extend(ids.into_iter().map(|id| Mention {
                    id,
                    role,
                    places: places.clone(),
                    at: at.clone(),
                })),
                Err(problem) => problems.push(format!("{at}: {problem}")),
            }
        }
    }
    (mentions, problems)
}

/// True for a capital, a hyphen and two digits.
pub fn is_id(word: &str) -> bool {
    matches!(word.as_bytes(), [b'A'..=b'Z', b'-', b'0'..=b'9', b'0'..=b'9'])
}

/// The names in one comment.
#[derive(Debug, Default, PartialEq)]
struct Names {
    ids: Vec<String>,
    places: BTreeSet<Place>,
}

impl Names {
    /// Places belong to tests, and to nothing else.
    fn checked(self, role: Role) -> Result<Names, String> {
        let Some(id) = self.ids.first() else { return Ok(self) };
        match (role, self.places.is_empty()) {
            (Role::Test, true) => Err(format!(
                "a test of {id} has to name its place: write `spec: {id} sockets`, with one or more \
                 of {}",
                place::names()
            )),
            (Role::Code | Role::Aside, false) => {
                Err(format!("only tests name places: write `spec: {id}`"))
            }
            (Role::Test, false) | (Role::Code | Role::Aside, true) => Ok(self),
        }
    }
}

/// The ids and then the places after the marker of a comment, or the mistake in them.
fn names(comment: &str) -> Result<Names, String> {
    let Some((before, after)) = comment.split_once(MARKER) else { return Ok(Names::default()) };
    let is_separator = |char: char| !char.is_alphanumeric() && char != '-';
    let mut names = Names::default();
    let mut mistake = None;
    for word in after.split(is_separator).filter(|word| !word.is_empty()) {
        match Place::from_name(word) {
            Some(place) if !names.ids.is_empty() => _ = names.places.insert(place),
            _ if is_id(word) && names.places.is_empty() => names.ids.push(word.into()),
            _ => mistake = mistake.or(Some(mistake_of(word, &names))),
        }
    }
    // In the middle of a sentence the marker may be an ordinary word.
    let is_marker = before.chars().all(|char| "/!*# ".contains(char));
    match mistake {
        Some(mistake) if is_marker || !names.ids.is_empty() => Err(mistake),
        None if is_marker && names.ids.is_empty() => Err("no id after the marker".into()),
        _ => Ok(names),
    }
}

fn mistake_of(word: &str, before: &Names) -> String {
    let places = place::names();
    if is_id(word) {
        format!("{word} follows a place: write all ids first, or give it a comment of its own")
    } else if before.ids.is_empty() || word.starts_with(|char: char| char.is_ascii_uppercase()) {
        format!(
            "`{word}` is not an id: write ids as a capital, a hyphen and two digits, with commas \
             between them"
        )
    } else {
        format!("`{word}` is not a place: write one or more of {places}")
    }
}

#[cfg(test)]
mod tests {
    use super::{Names, all, names};
    use crate::place::Place::{self, Machine, Simulator, Sockets};
    use crate::source::{Role, Source};

    fn named(ids: &[&str], places: &[Place]) -> Result<Names, String> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Ok(Names { ids, places: places.iter().copied().collect() })
    }

    fn mistake(comment: &str) -> String {
        names(comment).unwrap_err()
    }

    #[test]
    fn a_comment_may_hold_several_ids() {
        assert_eq!(names("// spec: A-07"), named(&["A-07"], &[]));
        assert_eq!(names("  /// spec: A-07, T-10."), named(&["A-07", "T-10"], &[]));
        assert_eq!(names("    # spec: A-07"), named(&["A-07"], &[]));
        assert_eq!(names("// merges (spec: A-07)"), named(&["A-07"], &[]));
        assert_eq!(names("// A-07 without the marker"), named(&[], &[]));
        assert_eq!(names("// as the spec: says"), named(&[], &[]));
    }

    #[test]
    fn places_follow_the_ids_and_hold_for_all_of_them() {
        assert_eq!(names("// spec: A-07 sockets"), named(&["A-07"], &[Sockets]));
        assert_eq!(names("# spec: M-16 machine"), named(&["M-16"], &[Machine]));
        assert_eq!(
            names("// spec: A-07, A-08 simulator, sockets"),
            named(&["A-07", "A-08"], &[Simulator, Sockets])
        );
    }

    #[test]
    fn a_marker_without_a_proper_id_is_malformed() {
        assert_eq!(mistake("// spec:"), "no id after the marker");
        for (comment, word) in [
            ("// spec: a-07", "a-07"),
            ("# spec: none", "none"),
            ("// spec: A-07, A-8", "A-8"),
            ("// spec: A-123", "A-123"),
            ("// spec: sockets", "sockets"),
        ] {
            assert!(mistake(comment).starts_with(&format!("`{word}` is not an id: ")), "{comment}");
        }
    }

    #[test]
    fn other_words_and_ids_after_places_are_malformed() {
        assert_eq!(
            mistake("// spec: A-07 socket"),
            "`socket` is not a place: write one or more of machine, simulator, sockets, lab"
        );
        assert_eq!(
            mistake("// spec: A-07 sockets, A-08"),
            "A-08 follows a place: write all ids first, or give it a comment of its own"
        );
    }

    #[test]
    fn mentions_know_whether_they_stand_in_a_test() {
        let text = "// spec: A-01\nfn a() {}\nlet b = \"// spec: A-02\";\n\
                    #[cfg(test)]\nmod tests {\n// spec: A-03 machine\n}\n// spec: none\n";
        let (mentions, malformed) = all(&[Source::new("crates/a/src/b.rs", text)]);
        let found: Vec<(&str, Role, usize, &str)> = mentions
            .iter()
            .map(|it| (it.id.as_str(), it.role, it.places.len(), it.at.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("A-01", Role::Code, 0, "crates/a/src/b.rs:1"),
                ("A-03", Role::Test, 1, "crates/a/src/b.rs:6"),
            ]
        );
        assert_eq!(malformed.len(), 1);
        assert!(malformed[0].starts_with("crates/a/src/b.rs:8: `none` is not an id"));
    }

    #[test]
    fn tests_name_places_and_nothing_else_does() {
        let problem = |source: Source| all(&[source]).1.join("\n");
        assert_eq!(
            problem(Source::new("crates/a/tests/b.rs", "\n// spec: A-07, A-08\n")),
            "crates/a/tests/b.rs:2: a test of A-07 has to name its place: write `spec: A-07 \
             sockets`, with one or more of machine, simulator, sockets, lab"
        );
        assert_eq!(
            problem(Source::new("crates/a/src/b.rs", "// spec: A-07 sockets\n")),
            "crates/a/src/b.rs:1: only tests name places: write `spec: A-07`"
        );
        assert!(problem(Source::new("fuzz/a.rs", "// spec: A-07 lab\n")).contains("only tests"));
        assert!(
            problem(Source::python("python/tests/test_a.py", "# spec: A-07\n")).contains("place")
        );
        assert_eq!(problem(Source::python("python/tests/a.py", "# spec: A-07 sockets\n")), "");
        assert_eq!(problem(Source::python("python/src/a.py", "# spec: A-07\n")), "");
    }
}
