//! ATP, Figure 16: the goodput of a job whose first worker shares its cable with other traffic.

mod bench;

use serde::Deserialize;
use thalweg_report::format::{Unit, format_count, format_percent};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::Table;

use crate::frame::figure::Form;
use crate::{Claim, Context, FigureError, Findings, Listing, Plot, Rule};
use bench::{Bench, Measured};

/// Smallest share of its peak for a demand below the fair share.
const LEAST_OF_PEAK: f64 = 0.95;
/// Smallest share of their halves for both.
const LEAST_OF_HALF: f64 = 0.8;
/// Smallest share of the link that has to be in use.
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

/// Traffic that shares the cable.
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

/// Work of the job.
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

impl Form for Setup {
    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let bench = Bench::new(self, context)?;
        let parts = self.measure(&bench, context)?;
        let plots = parts.iter().flat_map(|part| {
            part.shared.iter().map(|(other, measured)| self.plot(part, other, measured))
        });
        Ok(Findings {
            claims: parts.iter().flat_map(|part| self.claims(&bench, part)).collect(),
            plots: plots.collect(),
            tables: vec![self.table(&bench, &parts)],
        })
    }
}

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
        let mut measured =
            context.each(&cases, label, |case, point| bench.run(*case, point))?.into_iter();
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
        let claim = |what: &str, other: &Other, paper: &str, measured: f64, least: f64| {
            let text = format!("{}, {}: {what}", self.name(part.work), other.name);
            Claim::measured(text, paper, measured, Unit::Percent, Rule::AtLeast(least))
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
        let rows = parts.iter().flat_map(|part| {
            let alone = [("nothing", &part.alone)];
            let shared = part.shared.iter().map(|(other, measured)| (&*other.name, measured));
            let work = self.name(part.work);
            alone.into_iter().chain(shared).map(move |(beside, it)| (work, beside, it))
        });
        let rate = |bps: f64| Unit::BitsPerSecond.format(bps);
        let table = Table::by_column(rows)
            .left("job", |(work, ..)| (*work).to_owned())
            .left("beside", |(_, beside, _)| (*beside).to_owned())
            .right("job", |(.., it)| rate(it.job_bps))
            .right("of its half", |(.., it)| format_percent(bench.of_halves(it).0))
            .right("flow", |(.., it)| rate(it.flow_bps))
            .right("of its half", |(.., it)| format_percent(bench.of_halves(it).1))
            .right("link in use", |(.., it)| format_percent(bench.link_use(it)))
            .right("halved by marks", |(.., it)| format_count(it.mark_halvings))
            .right("by losses", |(.., it)| format_count(it.loss_halvings));
        let caption =
            "Goodput while the job is at work, once it has settled; halvings of the first worker";
        Listing::new(table, caption)
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
        Plot::new(chart, caption)
    }
}
