//! The crates that everybody links do not depend on crates that only some users run, directly or through others.

use std::collections::{BTreeMap, VecDeque};

use crate::manifests::Package;

/// Packages that run on every host of a cluster: the library with its daemons, the agent, the control channel, the
/// plug-in of NCCL, and the wheel for Python.
const PRODUCT: &[&str] =
    &["thalweg", "thalweg-agent", "thalweg-control", "thalweg-nccl", "thalweg-python"];

/// Packages for experiments, measurements and demonstrations, and the program over them.
const APART: &[&str] = &[
    "thalweg-baselines",
    "thalweg-scenario",
    "thalweg-figures",
    "thalweg-bench",
    "thalweg-demo",
    "thalweg-cli",
];

/// Dependencies by which the product links a package that is apart from it.
pub fn problems(packages: &[Package]) -> Vec<String> {
    found(packages, PRODUCT, APART)
}

/// Walks the normal dependencies breadth first, so that each problem shows the shortest chain to it. The walk ends at
/// packages that are apart: what they use is their own affair.
fn found(packages: &[Package], product: &[&str], apart: &[&str]) -> Vec<String> {
    let known: BTreeMap<&str, &Package> =
        packages.iter().map(|package| (package.name.as_str(), package)).collect();
    // A name that no package has would make the rule hold for the wrong reason.
    let unknown = apart.iter().filter(|name| !known.contains_key(*name));
    let mut problems: Vec<String> = unknown.map(|name| unknown_problem(name)).collect();
    let mut chains: BTreeMap<&str, Vec<&str>> =
        product.iter().map(|name| (*name, vec![*name])).collect();
    let mut waiting: VecDeque<&str> = product.iter().copied().collect();
    while let Some(name) = waiting.pop_front() {
        let Some(package) = known.get(name) else {
            problems.push(unknown_problem(name));
            continue;
        };
        let linked = package.dependencies.iter().filter(|used| used.is_linked());
        for used in linked.map(|used| used.name.as_str()) {
            let chain: Vec<&str> = chains[name].iter().copied().chain([used]).collect();
            if apart.contains(&used) {
                let (place, chain) = (package.place(used), chain.join(" → "));
                problems.push(format!(
                    "{place}: {name} depends on {used}, so that {chain}: only some users run \
                     {used}; keep it out of what everybody links"
                ));
            } else if !chains.contains_key(used) {
                chains.insert(used, chain);
                waiting.push_back(used);
            }
        }
    }
    problems
}

fn unknown_problem(name: &str) -> String {
    format!("no package is called {name}: correct the tables in {}", file!())
}

#[cfg(test)]
mod tests {
    use super::found;
    use crate::manifests::{self, Package};

    /// Packages from lines such as `a: b c dev=d build=e`.
    fn packages(lines: &[&str]) -> Vec<Package> {
        let package = |line: &&str| {
            let (name, used) = line.split_once(':').expect("a name comes first");
            let used = used.split_whitespace().map(|word| match word.split_once('=') {
                Some((kind, name)) => dependency(name, &format!("{kind:?}")),
                None => dependency(word, "null"),
            });
            let used = used.collect::<Vec<_>>().join(",");
            format!(
                r#"{{"name": "{name}", "manifest_path": "{name}/Cargo.toml", "dependencies": [{used}]}}"#
            )
        };
        let packages = lines.iter().map(package).collect::<Vec<_>>().join(",");
        manifests::parse(format!(r#"{{"packages": [{packages}]}}"#).as_bytes())
    }

    fn dependency(name: &str, kind: &str) -> String {
        format!(r#"{{"name": "{name}", "kind": {kind}, "path": "../{name}"}}"#)
    }

    /// The graph of a product `top` on `middle` on `low`, and of `toy`, which is apart.
    fn found_in(lines: &[&str]) -> Vec<String> {
        found(&packages(lines), &["top"], &["toy"])
    }

    #[test]
    fn a_product_that_links_only_itself_is_fine() {
        assert_eq!(found_in(&["top: middle", "middle: low", "low:", "toy: low"]), [""; 0]);
    }

    #[test]
    fn what_is_linked_directly_is_found() {
        let problems = found_in(&["top: toy", "toy:"]);
        assert_eq!(
            problems,
            ["top/Cargo.toml:1: top depends on toy, so that top → toy: only some users run toy; \
              keep it out of what everybody links"]
        );
    }

    #[test]
    fn what_is_linked_through_others_is_found_once_where_it_enters() {
        let graph =
            ["top: left right", "left: low", "right: low", "low: toy", "toy: more", "more:"];
        let problems = found_in(&graph);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("low/Cargo.toml:1: low depends on toy, "));
        assert!(problems[0].contains("top → left → low → toy"), "{problems:?}");
    }

    #[test]
    fn every_way_in_is_found() {
        let graph = ["top: left right", "left: toy", "right: toy", "toy:"];
        assert_eq!(found_in(&graph).len(), 2);
    }

    #[test]
    fn what_is_built_for_tests_or_by_scripts_is_not_linked() {
        assert_eq!(
            found_in(&["top: dev=toy build=toy middle", "middle: dev=toy", "toy:"]),
            [""; 0]
        );
    }

    #[test]
    fn packages_that_nobody_in_the_product_uses_may_link_anything() {
        assert_eq!(found_in(&["top:", "tool: toy", "toy: top"]), [""; 0]);
    }

    #[test]
    fn a_circle_ends() {
        assert_eq!(found_in(&["top: middle", "middle: top", "toy:"]), [""; 0]);
    }

    #[test]
    fn names_that_no_package_has_are_found() {
        assert!(found_in(&["top:"])[0].starts_with("no package is called toy: "));
        assert!(found_in(&["toy:"])[0].starts_with("no package is called top: "));
        assert!(found_in(&["top: gone", "toy:"])[0].starts_with("no package is called gone: "));
    }
}
