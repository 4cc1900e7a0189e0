//! Jobs that would take all memory of a server, beside one that is honest (E-12).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use thalweg::daemon::{SwitchDaemon, SwitchDaemonConfig};
use thalweg::{Reduce, Session};
use thalweg_aggregate::{FRAGMENT_VALUES_MAX, JobParameters, Setup};
use thalweg_control::{
    Access, AttendConfig, Attendance, ControlEvent, Failure, FailureKind, FromRank, Settings,
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

const SPAN: u16 = JobParameters::SPAN_MAX;
const VALUES: usize = 30_000;
const LIMIT: Duration = Duration::from_secs(20);

/// Sixty jobs of one rank each reserve as much as a server has, and send nothing.
// spec: E-12 sockets
#[test]
fn jobs_that_reserve_everything_are_refused_and_hurt_nobody() {
    let mut server = Server::start();
    let before = server.resident_bytes();
    let (sums, failures) = server.beside_an_honest_job(|server| {
        let ranks: Vec<Rank> =
            (0..60).map(|job| Rank::start(server.rank(&format!("greedy {job}"), 1, 0))).collect();
        ranks.iter().for_each(Rank::answer);
        // The refusal follows the set-up.
        std::thread::sleep(Duration::from_secs(1));
        let failures: Vec<Arc<Failure>> = ranks.iter().filter_map(Rank::failure).collect();
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
    let late = Rank::start(server.rank("late", 1, 0));
    late.answer();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(late.failure(), None);
}

/// One rank of two sends the longest fragments there are, as far ahead as headers reach, and the other one nothing.
// spec: E-12 sockets
#[test]
fn a_rank_that_sends_everything_takes_no_more_than_the_budget_of_its_job() {
    let mut server = Server::start();
    let mut config = SwitchDaemonConfig::new("127.0.0.1:0".parse().expect("an address"), SECRET);
    config.values_max = FRAGMENT_VALUES_MAX;
    let switch = SwitchDaemon::start(&config).expect("a switch starts");
    let before = server.resident_bytes();
    let (sums, span) = server.beside_an_honest_job(|server| {
        let rank = |rank| {
            let switch = Some(node_of(switch.address()));
            Rank::start(AttendConfig { switch, ..server.rank("flood", 2, rank) })
        };
        let ranks = [rank(0), rank(1)];
        ranks.iter().for_each(Rank::answer);
        let (setup, key) = ranks[0].adopt();
        assert_eq!(setup.parameters.fragment_values, FRAGMENT_VALUES_MAX);
        flood(server.address, &setup, &key);
        setup.parameters.span_fragments
    });
    let grown = server.peak_bytes().saturating_sub(before);
    println!("{sums} sums of the honest job are right; span {span}; {} MiB more", grown >> 20);
    assert!(span < SPAN, "the job is slowed down");
    assert!(grown >= OF_JOB_BYTES / 2, "{grown} bytes: the flood does not fill its budget");
    assert!(grown <= OF_JOB_BYTES + MARGIN_BYTES, "{grown} bytes");
}

/// A server as a process.
struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let role = format!("server {OF_JOB_BYTES} {TOTAL_BYTES}");
        let process = Process::start_in(&role, None);
        let address = process.expect("at", LIMIT).parse().expect("an address");
        Server { process, address }
    }

    /// Bytes that are reserved, and jobs that were refused for it.
    fn reserved(&mut self) -> (u64, u64) {
        self.process.say("memory");
        let answer = self.process.expect("reserved", LIMIT);
        let (bytes, refused) = answer.split_once(' ').expect("two numbers");
        (bytes.parse().expect("a number"), refused.parse().expect("a number"))
    }

    fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:")
    }

    fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let text = text.expect("it runs");
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of its own");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// A rank of a job with the largest span.
    fn rank(&self, name: &str, workers: u32, rank: u32) -> AttendConfig {
        let parameters = JobParameters { span_fragments: SPAN, ..JobParameters::default() };
        AttendConfig {
            ticket: None,
            access: Access { endpoint: self.address.to_string(), token: None, tls_ca: None },
            name: name.to_owned(),
            workers,
            rank,
            node: NodeId(0x0001_1388 + 8 * rank),
            life: 1 + u64::from(rank),
            host: format!("host {rank}"),
            switch: None,
            settings: Settings { parameters, ..Settings::default() },
        }
    }

    /// Does something while a job of two ranks sums, without a switch. Returns the number of its sums.
    fn beside_an_honest_job<T>(&mut self, work: impl FnOnce(&mut Server) -> T) -> (u32, T) {
        let is_over = AtomicBool::new(false);
        let (is_over, address) = (&is_over, self.address.to_string());
        std::thread::scope(|scope| {
            let (joined, all) = channel();
            let ranks = [0, 1].map(|rank| {
                let builder = Session::builder(&address, "honest").rank(rank, 2);
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
struct Rank {
    attendance: Attendance,
    events: Receiver<ControlEvent>,
}

impl Rank {
    fn start(config: AttendConfig) -> Rank {
        let (sender, events) = channel();
        // The test may be over before the rank is.
        let attendance = Attendance::start(config, move |event| drop(sender.send(event)));
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

    fn answer(&self) {
        let (round, seat) = self.expect(|event| match *event {
            ControlEvent::Report { round, seat } => Some((round, seat)),
            _ => None,
        });
        self.attendance.send(FromRank::Answer { round, seat, watermark: None });
    }

    fn adopt(&self) -> (Arc<Setup>, Key) {
        self.expect(|event| match event {
            ControlEvent::Adopt { setup, key, .. } => Some((Arc::clone(setup), *key)),
            _ => None,
        })
    }

    /// The end of the job, if it has ended.
    fn failure(&self) -> Option<Arc<Failure>> {
        self.events.try_iter().find_map(|event| match event {
            ControlEvent::Failed(failure) => Some(failure),
            _ => None,
        })
    }
}

/// Sends fragments of rank 0 as fast as the server can just take them, up to the furthest that a header can name.
fn flood(server: SocketAddr, setup: &Setup, key: &Key) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let branch = setup.trees[0].branch(0);
    let mut packet = vec![0_u8; 64 + 4 * usize::from(FRAGMENT_VALUES_MAX)];
    for sequence in (0..3_000).chain(0..3_000).chain(60_000..60_500) {
        let (job, epoch) = (setup.job, setup.epoch);
        let identity = Identity { job, epoch, sequence, attempt: 0, operation: 1 };
        let node = setup.trees[0].server();
        let gradient = Gradient {
            watermark_distance: sequence as u16,
            level: branch.end(),
            ..Gradient::fresh(identity, 0, Numbers::Float, node, branch)
        };
        let mut header = gradient.to_header();
        tag::seal_sized(&mut header, packet.len() - 64, key);
        packet[..64].copy_from_slice(&header);
        // A full queue is no reason to stop.
        let _ = socket.send_to(&packet, server);
        if sequence % 8 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn node_of(address: SocketAddr) -> NodeId {
    Network::of(address.ip()).node(address).expect("an address of the network")
}
