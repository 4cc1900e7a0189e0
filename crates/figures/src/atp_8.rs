//! ATP, Figure 8: the training throughput of a single job, by model and by system.

mod system;

use serde::Deserialize;
use thalweg_report::format::{Unit, format_number, format_ratio};
use thalweg_report::plot::{Axis, Chart, Series};
use thalweg_report::table::{Column, Table};
use thalweg_scenario::{Ending, JobRecord, Scenario};
use thalweg_workload::models;

use crate::shrink::model_json;
use crate::{Claim, Context, Figure, FigureError, Findings, Listing, Plot, Point, Rule};
use system::{Network, System};

/// The figure.
pub(crate) struct Atp8;

/// By how much another system may be faster before the first one is not the best any more.
const MARGIN: f64 = 0.02;
/// How far the times without computing may be from what the bytes on the busiest link make.
const LIMIT_SHARE: f64 = 0.1;
/// What the largest speed-up has to be, of what the paper has. Its testbed is slower than its links.
const LEAST_SPEEDUP: f64 = 1.05;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Setup {
    workers: u32,
    rate: String,
    delay_ns: f64,
    batch: u32,
    flops_per_s: f64,
    bucket_bytes: f64,
    iterations: u32,
    network_intensive: Vec<String>,
    limit_model: String,
    switch: toml::Table,
    aggregation: toml::Table,
    systems: Vec<System>,
    models: Vec<String>,
    divisor: f64,
}

/// One run: a system that trains a model.
#[derive(Clone, Copy)]
struct Case<'a> {
    system: &'a System,
    model: &'a str,
    computes: bool,
}

/// Times of one model, by system.
struct Row<'a> {
    model: &'a str,
    /// The mean after the first.
    iterations_s: Vec<f64>,
    firsts_s: Vec<f64>,
}

/// How long iterations of one run take.
#[derive(Clone, Copy)]
struct Times {
    first_s: f64,
    later_s: f64,
}

impl Figure for Atp8 {
    fn name(&self) -> &'static str {
        "atp-8"
    }

    fn plan(&self) -> &'static str {
        include_str!("../plans/atp-8.toml")
    }

    fn run(&self, context: &Context<'_>) -> Result<Findings, FigureError> {
        let setup: Setup = context.plan(self)?;
        let (rows, limit) = setup.measure(context)?;
        let mut claims = setup.claims(&rows);
        claims.extend(setup.limit_claims(&limit));
        Ok(Findings {
            claims,
            plots: vec![setup.throughput_plot(&rows), setup.speedup_plot(&rows)],
            tables: vec![setup.throughput_table(&rows), setup.limit_table(&limit)],
            not_measured: NOT_MEASURED.map(str::to_owned).into(),
            notes: NOTES.map(str::to_owned).into(),
        })
    }
}

const NOT_MEASURED: [&str; 2] = [
    "VGG11: its layer table is not built in",
    "RDMA and TCP as two transports: servers and ring send over DCTCP, with nothing spent in hosts",
];

const NOTES: [&str; 6] = [
    "The paper's ratios come from its hosts as much as from the network: a server that ends at 60 Gbps, \
     TCP stacks, VGG16 at 20 Gbps of 100. Here every host keeps up with its link, so that VGG16 on a \
     2080 Ti hides all but N to 1 behind its backward pass. What is judged is the order, and the limit \
     without computing, where bytes over the busiest link decide.",
    "One speed stands for all layers: 1e13 FLOP/s in single precision, 74% of a 2080 Ti's peak. Real \
     ones run VGG faster and ResNets slower. Batch 32; the paper gives none.",
    "Tensors, buckets, messages, computing and delays are divided by the same number, so that all ratios \
     of time stay; packets, windows and thresholds are not, since a packet is a packet.",
    "The baselines are not held back: headers of 40 bytes on packets of 1,500 against 58 on 306, a \
     co-located share of N to N that stays in its host, and as many slots of SwitchML as the switch has \
     aggregators.",
    "SwitchML with the packet of 306 bytes is as fast as ATP, or faster by the way to the server and back: \
     with one job and no loss the difference of the two is the size of the packet.",
    "Seeds change one thing here, which aggregators collide, and collisions are over after the first \
     iteration. All that leaves the first out is therefore the same with every seed, and several seeds \
     are no more evidence than one. The claim about the first iteration is the one that they test.",
];

