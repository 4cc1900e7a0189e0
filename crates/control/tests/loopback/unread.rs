//! Memory of a service whose ranks read nothing.
// spec: E-12 sockets

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{CallRate, Credentials, v1};
use tokio::sync::mpsc::Sender;

use super::raw::{block_on, connect, join, open_stream, request};
use super::stage::{Rank, SECRET, attend_config, stage};

/// Environment variable of the process that serves.
const CHILD: &str = "THALWEG_UNREAD_CHILD";

/// Streams of one connection.
const STREAMS: u32 = 64;

/// Budget of a token for messages that were not read.
const UNREAD_BYTES: u64 = 64 << 20;

/// Memory that every rank may take beside it: its streams, its place in the registry, and small messages that wait.
const RANK_BYTES: u64 = 32 << 10;

/// Memory of a service for itself, and what the allocator keeps.
const MARGIN_BYTES: u64 = 32 << 20;

fn token(id: u64) -> String {
    let jobs = Pattern::new("*").expect("a pattern");
    Token { id, role: Role::Tenant, jobs, ranks_max: 4_096, expires: u64::MAX }.sign(&SECRET)
}

/// Serves until its input ends, as a process of its own.
#[test]
fn child() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let stage = stage(|config| {
        config.credentials =
            Credentials { secrets: vec![SECRET], required: true, ..Credentials::default() };
        // The rate of calls would only make it take longer.
        config.budgets.calls.calls = CallRate { per_s: 100_000, burst: 100_000 };
        config.budgets.calls.calls_in_total = CallRate { per_s: 100_000, burst: 100_000 };
    });
    println!("\nat {}", stage.service.local_address());
    std::io::stdout().flush().expect("a parent reads");
    let _ = std::io::stdin().read(&mut [0; 1]);
}

/// A service in a process of its own.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let program = std::env::current_exe().expect("a program");
        let mut command = Command::new(program);
        command.args(["unread::child", "--exact", "--nocapture"]).env(CHILD, "1");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut lines = output.lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("at ")?.parse().ok());
        Server { process, address: address.expect("it says where it is") }
    }

    fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let text = text.expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Joins all ranks of a job, answers for them so that they are sent a set-up, and reads nothing.
async fn attend_blindly(address: SocketAddr, number: u32, ranks: u32) -> Vec<Sender<v1::FromRank>> {
    let name = format!("{number}{}", "n".repeat(240));
    let (token, mut senders) = (token(6), Vec::new());
    for first in (0..ranks).step_by(STREAMS as usize) {
        let mut client = connect(address, Some(&token)).await;
        let job = client.register(request(&name, ranks)).await.expect("it fits").into_inner().job;
        for rank in first..ranks.min(first + STREAMS) {
            let node = 0x0001_2000 + 8 * rank;
            let host = format!("{rank}{}", "h".repeat(240));
            let join = v1::Join { node, host, ..join(job, rank, 1) };
            let (sender, stream) = open_stream(join);
            let mut client = client.clone();
            tokio::spawn(async move {
                let answers = client.attend(stream).await;
                // Nobody polls it, and it stays open.
                std::future::pending::<()>().await;
                drop(answers);
            });
            senders.push(sender);
        }
    }
    for (rank, sender) in (0..).zip(&senders) {
        let answer = v1::Answer { round: 1, seat: rank, ..Default::default() };
        let message = Some(v1::from_rank::Message::Answer(answer));
        sender.send(v1::FromRank { tree: 0, message }).await.expect("the stream is open");
    }
    senders
}

/// Resident bytes before and with jobs of ranks that read nothing, once they grow no more.
fn measure(jobs: u32, ranks: u32) -> (u64, u64) {
    let server = Server::start();
    let before = server.resident_bytes();
    let most = block_on(async {
        let mut senders = Vec::new();
        for number in 0..jobs {
            senders.push(attend_blindly(server.address, number, ranks).await);
        }
        let (mut most, mut grown_at) = (before, Instant::now());
        while grown_at.elapsed() < Duration::from_secs(3) {
            let resident = server.resident_bytes();
            if resident > most + (1 << 20) {
                (most, grown_at) = (resident, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // A rank of another token joins as if nothing was the matter.
        let mut config = attend_config(server.address, 1, 0, "honest");
        config.access.token = Some(token(7));
        assert_eq!(Rank::start(config).answer(None), 1);
        most
    });
    (before, most)
}

fn check(jobs: u32, ranks: u32) {
    let (before, most) = measure(jobs, ranks);
    let [before_mib, most_mib] = [before, most].map(|bytes| bytes >> 20);
    println!("| {jobs} | {ranks} | {before_mib} MiB | {most_mib} MiB |");
    let all = u64::from(jobs * ranks);
    let allowed = UNREAD_BYTES + all * RANK_BYTES + MARGIN_BYTES;
    assert!(most - before <= allowed, "{} bytes, {allowed} are allowed", most - before);
}

#[test]
fn ranks_that_do_not_read_take_no_more_than_the_budget() {
    check(1, 512);
}

#[test]
#[ignore = "takes a minute: prints what all ranks that a token may have take at their worst"]
fn measure_the_worst_of_a_token() {
    for (jobs, ranks) in [(1, 1_000), (16, 1_000), (512, 32)] {
        check(jobs, ranks);
    }
}
