//! For programs.

use serde_json::{Value, json};
use thalweg_report::format::Unit;
use thalweg_report::plot::Chart;

use crate::{Figure, FigureError, Plan, Report, Verdict};

/// A report as one document. `figure`, `paper`, `ours`, `holds` and `seed` are promises; `paper` and
/// `ours` have an entry for each claim, in the same order.
pub fn json(report: &Report) -> Value {
    let first = report.first();
    let verdicts = report.verdicts();
    let paper =
        verdicts.iter().map(|claim| json!({ "claim": claim.text, "value": claim.paper.to_json() }));
    let seeds = report.runs.iter().map(|(seed, _)| *seed);
    let series = first.plots.iter().flat_map(|plot| series(&plot.chart));
    let mut document = json!({
        "figure": report.name,
        "title": report.heading.title,
        "source": report.heading.paper,
        "about": report.heading.about,
        "paper": paper.collect::<Vec<_>>(),
        "ours": verdicts.iter().map(ours).collect::<Vec<_>>(),
        "holds": report.holds(),
        "verdict": super::verdict(report),
        "seed": report.seed(),
        "seeds": seeds.collect::<Vec<_>>(),
        "quick": report.quick,
        "series": series.collect::<Vec<_>>(),
        "not_measured": report.heading.not_measured,
        "notes": report.heading.notes,
    });
    if let Some(seconds) = report.seconds {
        document["seconds"] = seconds.into();
    }
    document
}

/// All figures, without running any.
pub fn list_json(figures: &[Figure]) -> Result<Value, FigureError> {
    let entry = |figure: &Figure| {
        let plan = Plan::of(figure)?;
        let heading = plan.heading();
        Ok(json!({
            "figure": figure.name(),
            "title": heading.title,
            "source": heading.paper,
            "about": heading.about,
            "full_run_s": heading.full_run_s,
            "quick_run_s": heading.quick_run_s,
        }))
    };
    figures.iter().map(entry).collect()
}

fn ours(claim: &Verdict) -> Value {
    let mut ours = json!({
        "claim": claim.text,
        "value": claim.ours.to_json(),
        "unit": unit_name(claim.unit),
        "rule": claim.rule,
        "holds": claim.holds(),
    });
    if claim.values.len() > 1 {
        ours["values"] = claim.values.iter().map(crate::Value::to_json).collect();
        ours["seeds_held"] = claim.held.into();
    }
    ours
}

/// Units and their names in documents.
const UNITS: [(Unit, &str); 6] = [
    (Unit::Plain, "number"),
    (Unit::Bytes, "bytes"),
    (Unit::SpanUs, "microseconds"),
    (Unit::BitsPerSecond, "bits per second"),
    (Unit::Percent, "fraction"),
    (Unit::Ratio, "ratio"),
];

/// Returns the name of a unit in documents.
pub(crate) fn unit_name(unit: Unit) -> &'static str {
    UNITS.iter().find(|(known, _)| *known == unit).map_or("number", |(_, name)| name)
}

/// Returns the unit with this name in documents.
pub(crate) fn unit_named(name: &str) -> Option<Unit> {
    UNITS.iter().find(|(_, known)| *known == name).map(|(unit, _)| *unit)
}

fn series(chart: &Chart) -> impl Iterator<Item = Value> {
    chart.all_series().iter().map(|series| {
        let points = series.points().iter().map(|&(x, y)| match chart.x_axis().category(x) {
            Some(name) => json!([name, y]),
            None => json!([x, y]),
        });
        json!({
            "chart": chart.title(),
            "name": series.name(),
            "x": chart.x_axis().label(),
            "y": chart.y_axis().label(),
            "points": points.collect::<Vec<_>>(),
        })
    })
}