impl Setup {
    /// Every model on every system, and the limit without computing.
    fn measure(&self, context: &Context<'_>) -> Result<(Vec<Row<'_>>, Row<'_>), FigureError> {
        let of_model = |model, computes| {
            self.systems.iter().map(move |system| Case { system, model, computes })
        };
        let trained = self.models.iter().flat_map(|model| of_model(model, true));
        let cases: Vec<Case<'_>> = trained.chain(of_model(&self.limit_model, false)).collect();
        let label = |case: &Case<'_>| format!("{}, {}", case.model, case.system.name);
        let times = context
            .each(&cases, label, |case, point| self.iteration_s(*case, context.seed, point))?;
        let names = self.models.iter().chain([&self.limit_model]);
        let row = |(model, times): (_, &[Times])| Row {
            model,
            iterations_s: times.iter().map(|times| times.later_s).collect(),
            firsts_s: times.iter().map(|times| times.first_s).collect(),
        };
        let rows = names.map(String::as_str).zip(times.chunks(self.systems.len())).map(row);
        let mut rows: Vec<Row<'_>> = rows.collect();
        let limit = rows.pop().expect("the limit was measured last");
        Ok((rows, limit))
    }

    /// How long iterations take, at the model's full size.
    fn iteration_s(
        &self,
        case: Case<'_>,
        seed: u64,
        point: &Point<'_>,
    ) -> Result<Times, FigureError> {
        let scenario = self.scenario(case)?;
        let mut run = scenario.run_bare(seed);
        let mut progress = run.progress();
        while progress.ended.is_none() {
            progress = run.advance(EVENTS_A_SLICE);
            point.reached(progress.finished_sums as f64 / progress.expected_sums.max(1) as f64)?;
        }
        let outcome = run.outcome();
        let failed = |reason| FigureError::Failed { figure: Atp8.name(), reason };
        match outcome.jobs.first() {
            Some(job) if outcome.ending == Ending::Complete && job.failure.is_none() => {
                let times = times(job, self.divisor);
                let reason = || failed(format!("{} has fewer than 2 iterations", scenario.title()));
                times.ok_or_else(reason)
            }
            _ => Err(failed(format!("{} ended as {:?}", scenario.title(), outcome.ending))),
        }
    }

    fn scenario(&self, case: Case<'_>) -> Result<Scenario, FigureError> {
        let network = Network {
            workers: self.workers,
            rate: &self.rate,
            delay_ns: self.delay_ns / self.divisor,
            switch: &self.switch,
            aggregation: &self.aggregation,
        };
        let mut job = toml::Table::new();
        let mut set = |key: &str, value: toml::Value| job.insert(key.to_owned(), value);
        set("json", "model.json".into());
        set("iterations", self.iterations.into());
        set("bucket", format!("{:.0}B", self.bucket_bytes / self.divisor).into());
        if case.computes {
            set("flops-per-s", (self.flops_per_s * self.divisor).into());
            set("batch", self.batch.into());
        } else {
            set("forward", "0ns".into());
            set("backward", "0ns".into());
        }
        let text = network.scenario(case.system, case.model, job, self.divisor).to_string();
        let load = |_: &str| {
            let model = models::by_name(case.model);
            model.map(|model| model_json(&model, self.divisor)).ok_or("no such model".to_owned())
        };
        Ok(Scenario::parse("plans/atp-8.toml", &text, &load)?)
    }

    /// How much faster the first system is than each one.
    fn speedups(row: &Row<'_>) -> Vec<f64> {
        row.iterations_s.iter().map(|time| time / row.iterations_s[0]).collect()
    }

    fn claims(&self, rows: &[Row<'_>]) -> Vec<Claim> {
        let others = rows.iter().flat_map(|row| Setup::speedups(row).into_iter().skip(1));
        let mut claims = vec![Claim::measured(
            format!("{}, beside the best other system, in the worst case", self.systems[0].name),
            "best for all jobs",
            others.fold(f64::INFINITY, f64::min),
            Unit::Ratio,
            Rule::AtLeast(1.0 - MARGIN),
        )];
        let firsts = rows
            .iter()
            .flat_map(|row| row.firsts_s.iter().skip(1).map(|time| time / row.firsts_s[0]));
        claims.push(Claim::measured(
            "the same in the first iteration, with its collisions",
            "best for all jobs",
            firsts.fold(f64::INFINITY, f64::min),
            Unit::Ratio,
            Rule::AtLeast(1.0 - MARGIN),
        ));
        for (index, system) in self.systems.iter().enumerate() {
            let Some(paper) = system.paper_most else { continue };
            claims.push(Claim::measured(
                format!("largest speed-up over {}", system.name),
                paper,
                rows.iter().map(|row| Setup::speedups(row)[index]).fold(0.0, f64::max),
                Unit::Ratio,
                Rule::AtLeast(LEAST_SPEEDUP),
            ));
        }
        // Over all systems, so that no single one decides.
        let gain = |row: &&Row<'_>| {
            let speedups = Setup::speedups(row);
            speedups.iter().sum::<f64>() / speedups.len() as f64
        };
        let is_bound = |row: &&Row<'_>| self.network_intensive.iter().any(|name| name == row.model);
        let least = rows.iter().filter(is_bound).map(|row| gain(&row)).fold(f64::NAN, f64::min);
        let others = rows.iter().filter(|row| !is_bound(row));
        let most = others.map(|row| gain(&row)).fold(f64::NAN, f64::max);
        claims.push(Claim::rising(
            "mean speed-up: largest of a ResNet, then least of AlexNet and VGG",
            "larger for network-intensive models",
            &[most, least],
            Unit::Ratio,
        ));
        claims
    }

