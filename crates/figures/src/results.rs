//! Recorded results: what the last recorded run of each figure gave at each size, and the page made of them.
//!
//! A [`ResultFile`] is `results/NAME.json`. It has the claims with their values, and neither drawings nor tables. The
//! same commit, size and seeds give the same file, but for values that are read from a clock. [`ResultSet`] is all of
//! them, checked against the plans, and gives the page.

mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_report::format::{MISSING, Unit};

use crate::output::{unit_name, unit_named};
use crate::{Figure, FigureError, Report, Value, Verdict, all};

/// Name and version of the documents.
const SCHEMA: &str = "thalweg.figure-result/1";

/// The last recorded run of a figure at each size.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultFile {
    schema: String,
    figure: String,
    /// Run at the quick size, once it was recorded.
    quick: Option<SizeResult>,
    /// Run at the full size, once it was recorded.
    full: Option<SizeResult>,
}

/// A recorded run at one size.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeResult {
    /// Last commit of the sources that the program was built from.
    pub commit: String,
    /// Seeds that were run.
    pub seeds: Vec<u64>,
    /// Claims in the order of the figure.
    pub claims: Vec<ClaimResult>,
}

/// A claim and what was measured.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimResult {
    /// The claim.
    pub claim: String,
    /// Value that the paper gives.
    pub paper: Scalar,
    /// Measured value, of several seeds the middle one.
    pub value: Scalar,
    /// Name of the unit of both.
    pub unit: String,
    /// Rule by which the two agree.
    pub rule: String,
    /// `true` if the claim holds over all seeds.
    pub holds: bool,
    /// Measured values by seed, where several were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Scalar>,
    /// Number of seeds over which the claim holds, where several were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds_held: Option<usize>,
}

/// A number or words; null is a number that is not finite.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A number in the base of the unit, if it is finite.
    Number(Option<f64>),
    /// Text as it is printed.
    Words(String),
}

/// All result files of a folder, which fit the plans.
#[derive(Clone, PartialEq, Debug)]
pub struct ResultSet {
    introduction: String,
    files: BTreeMap<String, ResultFile>,
}

impl From<&Value> for Scalar {
    fn from(value: &Value) -> Scalar {
        match value {
            Value::Number(number) => Scalar::Number(number.is_finite().then_some(*number)),
            Value::Words(words) => Scalar::Words(words.clone()),
        }
    }
}

impl Scalar {
    fn format(&self, unit: Unit) -> String {
        match self {
            Scalar::Number(Some(number)) => unit.format(*number),
            Scalar::Number(None) => MISSING.to_owned(),
            Scalar::Words(words) => words.clone(),
        }
    }
}

impl ClaimResult {
    fn of(verdict: &Verdict) -> ClaimResult {
        let several = verdict.values.len() > 1;
        ClaimResult {
            claim: verdict.text.clone(),
            paper: Scalar::from(&verdict.paper),
            value: Scalar::from(&verdict.ours),
            unit: unit_name(verdict.unit).to_owned(),
            rule: verdict.rule.clone(),
            holds: verdict.holds(),
            values: if several {
                verdict.values.iter().map(Scalar::from).collect()
            } else {
                vec![]
            },
            seeds_held: several.then_some(verdict.held),
        }
    }
}

impl SizeResult {
    /// Returns what is recorded of a report whose program was built from this commit.
    pub fn of(report: &Report, commit: &str) -> SizeResult {
        SizeResult {
            commit: commit.to_owned(),
            seeds: report.runs.iter().map(|(seed, _)| *seed).collect(),
            claims: report.verdicts().iter().map(ClaimResult::of).collect(),
        }
    }

    fn held(&self) -> usize {
        self.claims.iter().filter(|claim| claim.holds).count()
    }
}

