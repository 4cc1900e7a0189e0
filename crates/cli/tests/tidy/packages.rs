//! The library and the crates that it is made of can be packaged.

use std::collections::BTreeSet;

use crate::manifests::Package;

/// The crate that programs depend on.
const LIBRARY: &str = "thalweg";

/// Line of the documentation of a crate that only the library depends on.
const PROMISE: &str = "without a promise of stability";

/// Problems of the packages that the library needs. `about` reads the head of a package's documentation.
pub fn problems(packages: &[Package], about: impl Fn(&Package) -> String) -> Vec<String> {
    let packaged = packaged(packages);
    let needed = packages.iter().filter(|package| packaged.contains(package.name.as_str()));
    needed.flat_map(|package| package_problems(package, &about(package))).collect()
}

/// The library and all that it is linked with.
pub fn packaged(packages: &[Package]) -> BTreeSet<&str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![LIBRARY]);
    while let Some(name) = open.pop() {
        let package = packages.iter().find(|package| package.name == name);
        if let Some(package) = package.filter(|package| found.insert(package.name.as_str())) {
            let linked = package.dependencies.iter().filter(|used| used.is_linked());
            open.extend(linked.map(|used| used.name.as_str()));
        }
    }
    found
}

fn package_problems(package: &Package, about: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if package.description.as_deref().unwrap_or_default().is_empty() {
        problems.push(format!("{}: a package needs a description", package.place("name")));
    }
    if package.name != LIBRARY && !about.contains(PROMISE) {
        let place = package.directory();
        problems.push(format!("{place}src/lib.rs: say that it is {PROMISE}, as others do"));
    }
    for used in package.dependencies.iter().filter(|used| used.is_versioned_for_tests()) {
        problems.push(format!(
            "{}: {} is for tests: give its path and no version, since a package without it has to be made first",
            package.place(&used.name),
            used.name
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::problems;
    use crate::manifests;

    #[test]
    fn what_the_library_needs_has_a_description_a_promise_and_no_versions_for_tests() {
        let used = |name: &str, kind: &str, requirement: &str| {
            format!(r#"{{"name": "{name}", "kind": {kind}, "path": "b", "req": "{requirement}"}}"#)
        };
        let package = |name: &str, about: &str, dependencies: &[String]| {
            let dependencies = dependencies.join(", ");
            format!(
                r#"{{"name": "{name}", "description": {about}, "manifest_path": "a/Cargo.toml",
                    "dependencies": [{dependencies}]}}"#
            )
        };
        let both = [used("thalweg-core", "null", "^0.1"), used("thalweg-lab", "\"dev\"", "^0.1")];
        let packages = [
            package("thalweg", "\"sums\"", &both),
            package("thalweg-core", "null", &[used("thalweg-lab", "\"dev\"", "*")]),
            package("thalweg-lab", "null", &[]),
        ];
        let json = format!(r#"{{"packages": [{}]}}"#, packages.join(", "));
        let packages = manifests::parse(json.as_bytes());
        let found = problems(&packages, |_| "//! Nothing.".to_owned());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("thalweg-lab is for tests"), "{found:?}");
        assert!(found[1].contains("needs a description"), "{found:?}");
        assert!(found[2].contains("without a promise"), "{found:?}");
    }
}
