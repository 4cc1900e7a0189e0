//! Outcomes to look at: one self-contained page.

use thalweg_core::Time;
use thalweg_report::format::{Unit, format_count, format_rate_bps, format_ratio, format_span_us};
use thalweg_report::page::{Card, Page, Section, Tone};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::stats::Sample;

use super::text;
use crate::job::JobRecord;
use crate::outcome::{FinishedFlow, Outcome, SizeClass};
use crate::samples::QueueSample;
use crate::scenario::Scenario;

/// A report of one run. `source` is the scenario file's text, shown for the record; `changes` names
/// the values that a sweep put in place of the file's, if it did.
pub fn outcome(scenario: &Scenario, outcome: &Outcome, source: &str, changes: &str) -> String {
    let (headline, reproduced_by) = match changes {
        "" => (text::headline(outcome), "the file above".to_owned()),
        _ => (
            format!("{changes}: {}", text::headline(outcome)),
            format!("the file above with {changes}"),
        ),
    };
    let mut page =
        Page::new(scenario.title()).subtitle(headline).section(overview(scenario, outcome));
    if !outcome.jobs.is_empty() {
        page = page.section(jobs(scenario, outcome));
    }
    if !outcome.flows.is_empty() {
        page = page.section(completion_times(outcome));
    }
    page.section(queues(outcome))
        .section(
            Section::new("Scenario")
                .paragraph("The file that made this run, for the record.")
                .details("scenario file", source),
        )
        .footer(format!(
            "Seed {} and {reproduced_by} reproduce this run bit for bit; its digest is {}.",
            outcome.seed, outcome.digest
        ))
        .to_html()
}

fn overview(scenario: &Scenario, outcome: &Outcome) -> Section {
    let mut cards: Vec<Card> = job_cards(outcome).into_iter().flatten().collect();
    if let Some(all) = outcome.classes().last() {
        cards.extend(flow_cards(outcome, all));
    }
    let dropped = outcome.stats.dropped();
    cards.push(
        Card::new("dropped packets", format_count(dropped))
            .note(format!("{} resent", format_count(outcome.resent_packets)))
            .tone(if dropped == 0 { Tone::Good } else { Tone::Warning }),
    );
    let mut section = Section::new("Overview").cards(cards);
    if !outcome.flows.is_empty() {
        section = section.table(
            text::classes(outcome),
            "Completion times, from the start of a flow until its last acknowledgement is back; \
             slowdown is against the closed form for an idle network",
        );
    }
    section
        .table(text::links(scenario, outcome), "Links over the whole run")
        .paragraph(text::packets(outcome))
}

fn job_cards(outcome: &Outcome) -> Option<Vec<Card>> {
    let jobs = &outcome.jobs;
    let failed = jobs.iter().filter(|job| job.failure.is_some()).count() as u64;
    let iterations = jobs.iter().flat_map(|job| &job.iterations);
    let iteration = Sample::new(iterations.map(|span| span.as_us_f64()))?;
    let goodput = Sample::new(jobs.iter().filter_map(JobRecord::goodput_bytes_per_s))?;
    let count = Card::new("jobs", format_count(jobs.len() as u64));
    Some(vec![
        match failed {
            0 => count,
            failed => count.note(format!("{} ended early", format_count(failed))).tone(Tone::Bad),
        },
        Card::new("mean iteration", format_span_us(iteration.summary().mean)),
        Card::new("mean goodput", format_rate_bps(goodput.summary().mean * 8.0))
            .note("of a worker"),
    ])
}

fn flow_cards(outcome: &Outcome, all: &SizeClass) -> Vec<Card> {
    let unfinished = outcome.unfinished() as u64;
    let flows = Card::new("flows", format_count(outcome.flows.len() as u64));
    vec![
        match unfinished {
            0 => flows.note("all arrived whole").tone(Tone::Good),
            count => flows.note(format!("{} unfinished", format_count(count))).tone(Tone::Bad),
        },
        Card::new("median completion", format_span_us(all.fct_us.p50)),
        Card::new("99th percentile", format_span_us(all.fct_us.p99)),
        Card::new("mean slowdown", format_ratio(all.slowdown.mean)).note("against an idle network"),
    ]
}