    /// Without computing, times are as the bytes on the busiest link.
    fn limit_claims(&self, limit: &Row<'_>) -> Vec<Claim> {
        let first = self.systems[0].link_bytes(self.workers);
        let claim = |(system, speedup): (&System, f64)| {
            let of = system.link_bytes(self.workers) / first;
            Claim::measured(
                format!("without computing: time of {}", system.name),
                system.bytes_in_words(self.workers),
                speedup,
                Unit::Ratio,
                Rule::Within { of, share: LIMIT_SHARE },
            )
        };
        self.systems.iter().zip(Setup::speedups(limit)).skip(1).map(claim).collect()
    }

    fn images_a_second(&self, iteration_s: f64) -> f64 {
        f64::from(self.batch) / iteration_s
    }

    fn throughput_table(&self, rows: &[Row<'_>]) -> Listing {
        let systems = self.systems.iter().map(|system| Column::right(&*system.name));
        let mut table = Table::new([Column::left("model")].into_iter().chain(systems));
        for row in rows {
            let cells = row.iterations_s.iter().zip(Setup::speedups(row)).map(|(time, speedup)| {
                let images = format_number(self.images_a_second(*time));
                format!("{images} ({})", format_ratio(speedup))
            });
            table.push([row.model.to_owned()].into_iter().chain(cells));
        }
        let caption = format!(
            "Images a second and worker; in brackets how much faster {} is",
            self.systems[0].name
        );
        Listing { table, caption }
    }

    fn limit_table(&self, limit: &Row<'_>) -> Listing {
        let mut table = Table::new([
            Column::left("system"),
            Column::right("bytes on the busiest link"),
            Column::right("as a time at line rate"),
            Column::right("iteration"),
        ]);
        let model = models::by_name(limit.model);
        let bytes = model.map_or(f64::NAN, |model| model.values() as f64 * 4.0);
        for (system, time) in self.systems.iter().zip(&limit.iterations_s) {
            let link_bytes = bytes * system.link_bytes(self.workers);
            table.push([
                system.name.clone(),
                Unit::Bytes.format(link_bytes),
                Unit::SpanUs.format(link_bytes * 8.0 / LINE_RATE_BPS * 1e6),
                Unit::SpanUs.format(time * 1e6),
            ]);
        }
        let caption = format!("{} without computing, at its full size", limit.model);
        Listing { table, caption }
    }

    fn throughput_plot(&self, rows: &[Row<'_>]) -> Plot {
        let caption = "Images a second and worker; the axis is logarithmic.";
        self.plot("Training throughput", Axis::log10("images/s"), rows, caption, |row, index| {
            self.images_a_second(row.iterations_s[index])
        })
    }

    fn speedup_plot(&self, rows: &[Row<'_>]) -> Plot {
        let caption = "How long an iteration takes, measured in iterations of the first system.";
        let axis = Axis::linear("iteration").unit(Unit::Ratio);
        self.plot("Time of an iteration", axis, rows, caption, |row, index| {
            Setup::speedups(row)[index]
        })
    }

    fn plot(
        &self,
        title: &str,
        axis: Axis,
        rows: &[Row<'_>],
        caption: &str,
        value: impl Fn(&Row<'_>, usize) -> f64,
    ) -> Plot {
        let names = rows.iter().map(|row| row.model);
        let mut chart = Chart::new(title).x(Axis::categories("model", names)).y(axis);
        for (index, system) in self.systems.iter().enumerate() {
            let bars = rows.iter().map(|row| value(row, index));
            chart = chart.series(Series::bars(&*system.name, bars.collect::<Vec<_>>()));
        }
        Plot { chart, caption: caption.to_owned() }
    }
}

/// What the table of times at line rate is computed with.
const LINE_RATE_BPS: f64 = 1e11;

/// How often a run tells how far it is.
const EVENTS_A_SLICE: u64 = 500_000;

/// How long the first iteration took, and the others on average. `None` if there are no others.
fn times(job: &JobRecord, divisor: f64) -> Option<Times> {
    let last = job.sums_at.iter().filter_map(|times| times.last()).max()?;
    let first = *job.iterations.first()?;
    let others = job.iterations.len() - 1;
    let others_s = last.since(job.start + first).as_s_f64();
    (others > 0).then(|| Times {
        first_s: first.as_s_f64() * divisor,
        later_s: others_s / others as f64 * divisor,
    })
}
