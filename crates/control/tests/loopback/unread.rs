//! Memory of a service whose ranks read nothing.
// spec: E-12 sockets

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{CallRate, Credentials, v1};
use tokio::sync::mpsc::Sender;

use super::raw::{Client, block_on, connect, connect_deaf, join, open_stream, request};
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
        config.budgets.calls.listings = CallRate { per_s: 100_000, burst: 100_000 };
        config.budgets.calls.thread_us = CallRate { per_s: u32::MAX, burst: u32::MAX };
    });
    println!("\nat {}", stage.service.local_address());
    std::io::stdout().flush().expect("a parent reads");
    let _ = std::io::stdin().read(&mut [0; 1]);
}

/// A service in a process of its own.
struct Server {
    process: Child,
    /// It would end when it writes a line that nobody can read.
    _output: Lines<BufReader<ChildStdout>>,
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
        let mut output = output.lines();
        let mut lines = output.by_ref().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("at ")?.parse().ok());
        Server { process, _output: output, address: address.expect("it says where it is") }
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

/// Jobs of one token whose ranks read nothing.
#[derive(Clone, Copy)]
struct Attack {
    jobs: u32,
    ranks: u32,
    /// Sending threads that every rank offers. It reports a stall in each of their trees.
    threads: u32,
    /// Number of times that rank 0 of each job comes as another process, so that all its ranks are welcomed again.
    successions: u32,
    /// Connections announce the largest windows and are not read, so that HTTP/2 asks for all that there is.
    is_deaf: bool,
}

async fn attacker(address: SocketAddr, is_deaf: bool) -> (Client, Option<Arc<AtomicBool>>) {
    match is_deaf {
        true => {
            let (client, is_deaf) = connect_deaf(address, &token(6)).await;
            (client, Some(is_deaf))
        }
        false => (connect(address, Some(&token(6))).await, None),
    }
}

fn join_of(job: u64, rank: u32, threads: u32) -> v1::Join {
    let (node, host) = (0x0001_2000 + 8 * rank, format!("{rank}{}", "h".repeat(240)));
    let more_nodes = (1..threads).map(|thread| node + (thread << 16)).collect();
    v1::Join { node, host, more_nodes, ..join(job, rank, 1) }
}

/// A stall that names this number of ranks: a message has room for 4,096, and not for many more.
fn stall(count: u32) -> v1::from_rank::Message {
    let ranks = (0..count).collect();
    v1::from_rank::Message::Stalled(v1::Stalled {
        operation: 1,
        fragment: None,
        ranks,
        since_ms: 0,
    })
}

