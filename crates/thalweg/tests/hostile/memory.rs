//! Jobs that would take all memory of a server, beside one that is honest (E-12).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use thalweg::{Reduce, Session};
use thalweg_aggregate::{FRAGMENT_VALUES, JobParameters, Setup};
use thalweg_control::token::{Pattern, Role, Token};
use thalweg_control::{
    Access, AttendConfig, Attendance, ControlEvent, Failure, FailureKind, FromRank, Progress,
    Settings,
};
use thalweg_core::NodeId;
use thalweg_net::Network;
use thalweg_wire::aggregate::{Gradient, Identity, Numbers};
use thalweg_wire::tag::{self, Key};

use crate::cluster::SECRET;
use crate::process::Process;

/// Budgets of the server.
const OF_JOB_BYTES: u64 = 64 << 20;
const TOTAL_BYTES: u64 = 512 << 20;

/// Memory of the server beyond the budgets: buffers of its sockets, connections, and what the allocator keeps.
const MARGIN_BYTES: u64 = 48 << 20;

/// Cores of servers, which share one budget. Jobs whose names have no number are all of the first one.
const CORES: [u16; 2] = [1, 4];

/// Aggregators of the switch, and bytes of the state of each.
const AGGREGATORS: u32 = 16_384;
const AGGREGATOR_BYTES: u64 = 76;

/// Fragments that touch all that a job may take of the server, and all aggregators.
const FLOOD_FRAGMENTS: u64 = 24_000;

const SPAN: u16 = JobParameters::SPAN_MAX;
const VALUES: usize = 30_000;
const LIMIT: Duration = Duration::from_secs(20);

/// Sixty jobs of thirty tenants, of one rank each, reserve as much as a server has, and send nothing.
// spec: E-12 sockets
#[test]
fn jobs_that_reserve_everything_are_refused_and_hurt_nobody() {
    for cores in CORES {
        reserve_everything(cores);
    }
}

fn reserve_everything(cores: u16) {
    let mut server = Server::start(cores);
    let before = server.resident_bytes();
    let (sums, failures) = server.beside_an_honest_job(|server| {
        let ranks: Vec<Rank> = (0..60)
            .map(|job| Rank::start(server.rank(100 + job / 2, &format!("greedy {job}"), 1, 0)))
            .collect();
        let failures: Vec<Arc<Failure>> = ranks.iter().filter_map(Rank::answer_or_fail).collect();
        let grown = server.peak_bytes().saturating_sub(before);
        println!("{} of 60 jobs refused; {} MiB more", failures.len(), grown >> 20);
        assert!(grown <= MARGIN_BYTES, "{grown} bytes for jobs that send nothing");
        assert!(server.reserved().0 <= TOTAL_BYTES);
        failures
    });
    println!("{sums} sums of the honest job are right");
    // Less than 64 MiB each would fit more of them, and the honest job takes some.
    assert!((50..60).contains(&failures.len()), "{failures:?}");
    for failure in &failures {
        assert_eq!(failure.kind, FailureKind::Refused, "{failure:?}");
        assert!(failure.text.contains("start this one with a larger --memory"), "{failure:?}");
    }
    assert_eq!(server.reserved().1, failures.len() as u64, "refusals are counted");
    // All of them have gone, and their memory is there for others.
    let end = Instant::now() + LIMIT;
    while server.reserved().0 > 0 {
        assert!(Instant::now() < end, "memory of jobs that have ended is reserved");
        std::thread::sleep(Duration::from_millis(100));
    }
    let late = Rank::start(server.rank(8, "late", 1, 0));
    late.answer();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(late.failure(), None);
}

/// The jobs of one token take all that they may, and those of another find as much as before.
// spec: E-12 sockets
#[test]
fn the_jobs_of_one_token_do_not_keep_another_token_out() {
    for cores in CORES {
        fill_the_share_of_a_token(cores);
    }
}

