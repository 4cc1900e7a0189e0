//! Attacks, each in a process of its own that goes on until it is killed or its input ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use thalweg_control::{Access, AttendConfig, inquiry};

use crate::amplifier;
use crate::memory::{Rank, flood as flood_of_fragments, flood_switch, node_of, rank_of};
use crate::process::{Process, ROLE};
use crate::roles::tell;
use crate::sockets;
use crate::tenants;

/// Time that an attacker waits for an answer which its budget of calls may not allow.
const PATIENCE: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(20);

/// Ports between the blocks of two cores of a daemon.
const PORTS_OF_CORE: u16 = 16;

/// Daemons that an attack goes to.
#[derive(Clone, Copy)]
pub struct Targets {
    pub server: SocketAddr,
    pub metrics: SocketAddr,
    pub switch: SocketAddr,
    /// Number of cores of the server and of the switch.
    pub cores: u16,
}

/// An attack on daemons.
#[derive(Clone, Copy)]
pub struct Orders {
    to: Targets,
    /// Number of the process: names of its jobs and its tokens differ from those of the processes before.
    turn: u16,
}

type Attack = fn(Orders);

/// The attacks, by what was tried before daemons were guarded against them.
pub const ATTACKS: [(&str, Attack); 13] = [
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
    (FORGED, forged),
];

/// The attack of which a short run is part of the default tests.
pub const FORGED: &str = "forged and random packets";

/// Flag of functions that others end: an attack ends with its process, and nobody sets it.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Starts an attack, by its number, in a process that runs by way of `launcher`: a program that sets its cores or priority.
pub fn start(number: usize, (to, turn): (Targets, u16), launcher: &[&str]) -> Process {
    let Targets { server, metrics, switch, cores } = to;
    let role = format!("attack {number} {turn} {cores} {server} {metrics} {switch}");
    let mut command = Command::new(launcher[0]);
    command.args(&launcher[1..]).arg(std::env::current_exe().expect("this program has a path"));
    command.args(["roles::child", "--exact", "--nocapture"]).env(ROLE, &role);
    let process = Process::spawn(&role, command, None);
    process.expect("begun", LIMIT);
    process
}

/// Attacks until the input of the process ends.
pub fn child(words: &[&str]) {
    let [number, turn, cores, server, metrics, switch] = words else { panic!("{words:?}") };
    let address = |text: &str| text.parse().expect("an address");
    let of_number = |text: &str| text.parse().expect("a number");
    let to = Targets {
        server: address(server),
        metrics: address(metrics),
        switch: address(switch),
        cores: of_number(cores),
    };
    let (orders, attack) =
        (Orders { to, turn: of_number(turn) }, ATTACKS[usize::from(of_number(number))].1);
    // A panic of any thread is the parent's to report.
    std::panic::set_hook(Box::new(|info| tell(&format!("error: {info}").replace('\n', " "))));
    tell("begun");
    std::thread::spawn(move || {
        attack(orders);
        panic!("the attack is over");
    });
    // Nothing is sent: the parent is gone when this returns.
    let _ = std::io::stdin().read(&mut [0; 1]);
    std::process::exit(0);
}

fn take_ranks(Orders { to, turn }: Orders) {
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let calls = &calls;
        for number in [2 * turn, 2 * turn + 1] {
            let as_tenant = (tenants::OWN, number.into());
            scope.spawn(move || {
                tenants::squat(to.server, as_tenant, &["victim"], &IS_OVER, calls);
            });
        }
    });
}

fn lists(Orders { to, turn }: Orders) {
    let (calls, seen) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let (calls, seen) = (&calls, &seen);
        for number in 4 * turn..4 * turn + 4 {
            let as_tenant = (tenants::OWN, number.into());
            scope.spawn(move || tenants::list(to.server, &IS_OVER, calls, seen));
            scope.spawn(move || tenants::squat(to.server, as_tenant, &[], &IS_OVER, calls));
        }
    });
}

