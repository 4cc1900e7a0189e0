//! The record of a figure in `verdicts/NAME.toml`: the verdict on every claim, at the quick size.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use thalweg_figures::{Report, Verdict};

const HEADER: &str = "\
# Verdicts at the quick size with seed 1. The test `every_figure` writes this file with THALWEG_BLESS=1:
# do not edit it. Values are for people to read and are not compared.

";

/// Claims about time that is read from a clock, by figure: their verdicts depend on the machine and on
/// its load.
pub const READ_FROM_A_CLOCK: [(&str, &str); 3] = [
    ("mlcc-15", "nine decisions of ten take at most"),
    ("mlcc-scale", "200 servers: nine decisions of ten take at most"),
    ("mlcc-scale", "growth of the median decision from 20 servers"),
];

/// Figures whose bars are recorded as well. Of `ours-16` they are the combinations of planes that ran.
const WITH_BARS: [&str; 1] = ["ours-16"];

/// Verdicts on the claims of one figure, in the order of the figure.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub claims: Vec<Entry>,
    /// Heights of bars, by chart and category. Empty unless the figure is in [`WITH_BARS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bars: BTreeMap<String, BTreeMap<String, f64>>,
}

/// One claim. It has either a verdict and a value, or a reason why it is not compared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Entry {
    pub claim: String,
    pub rule: String,
    pub holds: Option<bool>,
    /// Measured value with its unit. It is not compared: most changes to a protocol move many values, and
    /// records that have to be written again each time would hide the one verdict that changed.
    pub value: Option<String>,
    pub not_compared: Option<String>,
}

impl Record {
    /// The folder of all records.
    pub fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("verdicts")
    }

    /// Reads the record of a figure; `None` if it has none.
    pub fn read(figure: &str) -> Option<Record> {
        match fs::read_to_string(path(figure)) {
            Ok(text) => {
                let record = toml::from_str(&text);
                Some(record.unwrap_or_else(|error| panic!("verdicts/{figure}.toml: {error}")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("verdicts/{figure}.toml: {error}"),
        }
    }

    /// Replaces the record of a figure.
    pub fn write(&self, figure: &str) {
        let text = toml::to_string(self).expect("a record has only tables, texts and numbers");
        fs::create_dir_all(Record::folder()).expect("the source tree can be written");
        fs::write(path(figure), format!("{HEADER}{text}")).expect("the source tree can be written");
    }

    /// Returns the record that a run would give.
    pub fn of(report: &Report) -> Record {
        let entry = |verdict: &Verdict| Entry::of(report.name, verdict);
        let bars = if WITH_BARS.contains(&report.name) { bars(report) } else { BTreeMap::new() };
        Record { claims: report.verdicts().iter().map(entry).collect(), bars }
    }

    /// Returns one line for everything in which a run differs from this record, values aside.
    pub fn differences(&self, figure: &str, present: &Record) -> Vec<String> {
        let recorded = |claim: &str| self.claims.iter().find(|entry| entry.claim == claim);
        let is_made = |claim: &str| present.claims.iter().any(|entry| entry.claim == claim);
        let made = present.claims.iter().flat_map(|entry| match recorded(&entry.claim) {
            Some(recorded) => recorded.differences(entry),
            None => vec![format!("{entry} has no record; now: {}", entry.outcome())],
        });
        let vanished = self.claims.iter().filter(|entry| !is_made(&entry.claim));
        let vanished = vanished
            .map(|entry| format!("{entry} is recorded, but the figure no longer claims it"));
        let differences = made.chain(vanished).chain(self.bar_differences(present));
        differences.map(|difference| format!("{figure}: {difference}")).collect()
    }

    fn bar_differences(&self, present: &Record) -> Option<String> {
        let (recorded, present) = (self.bar_names(), present.bar_names());
        (recorded != present)
            .then(|| format!("bars are recorded for {recorded:?}, now: {present:?}"))
    }

    fn bar_names(&self) -> Vec<(&String, Vec<&String>)> {
        self.bars.iter().map(|(chart, bars)| (chart, bars.keys().collect())).collect()
    }

    /// Returns one line for every claim whose value is not the recorded one.
    pub fn moved_values(&self, figure: &str, present: &Record) -> Vec<String> {
        let moved = |entry: &Entry| {
            let recorded = self.claims.iter().find(|recorded| recorded.claim == entry.claim)?;
            let (before, now) = (recorded.value.as_ref()?, entry.value.as_ref()?);
            (before != now).then(|| format!("{figure}: {entry}: {before}, now {now}"))
        };
        present.claims.iter().filter_map(moved).collect()
    }
}

impl Entry {
    fn of(figure: &str, verdict: &Verdict) -> Entry {
        let is_timed = READ_FROM_A_CLOCK.contains(&(figure, verdict.text.as_str()));
        let reason = "time read from a clock: it differs between runs and between machines";
        Entry {
            claim: verdict.text.clone(),
            rule: verdict.rule.clone(),
            holds: (!is_timed).then(|| verdict.holds()),
            value: (!is_timed).then(|| verdict.ours.format(verdict.unit)),
            not_compared: is_timed.then(|| reason.to_owned()),
        }
    }

    fn differences(&self, present: &Entry) -> Vec<String> {
        let mut differences = Vec::new();
        if self.rule != present.rule {
            differences.push(format!("{self} has another rule now: {}", present.rule));
        }
        let (before, now) = (self.outcome(), present.outcome());
        match (self.holds, present.holds) {
            (before, now) if before == now => {}
            (Some(true), Some(false)) => {
                differences.push(format!("{self} no longer holds; recorded: {before}; now: {now}"));
            }
            (Some(false), Some(true)) => {
                differences.push(format!("{self} now holds; recorded: {before}; now: {now}"));
            }
            _ => differences.push(format!("{self}: recorded: {before}; now: {now}")),
        }
        differences
    }

    fn outcome(&self) -> String {
        let verdict = match self.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => return "not compared".to_owned(),
        };
        format!("{verdict}, {}", self.value.as_deref().unwrap_or("no value"))
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\" ({})", self.claim, self.rule)
    }
}

fn path(figure: &str) -> PathBuf {
    Record::folder().join(format!("{figure}.toml"))
}

/// Heights of the bars of every chart, to a tenth: people read them.
fn bars(report: &Report) -> BTreeMap<String, BTreeMap<String, f64>> {
    let charts = report.first().plots.iter().map(|plot| &plot.chart);
    charts
        .map(|chart| {
            let points = chart.all_series().iter().flat_map(|series| series.points());
            let bars = points.filter_map(|&(x, y)| {
                let category = chart.x_axis().category(x)?;
                assert!(y.is_finite() && y > 0.0, "{}: {category}: {y}", report.name);
                Some((category.to_owned(), (y * 10.0).round() / 10.0))
            });
            (chart.title().to_owned(), bars.collect())
        })
        .collect()
}
