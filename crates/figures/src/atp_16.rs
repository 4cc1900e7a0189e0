//! ATP, Figure 16: the goodput of a job whose first worker shares its cable with other traffic.

mod bench;

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_percent};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};

use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Rule};
use bench::{Bench, Measured};

/// The figure.
pub(crate) struct Atp16;

/// What a demand below the fair share has to get.
const LEAST_OF_PEAK: f64 = 0.95;
/// What both have to get of their halves.
const LEAST_OF_HALF: f64 = 0.8;
/// How much of the link has to be in use.
const LEAST_USE: f64 = 0.9;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Setup {
    workers: u32,
    rate_gbps: f64,
    delay: String,
    model: String,
    batch: u32,
    flops_per_s: f64,
    tensor_bytes: u64,
    tensors_in_flight: u64,
    settled_after: f64,
    switch: toml::Table,
    aggregation: toml::Table,
    others: Vec<Other>,
    start_ms: f64,
    lasting_ms: f64,
    stop_ms: f64,
    interval_us: u64,
    divisor: f64,
}

/// What shares the cable.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Other {
    name: String,
    direction: Direction,
    control: String,
}

/// Of the cable of the first worker.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Up,
    Down,
}

/// What the job does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Wants less than its share.
    Training,
    /// Wants all.
    Benchmark,
}

/// One run.
#[derive(Clone, Copy)]
struct Case<'a> {
    work: Work,
    /// `None`: the job is alone.
    other: Option<&'a Other>,
}

/// The runs of one kind of work.
struct Part<'a> {
    work: Work,
    alone: Measured,
    shared: Vec<(&'a Other, Measured)>,
}