/// Waits until all ranks of a job are there. Another token asks: that of the job may have used up the memory of its answers.
async fn gathered(address: SocketAddr, name: &str, ranks: u32) {
    let mut client = connect(address, Some(&token(7))).await;
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let listed = client.topology(v1::TopologyRequest {}).await;
        let jobs = listed.map(|answer| answer.into_inner().jobs).unwrap_or_default();
        let own = jobs.into_iter().find(|job| job.name == name);
        if own.is_some_and(|job| {
            job.ranks.iter().filter(|rank| rank.connected).count() == ranks as usize
        }) {
            return;
        }
        assert!(Instant::now() < end, "all ranks join");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Joins all ranks of a job, answers for them so that they are sent a set-up, and reads nothing.
async fn attend_blindly(
    address: SocketAddr,
    number: u32,
    attack: Attack,
) -> Vec<Sender<v1::FromRank>> {
    let Attack { ranks, threads, successions, is_deaf, .. } = attack;
    let name = format!("{number}{}", "n".repeat(240));
    let mut senders = Vec::new();
    let first_blind = u32::from(successions > 0);
    for first in (first_blind..ranks).step_by(STREAMS as usize) {
        let (mut client, deaf) = attacker(address, is_deaf).await;
        let job = client.register(request(&name, ranks)).await.expect("it fits").into_inner().job;
        deaf.into_iter().for_each(|deaf| deaf.store(true, Ordering::Relaxed));
        for rank in first..ranks.min(first + STREAMS) {
            let (sender, stream) = open_stream(join_of(job, rank, threads));
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
    match successions {
        0 => gathered(address, &name, ranks).await,
        _ => succeed(address, &name, attack).await,
    }
    for (rank, sender) in (first_blind..).zip(&senders) {
        tokio::spawn(answer_all(rank, threads, sender.clone()));
    }
    senders
}

/// Answers in all trees, and reports stalls. A connection that reads nothing may give no room for the rest, for ever.
async fn answer_all(rank: u32, threads: u32, sender: Sender<v1::FromRank>) {
    for tree in 0..threads {
        let answer = v1::Answer { round: 1, seat: rank, ..Default::default() };
        for message in [v1::from_rank::Message::Answer(answer), stall(4_096)] {
            if sender.send(v1::FromRank { tree, message: Some(message) }).await.is_err() {
                return;
            }
        }
    }
}

/// Rank 0 comes as one process after the other, each with the ticket of the one before.
async fn succeed(address: SocketAddr, name: &str, attack: Attack) {
    let Attack { ranks, threads, successions, .. } = attack;
    let mut client = connect(address, Some(&token(6))).await;
    let job = client.register(request(name, ranks)).await.expect("it is there").into_inner().job;
    let mut ticket = None;
    for life in 0..successions {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let join =
                v1::Join { life: life.into(), ticket: ticket.clone(), ..join_of(job, 0, threads) };
            let (_sender, stream) = open_stream(join);
            let answers = client.attend(stream).await;
            let answers = match answers {
                Ok(answers) => answers,
                Err(_) if Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                Err(status) => return eprintln!("no process came after {life}: {status}"),
            };
            let first =
                answers.into_inner().message().await.expect("it is open").expect("a ticket");
            let Some(v1::to_rank::Message::Joined(joined)) = first.message else {
                panic!("{first:?}");
            };
            ticket = joined.ticket;
            break;
        }
    }
}

/// Resident bytes before and with jobs of ranks that read nothing, once they grow no more.
fn measure(attack: Attack) -> (u64, u64) {
    let server = Server::start();
    let before = server.resident_bytes();
    let most = block_on(async {
        let mut senders = Vec::new();
        for number in 0..attack.jobs {
            senders.push(attend_blindly(server.address, number, attack).await);
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

fn check(attack: Attack) {
    let (before, most) = measure(attack);
    let [before_mib, most_mib] = [before, most].map(|bytes| bytes >> 20);
    let Attack { jobs, ranks, threads, successions, is_deaf } = attack;
    let how = if is_deaf { "large windows, welcomed again" } else { "small windows" };
    println!(
        "| {jobs} | {ranks} | {threads} threads | {how} {successions} | {before_mib} MiB | {most_mib} MiB |"
    );
    let all = u64::from(jobs * ranks);
    let allowed = UNREAD_BYTES + all * RANK_BYTES + MARGIN_BYTES;
    assert!(most - before <= allowed, "{} bytes, {allowed} are allowed", most - before);
}

fn mute(jobs: u32, ranks: u32, threads: u32) -> Attack {
    Attack { jobs, ranks, threads, successions: 0, is_deaf: false }
}

/// As many successions as fill what HTTP/2 would keep, and fewer where there are many jobs.
fn deaf(jobs: u32, ranks: u32, threads: u32) -> Attack {
    Attack { jobs, ranks, threads, successions: (1_024 / jobs).min(64), is_deaf: true }
}

/// Clients take windows of megabytes, so that most ranks get a welcome of 100 KB. Its memory is free again once it was sent.
#[test]
fn ranks_that_do_not_read_take_no_more_than_the_budget() {
    check(mute(1, 1_000, 16));
}

/// The numbers of all ranks of the largest job fit a message. A stream keeps the memory of its longest, so that none is much longer.
#[test]
fn a_stream_is_ended_by_a_message_that_is_too_long() {
    let stage = stage(|_| {});
    let address = stage.service.local_address();
    let outcome = async |count: u32| {
        let mut client = connect(address, None).await;
        let name = format!("ranks-{count}");
        let job = client.register(request(&name, 1)).await.expect("it fits").into_inner().job;
        let (sender, stream) = open_stream(join_of(job, 0, 1));
        let mut answers = client.attend(stream).await.expect("it joins").into_inner();
        let aborting = v1::Aborting { reason: "so it is".into() };
        for message in [stall(count), v1::from_rank::Message::Aborting(aborting)] {
            // The stream may have been closed.
            let _ = sender.send(v1::FromRank { tree: 0, message: Some(message) }).await;
        }
        let mut is_failed = false;
        while let Ok(Some(answer)) = answers.message().await {
            is_failed |= matches!(answer.message, Some(v1::to_rank::Message::Failed(_)));
        }
        is_failed
    };
    block_on(async {
        assert!(outcome(4_096).await, "both messages were read");
        assert!(!outcome(4_500).await, "the stream was closed before");
    });
}

/// HTTP/2 would keep 400 KiB of each stream.
#[test]
fn ranks_that_announce_large_windows_and_do_not_read_take_no_more_than_the_budget() {
    check(deaf(1, 1_000, 1));
}

#[test]
#[ignore = "takes minutes: prints what the ranks of a large job take at their worst"]
fn measure_the_worst_of_a_job() {
    for threads in [1, 32] {
        check(mute(1, 1_000, threads));
        check(deaf(1, 1_000, threads));
    }
}

#[test]
#[ignore = "takes minutes: prints what all ranks that a token may have take at their worst"]
fn measure_the_worst_of_a_token() {
    for (jobs, ranks, threads) in [(16, 1_000, 16), (512, 32, 1)] {
        check(mute(jobs, ranks, threads));
        check(deaf(jobs, ranks, threads));
    }
}

/// Answers about all jobs take memory of the budget until they were read, and those that never are end their connection.
#[test]
fn answers_that_are_not_read_take_no_more_than_the_budget() {
    let stage = stage(|config| {
        config.credentials =
            Credentials { secrets: vec![SECRET], required: true, ..Credentials::default() };
        config.budgets.calls.listings = CallRate { per_s: 1_000, burst: 1_000 };
        config.budgets.calls.unread_bytes = 1 << 20;
        config.budgets.jobs.unattended = 512;
    });
    let address = stage.service.local_address();
    let list = async |client: &mut Client| {
        let listed = client.topology(v1::TopologyRequest {}).await;
        listed.map(|answer| answer.into_inner().jobs.len())
    };
    block_on(async {
        let mut honest = connect(address, Some(&token(6))).await;
        for number in 0..512 {
            let name = format!("{number}{}", "n".repeat(240));
            honest.register(request(&name, 1)).await.expect("it fits");
        }
        let answer = honest.topology(v1::TopologyRequest {}).await.expect("it fits").into_inner();
        let bytes = prost::Message::encoded_len(&answer);
        assert!(answer.jobs.len() == 512 && bytes > 128 << 10, "{bytes}");
        let (client, is_deaf) = connect_deaf(address, &token(6)).await;
        list(&mut client.clone()).await.expect("it is read");
        is_deaf.store(true, Ordering::Relaxed);
        for _ in 0..STREAMS {
            let mut client = client.clone();
            tokio::spawn(async move { list(&mut client).await });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let status = list(&mut honest).await.expect_err("all of the memory is in use");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("were not read"), "{status}");
        let mut other = connect(address, Some(&token(7))).await;
        list(&mut other).await.expect("another token has its own");
        let end = Instant::now() + Duration::from_secs(60);
        while list(&mut honest).await.is_err() {
            assert!(Instant::now() < end, "the connection that did not read is closed");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
}

/// Callers that ask at once: there are no more answers than there is memory for, also before they are sent.
#[test]
fn answers_are_made_when_there_is_memory_for_them() {
    let server = Server::start();
    let ranks = 1_000;
    let (before, most) = block_on(async {
        let _senders = attend_blindly(server.address, 0, mute(1, ranks, 1)).await;
        let before = server.resident_bytes();
        let (done, mut answered) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..8 {
            let client = connect(server.address, Some(&token(6))).await;
            for _ in 0..STREAMS {
                let (mut client, done) = (client.clone(), done.clone());
                tokio::spawn(async move {
                    let listed = client.topology(v1::TopologyRequest {}).await;
                    // The test waits for all of them.
                    let _ = done.send(listed.is_ok());
                });
            }
        }
        drop(done);
        let (mut most, mut count) = (before, 0);
        while let Some(is_ok) = answered.recv().await {
            most = most.max(server.resident_bytes());
            count += u32::from(is_ok);
        }
        println!("{count} of {} callers got an answer", 8 * STREAMS);
        assert!(count > 0);
        (before, most)
    });
    let grown = most - before;
    println!("{} MiB more", grown >> 20);
    assert!(grown <= UNREAD_BYTES + MARGIN_BYTES, "{grown} bytes");
}