fn fill_the_share_of_a_token(cores: u16) {
    let mut server = Server::start(cores);
    let budget = TOTAL_BYTES / 4;
    let mallory = |job: u32| Rank::start(server.rank(66, &format!("mallory {job}"), 1, 0));
    let ranks: Vec<Rank> = (0..60).map(mallory).collect();
    let failures: Vec<Arc<Failure>> = ranks.iter().filter_map(Rank::answer_or_fail).collect();
    let (reserved, refused) = server.reserved();
    println!("{} of 60 jobs refused; {} MiB reserved", failures.len(), reserved >> 20);
    assert!(reserved <= budget && reserved > budget / 2, "{reserved}");
    assert_eq!((failures.len(), refused), (58, 58), "two jobs of 64 MiB fit: {failures:?}");
    for failure in &failures {
        assert_eq!(failure.kind, FailureKind::Refused, "{failure:?}");
        assert!(failure.text.contains("larger --token-memory"), "{failure:?}");
    }
    // Jobs of another token come later, and have room.
    let (sums, ()) = server.beside_an_honest_job(|server| {
        assert!(server.reserved().0 > reserved, "both have theirs");
        std::thread::sleep(Duration::from_millis(500));
    });
    println!("{sums} sums of the honest job are right");
}

/// One rank of two sends full fragments, as far ahead as headers reach, to the server and to the switch, and
/// the other one nothing. Sums of 16-bit values take the most memory: four bytes for two.
// spec: E-12 sockets
#[test]
fn a_rank_that_sends_everything_takes_no_more_than_the_budget_of_its_job() {
    let mut server = Server::start(1);
    let switch = Process::start_in(&format!("switch {AGGREGATORS} {FRAGMENT_VALUES} 1"), None);
    let switch_address: SocketAddr = switch.expect("at", LIMIT).parse().expect("an address");
    let before = [server.resident_bytes(), status_bytes(&switch, "VmRSS:")];
    let (sums, span) = server.beside_an_honest_job(|server| {
        let rank = |rank| {
            let switch = Some(node_of(switch_address));
            Rank::start(AttendConfig { switch, ..server.rank(7, "flood", 2, rank) })
        };
        let ranks = [rank(0), rank(1)];
        ranks.iter().for_each(Rank::answer);
        let (setup, key) = ranks[0].adopt();
        assert_eq!(setup.parameters.fragment_values, FRAGMENT_VALUES);
        flood(server.address, &setup, &key, &AtomicBool::new(false));
        flood_switch(switch_address, &setup, &key, &AtomicBool::new(false));
        setup.parameters.span_fragments
    });
    println!("{sums} sums of the honest job are right; span {span}");
    assert!(span < SPAN, "the job is slowed down");
    let peaks = [server.peak_bytes(), status_bytes(&switch, "VmHWM:")];
    // A switch allocates everything at its start, and the system gives it what it touches.
    let of_switch = u64::from(AGGREGATORS) * (8 * u64::from(FRAGMENT_VALUES) + AGGREGATOR_BYTES);
    let budgets = [OF_JOB_BYTES, of_switch];
    for (at, daemon) in ["server", "switch"].into_iter().enumerate() {
        let mib = [before[at], peaks[at], budgets[at]].map(|bytes| bytes >> 20);
        println!("| {daemon} | {} MiB | {} MiB | {} MiB |", mib[0], mib[1], mib[2]);
        let grown = peaks[at].saturating_sub(before[at]);
        assert!(grown >= budgets[at] / 4 * 3, "{daemon}: {grown} bytes do not fill its budget");
        assert!(grown <= budgets[at] + MARGIN_BYTES, "{daemon}: {grown} bytes");
    }
}

/// A server as a process.
struct Server {
    process: Process,
    address: SocketAddr,
}

/// A token for some jobs.
pub fn token(id: u64, jobs: &str) -> String {
    let jobs = Pattern::new(jobs).expect("a pattern");
    Token { id, role: Role::Tenant, jobs, ranks_max: 4, expires: u64::MAX }.sign(&SECRET)
}

impl Server {
    fn start(cores: u16) -> Server {
        let role = format!("server {OF_JOB_BYTES} {TOTAL_BYTES} {cores}");
        let process = Process::start_in(&role, None);
        let addresses = process.expect("at", LIMIT);
        let (address, _) = addresses.split_once(' ').expect("those of sums and of metrics");
        Server { address: address.parse().expect("an address"), process }
    }

    /// Bytes that are reserved, and jobs that were refused for it.
    fn reserved(&mut self) -> (u64, u64) {
        self.process.say("memory");
        let answer = self.process.expect("reserved", LIMIT);
        let (bytes, refused) = answer.split_once(' ').expect("two numbers");
        (bytes.parse().expect("a number"), refused.parse().expect("a number"))
    }

