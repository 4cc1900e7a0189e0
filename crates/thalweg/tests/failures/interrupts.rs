//! Sessions that are interrupted, dropped, or cannot join: nothing hangs.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig};
use thalweg::{Cancel, Error, ErrorKind, Reduce, Session, SessionConfig};
use thalweg_control::{Access, inquiry};
use thalweg_wire::tag::Secret;

use crate::process::Process;

/// Values that do not fit into the network at once.
const LONG: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(20);

fn server() -> ServerDaemon {
    let bind = ([127, 0, 0, 1], 0).into();
    ServerDaemon::start(&ServerDaemonConfig::new(bind, Secret([5; 16]))).expect("it starts")
}

fn rank(server: SocketAddr, job: &str, rank: u32, ranks: u32) -> SessionConfig {
    Session::builder(server.to_string(), job).rank(rank, ranks).share_memory(false).config()
}

/// Both ranks of a job.
fn pair(server: SocketAddr, job: &str) -> [Session; 2] {
    joined([0, 1].map(|at| rank(server, job, at, 2)))
}

fn joined(configs: [SessionConfig; 2]) -> [Session; 2] {
    std::thread::scope(|scope| {
        let join = |config| scope.spawn(move || Session::join(config));
        configs.map(join).map(|thread| thread.join().expect("no panic").expect("both are there"))
    })
}

fn error<T>(result: Result<T, Error>) -> Error {
    result.map(drop).expect_err("it cannot work")
}

// spec: E-02 sockets
#[test]
fn joining_can_be_cancelled_from_another_thread() {
    let server = server();
    let cancel = Cancel::new();
    let mut config = rank(server.address(), "lonely", 0, 2);
    config.cancel = cancel.clone();
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| Session::join(config));
        std::thread::sleep(Duration::from_millis(300));
        let since = Instant::now();
        cancel.cancel("Ctrl-C");
        let error = error(joining.join().expect("no panic"));
        let took = since.elapsed();
        println!("joining ended {took:?} after its token was cancelled");
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert_eq!(error.to_string(), "aborted by rank 0: Ctrl-C");
    });
}

// spec: E-02, E-03 sockets
#[test]
fn waiting_can_be_cancelled_and_the_other_rank_learns_why() {
    let server = server();
    let [first, second] = pair(server.address(), "cancelled");
    let waiting = first.all_reduce(vec![1.0_f32; 1_000], Reduce::Sum);
    let since = Instant::now();
    second.abort("no more data");
    let error = error(waiting.wait());
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!((error.kind(), error.ranks()), (ErrorKind::Aborted, &[1][..]));
    assert_eq!(error.to_string(), "aborted by rank 1: no more data");
    let later = second.barrier().wait().expect_err("the job is over");
    assert_eq!(later.to_string(), error.to_string());
}

type Wait = fn(&Session) -> Result<(), Error>;

/// Operations of rank 0 that wait for rank 1.
const WAITS: [(&str, Wait); 5] = [
    ("all-reduce", |session| session.all_reduce(vec![1.0_f32; LONG], Reduce::Sum).wait().map(drop)),
    ("maximum", |session| session.all_reduce(vec![1_u32; 10], Reduce::Max).wait().map(drop)),
    ("barrier", |session| session.barrier().wait()),
    // More than the other rank keeps of what it has not asked for.
    ("send", |session| session.send(1, 7, vec![1.0_f32; 4 * LONG]).wait()),
    ("receive", |session| session.receive::<f32>(1, 7).wait().map(drop)),
];

/// Interrupts each wait of rank 0 from another thread.
fn check_interrupts(how: &str, interrupt: impl Fn(&Cancel, &Session) + Sync) {
    let server = server();
    for (name, wait) in WAITS {
        let cancel = Cancel::new();
        let mut configs = [0, 1].map(|at| rank(server.address(), name, at, 2));
        configs[0].cancel = cancel.clone();
        let [first, second] = joined(configs);
        let (error, took) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&first));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!waiting.is_finished(), "{name} waits for nobody");
            let since = Instant::now();
            interrupt(&cancel, &first);
            (error(waiting.join().expect("no panic")), since.elapsed())
        });
        println!("{name} ended {took:?} after {how}");
        assert!(took < Duration::from_secs(2), "{name} ended {took:?} after {how}");
        assert_eq!(error.to_string(), "aborted by rank 0: enough", "{name}");
        let other = second.receive::<f32>(0, 9).wait().expect_err("the job is over");
        assert_eq!(other.to_string(), error.to_string(), "{name}");
    }
}

/// The wait of this name.
pub fn wait_of(name: &str) -> Wait {
    WAITS.iter().find(|(other, _)| *other == name).expect("one of the waits").1
}

