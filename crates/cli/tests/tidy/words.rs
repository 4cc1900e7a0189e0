//! Words that must not stand in the tree. Here they are put together from halves, or this file
//! would be the first to break its own rules.

use crate::source::Source;
use crate::tree::TextFile;

const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Beginnings of home and work directories on the machines people build on.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ro", "ot"), concat!("/wo", "rk"), concat!("/ho", "me"), concat!("/Us", "ers")];

/// Code that was left for later.
pub fn unfinished(sources: &[Source]) -> Vec<String> {
    let texts = sources.iter().map(|source| (source.path.as_str(), source.text.as_str()));
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    texts
        .flat_map(|(path, text)| lines_with(path, text, UNFINISHED, is_word))
        .map(|(place, word)| {
            format!("{place}: `{word}` leaves work in code: finish it, or open an id in specs/")
        })
        .collect()
}

/// Absolute paths that mean something on one machine only.
pub fn machine_paths(files: &[TextFile]) -> Vec<String> {
    // A character before the slash makes it part of a longer path or of an address.
    let is_path = |char: char| char.is_alphanumeric() || "_-.".contains(char);
    files
        .iter()
        .flat_map(|file| lines_with(&file.path, &file.text, MACHINE_PATHS, is_path))
        .map(|(place, word)| format!("{place}: `{word}` is one machine's path: make it relative"))
        .collect()
}

/// The lines on which a needle stands by itself: neither side of it is `joined` to it. A needle
/// that ends in a mark may have anything after it.
fn lines_with(
    path: &str,
    text: &str,
    needles: &[&'static str],
    joined: impl Fn(char) -> bool,
) -> Vec<(String, &'static str)> {
    let stands = |line: &str, needle: &str| {
        line.match_indices(needle).any(|(at, _)| {
            let after = &line[at + needle.len()..];
            !line[..at].ends_with(&joined) && (needle.ends_with('!') || !after.starts_with(&joined))
        })
    };
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for needle in needles.iter().copied().filter(|needle| stands(line, needle)) {
            found.push((format!("{path}:{}", number + 1), needle));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{machine_paths, unfinished};
    use crate::source::Source;
    use crate::tree::TextFile;

    fn unfinished_count(text: &str) -> usize {
        unfinished(&[Source::new("a.rs", text)]).len()
    }

    fn machine_path_count(text: &str) -> usize {
        machine_paths(&[TextFile { path: "a.md".into(), text: text.into() }]).len()
    }

    #[test]
    fn unfinished_code_is_found_where_it_is() {
        let text = concat!("fn a() {}\n// TO", "DO later\n");
        assert!(unfinished(&[Source::new("a.rs", text)])[0].starts_with("a.rs:2: "));
        assert_eq!(unfinished_count(concat!("// FIX", "ME: b")), 1);
        assert_eq!(unfinished_count(concat!("// X", "XX")), 1);
        assert_eq!(unfinished_count(concat!("to", "do!(\"b\")")), 1);
        assert_eq!(unfinished_count(concat!("unimple", "mented!()")), 1);
    }

    #[test]
    fn words_that_only_look_like_it_are_fine() {
        assert_eq!(unfinished_count("let todo = \"specs/todo.toml\";"), 0);
        assert_eq!(unfinished_count("mkdtemp(\"XXXXXX\")"), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(machine_path_count(concat!("see /wo", "rk/main")), 1);
        assert_eq!(machine_path_count(concat!("cd /ro", "ot")), 1);
        assert_eq!(machine_path_count(concat!("`/ho", "me/a`\n(/Us", "ers/b)")), 2);
        assert_eq!(machine_path_count(concat!("file:///ro", "ot/a")), 1);
    }

    #[test]
    fn relative_paths_and_addresses_are_fine() {
        assert_eq!(machine_path_count("crates/workload/src ../work/a sender/worker"), 0);
        assert_eq!(machine_path_count("https://example.org/home/ and /workers"), 0);
    }
}