    fn resident_bytes(&self) -> u64 {
        status_bytes(&self.process, "VmRSS:")
    }

    fn peak_bytes(&self) -> u64 {
        status_bytes(&self.process, "VmHWM:")
    }

    fn rank(&self, id: u64, name: &str, workers: u32, rank: u32) -> AttendConfig {
        rank_of(self.address, id, name, (workers, rank))
    }

    /// Does something while a job of two ranks sums, without a switch. Returns the number of its sums.
    fn beside_an_honest_job<T>(&mut self, work: impl FnOnce(&mut Server) -> T) -> (u32, T) {
        let is_over = AtomicBool::new(false);
        let (is_over, address) = (&is_over, self.address.to_string());
        std::thread::scope(|scope| {
            let (joined, all) = channel();
            let ranks = [0, 1].map(|rank| {
                let builder =
                    Session::builder(&address, "honest").rank(rank, 2).token(token(5, "honest"));
                let joined = joined.clone();
                scope.spawn(move || {
                    let session = builder.share_memory(false).join().expect("it fits");
                    joined.send(()).expect("the test waits");
                    let sums = sums(&session, is_over);
                    session.leave().expect("everything has ended");
                    sums
                })
            });
            ranks.iter().for_each(|_| all.recv_timeout(LIMIT).expect("both ranks join"));
            // Also if the work panics.
            let end = End(is_over);
            let result = work(self);
            drop(end);
            let [sums, other] = ranks.map(|rank| rank.join().expect("all sums are right"));
            assert_eq!(sums, other);
            (sums, result)
        })
    }
}

/// A size from the status of a process.
pub fn status_bytes(process: &Process, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.id()));
    let text = text.expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of its own");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

/// A rank of a job with the largest span, at a host of its own, with a token of this number.
pub fn rank_of(
    server: SocketAddr,
    id: u64,
    name: &str,
    (workers, rank): (u32, u32),
) -> AttendConfig {
    let parameters = JobParameters { span_fragments: SPAN, ..JobParameters::default() };
    AttendConfig {
        ticket: None,
        access: Access { endpoint: server.to_string(), token: Some(token(id, name)), tls_ca: None },
        name: name.to_owned(),
        workers,
        rank,
        node: NodeId(0x0001_1388 + 8 * rank),
        life: 1 + u64::from(rank),
        host: format!("host {rank}"),
        switch: None,
        more_nodes: Vec::new(),
        mtu_bytes: None,
        settings: Settings { parameters, ..Settings::default() },
    }
}

/// Ends the honest job.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sums until the test is over, and checks each. The last value of a sum says whether one was.
fn sums(session: &Session, is_over: &AtomicBool) -> u32 {
    let value = |rank: u32, sum: u32, at: usize| ((at as u32 + 3 * rank + 7 * sum) % 100) as f32;
    for sum in 0.. {
        let mut own: Vec<f32> = (0..VALUES).map(|at| value(session.rank(), sum, at)).collect();
        own.push(f32::from(u8::from(is_over.load(Ordering::Relaxed))));
        let result = session.all_reduce(own, Reduce::Sum).wait().expect("it ends well").values;
        let expected = |at| value(0, sum, at) + value(1, sum, at);
        let is_right =
            result[..VALUES].iter().enumerate().all(|(at, value)| *value == expected(at));
        assert!(is_right, "sum {sum}");
        if result[VALUES] > 0.0 {
            return sum + 1;
        }
    }
    unreachable!("it ends")
}

/// A rank that is nothing but its control connection.
pub struct Rank {
    attendance: Attendance,
    events: Receiver<ControlEvent>,
}

impl Rank {
    pub fn start(config: AttendConfig) -> Rank {
        let (sender, events) = channel();
        // The test may be over before the rank is.
        let attendance = Attendance::start(config, move |_, event| drop(sender.send(event)));
        Rank { attendance: attendance.expect("the address is one"), events }
    }