impl ResultFile {
    /// Returns the file of a figure of which nothing is recorded.
    pub fn empty(figure: &Figure) -> ResultFile {
        let (schema, figure) = (SCHEMA.to_owned(), figure.name().to_owned());
        ResultFile { schema, figure, quick: None, full: None }
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<ResultFile, String> {
        let file: ResultFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.schema != SCHEMA {
            return Err(format!("its schema is {:?}, expected {SCHEMA:?}", file.schema));
        }
        Ok(file)
    }

    /// Returns the recorded run at a size.
    pub fn size(&self, quick: bool) -> Option<&SizeResult> {
        if quick { self.quick.as_ref() } else { self.full.as_ref() }
    }

    /// Replaces what is recorded of a size.
    pub fn record(&mut self, quick: bool, result: SizeResult) {
        *(if quick { &mut self.quick } else { &mut self.full }) = Some(result);
    }

    /// Returns the text of the file, with a line for each claim.
    pub fn to_text(&self) -> String {
        let mut parts = vec![
            format!("  \"schema\": {}", json(&self.schema)),
            format!("  \"figure\": {}", json(&self.figure)),
        ];
        for (name, size) in [("quick", &self.quick), ("full", &self.full)] {
            let Some(SizeResult { commit, seeds, claims }) = size else { continue };
            let lines: Vec<String> =
                claims.iter().map(|claim| format!("      {}", json(claim))).collect();
            parts.push(format!(
                "  \"{name}\": {{\n    \"commit\": {},\n    \"seeds\": {},\n    \"claims\": [\n{}\n    ]\n  }}",
                json(commit),
                json(seeds),
                lines.join(",\n")
            ));
        }
        format!("{{\n{}\n}}\n", parts.join(",\n"))
    }

    /// Returns one line for everything in which the file does not fit the plan of its figure.
    fn misfits(&self, figure: &Figure) -> Result<Vec<String>, FigureError> {
        let mut misfits = Vec::new();
        if self.figure != figure.name() {
            misfits.push(format!("it is of {}", self.figure));
        }
        for quick in [true, false] {
            let Some(size) = self.size(quick) else { continue };
            let name = if quick { "quick" } else { "full" };
            let own = size.misfits(figure, quick)?;
            misfits.extend(own.into_iter().map(|misfit| format!("{name} size: {misfit}")));
        }
        Ok(misfits)
    }
}

impl SizeResult {
    fn misfits(&self, figure: &Figure, quick: bool) -> Result<Vec<String>, FigureError> {
        let mut misfits: Vec<String> = self.claims.iter().filter_map(ClaimResult::misfit).collect();
        let is_commit =
            self.commit.len() == 40 && self.commit.chars().all(|c| c.is_ascii_hexdigit());
        if !is_commit {
            misfits.push(format!("{:?} is no commit", self.commit));
        }
        if self.seeds.is_empty() || self.claims.is_empty() {
            misfits.push("it has no seed or no claim".to_owned());
        }
        let Some(planned) = figure.planned_claims(quick)? else { return Ok(misfits) };
        for claim in &planned {
            let Some(own) = self.claims.iter().find(|own| own.claim == claim.text()) else {
                misfits.push(format!("the claim {:?} of the plan is missing", claim.text()));
                continue;
            };
            let paper = Scalar::from(claim.paper()).format(claim.unit());
            if own.rule != claim.rule() || own.paper.format(own.unit()) != paper {
                let reason = "has another rule or another value of the paper in the plan";
                misfits.push(format!("the claim {:?} {reason}", own.claim));
            }
        }
        let is_planned = |own: &&ClaimResult| planned.iter().any(|it| it.text() == own.claim);
        let gone = self.claims.iter().filter(|own| !is_planned(own));
        misfits.extend(gone.map(|own| format!("the claim {:?} is not in the plan", own.claim)));
        Ok(misfits)
    }
}

impl ClaimResult {
    fn unit(&self) -> Unit {
        unit_named(&self.unit).unwrap_or_default()
    }

    fn misfit(&self) -> Option<String> {
        let is_known = unit_named(&self.unit).is_some();
        (!is_known)
            .then(|| format!("the claim {:?} has no known unit: {:?}", self.claim, self.unit))
    }
}

impl ResultSet {
    /// Reads the texts of a folder: the introduction of the page, and files by name without `.json`. An error is a list
    /// of all files that are invalid, with the reasons.
    pub fn parse(
        introduction: &str,
        texts: &BTreeMap<String, String>,
    ) -> Result<ResultSet, Vec<String>> {
        let (mut files, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, text) in texts {
            match checked(name, text) {
                Ok(file) => drop(files.insert(name.clone(), file)),
                Err(own) => problems.extend(own.iter().map(|it| format!("{name}.json: {it}"))),
            }
        }
        let introduction = introduction.trim_end().to_owned();
        if problems.is_empty() { Ok(ResultSet { introduction, files }) } else { Err(problems) }
    }

    /// Returns the recorded run of a figure at a size.
    pub fn size(&self, figure: &str, quick: bool) -> Option<&SizeResult> {
        self.files.get(figure)?.size(quick)
    }

    /// Returns the page: the introduction, a table of all figures, and a section for each.
    pub fn page(&self) -> Result<String, FigureError> {
        page::page(self)
    }

    /// Returns the first line in which a page is not the one that the results give.
    pub fn difference(&self, page: &str) -> Result<Option<String>, FigureError> {
        let expected = self.page()?;
        if page == expected {
            return Ok(None);
        }
        let (mut lines, mut wanted) = (page.lines(), expected.lines());
        let mut number = 0;
        loop {
            number += 1;
            let (line, want) = (lines.next(), wanted.next());
            if line != want || line.is_none() {
                let (line, want) = (line.unwrap_or("its end"), want.unwrap_or("its end"));
                return Ok(Some(format!("line {number} is {line:?}, the results give {want:?}")));
            }
        }
    }
}

/// Reads a file and holds it against the plan of its figure.
fn checked(name: &str, text: &str) -> Result<ResultFile, Vec<String>> {
    let one = |problem: String| vec![problem];
    let known = all().iter().find(|figure| figure.name() == name);
    let figure = known.ok_or_else(|| one("there is no figure of this name".to_owned()))?;
    let file = ResultFile::parse(text).map_err(one)?;
    let misfits = file.misfits(figure).map_err(|error| one(error.to_string()))?;
    if misfits.is_empty() { Ok(file) } else { Err(misfits) }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers, texts and lists can always be written")
}
