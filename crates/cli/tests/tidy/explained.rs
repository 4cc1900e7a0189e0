//! The architecture says why each dependency is there.

use std::collections::BTreeMap;

use crate::manifests::Package;

/// Every dependency from outside, whatever its kind, stands in `prose` between backticks.
pub fn problems(packages: &[Package], prose: &str) -> Vec<String> {
    let mut places = BTreeMap::new();
    for package in packages {
        for used in package.dependencies.iter().filter(|used| !used.is_own()) {
            places.entry(used.name.as_str()).or_insert_with(|| package.place(&used.name));
        }
    }
    places
        .into_iter()
        .filter(|(name, _)| !prose.contains(&format!("`{name}`")))
        .map(|(name, place)| {
            format!("{place}: say in ARCHITECTURE.md why `{name}` is there, or do without it")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::problems;
    use crate::manifests;

    #[test]
    fn a_dependency_from_outside_needs_its_line() {
        let packages = manifests::parse(
            br#"{"packages": [{"name": "a", "manifest_path": "a/Cargo.toml", "dependencies": [
                {"name": "libm", "kind": null, "path": null},
                {"name": "proptest", "kind": "dev", "path": null},
                {"name": "thalweg-core", "kind": null, "path": "b"}]}]}"#,
        );
        assert!(problems(&packages, "`libm`: floats. `proptest`: properties.").is_empty());
        assert_eq!(
            problems(&packages, "libm is only mentioned; `proptest` is explained."),
            ["a/Cargo.toml:1: say in ARCHITECTURE.md why `libm` is there, or do without it"]
        );
        assert_eq!(problems(&packages, "").len(), 2);
    }
}
