//! The verdict: tables for people, one document for programs.

use serde_json::{Value, json};
use thalweg_report::format::{format_count, format_percent, format_rate_bps, format_span_us};
use thalweg_report::table::Table;

use super::outcome::{ACCURACY_WITHIN, Measured, Outcome, TenantOutcome, Training};

/// Verdict when nothing is wrong.
pub(super) const ALL_WELL: &str = "everything is as it should be";

/// One line.
pub(super) fn line(outcome: &Outcome) -> String {
    match &outcome.problems()[..] {
        [] => ALL_WELL.to_owned(),
        problems => format!("not as it should be: {}", problems.join("; ")),
    }
}

/// A column for each tenant.
pub(super) fn tenants(outcome: &Outcome) -> Table {
    let mut table = Table::by_column(ROWS).left("tenant", |(label, _)| (*label).to_owned());
    for tenant in &outcome.tenants {
        table = table.right(&tenant.tenant.name, |(_, cell)| cell(tenant));
    }
    table.into()
}

type Cell = fn(&TenantOutcome) -> String;

const ROWS: &[(&str, Cell)] = &[
    ("workers", |outcome| outcome.tenant.workers.to_string()),
    ("steps", |outcome| outcome.tenant.lesson.steps.to_string()),
    ("parameters", |outcome| format_count(outcome.tenant.parameters as u64)),
    ("test accuracy", |outcome| percent(outcome.accuracy())),
    ("… in one process, same seed", |outcome| percent(outcome.reference_accuracy())),
    ("workers hold the same bits", |outcome| match outcome.is_identical() {
        true => "yes".to_owned(),
        false => "NO".to_owned(),
    }),
    ("… largest difference", |outcome| {
        small(f64::from(outcome.largest_difference_between_workers()))
    }),
    ("parameter furthest from one process", |outcome| {
        small(f64::from(outcome.largest_difference()))
    }),
    ("sums computed again", |outcome| match &outcome.training {
        Training { sums_checked, sums_wrong: 0, .. } => format!("{sums_checked}, all right"),
        Training { sums_checked, sums_wrong, .. } => format!("{sums_checked}, {sums_wrong} WRONG"),
    }),
    ("goodput of a worker", |outcome| format_rate_bps(outcome.goodput_bps())),
    ("added in the switch", |outcome| percent(outcome.aggregated_share())),
    ("contributions repaired", |outcome| format_count(outcome.training.repairs)),
    ("questions asked", |outcome| format_count(outcome.training.queries)),
];

/// A row for each way.
pub(super) fn comparison(outcome: &Outcome) -> Table {
    Table::by_column(&outcome.comparison)
        .left("all-reduce by", |measured| measured.way.name().to_owned())
        .right("packets lost", |measured| loss(measured))
        .right("goodput", |measured| format_rate_bps(measured.goodput_bps()))
        .right("one sum", |measured| format_span_us(measured.mean_us()))
        .left("sums", |it| if it.is_exact { "exact" } else { "WRONG" }.to_owned())
        .into()
}

/// Work of the switch for both tenants.
pub(super) fn switch(outcome: &Outcome) -> String {
    let [lost, packets, completed] =
        [outcome.switch.lost_on_purpose, outcome.switch.packets, outcome.switch.completed]
            .map(format_count);
    format!(
        "The switch took in {packets} packets, lost {lost} packets and copies on purpose, and summed \
         {completed} fragments ({}) whole; what it lacked, the server completed.",
        percent(outcome.aggregated_share())
    )
}

/// Checks behind the verdict.
pub(super) fn bounds() -> String {
    format!(
        "Checked: all workers of a tenant hold the same bits; the sum of every step, computed again by one \
         of them from everybody's examples, differs by rounding alone; every sum of the comparison is exact; accuracy \
         is within {} points of the run in one process. That run differs by rounding too: floats are \
         added in the order in which packets arrive, and training makes more of it with every step.",
        ACCURACY_WITHIN * 100.0
    )
}

/// Definition of goodput.
pub(super) const GOODPUT: &str = "Goodput: bits of the gradient over the time of its sum, from the \
    last worker's start until all have it.";

/// One document.
pub(super) fn json(outcome: &Outcome) -> Value {
    let problems = outcome.problems();
    let tenants = outcome.tenants.iter().map(tenant_json);
    let comparison = outcome.comparison.iter().map(|measured| {
        json!({
            "collective": measured.way.name(),
            "loss": measured.loss,
            "goodput_gbps": measured.goodput_bps() / 1e9,
            "mean_us": measured.mean_us(),
            "rounds": measured.sums_us.len(),
            "exact": measured.is_exact,
        })
    });
    json!({
        "schema": "thalweg.demo/1",
        "tenants": tenants.collect::<Vec<_>>(),
        "network": outcome.links.json(),
        "comparison": comparison.collect::<Vec<_>>(),
        "switch": {
            "packets": outcome.switch.packets,
            "lost_on_purpose": outcome.switch.lost_on_purpose,
            "completed": outcome.switch.completed,
            "aggregated_share": outcome.aggregated_share(),
        },
        "bounds": { "accuracy": ACCURACY_WITHIN },
        "seconds": outcome.took.as_secs_f64(),
        "ok": problems.is_empty(),
        "problems": problems,
    })
}

fn tenant_json(outcome: &TenantOutcome) -> Value {
    json!({
        "name": outcome.tenant.name,
        "workers": outcome.tenant.workers,
        "steps": outcome.tenant.lesson.steps,
        "parameters": outcome.tenant.parameters,
        "accuracy": outcome.accuracy(),
        "reference_accuracy": outcome.reference_accuracy(),
        "identical": outcome.is_identical(),
        "largest_difference_between_workers": outcome.largest_difference_between_workers(),
        "largest_difference": outcome.largest_difference(),
        "sums_checked": outcome.training.sums_checked,
        "sums_wrong": outcome.training.sums_wrong,
        "goodput_gbps": outcome.goodput_bps() / 1e9,
        "aggregated_share": outcome.aggregated_share(),
        "repairs": outcome.training.repairs,
        "queries": outcome.training.queries,
        "digest": outcome.training.digests.first(),
        "loss": outcome.training.losses.last(),
        "reference_loss": outcome.reference.losses.last(),
    })
}

fn loss(measured: &Measured) -> String {
    if measured.loss == 0.0 { "none".to_owned() } else { format_percent(measured.loss) }
}

/// A share near 1, whose distance from 1 is what counts.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// A difference, which is small or wrong.
fn small(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}
