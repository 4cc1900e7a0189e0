//! Garbage at the ports of daemons and ranks, while sessions sum.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thalweg::{Reduce, Session, SessionConfig};
use thalweg_core::JobId;
use thalweg_wire::tag::Key;

use crate::attacker::{Attacker, Job, Trick};
use crate::cluster::{Cluster, Ground, Racks};

pub const RANKS: u32 = 3;
const VALUES: usize = 30_000;
const SUMS: u32 = 100;
const LIMIT: Duration = Duration::from_secs(20);

/// Sending threads of jobs that have several, and cores of the daemons.
const THREADS: u32 = 3;
const CORES: u16 = 2;

#[test]
fn a_flood_at_all_ports_changes_no_sum() {
    beside_a_flood(Cluster::start(Ground::Loopback, 0.0), 1, &sums);
}

/// Every sending thread has a tree of its own, and every core of the daemons a port.
// spec: T-06, F-04 sockets
#[test]
fn a_flood_at_all_ports_changes_no_sum_of_several_threads() {
    let cluster = Cluster::on_cores(Ground::Loopback, Racks::ONE, CORES);
    beside_a_flood(cluster, THREADS, &|session| {
        assert_eq!(session.threads(), THREADS);
        sums(session);
        // Long ones are divided.
        for round in 0..5 {
            let own = vec![session.rank() as f32 + round as f32; 500_000];
            let result = session.all_reduce(own, Reduce::Sum).wait().expect("it ends well");
            let expected = (0..RANKS).map(|rank| rank as f32 + round as f32).sum::<f32>();
            assert!(result.values.iter().all(|value| *value == expected));
        }
        let is_used = |thread: u32| {
            session.counters_of(thread as usize).is_ok_and(|own| own.worker.fragments_sent > 0)
        };
        assert!((0..THREADS).all(is_used), "all threads have sent");
    });
}

fn beside_a_flood(cluster: Cluster, threads: u32, program: &(dyn Fn(&Session) + Sync)) {
    let (switch, server) = (cluster.switch.address(), cluster.server.address());
    let further = |at: SocketAddr, core| SocketAddr::new(at.ip(), at.port() + 16 * core);
    let all: Vec<SocketAddr> =
        (0..CORES).flat_map(|core| [further(switch, core), further(server, core)]).collect();
    let ports = if threads > 1 { &all[..] } else { &all[..2] };
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let cluster = std::thread::scope(|scope| {
        let (is_over, sent) = (&is_over, &sent);
        for seed in [1, 2] {
            scope.spawn(move || flood(seed, ports, is_over, sent));
        }
        scope.spawn(move || knock(server, is_over));
        // Also if a rank panics.
        let _end = End(is_over);
        let change = |config: &mut SessionConfig| config.threads = Some(threads);
        cluster.run(RANKS, change, program, |cluster| cluster).0
    });
    let sent = sent.load(Ordering::Relaxed);
    let snapshot = cluster.switch.snapshot().expect("it runs");
    println!("{sent} packets sent; the switch took {} for forged", snapshot.switch.forged);
    assert!(snapshot.switch.forged > 1_000, "{snapshot:?}");
    let held: u32 = snapshot.occupancy.values().sum();
    assert!(held <= snapshot.aggregators, "{held} aggregators");
    let trees = cluster.server.snapshot().expect("it runs").jobs.len();
    assert!(trees <= threads as usize, "{trees} trees");
}

/// Ends the flood.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn sums(session: &Session) {
    let value = |rank: u32, sum: u32, at: usize| (at as u32 + 3 * rank + 7 * sum) % 100;
    let end = Instant::now() + LIMIT;
    for sum in 0..SUMS {
        let own: Vec<f32> = (0..VALUES).map(|at| value(session.rank(), sum, at) as f32).collect();
        let mut handle = session.all_reduce(own, Reduce::Sum);
        let left = end.saturating_duration_since(Instant::now());
        let Some(result) = handle.wait_timeout(left) else { panic!("not ended within {LIMIT:?}") };
        let expected = |at| (0..RANKS).map(|rank| value(rank, sum, at)).sum::<u32>() as f32;
        let result = result.expect("it ends well").values;
        assert!(result.iter().enumerate().all(|(at, value)| *value == expected(at)));
    }
}

/// Sends whatever it can think of, as fast as the daemons can just bear.
pub fn flood(seed: u64, to: &[SocketAddr], is_over: &AtomicBool, sent: &AtomicU64) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let [own, victim] = [8, 4].map(|job| Job { id: JobId(job), epoch: 1 });
    let mut attacker = Attacker::new(seed, own, Key([1; 16]), victim);
    while !is_over.load(Ordering::Relaxed) {
        for trick in Trick::ALL {
            for address in to {
                let packet = attacker.packet(trick);
                let mut bytes = packet.header.to_vec();
                bytes.extend(packet.body);
                bytes.truncate(if trick == Trick::Cut { seed as usize * 30 } else { usize::MAX });
                // A full queue is no reason to stop.
                let _ = socket.send_to(&bytes, address);
                sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Speaks to the control channel in a language that it does not know, and leaves connections open.
fn knock(server: SocketAddr, is_over: &AtomicBool) {
    let mut open = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(server) {
            let lines: [&[u8]; 3] = [
                b"GET / HTTP/1.1\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
                &[0; 500],
            ];
            // The other end may have hung up.
            let _ = stream.write_all(lines[open.len() % 3]);
            open.push(stream);
            open.truncate(64);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A header of a version that nobody here reads.
fn of_another_version() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..2].copy_from_slice(&thalweg_wire::prefix::MAGIC);
    bytes[2] = 0x99;
    bytes
}

// spec: E-05 sockets
#[test]
fn packets_of_another_version_are_counted_at_switch_server_and_rank() {
    let cluster = Cluster::start(Ground::Loopback, 0.0);
    let (switch, server) = (cluster.switch.address(), cluster.server.address());
    let bind: SocketAddr = ([127, 0, 0, 1], 47_312).into();
    let program = |session: &Session| {
        sums_of(session, 3);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        for address in [switch, server, bind] {
            socket.send_to(&of_another_version(), address).expect("loopback takes it");
        }
        sums_of(session, 3);
        session.counters().expect("it runs").other_version
    };
    let change = |config: &mut thalweg::SessionConfig| config.bind = Some(bind);
    let (cluster, counts) = cluster.run(1, change, program, |cluster| cluster);
    assert_eq!(counts, [1]);
    let (switch, server) = (cluster.switch.snapshot(), cluster.server.snapshot());
    assert_eq!(switch.expect("it runs").switch.other_version, 1);
    assert_eq!(server.expect("it runs").server.other_version, 1);
}

/// A few sums, by which all packets that were sent before have arrived.
fn sums_of(session: &Session, count: usize) {
    for _ in 0..count {
        session.all_reduce(vec![1.0_f32; 5_000], Reduce::Sum).wait().expect("it ends well");
        std::thread::sleep(Duration::from_millis(50));
    }
}
