//! What each attack costs a job beside it. Prints a table; timings depend on the machine, and nothing here fails by them.
//! `cargo test --release -p thalweg --test hostile measure -- --ignored --nocapture` runs it, on as many cores as there are.
//!
//! The attackers run on the cores of the daemons and of the victim, which no real one does. So they have the lowest priority,
//! and get what the others leave: the victim computes between its sums, as training does. And every attack runs in turns: not
//! at all, against daemons of its own that the victim does not use (a decoy), and against those of the victim. Decoy over none
//! is what the attacker's processor time still costs; attack over decoy is what the attack itself does.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg::{Reduce, Session};
use thalweg_control::{Access, AttendConfig, inquiry};

use crate::amplifier;
use crate::memory::{
    Rank, flood as flood_of_fragments, flood_switch, node_of, rank_of, status_bytes, token,
};
use crate::process::Process;
use crate::sockets::{self, End};
use crate::tenants;

/// A sum of 1.2 MB, as a bucket of gradients has.
const VALUES: usize = 300_000;
/// Time between two sums of the victim.
const COMPUTING: Duration = Duration::from_millis(20);
const RANKS: u32 = 2;
const LIMIT: Duration = Duration::from_secs(60);
/// Time of one measurement, and the number of turns.
const SLICE: Duration = Duration::from_millis(1_500);
const TURNS: u32 = 5;
/// Time that an attacker waits for an answer which its budget of calls may not allow.
const PATIENCE: Duration = Duration::from_millis(300);

/// A server and a switch, a process each.
struct Daemons {
    server: Process,
    switch: Process,
    targets: Targets,
}

impl Daemons {
    fn start() -> Daemons {
        let server = format!("server {} {} 1", 64_u64 << 20, 512_u64 << 20);
        let server = Process::start_in(&server, None);
        let switch = Process::start_in("switch 16384 352", None);
        let addresses = [&server, &switch].map(|process| process.expect("at", LIMIT)).join(" ");
        let mut addresses = addresses.split(' ').map(|at| at.parse().expect("an address"));
        let mut next = || addresses.next().expect("three addresses");
        let targets = Targets { server: next(), metrics: next(), switch: next() };
        Daemons { server, switch, targets }
    }

    /// Resident memory of server and switch, in MiB.
    fn resident_mib(&self) -> [u64; 2] {
        [&self.server, &self.switch].map(|process| status_bytes(process, "VmRSS:") >> 20)
    }

    /// Counters of both by reason.
    fn counts(&mut self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (role, process) in [("server", &mut self.server), ("switch", &mut self.switch)] {
            process.say("counts");
            let line = process.expect("counts", LIMIT);
            for (name, count) in line.split(' ').filter_map(|one| one.split_once('=')) {
                counts.insert(format!("{role} {name}"), count.parse().expect("a number"));
            }
        }
        counts
    }
}

/// Addresses that an attack goes to.
#[derive(Clone, Copy)]
struct Targets {
    server: SocketAddr,
    metrics: SocketAddr,
    switch: SocketAddr,
}

type Attack = fn(Targets, &AtomicBool);

/// The attacks, by what was tried before daemons were guarded against them.
const ATTACKS: [(&str, Attack); 13] = [
    ("taking ranks of others", take_ranks),
    ("registrations and lists without end", lists),
    ("calls without a token", without_token),
    ("messages without end on an open stream", messages),
    ("jobs that reserve memory", greedy),
    ("fragments that fill the memory of a job", fragments),
    ("announcements and results to a victim", amplify),
    ("contributions that name a victim as server", name_victim),
    ("an own job's fragments to the victim's switch", through_switch),
    ("connections that say nothing", idle),
    ("connections without a token that never call", handshakes),
    ("readers of metrics that do not read", slow_readers),
    ("forged and random packets", forged),
];

fn take_ranks(to: Targets, is_over: &AtomicBool) {
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let calls = &calls;
        for number in 0..2 {
            scope.spawn(move || {
                tenants::squat(to.server, (tenants::OWN, number), &["victim"], is_over, calls)
            });
        }
    });
}

fn lists(to: Targets, is_over: &AtomicBool) {
    let (calls, seen) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let (calls, seen) = (&calls, &seen);
        for number in 0..4 {
            scope.spawn(move || tenants::list(to.server, is_over, calls, seen));
            scope.spawn(move || {
                tenants::squat(to.server, (tenants::OWN, number), &[], is_over, calls)
            });
        }
    });
}

