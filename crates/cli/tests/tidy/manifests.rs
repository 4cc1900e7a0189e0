//! The packages and what they depend on, as Cargo sees them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::tree;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    #[serde(default)]
    pub description: Option<String>,
    manifest_path: PathBuf,
    pub dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
pub struct Dependency {
    pub name: String,
    /// Absent for what the code itself uses; else `dev` or `build`.
    kind: Option<String>,
    /// Set for packages of this repository only.
    path: Option<String>,
    /// Versions that it may have. Any, `*`, where only its path is given.
    #[serde(default, rename = "req")]
    requirement: String,
}

/// The packages of the workspace whose manifest is given relative to `root`.
pub fn packages(root: &Path, manifest: &str) -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(root.join(manifest))
        .output()
        .expect("cargo can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata refuses {manifest}: {errors}");
    parse(&output.stdout)
}

pub fn parse(json: &[u8]) -> Vec<Package> {
    let metadata: Metadata =
        serde_json::from_slice(json).expect("cargo metadata prints its format");
    metadata.packages
}

impl Package {
    /// Directory of the package relative to the root of the repository, with a slash at the end.
    pub fn directory(&self) -> String {
        let directory = self.manifest_path.parent().unwrap_or(&self.manifest_path);
        format!("{}/", tree::relative(&tree::root(), directory))
    }

    /// The manifest and the line that names `dependency`, for messages.
    pub fn place(&self, dependency: &str) -> String {
        let manifest = fs::read_to_string(&self.manifest_path).unwrap_or_default();
        let names = |line: &str| {
            line.trim_start().strip_prefix(dependency).is_some_and(|rest| {
                rest.starts_with(|next: char| !next.is_alphanumeric() && !"-_".contains(next))
            })
        };
        let line = manifest.lines().position(names).unwrap_or(0);
        format!("{}:{}", tree::relative(&tree::root(), &self.manifest_path), line + 1)
    }
}

impl Dependency {
    pub fn is_dev(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }

    /// Returns whether it is a package of this repository that the code itself uses.
    pub fn is_linked(&self) -> bool {
        self.path.is_some() && self.kind.is_none()
    }

    /// Returns whether it is a package of this repository that only tests use, and that has a version all the same.
    pub fn is_versioned_for_tests(&self) -> bool {
        self.path.is_some() && self.is_dev() && self.requirement != "*"
    }

    pub fn is_own(&self) -> bool {
        self.path.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::packages;
    use crate::tree;

    #[test]
    fn this_package_and_its_dev_dependencies_are_found() {
        let packages = packages(&tree::root(), "Cargo.toml");
        let this = packages.iter().find(|package| package.name == env!("CARGO_PKG_NAME")).unwrap();
        let toml = this.dependencies.iter().find(|dependency| dependency.name == "toml").unwrap();
        assert!(!toml.is_own());
        let line = include_str!("../../Cargo.toml")
            .lines()
            .position(|line| line.starts_with("toml"))
            .unwrap();
        assert_eq!(this.place("toml"), format!("crates/cli/Cargo.toml:{}", line + 1));
    }
}
