//! The comparison with Python's packages, for those who have them.

use std::path::Path;
use std::process::Command;

use thalweg_lab::testing::{Lack, skip};

/// The script's exit code where it cannot have its packages.
const NO_PACKAGES: i32 = 77;

#[test]
#[ignore = "installs scikit-learn and quantile-forest into target/; run it with --ignored"]
fn quantiles_and_coverage_agree_with_quantile_forest() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compare_forest.py");
    match Command::new("python3").arg(script).arg("--quick").status() {
        Ok(status) if status.code() == Some(NO_PACKAGES) => {
            skip(Lack::Program, "scikit-learn and quantile-forest cannot be installed");
        }
        Ok(status) => assert!(status.success(), "see above"),
        Err(error) => skip(Lack::Program, format!("there is no python3: {error}")),
    }
}
