//! Every dependency is used.

use crate::manifests::Package;
use crate::tree::TextFile;

/// Every dependency is named in the code of its package, by its tests or benchmarks if it is for those only.
pub fn problems(packages: &[Package], files: &[TextFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        for used in &package.dependencies {
            let may_be_in = |file: &&TextFile| {
                let inner = file.path.strip_prefix(&package.directory());
                inner.is_some_and(|inner| used.is_dev() || !is_for_tests(inner))
            };
            let name = used.name.replace('-', "_");
            if !files.iter().filter(may_be_in).any(|file| names(&file.text, &name)) {
                let place = package.place(&used.name);
                problems.push(format!("{place}: nothing uses `{}`: do without it", used.name));
            }
        }
    }
    problems
}

fn is_for_tests(path: &str) -> bool {
    ["tests/", "benches/", "examples/"].iter().any(|directory| path.starts_with(directory))
}

/// Returns whether code, and not a comment alone, has this word.
fn names(text: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let code = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    code.flat_map(|line| line.split(|character| !is_part(character))).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests;
    use crate::tree;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn what_only_a_comment_or_another_package_names_is_not_used() {
        let manifest = tree::root().join("a/Cargo.toml");
        let json = format!(
            r#"{{"packages": [{{"name": "a", "manifest_path": {manifest:?}, "dependencies": [
                {{"name": "rand-core", "kind": null, "path": null}},
                {{"name": "proptest", "kind": "dev", "path": null}}]}}]}}"#
        );
        let packages = manifests::parse(json.as_bytes());
        let count = |files: &[TextFile]| problems(&packages, files).len();
        let source = file("a/src/lib.rs", "use rand_core::Rng;");
        let tests = file("a/tests/all.rs", "use proptest::prelude::*;");
        assert_eq!(count(&[source, tests]), 0);
        let others = [
            file("a/src/lib.rs", "// rand_core: random bits\nuse rand_core_2::Rng;"),
            file("a/tests/all.rs", "use rand_core::Rng;"),
            file("b/src/lib.rs", "use rand_core::Rng; use proptest::prelude::*;"),
        ];
        assert_eq!(count(&others), 2);
    }
}
