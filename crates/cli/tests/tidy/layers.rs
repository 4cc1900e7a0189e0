//! Crates name only crates of lower layers, and the planes do not name each other.

use crate::manifests::Package;

/// Every crate and its layer, as drawn in the architecture.
const LAYERS: &[(u32, &[&str])] = &[
    (0, &["thalweg-core"]),
    (
        1,
        &[
            "thalweg-linux",
            "thalweg-plugin",
            "thalweg-values",
            "thalweg-wire",
            "thalweg-report",
            "thalweg-train",
        ],
    ),
    (
        2,
        &[
            "thalweg-fabric",
            "thalweg-lab",
            "thalweg-net",
            "thalweg-shared",
            "thalweg-transport",
            "thalweg-workload",
        ],
    ),
    (3, &["thalweg-flow", "thalweg-aggregate", "thalweg-console", "thalweg-pace"]),
    (4, &["thalweg-deliver", "thalweg-prioritize"]),
    (5, &["thalweg-collective", "thalweg-baselines", "thalweg-tagging"]),
    (6, &["thalweg-replay", "thalweg-stack"]),
    (7, &["thalweg-scenario", "thalweg-control"]),
    (8, &["thalweg", "thalweg-figures"]),
    (9, &["thalweg-agent", "thalweg-bench", "thalweg-demo", "thalweg-doctor"]),
    (10, &["thalweg-cli"]),
];

/// They meet in the stack, nowhere else.
const PLANES: &[&str] =
    &["thalweg-aggregate", "thalweg-deliver", "thalweg-prioritize", "thalweg-pace"];

/// Published designs to compare with. Simulations run them; the product does not carry them.
const RESEARCH: &str = "thalweg-baselines";

/// Dependencies of code that do not lie lower; tests may use anything.
pub fn problems(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(package_problems).collect()
}

fn package_problems(package: &Package) -> Vec<String> {
    let name = package.name.as_str();
    let Some(own) = layer(name) else {
        return vec![format!(
            "{}: {name} has no layer: add it to the table in {}",
            package.place("name"),
            file!()
        )];
    };
    let used = package.dependencies.iter().filter(|used| used.is_own() && !used.is_dev());
    used.filter_map(|used| {
        let place = package.place(&used.name);
        direction_problem(name, own, &used.name).map(|problem| format!("{place}: {problem}"))
    })
    .collect()
}

fn direction_problem(name: &str, own: u32, used: &str) -> Option<String> {
    let Some(below) = layer(used) else {
        return Some(format!("{used} has no layer: add it to the table in {}", file!()));
    };
    if below >= own {
        return Some(format!(
            "{name} (layer {own}) depends on {used} (layer {below}): only lower layers may be \
             named; move what is shared down"
        ));
    }
    if used == RESEARCH && name != "thalweg-scenario" {
        return Some(format!("{name} depends on {used}: only thalweg-scenario may run baselines"));
    }
    (PLANES.contains(&name) && PLANES.contains(&used)).then(|| {
        format!("plane {name} depends on plane {used}: let them meet in thalweg-stack instead")
    })
}

fn layer(name: &str) -> Option<u32> {
    LAYERS.iter().find(|(_, names)| names.contains(&name)).map(|(layer, _)| *layer)
}

#[cfg(test)]
mod tests {
    use super::problems;
    use crate::manifests;

    /// Problem of a package that has one dependency.
    fn problem(name: &str, used: &str, kind: &str) -> String {
        let json = format!(
            r#"{{"packages": [{{"name": "{name}", "manifest_path": "a/Cargo.toml", "dependencies":
               [{{"name": "{used}", "kind": {kind}, "path": "b"}}]}}]}}"#
        );
        problems(&manifests::parse(json.as_bytes())).join("\n")
    }

    #[test]
    fn lower_layers_may_be_named() {
        assert_eq!(problem("thalweg-flow", "thalweg-core", "null"), "");
        assert_eq!(problem("thalweg-stack", "thalweg-pace", "null"), "");
    }

    #[test]
    fn the_same_layer_and_higher_ones_may_not() {
        assert_eq!(
            problem("thalweg-fabric", "thalweg-net", "null"),
            "a/Cargo.toml:1: thalweg-fabric (layer 2) depends on thalweg-net (layer 2): only lower \
             layers may be named; move what is shared down"
        );
        assert!(problem("thalweg-core", "thalweg-wire", "null").contains("only lower layers"));
        assert!(problem("thalweg-core", "thalweg-wire", "\"build\"").contains("only lower layers"));
    }

    #[test]
    fn tests_may_name_anything() {
        assert_eq!(problem("thalweg-core", "thalweg-cli", "\"dev\""), "");
    }

    #[test]
    fn planes_may_not_name_each_other() {
        assert!(
            problem("thalweg-deliver", "thalweg-pace", "null").contains("meet in thalweg-stack")
        );
        assert_eq!(problem("thalweg-deliver", "thalweg-flow", "null"), "");
    }

    #[test]
    fn only_simulations_may_name_baselines() {
        assert!(
            problem("thalweg-stack", "thalweg-baselines", "null").contains("only thalweg-scen")
        );
        assert_eq!(problem("thalweg-scenario", "thalweg-baselines", "null"), "");
    }

    #[test]
    fn a_crate_without_a_layer_is_a_problem() {
        assert!(problem("thalweg-attic", "thalweg-core", "null").contains("add it to the table"));
        assert!(problem("thalweg-cli", "thalweg-attic", "null").contains("add it to the table"));
    }
}
