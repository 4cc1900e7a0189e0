//! Both tenants' training at the same time, over one switch.

use std::time::{Duration, Instant};

use thalweg_console::Failure;

use super::cluster::{Cluster, JobCounters, SwitchCounters};
use super::group::{Group, own_program};
use super::message::{Assignment, Report, Span, Trained, Work};
use super::outcome::{Training, goodput_bps};
use super::plan::{Plan, Tenant};
use super::progress::Progress;

/// Time between two questions to the switch about its losses.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Latest steps that the goodput during training is the mean of.
const LATEST_STEPS: usize = 10;

/// Trains both tenants, and gives what each came to and what the switch had counted then.
#[expect(clippy::disallowed_methods, reason = "progress is shown in real time")]
pub(super) fn train(
    group: &mut Group,
    cluster: &Cluster<'_>,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<(Vec<Training>, SwitchCounters), Failure> {
    let mut classes = Vec::new();
    for tenant in &plan.tenants {
        let work = Work::Train(tenant.lesson.clone());
        let workers = start_workers(group, cluster, &tenant.name, tenant.workers, &work)?;
        classes.push(Class::new(tenant, workers));
    }
    let mut asked_at = Instant::now();
    while !classes.iter().all(Class::is_done) {
        if let Some((from, line)) = group.listen()? {
            let number = classes.iter().position(|class| class.workers.contains(&from));
            if let Some(number) = number {
                let report = parse(&line)?;
                classes[number].take(from, report, progress)?;
                progress.step(number, &classes[number].snapshot());
            }
        }
        if asked_at.elapsed() >= ASK_EVERY {
            progress.lost(&cluster.switch_counters(group)?);
            asked_at = Instant::now();
        }
    }
    let switch = cluster.switch_counters(group)?;
    progress.lost(&switch);
    let mut trainings = Vec::new();
    for class in classes {
        // Jobs that were left are forgotten, so it has to be asked before.
        let server = cluster.job_counters(&class.tenant.name)?;
        group.dismiss(&class.workers)?;
        trainings.push(class.training(server));
    }
    Ok((trainings, switch))
}

/// Starts the workers of a job and gives them their work.
pub(super) fn start_workers(
    group: &mut Group,
    cluster: &Cluster<'_>,
    job: &str,
    ranks: u32,
    work: &Work,
) -> Result<Vec<usize>, Failure> {
    let start = |rank| {
        let name = format!("worker {rank} of {job}");
        let mut command = own_program()?;
        command.arg("demo-worker");
        cluster.enter(rank, &mut command);
        let worker = group.start(&name, &mut command)?;
        let assignment = Assignment {
            server: cluster.server.clone(),
            switch: cluster.switch.clone(),
            job: job.to_owned(),
            rank,
            ranks,
            work: work.clone(),
        };
        let line = serde_json::to_string(&assignment).expect("an assignment is plain data");
        group.tell(worker, &line);
        Ok(worker)
    };
    (0..ranks).map(start).collect()
}

/// Parses a message of a worker.
pub(super) fn parse(line: &str) -> Result<Report, Failure> {
    serde_json::from_str(line)
        .map_err(|error| Failure::Ran(format!("a worker says what nobody understands: {error}")))
}

/// The workers' spans of one sum, as far as they have been reported.
#[derive(Clone, Copy, Default)]
pub(super) struct Together {
    reports: u32,
    began_us: f64,
    ended_us: f64,
}

impl Together {
    pub(super) fn add(&mut self, span: Span) {
        self.reports += 1;
        self.began_us = self.began_us.max(span.began_us);
        self.ended_us = self.ended_us.max(span.ended_us);
    }

    /// From the last worker's start until all have it; once all have reported.
    pub(super) fn span_us(&self, workers: u32) -> Option<f64> {
        // Clocks may be set: no sum takes less than a microsecond.
        (self.reports == workers).then(|| (self.ended_us - self.began_us).max(1.0))
    }
}

/// Progress of a tenant.
pub(super) struct Snapshot {
    pub(super) steps: usize,
    pub(super) loss: f64,
    pub(super) accuracy: Option<f64>,
    pub(super) goodput_bps: f64,
}

/// The workers of a tenant in training.
struct Class<'a> {
    tenant: &'a Tenant,
    /// By rank.
    workers: Vec<usize>,
    steps: Vec<Step>,
    /// Results so far: losses and sums are those of the steps that all workers have done.
    so_far: Training,
    /// By rank, for those that are done.
    trained: Vec<Option<Trained>>,
}

/// Reports about a step.
#[derive(Clone, Copy, Default)]
struct Step {
    sum: Together,
    loss: f64,
    examples: usize,
}

impl<'a> Class<'a> {
    fn new(tenant: &'a Tenant, workers: Vec<usize>) -> Class<'a> {
        Class {
            tenant,
            trained: workers.iter().map(|_| None).collect(),
            workers,
            steps: vec![Step::default(); tenant.lesson.steps],
            so_far: Training::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.trained.iter().all(Option::is_some)
    }

    fn take(&mut self, from: usize, report: Report, progress: &Progress) -> Result<(), Failure> {
        match report {
            Report::Step { step, loss, examples, sum } if step < self.steps.len() => {
                let step = &mut self.steps[step];
                step.sum.add(sum);
                step.loss += loss;
                step.examples += examples;
                if let Some(span_us) = step.sum.span_us(self.tenant.workers) {
                    self.so_far.losses.push(step.loss / step.examples as f64);
                    self.so_far.sums_us.push(span_us);
                }
            }
            Report::Checked { is_right } => {
                self.so_far.sums_checked += 1;
                self.so_far.sums_wrong += usize::from(!is_right);
            }
            Report::Tested { step, accuracy } => self.so_far.tests.push((step, accuracy)),
            Report::Trained(trained) => {
                let rank = self.workers.iter().position(|&worker| worker == from);
                let rank = rank.expect("reports are sorted by their workers");
                self.trained[rank] = Some(trained);
            }
            Report::Note(note) => progress.say(&format!("{}: {note}", self.tenant.name)),
            Report::Step { .. } | Report::Summed { .. } | Report::Compared => {
                return Err(Failure::Ran(format!("{} reports other work", self.tenant.name)));
            }
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let Training { losses, tests, sums_us, .. } = &self.so_far;
        let latest = &sums_us[sums_us.len().saturating_sub(LATEST_STEPS)..];
        Snapshot {
            steps: losses.len(),
            loss: losses.last().copied().unwrap_or(f64::NAN),
            accuracy: tests.last().map(|&(_, accuracy)| accuracy),
            goodput_bps: goodput_bps(self.tenant.gradient_bits(), latest),
        }
    }

    fn training(self, server: JobCounters) -> Training {
        let trained: Vec<Trained> = self.trained.into_iter().flatten().collect();
        let values =
            |worker: &Trained| worker.parameters.iter().copied().map(f32::from_bits).collect();
        Training {
            parameters: trained.iter().map(values).collect(),
            digests: trained.iter().map(|worker| worker.digest.clone()).collect(),
            repairs: trained.iter().map(|worker| worker.repairs).sum(),
            queries: trained.iter().map(|worker| worker.queries).sum(),
            server,
            ..self.so_far
        }
    }
}
