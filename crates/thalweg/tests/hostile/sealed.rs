//! A tenant that is a process, and sends what it likes with the key of a job of its own. `scripts/soak.py` runs it beside
//! honest jobs.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thalweg_control::AttendConfig;
use thalweg_core::{HEADER_BYTES, JobId, NodeId};

use crate::attacker::{Attacker, Job, Trick};
use crate::cluster::{Cluster, Ground};
use crate::hand::Owned;
use crate::memory::{Rank, node_of, rank_of, token};
use crate::process::Process;
use crate::roles::tell;
use crate::sockets::{RANKS, sums};

/// Time of one job, and of an attempt to begin one.
const JOB: Duration = Duration::from_secs(20);
/// Packets in a row, and the gap that follows.
const BATCH: usize = 16;
const GAP: Duration = Duration::from_millis(10);
/// Batches between two reports.
const REPORT: u64 = 100;
const LIMIT: Duration = Duration::from_secs(30);

/// Attacks a server and a switch with one job after the other, until standard input ends. A line of it is an honest
/// packet in hexadecimal digits: header and body.
pub fn attack(server: &str, switch: &str, token: &str, seed: &str) {
    let [server, switch] = [server, switch].map(|at| at.parse().expect("an address"));
    let (sender, overheard) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            // The attack may be over.
            let _ = bytes_of(&line).map(|bytes| sender.send(bytes));
        }
    });
    let mut tenant = Tenant::new(server, switch, overheard);
    let seed: u64 = seed.parse().expect("a number");
    for job in 0.. {
        if tenant.run(&format!("evil-sealed-{job}"), token, seed ^ job << 32).is_break() {
            return;
        }
    }
}

struct Tenant {
    server: SocketAddr,
    switch: SocketAddr,
    /// Socket of its rank, from which all packets come.
    socket: UdpSocket,
    overheard: Receiver<Vec<u8>>,
    batches: u64,
    sent: u64,
    jobs: u64,
}

impl Tenant {
    fn new(server: SocketAddr, switch: SocketAddr, overheard: Receiver<Vec<u8>>) -> Tenant {
        // Nodes have ports that are multiples of 8.
        let mut ports = (20_000..60_000).step_by(8).map(|port| ("127.0.0.1", port));
        let socket = ports.find_map(|at| UdpSocket::bind(at).ok()).expect("a free port");
        Tenant { server, switch, socket, overheard, batches: 0, sent: 0, jobs: 0 }
    }

    /// Begins a job of one rank, and attacks with its key for a while.
    fn run(&mut self, name: &str, token: &str, seed: u64) -> ControlFlow<()> {
        let own = self.socket.local_addr().expect("it is bound");
        let mut config = rank_of(self.server, 0, name, (1, 0));
        config.access.token = Some(token.to_owned());
        let config = AttendConfig {
            node: node_of(own),
            switch: Some(node_of(self.switch)),
            life: seed,
            ..config
        };
        let rank = Rank::start(config);
        let Some((setup, key)) = rank.begin(JOB) else {
            std::thread::sleep(Duration::from_millis(200));
            return self.listen(None);
        };
        self.jobs += 1;
        let [server, switch] = [self.server, self.switch].map(node_of);
        let nobody = Job { id: JobId(0), epoch: 1 };
        let place = setup.trees[0].branch(0);
        let mut attacker =
            Attacker::new(seed, (&*setup).into(), key, nobody).against(server, switch, place);
        let end = Instant::now() + JOB;
        while Instant::now() < end {
            self.send(&mut attacker, switch);
            self.listen(Some(&mut attacker))?;
            if self.batches.is_multiple_of(REPORT) {
                tell(&format!("sent {} {}", self.jobs, self.sent));
            }
            std::thread::sleep(GAP);
        }
        ControlFlow::Continue(())
    }

    fn send(&mut self, attacker: &mut Attacker, switch: NodeId) {
        for trick in Trick::ALL.into_iter().cycle().take(BATCH) {
            let packet = attacker.packet(trick);
            let to = if packet.meta.dst == switch { self.switch } else { self.server };
            // A full queue, or a daemon that is being started, is no reason to stop.
            let sent = self.socket.send_to(&[&packet.header[..], &packet.body].concat(), to);
            self.sent += u64::from(sent.is_ok());
        }
        self.batches += 1;
    }

    /// Takes in what was overheard. Breaks where nobody listens any more.
    fn listen(&self, mut attacker: Option<&mut Attacker>) -> ControlFlow<()> {
        loop {
            let bytes = match self.overheard.recv_timeout(Duration::ZERO) {
                Ok(bytes) => bytes,
                Err(RecvTimeoutError::Timeout) => return ControlFlow::Continue(()),
                Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
            };
            if let (Some(attacker), Some((header, body))) =
                (&mut attacker, bytes.split_first_chunk::<HEADER_BYTES>())
            {
                let honest = Owned::to(node_of(self.switch));
                attacker.follow(&Owned { header: *header, body: body.to_vec(), ..honest });
            }
        }
    }
}

fn bytes_of(line: &str) -> Option<Vec<u8>> {
    let digits = line.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

// spec: E-13 sockets
#[test]
fn packets_that_a_tenant_seals_with_its_own_key_are_read_and_change_no_sum() {
    let cluster = Cluster::start(Ground::Loopback, 0.0);
    let (server, switch) = (cluster.server.address(), cluster.switch.address());
    let role = format!("tenant {server} {switch} {} 1", token(66, "evil-*"));
    let tenant = Process::start_in(&role, None);
    (0..3).for_each(|_| drop(tenant.expect("sent", LIMIT)));
    // Nobody else has sent anything.
    let counts = cluster.switch.snapshot().expect("it runs").switch;
    assert!(counts.gradients > 10 && counts.queries > 10 && counts.forged > 10, "{counts:?}");
    cluster.run(RANKS, |_| {}, sums, |cluster| cluster);
    tenant.times_of("sent");
}
