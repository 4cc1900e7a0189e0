//! A figure over one seed or several.

use thalweg_report::format::Unit;

use super::claim::{Claim, Value};
use super::context::{Context, Watch};
use super::error::FigureError;
use super::figure::Figure;
use super::findings::Findings;
use super::plan::{Heading, Plan};

/// Settings of a figure's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// True for the plan's quick size.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds, each one above the last; 0 counts as 1.
    pub seeds: u32,
    /// Threads at work.
    pub threads: usize,
}

/// Results of a figure's run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The figure's name.
    pub name: &'static str,
    /// Description of the figure.
    pub heading: Heading,
    /// The text of its plan, for the record.
    pub plan: &'static str,
    /// True for the quick size.
    pub quick: bool,
    /// The seeds and what each one showed; at least one.
    pub runs: Vec<(u64, Findings)>,
    /// Duration, if it was measured.
    pub seconds: Option<f64>,
}

/// A claim over all seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// Text of the claim.
    pub text: String,
    /// Value in the paper.
    pub paper: Value,
    /// Our measurement: of several numbers the middle one (of two in the middle the smaller), of several texts the
    /// first.
    pub ours: Value,
    /// Measurement of every seed.
    pub values: Vec<Value>,
    /// Unit of the numbers.
    pub unit: Unit,
    /// When the claim holds.
    pub rule: String,
    /// Over how many seeds it does.
    pub held: usize,
}

/// Runs a figure over its seeds, one after the other.
pub fn run(
    figure: &'static Figure,
    settings: Settings,
    watch: &Watch<'_>,
) -> Result<Report, FigureError> {
    let plan = Plan::of(figure)?;
    let seeds = u64::from(settings.seeds.max(1));
    let mut runs = Vec::new();
    for number in 0..seeds {
        let seed = settings.seed.wrapping_add(number);
        let whole = Context::new(figure, &Settings { seed, ..settings }, watch);
        let context = whole.part(number as f64 / seeds as f64, (number + 1) as f64 / seeds as f64);
        runs.push((seed, figure.run(&context)?));
    }
    check_claims(figure, &runs)?;
    Ok(Report {
        name: figure.name(),
        heading: plan.heading().clone(),
        plan: figure.plan(),
        quick: settings.quick,
        runs,
        seconds: None,
    })
}

/// Seeds that make different claims cannot be counted together.
fn check_claims(figure: &Figure, runs: &[(u64, Findings)]) -> Result<(), FigureError> {
    let texts = |findings: &Findings| -> Vec<String> {
        findings.claims.iter().map(|claim| claim.text().to_owned()).collect()
    };
    let failed = |reason: String| FigureError::Failed { figure: figure.name(), reason };
    let expected = runs.first().map(|(_, findings)| texts(findings)).unwrap_or_default();
    if expected.is_empty() {
        return Err(failed("it compares nothing with the paper".to_owned()));
    }
    match runs.iter().find(|(_, findings)| texts(findings) != expected) {
        Some((seed, _)) => Err(failed(format!("seed {seed} makes other claims than the first"))),
        None => Ok(()),
    }
}

impl Report {
    /// The first seed.
    pub fn seed(&self) -> u64 {
        self.runs[0].0
    }

    /// Findings of the first seed: its drawings stand for all.
    pub fn first(&self) -> &Findings {
        &self.runs[0].1
    }

    /// Every claim over all seeds.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let claims = 0..self.first().claims.len();
        claims.map(|index| self.verdict(index)).collect()
    }

    /// True if every claim holds over every seed.
    pub fn holds(&self) -> bool {
        self.runs.iter().all(|(_, findings)| findings.claims.iter().all(Claim::holds))
    }

    fn verdict(&self, index: usize) -> Verdict {
        let claims: Vec<&Claim> =
            self.runs.iter().map(|(_, findings)| &findings.claims[index]).collect();
        let values: Vec<Value> = claims.iter().map(|claim| claim.ours()).collect();
        Verdict {
            text: claims[0].text().to_owned(),
            paper: claims[0].paper().clone(),
            ours: middle(&values),
            unit: claims[0].unit(),
            rule: claims[0].rule(),
            held: claims.iter().filter(|claim| claim.holds()).count(),
            values,
        }
    }
}

impl Verdict {
    /// True if the claim holds over every seed.
    pub fn holds(&self) -> bool {
        self.held == self.values.len()
    }
}

fn middle(values: &[Value]) -> Value {
    let number = |value: &Value| match value {
        Value::Number(number) => Some(*number),
        Value::Words(_) => None,
    };
    match values.iter().map(number).collect::<Option<Vec<f64>>>() {
        Some(mut numbers) => {
            numbers.sort_by(f64::total_cmp);
            Value::Number(numbers[(numbers.len() - 1) / 2])
        }
        None => values[0].clone(),
    }
}

#[cfg(test)]
mod tests;