fn jobs(scenario: &Scenario, outcome: &Outcome) -> Section {
    let mut iterations = Chart::new("Iteration time")
        .x(Axis::linear("iteration"))
        .y(Axis::linear("time").unit(Unit::SpanUs));
    let mut goodput = Chart::new("Sums over time")
        .x(Axis::linear("simulated time").unit(Unit::SpanUs))
        .y(Axis::linear("sums that all workers have"));
    for (number, job) in outcome.jobs.iter().enumerate() {
        let name = format!("job {number}: {}, {}", job.model, job.collective.name());
        let times = job.iterations.iter().enumerate();
        let points = times.map(|(iteration, span)| (iteration as f64, span.as_us_f64()));
        iterations = iterations.series(Series::scatter(&name, points.collect()));
        let mut sums: Vec<Time> = job.sums_at.concat();
        sums.sort_unstable();
        let counted = sums.iter().zip(1..).map(|(at, count)| (at.as_us_f64(), f64::from(count)));
        goodput = goodput.series(Series::line(&name, counted.collect()));
    }
    let mut section = Section::new("Jobs").table(
        text::jobs(outcome),
        "Iterations, from the first worker's start until the last worker has all sums; goodput is \
         what a worker receives of sums",
    );
    if !outcome.switches.is_empty() {
        section = section.table(text::switches(scenario, outcome), "Switches that sum");
    }
    if outcome.jobs.iter().any(|job| !job.servers.is_empty()) {
        section = section.table(text::servers(scenario, outcome), "Servers that complete sums");
    }
    section
        .plot(iterations, "Every iteration that was completed, computing included.")
        .plot(goodput, "How many sums had come, over all workers of a job.")
}

fn completion_times(outcome: &Outcome) -> Section {
    let percent = || Axis::linear("flows not slower").unit(Unit::Percent);
    let mut times = Chart::new("Completion time")
        .x(Axis::log10("completion time").unit(Unit::SpanUs))
        .y(percent());
    let mut slowdowns = Chart::new("Slowdown")
        .x(Axis::log10("completion time over ideal").unit(Unit::Ratio))
        .y(percent());
    let mut above = 0;
    for (name, up_to) in GROUPS {
        let (fct_us, slowdown) = outcome.times(above, up_to);
        above = up_to;
        if !fct_us.is_empty() {
            times = times.series(Series::cdf(name, &fct_us));
            slowdowns = slowdowns.series(Series::cdf(name, &slowdown));
        }
    }
    Section::new("Completion times")
        .plot(times, "Distribution by flow size.")
        .plot(slowdowns, "The same against the time each flow would take alone.")
        .plot(by_bytes(outcome), "Each flow by its size; the lower edge is an idle network.")
        .plot(slowdown_by_bytes(outcome), "Flows in twenty groups of equal number, by size.")
}

/// Three groups are enough for a picture.
const GROUPS: [(&str, u64); 3] =
    [("up to 100 KB", 100_000), ("100 KB – 1 MB", 1_000_000), ("over 1 MB", u64::MAX)];

fn by_bytes(outcome: &Outcome) -> Chart {
    /// More points than this only make the page heavy.
    const MOST_POINTS: usize = 2_000;
    let step = outcome.flows.len().div_ceil(MOST_POINTS).max(1);
    let points = outcome.finished().step_by(step).map(|flow| (flow.bytes as f64, flow.fct_us));
    Chart::new("Completion time by size")
        .x(Axis::log10("flow size").unit(Unit::Bytes))
        .y(Axis::log10("completion time").unit(Unit::SpanUs))
        .series(Series::scatter("flows", points.collect()))
}

fn slowdown_by_bytes(outcome: &Outcome) -> Chart {
    const BINS: usize = 20;
    let mut flows: Vec<FinishedFlow> = outcome.finished().collect();
    flows.sort_by_key(|flow| flow.bytes);
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for bin in flows.chunks(flows.len().div_ceil(BINS).max(1)) {
        let bytes = bin[bin.len() / 2].bytes as f64;
        if let Some(sample) = Sample::new(bin.iter().map(|flow| flow.slowdown)) {
            medians.push((bytes, sample.percentile(50.0)));
            tails.push((bytes, sample.percentile(99.0)));
        }
    }
    Chart::new("Slowdown by size")
        .x(Axis::log10("flow size").unit(Unit::Bytes))
        .y(Axis::linear("completion time over ideal").unit(Unit::Ratio))
        .series(Series::line("99th percentile", tails))
        .series(Series::line("median", medians))
}

fn queues(outcome: &Outcome) -> Section {
    let waiting = |title: &str, name: &str, bytes: fn(&QueueSample) -> u64| {
        let points = outcome.queues.iter().map(|s| (s.at.as_us_f64(), bytes(s) as f64));
        Chart::new(title)
            .x(Axis::linear("simulated time").unit(Unit::SpanUs))
            .y(Axis::linear("bytes waiting").unit(Unit::Bytes))
            .series(Series::time_series(name, points.collect()))
    };
    let fullest = waiting("Fullest port", "fullest port", |sample| sample.fullest_bytes);
    let total = waiting("All ports together", "all ports", |sample| sample.total_bytes);
    let uses: Vec<f64> = outcome.links.iter().map(|link| outcome.utilization(link)).collect();
    let use_chart = Chart::new("Link use")
        .x(Axis::linear("share of the time that a link is busy").unit(Unit::Percent))
        .y(Axis::linear("links not busier").unit(Unit::Percent))
        .series(Series::cdf("links", &uses));
    Section::new("Queues and links")
        .plot(fullest, "What waits in the fullest switch port, sampled at a fixed interval.")
        .plot(total, "What waits in all switch ports.")
        .plot(use_chart, "How busy the links were over the whole run, each direction by itself.")
}