    fn expect<T>(&self, wanted: impl Fn(&ControlEvent) -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).expect("what is waited for comes");
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    }

    /// Says how far it is.
    pub fn report_progress(&self) {
        self.attendance.send(FromRank::Progress(Progress::default()));
    }

    pub fn answer(&self) {
        assert!(self.answer_or_fail().is_none(), "the job does not fail");
    }

    /// Answers when it is asked. Returns why the job failed, if it did so before or within a moment.
    pub fn answer_or_fail(&self) -> Option<Arc<Failure>> {
        let asked = self.expect(|event| match event {
            ControlEvent::Failed(failure) => Some(Err(Arc::clone(failure))),
            _ => reply(event).map(Ok),
        });
        asked.map(|answer| self.attendance.send(answer)).err()
    }

    /// The set-up of the job and its key, if the job begins in time.
    pub fn begin(&self, within: Duration) -> Option<(Arc<Setup>, Key)> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left).ok()? {
                ControlEvent::Adopt { setup, key, .. } => return Some((setup, key)),
                ControlEvent::Failed(_) | ControlEvent::GaveUp { .. } => return None,
                event => reply(&event).into_iter().for_each(|answer| self.attendance.send(answer)),
            }
        }
    }

    /// Answers if it is asked within a while.
    pub fn answer_within(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let left = || end.saturating_duration_since(Instant::now());
        while let Ok(event) = self.events.recv_timeout(left()) {
            if let Some(reply) = reply(&event) {
                return self.attendance.send(reply);
            }
        }
    }

    pub fn adopt(&self) -> (Arc<Setup>, Key) {
        self.expect(|event| match event {
            ControlEvent::Adopt { setup, key, .. } => Some((Arc::clone(setup), *key)),
            _ => None,
        })
    }

    /// Waits until it is welcome in its job, and asserts that it keeps its connection for a time.
    pub fn stays_welcome(&self, time: Duration) {
        self.expect(|event| matches!(event, ControlEvent::Welcome(_)).then_some(()));
        let end = Instant::now() + time;
        while let Ok(event) =
            self.events.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            let is_lost =
                matches!(event, ControlEvent::Disconnected { .. } | ControlEvent::Failed(_));
            assert!(!is_lost, "{event:?}");
        }
    }

    /// The end of the job, if it has ended.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        self.events.try_iter().find_map(|event| match event {
            ControlEvent::Failed(failure) => Some(failure),
            _ => None,
        })
    }
}

/// The answer of a rank that is asked.
fn reply(event: &ControlEvent) -> Option<FromRank> {
    match *event {
        ControlEvent::Report { round, seat } => {
            Some(FromRank::Answer { round, seat, watermark: None })
        }
        _ => None,
    }
}

/// Sends fragments of rank 0 as fast as the server can just take them, from the furthest that a header can name on.
pub fn flood(server: SocketAddr, setup: &Setup, key: &Key, is_over: &AtomicBool) {
    let above = setup.trees[0].branch(0).end();
    send_fragments(server, setup, key, is_over, |fresh| Gradient { level: above, ..fresh });
}

/// Sends fragments of rank 0 to its switch, so that they touch all aggregators.
pub fn flood_switch(switch: SocketAddr, setup: &Setup, key: &Key, is_over: &AtomicBool) {
    send_fragments(switch, setup, key, is_over, |fresh| fresh);
}

fn send_fragments(
    to: SocketAddr,
    setup: &Setup,
    key: &Key,
    is_over: &AtomicBool,
    change: impl Fn(Gradient) -> Gradient,
) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let branch = setup.trees[0].branch(0);
    let mut packet = vec![0_u8; 64 + setup.parameters.body_bytes()];
    for sequence in (60_000..60_500).chain(0..FLOOD_FRAGMENTS).chain(0..FLOOD_FRAGMENTS) {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let (job, epoch) = (setup.job, setup.epoch);
        let identity = Identity { job, epoch, sequence, attempt: 0, operation: 1 };
        let aggregator = sequence as u32 % setup.parameters.aggregators;
        let node = setup.trees[0].server();
        let gradient = change(Gradient {
            watermark_distance: sequence as u16,
            ..Gradient::fresh(identity, aggregator, Numbers::Bf16, node, branch)
        });
        let mut header = gradient.to_header();
        tag::seal_sized(&mut header, packet.len() - 64, key);
        packet[..64].copy_from_slice(&header);
        // A full queue is no reason to stop.
        let _ = socket.send_to(&packet, to);
        if sequence % 16 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub fn node_of(address: SocketAddr) -> NodeId {
    Network::of(address.ip()).node(address).expect("an address of the network")
}