impl Figure for Atp16 {
    fn name(&self) -> &'static str {
        "atp-16"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-16.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let bench = Bench::new(&setup)?;
        let parts = setup.measure(&bench, context)?;
        let plots = parts.iter().flat_map(|part| {
            part.shared.iter().map(|(other, measured)| setup.plot(part, other, measured))
        });
        Ok(Findings {
            claims: parts.iter().flat_map(|part| setup.claims(&bench, part)).collect(),
            plots: plots.collect(),
            tables: vec![setup.table(&bench, &parts)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 1] =
    ["the paper's other traffic: it does not say which transport it is, nor how it is controlled"];

const NOTES: [&str; 7] = [
    "Goodput is payload: of 100 Gbps a job has at most 81.0 with packets of 306 bytes for 248, and a flow \
     97.3 with 1,500 for 1,460. Half of the link is 40.5 and 48.7.",
    "On the uplink the flow and the worker leave from one host. No queue of a switch fills, nothing is \
     marked, and the host's stack shares by taking turns that are counted in bytes.",
    "On the downlink the switch's queue marks both. A job halves its window on a mark, whatever the share \
     of marks, as the paper has it, and CUBIC takes away 30%. DCTCP takes away little and is soon back at \
     the threshold, with another mark for the job: its window is halved every 65 µs, a handful of round \
     trips, in each of which it regains one packet. So it stays at a tenth of its half. Thresholds of 30 \
     KB, 100 KB, 400 KB and 1.5 MB gave it 4.9, 4.2, 2.9 and 2.0 Gbps, with one seed: none mends it.",
    "Windows are halved by losses although nothing is lost: fragments are overtaken and taken for lost. \
     Most of it comes with the collisions of the first iteration; alone on the link it does not happen. \
     We take it that such a fragment lies partly in the switch and partly at the server, because its \
     aggregator became free between two workers' packets; that was not traced.",
    "Beside a flow that halves on a mark, as the job does, the job has its half: NewReno in place of DCTCP \
     leaves it 103% of that, at the quick size with seeds 1 to 3.",
    "Times are a thousandth of the paper's, and tensors and compute times of VGG16 are divided alike. \
     Windows and round trips are not.",
    "A job has a number of tensors that would take its time at the fair share, or of iterations that would \
     take it alone; where it gets less, it is still at work when the run ends.",
];

impl Setup {
    fn measure(
        &self,
        bench: &Bench<'_>,
        context: &Context<'_>,
    ) -> Result<Vec<Part<'_>>, FigureError> {
        let works = [Work::Training, Work::Benchmark];
        let with = |work| self.others.iter().map(move |other| Case { work, other: Some(other) });
        let of_work = |work| [Case { work, other: None }].into_iter().chain(with(work));
        let cases: Vec<Case<'_>> = works.into_iter().flat_map(of_work).collect();
        let label = |case: &Case<'_>| {
            let other = case.other.map_or("alone", |other| &*other.name);
            format!("{}, {other}", self.name(case.work))
        };
        let mut measured = context
            .each(&cases, label, |case, point| bench.run(*case, context.seed, point))?
            .into_iter();
        let part = |work| {
            let alone = measured.next().expect("one for each case");
            Part {
                work,
                alone,
                shared: self.others.iter().zip(measured.by_ref().take(self.others.len())).collect(),
            }
        };
        Ok(works.map(part).into())
    }

    fn name(&self, work: Work) -> &str {
        match work {
            Work::Training => &self.model,
            Work::Benchmark => "microbenchmark",
        }
    }

    fn claims(&self, bench: &Bench<'_>, part: &Part<'_>) -> Vec<Claim> {
        let claim = |what: &str, other: &Other, paper: &str, ours: f64, least: f64| {
            let text = format!("{}, {}: {what}", self.name(part.work), other.name);
            Claim::measured(text, paper, ours, Unit::Percent, Rule::AtLeast(least))
        };
        let mut claims = Vec::new();
        for (other, measured) in &part.shared {
            if part.work == Work::Training {
                let of_peak = measured.life_bps / part.alone.life_bps;
                claims.push(claim("of its peak", other, "reaches it", of_peak, LEAST_OF_PEAK));
                continue;
            }
            let (job, flow) = bench.of_halves(measured);
            claims.extend([
                claim("the job, of its half", other, "near the fair share", job, LEAST_OF_HALF),
                claim("the flow, of its half", other, "near the fair share", flow, LEAST_OF_HALF),
                claim(
                    "of the link in use",
                    other,
                    "close to line rate",
                    bench.link_use(measured),
                    LEAST_USE,
                ),
            ]);
        }
        claims
    }

    fn table(&self, bench: &Bench<'_>, parts: &[Part<'_>]) -> Listing {
        let mut table = Table::new([
            Column::left("job"),
            Column::left("beside"),
            Column::right("job"),
            Column::right("of its half"),
            Column::right("flow"),
            Column::right("of its half"),
            Column::right("link in use"),
            Column::right("halved by marks"),
            Column::right("by losses"),
        ]);
        for part in parts {
            let alone = [("nothing", &part.alone)];
            let shared = part.shared.iter().map(|(other, measured)| (&*other.name, measured));
            for (beside, measured) in alone.into_iter().chain(shared) {
                let (job, flow) = bench.of_halves(measured);
                table.push([
                    self.name(part.work).to_owned(),
                    beside.to_owned(),
                    Unit::BitsPerSecond.format(measured.job_bps),
                    format_percent(job),
                    Unit::BitsPerSecond.format(measured.flow_bps),
                    format_percent(flow),
                    format_percent(bench.link_use(measured)),
                    format_count(measured.mark_halvings),
                    format_count(measured.loss_halvings),
                ]);
            }
        }
        let caption =
            "Goodput while the job is at work, once it has settled; halvings of the first worker";
        Listing { table, caption: caption.to_owned() }
    }

    fn plot(&self, part: &Part<'_>, other: &Other, measured: &Measured) -> Plot {
        let title = format!("Goodput of {} and a flow: {}", self.name(part.work), other.name);
        let line = |value: fn(&bench::Sample) -> f64| {
            measured.samples.iter().map(|sample| (sample.at_us, value(sample))).collect()
        };
        let peak = part.alone.peak_bps(part.work);
        let ends = measured.samples.iter().map(|sample| (sample.at_us, peak));
        let chart = Chart::new(title)
            .x(Axis::linear("time").unit(Unit::SpanUs))
            .y(Axis::linear("goodput")
                .unit(Unit::BitsPerSecond)
                .range(0.0, self.rate_gbps * 1.05e9))
            .series(Series::line("job", line(|sample| sample.job_bps)))
            .series(Series::line("flow", line(|sample| sample.flow_bps)))
            .series(Series::line("both", line(|sample| sample.job_bps + sample.flow_bps)))
            .series(Series::line("the job's peak alone", ends.collect()));
        let caption = match part.work {
            Work::Training => "Its demand is below half of the link; sending comes in bursts.",
            Work::Benchmark => "Its demand is all of the link.",
        };
        Plot { chart, caption: caption.to_owned() }
    }
}
