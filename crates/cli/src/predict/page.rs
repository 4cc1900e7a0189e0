//! Sizes within their bounds, drawn.

use thalweg_prioritize::evaluate::Judged;
use thalweg_report::format::Unit;
use thalweg_report::page::{Card, Page, Section, Tone};
use thalweg_report::plot::{Axis, Chart, Series};

use super::eval::{Evaluation, share};

/// Flows that are drawn, at most: evenly spread over all.
const DRAWN: usize = 600;
/// Smallest share that QCLIMB reports.
const GOOD_SHARE: f64 = 0.999;

/// Known flows in the order of their bounds: both bounds, and the size between them.
pub(super) fn chart(judged: &[Judged]) -> Chart {
    let mut known: Vec<[u64; 3]> = judged
        .iter()
        .filter_map(|flow| {
            let bounds = flow.bounds?;
            Some([bounds.lower.as_u64(), bounds.upper.as_u64(), flow.bytes.as_u64()])
        })
        .collect();
    known.sort_unstable();
    let step = known.len().div_ceil(DRAWN).max(1);
    let points = |which: usize| -> Vec<(f64, f64)> {
        let drawn = known.iter().enumerate().step_by(step);
        // A logarithm has no zero.
        drawn.map(|(place, flow)| (place as f64, flow[which].max(1) as f64)).collect()
    };
    Chart::new("Flow sizes within their bounds")
        .x(Axis::linear("flows, ordered by their bounds"))
        .y(Axis::log10("bytes").unit(Unit::Bytes))
        .series(Series::step("upper bound", points(1)))
        .series(Series::step("lower bound", points(0)))
        .series(Series::scatter("size", points(2)))
        .size(900, 420)
}

/// The page with all of it.
pub(super) fn html(evaluation: &Evaluation, judged: &[Judged]) -> String {
    let bounded = evaluation.summary.bounded_share();
    let tone = match bounded {
        Some(share) if share >= GOOD_SHARE => Tone::Good,
        Some(_) => Tone::Warning,
        None => Tone::Neutral,
    };
    let section = Section::new("")
        .cards([Card::new("within their bounds", share(bounded)).tone(tone)])
        .plot(chart(judged), "Each flow's size between the bounds that were predicted for it.")
        .definitions(evaluation.lines())
        .table(evaluation.table(), "Lower bounds of known flows, by size");
    Page::new("Bounds on flow sizes").section(section).to_html()
}
