//! `thalweg jobs`: jobs of a server, their ranks, and how far each is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use thalweg_console::{Failure, files};
use thalweg_control::{Access, inquiry, v1};
use thalweg_report::table::{Column, Table};

use crate::daemon;

/// Name and version of the JSON document.
const SCHEMA: &str = "thalweg.jobs/1";

/// Arguments of `thalweg jobs`.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct JobsArguments {
    /// Address of the server, host:port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4808")]
    server: String,
    /// File with a token: a tenant's shows its own jobs, an operator's all
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate of the authority that signed the server's certificate, if it uses TLS
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// List the ranks of this job instead
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  thalweg jobs --server 10.0.0.1:4808 --token-file operator.token
      all jobs of a server
  thalweg jobs resnet --server 10.0.0.1:4808 --token-file job.token
      the ranks of one job: their hosts, and the progress of each
  thalweg jobs --json | jq '.jobs[].name'
      names only, for programs";

/// A job.
#[derive(Debug, Serialize)]
struct Job {
    name: String,
    id: String,
    ranks: Vec<Rank>,
    ranks_expected: u32,
    epoch: u32,
    /// Switches that its ranks named.
    switches: BTreeSet<String>,
    /// Switches that it is planned without.
    switches_left_out: Vec<String>,
}

/// A rank of it.
#[derive(Debug, Serialize)]
struct Rank {
    rank: u32,
    address: String,
    host: String,
    switch: Option<String>,
    is_connected: bool,
    /// Operations that it has completed.
    operations: Option<u64>,
    /// Milliseconds since it came further.
    since_ms: Option<u64>,
}

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    server: &'a str,
    jobs: &'a [Job],
}

/// Runs `thalweg jobs`.
pub(crate) fn jobs(arguments: &JobsArguments) -> Result<(), Failure> {
    let token = arguments.token_file.as_deref().map(daemon::token).transpose()?;
    let tls_ca = arguments.tls_ca.clone();
    let access = Access { endpoint: arguments.server.clone(), token, tls_ca };
    let topology = inquiry::topology(&access).map_err(failure)?;
    let statistics = inquiry::statistics(&access, None).map_err(failure)?;
    let mut jobs = joined(topology, statistics);
    if let Some(name) = &arguments.job {
        jobs.retain(|job| job.name == *name);
        if jobs.is_empty() {
            let server = &arguments.server;
            return Err(Failure::usage(format!(
                "{server} lists no job {name:?}: `thalweg jobs --server {server}` lists those that the token shows"
            )));
        }
    }
    files::print(&match (arguments.json, &arguments.job) {
        (true, _) => json(&arguments.server, &jobs),
        (false, Some(_)) => jobs.iter().map(table_of_ranks).collect(),
        (false, None) => table_of_jobs(&jobs),
    })
}

/// Returns the failure to ask: an address or a file that makes no sense is bad input.
fn failure(error: inquiry::InquiryError) -> Failure {
    match error {
        inquiry::InquiryError::Access(error) => Failure::usage(error),
        error => Failure::ran(error),
    }
}

/// Joins what a server says of places and of progress.
fn joined(topology: v1::TopologyResponse, statistics: v1::StatisticsResponse) -> Vec<Job> {
    let progress: BTreeMap<u64, v1::JobStatistics> =
        statistics.jobs.into_iter().map(|job| (job.job, job)).collect();
    topology.jobs.into_iter().map(|job| job_of(progress.get(&job.job), job)).collect()
}

fn job_of(progress: Option<&v1::JobStatistics>, job: v1::JobPlaces) -> Job {
    let of_rank = |rank: u32| {
        let mut ranks = progress.into_iter().flat_map(|progress| &progress.ranks);
        ranks.find(|progress| progress.rank == rank)
    };
    let switches = job.ranks.iter().filter_map(|rank| rank.switch.clone()).collect();
    let ranks = job.ranks.into_iter().map(|place| Rank {
        operations: of_rank(place.rank).map(|progress| progress.operation),
        since_ms: of_rank(place.rank).map(|progress| progress.since_ms),
        rank: place.rank,
        address: place.address,
        host: place.host,
        switch: place.switch,
        is_connected: place.connected,
    });
    Job {
        ranks: ranks.collect(),
        name: job.name,
        id: format!("{:016x}", job.job),
        ranks_expected: job.workers,
        epoch: progress.map_or(0, |progress| progress.epoch),
        switches,
        switches_left_out: job.switches_left_out,
    }
}

fn json(server: &str, jobs: &[Job]) -> String {
    let document = Document { schema: SCHEMA, server, jobs };
    serde_json::to_string_pretty(&document).expect("numbers, names and texts") + "\n"
}

fn table_of_jobs(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let table = Table::by_column(jobs)
        .left("job", |job| job.name.clone())
        .right("ranks", |job| {
            let connected = job.ranks.iter().filter(|rank| rank.is_connected).count();
            format!("{connected}/{}", job.ranks_expected)
        })
        .right("hosts", |job| {
            let hosts: BTreeSet<&str> = job.ranks.iter().map(|rank| rank.host.as_str()).collect();
            hosts.len().to_string()
        })
        .right("operations", |job| {
            let done = job.ranks.iter().filter_map(|rank| rank.operations).min();
            done.map_or("gathering".to_owned(), |done| done.to_string())
        })
        .left("switches", |job| {
            let mut names: Vec<&str> = job.switches.iter().map(String::as_str).collect();
            if names.is_empty() {
                names.push("–");
            }
            names.join(", ")
        })
        .left("left out", |job| job.switches_left_out.join(", "));
    Table::from(table).to_text(files::table_style())
}

fn table_of_ranks(job: &Job) -> String {
    let columns = [
        Column::right("rank"),
        Column::left("host"),
        Column::left("address"),
        Column::left("switch"),
        Column::right("operations"),
        Column::right("last progress"),
        Column::left(""),
    ];
    let mut table = Table::new(columns);
    for rank in &job.ranks {
        let unknown = || "–".to_owned();
        table.push([
            rank.rank.to_string(),
            rank.host.clone(),
            rank.address.clone(),
            rank.switch.clone().unwrap_or_else(unknown),
            rank.operations.map_or_else(unknown, |done| done.to_string()),
            rank.since_ms.map_or_else(unknown, |ms| format!("{:.1} s ago", ms as f64 / 1e3)),
            if rank.is_connected { "" } else { "not connected" }.to_owned(),
        ]);
    }
    table.to_text(files::table_style())
}
