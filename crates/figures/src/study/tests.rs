use super::*;
use crate::simulated::Simulated;

fn study(text: &str) -> Study {
    toml::from_str(&format!("{text}\nclaims = []\nplots = []\ntables = []")).unwrap()
}

/// Every part of every plan names axes, choices and words that there are, at both sizes.
#[test]
fn plans_fit_together() {
    for figure in crate::all() {
        for quick in [false, true] {
            let Some(form) = figure.try_form::<Of<Simulated>>(quick) else { continue };
            let cells = form.study.cells().unwrap_or_else(|why| panic!("{}: {why}", figure.name()));
            let nothing = vec![Measured::default(); cells.len()];
            for cell in &cells {
                form.bench.file(cell).unwrap_or_else(|why| panic!("{}: {why}", figure.name()));
            }
            let findings = form.study.findings(cells, nothing);
            let findings = findings.unwrap_or_else(|why| panic!("{}: {why}", figure.name()));
            assert!(findings.claims.iter().all(|claim| !claim.holds()), "{}", figure.name());
        }
    }
}