fn without_token(Orders { to, .. }: Orders) {
    let access = Access { endpoint: to.server.to_string(), token: None, tls_ca: None };
    loop {
        assert!(inquiry::topology(&access).is_err(), "nobody gets an answer without a token");
    }
}

/// Both ranks of a job of the attacker, with a token of this number, once they have answered.
fn job_of_two(orders: Orders, id: u64, switch: Option<SocketAddr>) -> [Rank; 2] {
    let (server, turn) = (orders.to.server, u64::from(orders.turn));
    let ranks = [0, 1].map(|rank| {
        // Of the job of the process before some state may be left.
        let config = rank_of(server, id << 16 | turn, &format!("mallory {turn}"), (2, rank));
        Rank::start(AttendConfig { switch: switch.map(node_of), ..config })
    });
    ranks.iter().for_each(Rank::answer);
    ranks
}

/// A job of two ranks, of which one says all the time how far it is, more often than it may.
fn messages(orders: Orders) {
    let ranks = job_of_two(orders, 70, None);
    loop {
        for _ in 0..60 {
            ranks[0].report_progress();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn greedy(Orders { to, turn }: Orders) {
    loop {
        let name = |job: u32| format!("mallory {turn} {job}");
        let ranks: Vec<Rank> =
            (0..8).map(|job| Rank::start(rank_of(to.server, 66, &name(job), (1, 0)))).collect();
        for rank in &ranks {
            rank.answer_within(PATIENCE);
        }
    }
}

fn fragments(orders: Orders) {
    let ranks = job_of_two(orders, 67, None);
    let (setup, key) = ranks[0].adopt();
    loop {
        flood_of_fragments(orders.to.server, &setup, &key, &IS_OVER);
    }
}

/// A job of two ranks below the switch of the victim, of which one sends with the job's key.
fn through_switch(orders: Orders) {
    let ranks = job_of_two(orders, 68, Some(orders.to.switch));
    let (setup, key) = ranks[0].adopt();
    loop {
        flood_switch(orders.to.switch, &setup, &key, &IS_OVER);
    }
}

fn amplify(orders: Orders) {
    tenant(orders, amplifier::Tenant::amplify_at);
}

fn name_victim(orders: Orders) {
    tenant(orders, amplifier::Tenant::name_at);
}

/// A tenant that sends with the keys of its own job, so that packets reach a socket of others.
fn tenant(orders: Orders, act: fn(&mut amplifier::Tenant, SocketAddr, SocketAddr)) {
    let ranks = job_of_two(orders, 69, None);
    let (setup, _) = ranks[0].adopt();
    let victim = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let victim = victim.local_addr().expect("it is bound");
    let mut tenant = amplifier::Tenant::new(orders.to.switch, setup.job);
    loop {
        act(&mut tenant, victim, orders.to.server);
    }
}

fn idle(Orders { to, .. }: Orders) {
    connect(to.server, &[]);
}

/// The beginning of HTTP/2 and empty settings: the connection stands, and no call follows.
fn handshakes(Orders { to, .. }: Orders) {
    connect(to.server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
}

fn slow_readers(Orders { to, .. }: Orders) {
    connect(to.metrics, &b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
}

/// Opens connections, one in a millisecond and up to 500 at a time, says something on each, and reads nothing.
fn connect(to: SocketAddr, line: &[u8]) {
    let mut open = Vec::new();
    loop {
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

fn forged(Orders { to, .. }: Orders) {
    let at = |address: SocketAddr, core| {
        SocketAddr::new(address.ip(), address.port() + PORTS_OF_CORE * core)
    };
    let all: Vec<SocketAddr> =
        (0..to.cores).flat_map(|core| [at(to.switch, core), at(to.server, core)]).collect();
    sockets::flood(1, &all, &IS_OVER, &AtomicU64::new(0));
}