/// Presses Ctrl-C in a program that has mapped it to a token, and times how long the process is there.
fn check_ctrl_c(server: SocketAddr, name: &str) {
    let job = format!("ctrl-c-{name}");
    let mut process = Process::start_in(&format!("interruptible {server} {job} {name}"), None);
    process.expect("listening", LIMIT);
    let peer = (name != "joining").then(|| {
        let session = Session::join(rank(server, &job, 1, 2)).expect("both are there");
        process.expect("joined", LIMIT);
        session
    });
    // It waits by then.
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    process.signal("INT");
    let took = process.wait_end(LIMIT) - since;
    println!("the process was gone {took:?} after Ctrl-C in {name}");
    assert!(took < Duration::from_secs(2), "{name}: the process was gone after {took:?}");
    assert_eq!(process.expect("error", LIMIT), "[0] aborted by rank 0: Ctrl-C", "{name}");
    if let Some(peer) = peer {
        // Rank 0 may have had its part of the first one.
        let error = (0..2).find_map(|_| peer.barrier().wait().err()).expect("the job is over");
        assert_eq!(error.to_string(), "aborted by rank 0: Ctrl-C", "{name}");
    }
}

// spec: E-02 sockets
#[test]
fn a_program_that_maps_ctrl_c_to_a_token_is_gone_soon_whatever_it_waits_for() {
    let server = server();
    for name in ["joining"].into_iter().chain(WAITS.map(|(name, _)| name)) {
        check_ctrl_c(server.address(), name);
    }
}

// spec: E-02 sockets
#[test]
fn every_wait_can_be_cancelled_from_another_thread() {
    check_interrupts("its token was cancelled", |cancel, _| cancel.cancel("enough"));
}

// spec: E-03 sockets
#[test]
fn every_wait_ends_when_another_thread_aborts() {
    check_interrupts("abort", |_, session| session.abort("enough"));
}

// spec: E-02 sockets
#[test]
fn a_session_is_dropped_within_a_second_whatever_it_waits_for() {
    let server = server();
    for share_memory in [false, true] {
        let name = format!("dropped-{share_memory}");
        let join = |at| {
            let mut config = rank(server.address(), &name, at, 2);
            config.share_memory = share_memory;
            Session::join(config).expect("both are there")
        };
        let [first, second] = std::thread::scope(|scope| {
            [0, 1]
                .map(|at| scope.spawn(move || join(at)))
                .map(|thread| thread.join().expect("no panic"))
        });
        let waiting = first.all_reduce(vec![1.0_f32; LONG], Reduce::Sum);
        std::thread::sleep(Duration::from_millis(100));
        let since = Instant::now();
        drop(first);
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        assert_eq!(error(waiting.wait()).kind(), ErrorKind::Closed);
        let needed = second.all_reduce(vec![1.0_f32; LONG], Reduce::Sum).wait();
        let error = error(needed);
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
        assert_eq!((error.kind(), error.ranks()), (ErrorKind::Peer, &[0][..]), "{error}");
    }
}

// spec: E-02 sockets
#[test]
fn a_session_whose_server_is_gone_is_left_in_time() {
    let server = server();
    let [first, second] = pair(server.address(), "left");
    server.stop().expect("it ran");
    let since = Instant::now();
    assert!(first.leave().is_ok());
    drop(second);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

#[test]
fn ranks_keep_to_their_ports() {
    let server = server();
    let mut config = rank(server.address(), "fenced", 0, 2);
    config.join_timeout = Duration::from_secs(1);
    // The server itself has the only block of this range.
    let port = server.address().port();
    config.ports = Some(port..=port + 7);
    let text = error(Session::join(config.clone())).to_string();
    let expected = format!("no free UDP port in {port} to {}: all are in use", port + 7);
    assert!(text.starts_with(&expected), "{text}");
    config.ports = Some(port + 1..=port + 8);
    let text = error(Session::join(config)).to_string();
    assert!(text.contains("no block of eight ports"), "{text}");

    let (ports, threads) = (21_003..=21_400, 3);
    let sessions = joined([0, 1].map(|at| {
        let mut config = rank(server.address(), "within", at, 2);
        (config.ports, config.threads) = (Some(ports.clone()), Some(threads));
        config
    }));
    let endpoint = server.address().to_string();
    let places = inquiry::topology(&Access { endpoint, token: None, tls_ca: None });
    let jobs = places.expect("the server answers").jobs;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(job.ranks.len(), 2, "a rank is there once for all of its threads: {jobs:?}");
    let is_taken = |port: &u16| UdpSocket::bind(("127.0.0.1", *port)).is_err();
    let taken: Vec<u16> = ports.filter(|port| port.is_multiple_of(8)).filter(is_taken).collect();
    assert_eq!(taken.len(), 2 * threads as usize, "every thread has its own: {taken:?}");
    for rank in &job.ranks {
        let address: SocketAddr = rank.address.parse().expect("an address");
        assert!(taken.contains(&address.port()), "{address}");
    }
    drop(sessions);
}

/// A node is named by half of its address, so that hosts of different networks cannot work together.
// spec: E-02 sockets
#[test]
fn a_host_of_another_network_is_told_why_it_cannot_join() {
    let mut config = rank(([10, 1, 2, 3], 4_808).into(), "elsewhere", 0, 2);
    config.bind = Some(([127, 0, 0, 1], 0).into());
    let error = error(Session::join(config));
    assert_eq!(error.kind(), ErrorKind::Network);
    assert!(error.to_string().contains("share the first 16 bits of their IPv4 address"), "{error}");
}
