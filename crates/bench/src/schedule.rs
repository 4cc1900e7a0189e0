//! Number of agents that one set of load tables serves.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use thalweg_console::{Failure, files};
use thalweg_control::Access;
use thalweg_control::pacing::{
    CallError, Caller, PacingConfig, PacingService, current_slot, since_epoch,
};
use thalweg_core::{JobId, NodeId, Rate};
use thalweg_pace::board::{AgentId, Plan, Prefix, Question, Route, Update};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, FlowId, Rank, Settings, Slot};
use thalweg_report::format::format_count;

use crate::tools::{now, percentile};

/// Arguments of `thalweg bench schedule`.
#[derive(Args)]
pub struct ScheduleArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Agents, each with a connection and two calls a slot of 60 ms
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    agents: u32,
    /// Flows of each agent, all of them in every call
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    flows: u32,
    /// Seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Do not wait for the next slot: as many calls as there can be
    #[arg(long)]
    flat_out: bool,
}

/// Measurements of one agent.
#[derive(Default)]
struct Seen {
    fetches_us: Vec<f64>,
    updates_us: Vec<f64>,
    failed: u64,
    late: u64,
}

pub(super) fn schedule(arguments: &ScheduleArguments) -> Result<(), Failure> {
    let settings = Settings::default();
    let service = PacingService::start(PacingConfig {
        bind: ([127, 0, 0, 1], 0).into(),
        credentials: Default::default(),
        tls: None,
        settings,
        routes: vec![Route { to: Prefix::ALL, rate: Rate::from_gbps(100), is_each: true }],
        on_note: Box::new(|note| eprintln!("{note}")),
    });
    let service = service.map_err(Failure::ran)?;
    let access =
        Access { endpoint: service.local_address().to_string(), token: None, tls_ca: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::ran)?;
    let (agents, seconds) = (arguments.agents, arguments.seconds);
    eprintln!("{agents} agents for {seconds} s …");
    let (seen, took) = runtime
        .block_on(async {
            let mut callers = Vec::new();
            for _ in 0..agents {
                callers.push(Caller::connect(&access, settings).await?);
            }
            let begin = now();
            let tasks = (0..).zip(callers).map(|(agent, caller)| {
                let end = end_of(arguments, begin);
                tokio::spawn(live(agent, caller, settings, arguments.flows, end))
            });
            let tasks: Vec<_> = tasks.collect();
            let mut all = Seen::default();
            for task in tasks {
                all.add(task.await.unwrap_or_default());
            }
            Ok::<_, CallError>((all, begin.elapsed()))
        })
        .map_err(Failure::ran)?;
    report(arguments, seen, took)
}

/// When to end, and whether to wait for slots.
fn end_of(arguments: &ScheduleArguments, begin: Instant) -> (Instant, bool) {
    (begin + Duration::from_secs(arguments.seconds), arguments.flat_out)
}

/// One agent: asks and tells in every slot, at a moment of its own.
async fn live(
    agent: u32,
    mut caller: Caller,
    settings: Settings,
    flows: u32,
    (end, is_flat_out): (Instant, bool),
) -> Seen {
    let mut seen = Seen::default();
    let ids = (0..flows).map(|number| FlowId { job: JobId(u64::from(agent)), number });
    let to = |number: u32| NodeId(0x0a00_0000 + (agent * 7 + number) % 64);
    // Jobs of various sizes, so that some take from others.
    let rank = Rank(100 + (agent % 8) as u8);
    let questions: Vec<Question> =
        ids.map(|flow| Question { flow, rank, to: to(flow.number), others: Vec::new() }).collect();
    let mut sequence = 0;
    while now() < end {
        let slot = current_slot(&settings);
        let begun = now();
        let answers = caller.fetch(slot, &questions).await;
        seen.fetches_us.push(microseconds(begun));
        seen.failed += u64::from(answers.is_err());
        sequence += 1;
        let update = update(agent, sequence, slot, &questions);
        let begin = now();
        let verdicts = caller.update(&update).await;
        seen.updates_us.push(microseconds(begin));
        seen.failed += u64::from(verdicts.is_err());
        if !is_flat_out {
            seen.late += u64::from(begun.elapsed() > slot_span(&settings));
            tokio::time::sleep(until_turn(&settings, agent)).await;
        }
    }
    seen
}

fn slot_span(settings: &Settings) -> Duration {
    Duration::from_nanos(settings.slot.as_ps() / 1_000)
}

/// Until the agent's next moment: hosts decide at staggered ones, once a slot.
fn until_turn(settings: &Settings, agent: u32) -> Duration {
    let slot_us = u128::from(settings.slot.as_ps() / 1_000_000);
    let turn_us = u128::from(agent) * 613 % slot_us;
    let passed_us = since_epoch().as_micros() % slot_us;
    let wait_us = (turn_us + slot_us - passed_us) % slot_us;
    Duration::from_micros(wait_us.max(1) as u64)
}

fn update(agent: u32, sequence: u64, slot: Slot, questions: &[Question]) -> Update {
    let plan = |question: &Question| Plan {
        flow: question.flow,
        rank: question.rank,
        to: question.to,
        plan: Ahead::filled(slot, 10, 1_000_000 + sequence % 7),
        progress: Progress { flow: question.flow, iteration: 1, volume: sequence },
        asked: 1_000_000,
        carried: 1_000_000,
    };
    let plans = questions.iter().map(plan).collect();
    Update { agent: AgentId(agent.into()), sequence, slot, plans }
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.fetches_us.extend(other.fetches_us);
        self.updates_us.extend(other.updates_us);
        self.failed += other.failed;
        self.late += other.late;
    }
}

fn report(arguments: &ScheduleArguments, seen: Seen, took: Duration) -> Result<(), Failure> {
    let calls = seen.fetches_us.len() + seen.updates_us.len();
    let rate = calls as f64 / took.as_secs_f64();
    let wanted = f64::from(arguments.agents) * 2.0 / 0.06;
    let (fetch, update) = (percentiles(&seen.fetches_us), percentiles(&seen.updates_us));
    if arguments.json {
        let percentiles = |[median, last]: [f64; 2]| json!({ "median_us": median, "p99_us": last });
        let document = json!({
            "schema": "thalweg.bench-schedule/1",
            "agents": arguments.agents,
            "flows_each": arguments.flows,
            "calls": calls,
            "calls_per_s": rate.round(),
            "wanted_per_s": (!arguments.flat_out).then(|| wanted.round()),
            "failed": seen.failed,
            "rounds_longer_than_a_slot": seen.late,
            "fetch": percentiles(fetch),
            "update": percentiles(update),
        });
        files::print(&format!("{document}\n"))?;
    } else {
        let line = |name: &str, [median, last]: [f64; 2]| {
            format!("{name}: median {median:.0} µs, 99th percentile {last:.0} µs\n")
        };
        files::print(&format!(
            "{} calls a second, {} failed, {} rounds took longer than a slot\n{}{}",
            format_count(rate as u64),
            seen.failed,
            seen.late,
            line("fetch feedback ", fetch),
            line("update schedule", update),
        ))?;
    }
    if seen.failed > 0 {
        return Err(Failure::Ran(format!("{} calls failed", seen.failed)));
    }
    Ok(())
}

fn percentiles(times_us: &[f64]) -> [f64; 2] {
    [50.0, 99.0].map(|percent| percentile(times_us, percent).round())
}

fn microseconds(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64 / 1e3
}