fn without_token(to: Targets, is_over: &AtomicBool) {
    let access = Access { endpoint: to.server.to_string(), token: None, tls_ca: None };
    while !is_over.load(Ordering::Relaxed) {
        assert!(inquiry::topology(&access).is_err(), "nobody gets an answer without a token");
    }
}

/// A job of two ranks, of which one says all the time how far it is, more often than it may.
fn messages(to: Targets, is_over: &AtomicBool) {
    // Of the last turn some messages may still be on their path.
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let name = format!("mallory speaks {turn}");
    let rank = |rank| Rank::start(rank_of(to.server, 70 + turn, &name, (2, rank)));
    let ranks = [rank(0), rank(1)];
    ranks.iter().for_each(Rank::answer);
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..60 {
            ranks[0].report_progress();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn greedy(to: Targets, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let name = |job: u32| format!("mallory {job}");
        let ranks: Vec<Rank> =
            (0..8).map(|job| Rank::start(rank_of(to.server, 66, &name(job), (1, 0)))).collect();
        for rank in &ranks {
            rank.answer_within(PATIENCE);
        }
    }
}

fn fragments(to: Targets, is_over: &AtomicBool) {
    let rank = |rank| Rank::start(rank_of(to.server, 67, "mallory flood", (2, rank)));
    let ranks = [rank(0), rank(1)];
    ranks.iter().for_each(Rank::answer);
    let (setup, key) = ranks[0].adopt();
    while !is_over.load(Ordering::Relaxed) {
        flood_of_fragments(to.server, &setup, &key, is_over);
    }
}

/// A job of two ranks below the switch of the victim, of which one sends with the job's key.
fn through_switch(to: Targets, is_over: &AtomicBool) {
    let rank = |rank| {
        let own = rank_of(to.server, 68, "mallory below", (2, rank));
        Rank::start(AttendConfig { switch: Some(node_of(to.switch)), ..own })
    };
    let ranks = [rank(0), rank(1)];
    ranks.iter().for_each(Rank::answer);
    let (setup, key) = ranks[0].adopt();
    while !is_over.load(Ordering::Relaxed) {
        flood_switch(to.switch, &setup, &key, is_over);
    }
}

fn amplify(to: Targets, is_over: &AtomicBool) {
    tenant(to, is_over, amplifier::Tenant::amplify_at);
}

fn name_victim(to: Targets, is_over: &AtomicBool) {
    tenant(to, is_over, amplifier::Tenant::name_at);
}

/// A tenant that sends with the keys of its own job, and the bytes that reach a victim of it.
fn tenant(
    to: Targets,
    is_over: &AtomicBool,
    act: fn(&mut amplifier::Tenant, SocketAddr, SocketAddr),
) {
    let ranks = Rank::start(rank_of(to.server, 69, "mallory's", (1, 0)));
    ranks.answer();
    let (setup, _) = ranks.adopt();
    let victim = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut tenant = amplifier::Tenant::new(to.switch, setup.job);
    let mut reached = 0;
    while !is_over.load(Ordering::Relaxed) {
        act(&mut tenant, victim.local_addr().expect("it is bound"), to.server);
        reached += amplifier::received(&victim).iter().map(Vec::len).sum::<usize>() as u64;
    }
    let factor = reached as f64 / tenant.sent_bytes() as f64;
    println!(
        "    {} bytes sent, {reached} bytes reached the victim: {factor:.5}",
        tenant.sent_bytes()
    );
}

fn idle(to: Targets, is_over: &AtomicBool) {
    connect(to.server, &[], is_over);
}

/// The beginning of HTTP/2 and empty settings: the connection stands, and no call follows.
fn handshakes(to: Targets, is_over: &AtomicBool) {
    connect(to.server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", is_over);
}

fn slow_readers(to: Targets, is_over: &AtomicBool) {
    let line = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    connect(to.metrics, &line, is_over);
}

/// Opens connections, one in a millisecond and up to 500 at a time, says something on each, and reads nothing.
fn connect(to: SocketAddr, line: &[u8], is_over: &AtomicBool) {
    let mut open = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(to) {
            // The other end may have hung up.
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(line));
            open.push(stream);
        }
        if open.len() > 500 {
            open.clear();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn forged(to: Targets, is_over: &AtomicBool) {
    sockets::flood(1, &[to.switch, to.server], is_over, &AtomicU64::new(0));
}

/// Times of the victim's sums, in milliseconds.
type Times = Mutex<Vec<f64>>;

/// Sums until it is over, and computes in between.
fn sum(session: &Session, is_over: &AtomicBool, times: &Times) {
    let value = |rank: u32, at: usize| ((at as u32 + 3 * rank) % 100) as f32;
    let mut own: Vec<f32> = (0..VALUES).map(|at| value(session.rank(), at)).collect();
    own.push(0.0);
    loop {
        own[VALUES] = f32::from(u8::from(is_over.load(Ordering::Relaxed)));
        let (values, began) = (own.clone(), Instant::now());
        let result = session.all_reduce(values, Reduce::Sum).wait().expect("it ends well");
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        let expected = |at| (0..RANKS).map(|rank| value(rank, at)).sum::<f32>();
        let values = result.values;
        assert!(values[..VALUES].iter().enumerate().all(|(at, value)| *value == expected(at)));
        if values[VALUES] > 0.0 {
            return;
        }
        if session.rank() == 0 {
            times.lock().expect("nobody panics with it").push(took_ms);
        }
        std::thread::sleep(COMPUTING);
    }
}

/// Median time of a sum of the victim, while somebody is attacked or nobody is.
fn sum_ms(times: &Times, attack: Option<(Attack, Targets)>) -> f64 {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = End(&is_over);
        if let Some((attack, targets)) = attack {
            let is_over = &is_over;
            scope.spawn(move || {
                lower_priority();
                attack(targets, is_over);
            });
            std::thread::sleep(SLICE / 5);
        }
        times.lock().expect("nobody panics with it").clear();
        std::thread::sleep(SLICE);
        let times = times.lock().expect("nobody panics with it").clone();
        drop(end);
        median(times)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Lowers the priority of this thread and of those that it will start, so that an attacker does not take the cores of its
/// victim.
fn lower_priority() {
    let own = std::fs::read_link("/proc/thread-self").expect("procfs is there");
    let thread = own.file_name().expect("it ends with the thread").to_owned();
    let mut renice = Command::new("renice");
    let renice = renice.args(["-n", "19", "-p"]).arg(thread).stdout(Stdio::null());
    assert!(renice.status().expect("renice is installed").success());
}

#[test]
#[ignore = "takes minutes and a machine of its own: run it with --nocapture for the table"]
fn measure() {
    let (mut daemons, decoy) = (Daemons::start(), Daemons::start());
    let (is_over, times) = (AtomicBool::new(false), Times::default());
    std::thread::scope(|scope| {
        let (is_over, times, to) = (&is_over, &times, daemons.targets);
        let end = End(is_over);
        let ranks: Vec<_> = (0..RANKS)
            .map(|rank| {
                let builder = Session::builder(to.server.to_string(), "victim").rank(rank, RANKS);
                let builder = builder.switch(to.switch.to_string()).token(token(5, "victim"));
                scope.spawn(move || {
                    let session = builder.share_memory(false).join().expect("it joins");
                    sum(&session, is_over, times);
                    session.leave().expect("everything has ended");
                })
            })
            .collect();
        let begun = Instant::now();
        while times.lock().expect("nobody panics with it").len() < 20 {
            assert!(begun.elapsed() < LIMIT, "the victim sums");
            std::thread::sleep(Duration::from_millis(10));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!(
            "{cores} cores; time of a sum of the victim, as a multiple of that without an attack"
        );
        println!(
            "| attack | no attack | at others | at the victim's daemons | server | switch | counted |"
        );
        println!("|---|---|---|---|---|---|---|");
        for (name, attack) in ATTACKS {
            row(&mut daemons, decoy.targets, times, (name, attack));
        }
        drop(end);
        ranks.into_iter().for_each(|rank| rank.join().expect("all sums are right"));
    });
    println!("all sums of the victim were right");
}

fn row(daemons: &mut Daemons, decoy: Targets, times: &Times, (name, attack): (&str, Attack)) {
    let (before, memory) = (daemons.counts(), daemons.resident_mib());
    let to = daemons.targets;
    let mut medians = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        let turns = [None, Some((attack, decoy)), Some((attack, to))];
        for (medians, turn) in medians.iter_mut().zip(turns) {
            medians.push(sum_ms(times, turn));
        }
    }
    let [none, decoyed, attacked] = medians.map(median);
    let after = daemons.counts();
    let counted = after.iter().filter_map(|(name, count)| {
        let more = count - before.get(name).copied().unwrap_or(0);
        (more > 0).then(|| format!("{name} {more}"))
    });
    let counted = counted.collect::<Vec<_>>().join(", ");
    let after = daemons.resident_mib();
    let [server, switch] = [0, 1].map(|at| format!("{} to {} MiB", memory[at], after[at]));
    println!(
        "| {name} | {none:.1} ms | {:.2} | {:.2} | {server} | {switch} | {counted} |",
        decoyed / none,
        attacked / none,
    );
}
