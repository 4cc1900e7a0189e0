//! The demo to look at: one self-contained page.

use thalweg_report::format::{Unit, format_count, format_percent};
use thalweg_report::page::{Card, Page, Section, Tone};
use thalweg_report::plot::{Axis, Chart, Series};

use super::outcome::{Measured, Outcome, TenantOutcome};
use super::plan::Plan;
use super::verdict::{self, percent};

/// The report of one run.
pub(super) fn html(plan: &Plan, outcome: &Outcome) -> String {
    let [first, second] = &plan.tenants;
    let subtitle = format!(
        "{} workers of {} and {} of {} trained at the same time through one switch that lost {} of \
         the packets, all on this machine's loopback.",
        first.workers,
        first.name,
        second.workers,
        second.name,
        format_percent(plan.loss)
    );
    Page::new("Thalweg demo")
        .subtitle(subtitle)
        .section(overview(outcome))
        .section(curves(outcome))
        .section(comparison(plan, outcome))
        .section(what_ran(plan, outcome))
        .footer(format!(
            "Made in {:.0} s by `thalweg demo`, seed {}. The run in one process repeats bit for bit; \
             the network's timing does not.",
            outcome.took.as_secs_f64(),
            plan.seed
        ))
        .to_html()
}

fn overview(outcome: &Outcome) -> Section {
    let problems = outcome.problems();
    let verdict = match problems.len() {
        0 => Card::new("verdict", "all well").note(verdict::ALL_WELL).tone(Tone::Good),
        1 => Card::new("verdict", "1 problem").tone(Tone::Bad),
        count => Card::new("verdict", format!("{count} problems")).tone(Tone::Bad),
    };
    let accuracies = outcome.tenants.iter().map(|tenant| {
        let alone = format!("{:.2}% in one process", tenant.reference_accuracy() * 100.0);
        Card::new(format!("accuracy of {}", tenant.tenant.name), percent(tenant.accuracy()))
            .note(alone)
    });
    let cards = [verdict].into_iter().chain(accuracies).chain([
        Card::new("summed in the switch", percent(outcome.aggregated_share()))
            .note("of the fragments, whole"),
        Card::new("lost on purpose", format_count(outcome.switch.lost_on_purpose))
            .note(format!("packets and copies, {} came", format_count(outcome.switch.packets))),
    ]);
    let mut section = Section::new("Verdict").cards(cards);
    for problem in problems {
        section = section.paragraph(format!("Not as it should be: {problem}."));
    }
    section
        .table(verdict::tenants(outcome), "")
        .paragraph(verdict::switch(outcome))
        .paragraph(verdict::bounds())
}

fn curves(outcome: &Outcome) -> Section {
    let mut section = Section::new("Training, beside the same in one process");
    for tenant in &outcome.tenants {
        section = section
            .plot(
                losses(tenant),
                "Mean loss of every step. Where one line covers the other, both are the same; where \
                 they part, rounding has grown.",
            )
            .plot(accuracies(tenant), "The share of the test set that is right.");
    }
    section
}

fn losses(outcome: &TenantOutcome) -> Chart {
    let points = |losses: &[f64]| {
        losses.iter().zip(1..).map(|(&loss, step)| (f64::from(step), loss)).collect()
    };
    Chart::new(format!("{}: loss", outcome.tenant.name))
        .x(Axis::linear("step"))
        .y(Axis::log10("loss"))
        .series(Series::line("one process", points(&outcome.reference.losses)))
        .series(Series::line(workers(outcome), points(&outcome.training.losses)))
}

fn accuracies(outcome: &TenantOutcome) -> Chart {
    let points = |tests: &[(usize, f64)]| {
        tests.iter().map(|&(step, accuracy)| ((step + 1) as f64, accuracy)).collect()
    };
    Chart::new(format!("{}: accuracy", outcome.tenant.name))
        .x(Axis::linear("step"))
        .y(Axis::linear("right").unit(Unit::Percent).range(0.0, 1.0))
        .series(Series::line("one process", points(&outcome.reference.tests)))
        .series(Series::scatter(workers(outcome), points(&outcome.training.tests)))
}

fn workers(outcome: &TenantOutcome) -> String {
    format!("{} workers", outcome.tenant.workers)
}

fn comparison(plan: &Plan, outcome: &Outcome) -> Section {
    let names = outcome.comparison.iter().map(label);
    let goodputs = outcome.comparison.iter().map(Measured::goodput_bps);
    let bars = Chart::new("Goodput of the same all-reduce")
        .x(Axis::categories("", names))
        .y(Axis::linear("goodput").unit(Unit::BitsPerSecond))
        .series(Series::bars("goodput", goodputs));
    let [first, _] = &plan.tenants;
    let values = format_count(first.parameters as u64);
    let spans = outcome.comparison.iter().fold(spans_chart(), |chart, measured| {
        let times: Vec<f64> = measured.sums_us.clone();
        chart.series(Series::cdf(label(measured), &times))
    });
    Section::new("Ring and parameter servers beside it")
        .paragraph(format!(
            "{} workers sum {values} values {} times by each way, one after the other. {}",
            first.workers,
            plan.rounds,
            outcome.links.explanation()
        ))
        .table(verdict::comparison(outcome), "")
        .plot(bars, "Higher is better.")
        .plot(spans, "How long each of the sums took; further left is better.")
        .paragraph(verdict::GOODPUT)
}

fn spans_chart() -> Chart {
    Chart::new("Time of a sum")
        .x(Axis::log10("time").unit(Unit::SpanUs))
        .y(Axis::linear("sums not slower").unit(Unit::Percent))
}

fn label(measured: &Measured) -> String {
    match measured.loss {
        0.0 => measured.way.name().to_owned(),
        loss => format!("{}, {} lost", measured.way.name(), format_percent(loss)),
    }
}

fn what_ran(plan: &Plan, outcome: &Outcome) -> Section {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let machine = format!("{cores} cores, {} on {}", std::env::consts::OS, std::env::consts::ARCH);
    let mut rows = vec![
        ("machine".to_owned(), machine),
        (
            "switch".to_owned(),
            format!(
                "one process; loses {} of what comes in and of every copy that goes out",
                format_percent(plan.loss)
            ),
        ),
        ("server".to_owned(), "one process; completes sums and knows who is in which job".into()),
    ];
    for tenant in &outcome.tenants {
        let lesson = &tenant.tenant.lesson;
        let examples = match &lesson.data {
            Some(folder) => format!("files in {}", folder.display()),
            None => format!("drawn {}", lesson.subject.recipe().name),
        };
        let text = format!(
            "{} processes, each a host of its own; {examples}; {} parameters; {} steps of {} \
             examples; digest of the parameters of each: {}",
            tenant.tenant.workers,
            format_count(tenant.tenant.parameters as u64),
            lesson.steps,
            lesson.subject.recipe().batch,
            tenant.training.digests.join(", "),
        );
        rows.push((tenant.tenant.name.clone(), text));
    }
    rows.push((
        "comparison".to_owned(),
        "another switch without losses, another server, and workers like those of the first tenant"
            .to_owned(),
    ));
    rows.push((
        "one process".to_owned(),
        "the demo itself: every shard's gradient by itself, added in the order of the ranks"
            .to_owned(),
    ));
    Section::new("What ran where").definitions(rows)
}
