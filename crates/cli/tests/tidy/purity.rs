//! The pure crates are pure by lint: nothing in them may switch the lint off.

use crate::source::Source;

/// The folders of the crates that read no clock, no environment and no socket.
const PURE: &[&str] = &[
    "core",
    "values",
    "wire",
    "report",
    "train",
    "fabric",
    "workload",
    "flow",
    "aggregate",
    "pace",
    "deliver",
    "prioritize",
    "collective",
    "baselines",
    "stack",
    "scenario",
];
/// The lint, and the groups it belongs to.
const LINTS: &[&str] = &["clippy::disallowed_methods", "clippy::style", "clippy::all"];
const LEVELS: &[&str] = &["allow", "expect", "warn", "deny", "forbid"];

/// Attributes outside tests that let a pure crate call what the lint forbids.
pub fn problems(sources: &[Source]) -> Vec<String> {
    sources.iter().filter(|source| is_pure(&source.path)).flat_map(source_problems).collect()
}

fn is_pure(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        // Benchmarks need a clock.
        ["crates", folder, "src", ..] => PURE.contains(&folder),
        _ => false,
    }
}

fn source_problems(source: &Source) -> Vec<String> {
    let code = source.code_outside_tests();
    let found = LINTS.iter().flat_map(|lint| code.match_indices(lint));
    found
        .filter(|(at, _)| matches!(level_before(&code[..*at]), Some("allow" | "expect")))
        .map(|(at, lint)| {
            let line = code[..at].matches('\n').count() + 1;
            format!(
                "{}:{line}: a pure crate must not switch {lint} off: take the time, the settings \
                 or the randomness as an argument",
                source.path
            )
        })
        .collect()
}

/// The lint level whose list the end of `code` stands in.
fn level_before(code: &str) -> Option<&'static str> {
    let at = code.rfind('(')?;
    let word = code[..at].trim_end();
    LEVELS.iter().copied().find(|level| word.ends_with(level))
}

#[cfg(test)]
mod tests {
    use super::problems;
    use crate::source::Source;

    fn count(path: &str, text: &str) -> usize {
        problems(&[Source::new(path, text)]).len()
    }

    #[test]
    fn a_pure_crate_may_not_allow_what_the_lint_forbids() {
        let path = "crates/core/src/time.rs";
        let found =
            problems(&[Source::new(path, "\n#[allow(clippy::disallowed_methods)]\nfn a() {}")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/core/src/time.rs:2: a pure crate must not switch"));
        assert_eq!(count(path, "#![expect(\n    clippy::all,\n    reason = \"x\"\n)]"), 1);
        assert_eq!(count(path, "#![allow(dead_code, clippy::disallowed_methods)]"), 1);
        assert_eq!(count(path, "#![cfg_attr(feature = \"a\", allow(clippy::style))]"), 1);
    }

    #[test]
    fn making_it_stricter_is_fine() {
        assert_eq!(count("crates/core/src/lib.rs", "#![deny(clippy::disallowed_methods)]"), 0);
        assert_eq!(count("crates/core/src/lib.rs", "// allow(clippy::disallowed_methods)"), 0);
    }

    #[test]
    fn tests_benchmarks_and_drivers_may() {
        let text = "#[allow(clippy::disallowed_methods)]\nfn a() {}\n";
        assert_eq!(count("crates/net/src/lib.rs", text), 0);
        assert_eq!(count("crates/core/benches/a.rs", text), 0);
        assert_eq!(count("crates/core/src/a/tests.rs", text), 0);
        let inline = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(count("crates/core/src/lib.rs", &inline), 0);
    }
}
