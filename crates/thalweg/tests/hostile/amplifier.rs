//! A tenant that wants the switch to send to a host of its choice.
// spec: E-13 sockets

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg::{Reduce, Session};
use thalweg_core::{HEADER_BYTES, Header, JobId, NodeId};
use thalweg_net::Network;
use thalweg_wire::Kind;
use thalweg_wire::aggregate::{
    Announcement, Branch, Gradient, Identity, Numbers, Parameter, Query, STATIONS_MAX, StationBytes,
};
use thalweg_wire::tag::{self, Key};
use zerocopy::IntoBytes;

use crate::cluster::{Cluster, Ground, SECRET};

const RANKS: u32 = 2;
const VALUES: usize = 10_000;
const PACKETS: u32 = 300;
const BODY_BYTES: usize = 1_408;
/// A tenant knows the epoch of its job. The first set-up has one of these.
const EPOCHS: std::ops::Range<u32> = 1..4;
const LIMIT: Duration = Duration::from_secs(20);

/// The tenant: its job, with the keys that its ranks have.
pub struct Tenant {
    socket: UdpSocket,
    switch: SocketAddr,
    job: JobId,
    sent: u64,
}

impl Tenant {
    pub fn new(switch: SocketAddr, job: JobId) -> Tenant {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        Tenant { socket, switch, job, sent: 0 }
    }

    /// Wants everything sent to an address.
    pub fn amplify_at(&mut self, victim: SocketAddr, server: SocketAddr) {
        self.amplify(&[node_of(victim); 32], node_of(server));
    }

    /// Names an address as its server.
    pub fn name_at(&mut self, victim: SocketAddr, _: SocketAddr) {
        self.name(node_of(victim));
    }

    /// Sends a packet of its job in every epoch that it may have, sealed with the key of the job.
    fn send(&mut self, header: impl Fn(u32) -> Header, body: &[u8]) {
        for epoch in EPOCHS {
            let mut header = header(epoch);
            tag::seal_sized(&mut header, body.len(), &Key::derive(&SECRET, self.job, epoch));
            let packet = [&header[..], body].concat();
            self.socket.send_to(&packet, self.switch).expect("loopback has room");
            self.sent += 1;
        }
        std::thread::sleep(Duration::from_micros(50));
    }

    /// Announces its tree again, with ports of the victim below the switch, and sends results for them.
    fn amplify(&mut self, victims: &[NodeId], server: NodeId) {
        let job = self.job;
        let announcement = |epoch| Announcement {
            job,
            epoch,
            server,
            parent: server,
            level: 0,
            stations: STATIONS_MAX as u8,
            switches: [0; STATIONS_MAX],
        };
        let stations = [StationBytes::new([0; 4], victims); STATIONS_MAX];
        self.send(|epoch| announcement(epoch).to_header(), stations.as_bytes());
        for sequence in 0..PACKETS.into() {
            let result = |epoch| {
                let identity = identity(job, epoch, sequence);
                Parameter::sum(identity, 0, Numbers::Float, server, 4).to_header()
            };
            self.send(result, &[7; BODY_BYTES]);
        }
    }

    /// Names the victim as the server of its contributions and queries.
    fn name(&mut self, victim: NodeId) {
        let branch = Branch::new([2, 0, 0, 0], [0; 4]).expect("one of two");
        for sequence in 0..PACKETS.into() {
            let job = self.job;
            let gradient = |epoch| {
                let identity = identity(job, epoch, sequence);
                let fresh = Gradient::fresh(identity, 0, Numbers::Float, victim, branch);
                Gradient { resend: true, ..fresh }.to_header()
            };
            self.send(gradient, &[7; BODY_BYTES]);
            let query = |epoch| {
                let identity = identity(job, epoch, sequence);
                Query { bypass: true, ..Query::new(identity, 0, victim, branch) }.to_header()
            };
            self.send(query, &[]);
        }
    }
}

fn identity(job: JobId, epoch: u32, sequence: u64) -> Identity {
    Identity { job, epoch, sequence, attempt: 0, operation: 0 }
}

fn node_of(address: SocketAddr) -> NodeId {
    Network::of(address.ip()).node(address).expect("an address of the network")
}

/// Everything that reaches a socket within a while.
pub fn received(victim: &UdpSocket) -> Vec<Vec<u8>> {
    victim.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let mut buffer = [0; 65_536];
    std::iter::from_fn(|| victim.recv(&mut buffer).ok().map(|bytes| buffer[..bytes].to_vec()))
        .collect()
}

#[test]
fn a_tenant_cannot_make_the_switch_send_to_a_victim() {
    let cluster = Cluster::start(Ground::Loopback, 0.0);
    let is_over = AtomicBool::new(false);
    let sums = |session: &Session| {
        loop {
            let mut values = vec![2.0; VALUES];
            values[0] = f32::from(u8::from(is_over.load(Ordering::Relaxed)));
            let result = session.all_reduce(values, Reduce::Sum).wait().expect("it ends well");
            assert!(result.values[1..].iter().all(|value| *value == 4.0));
            if result.values[0] > 0.0 {
                return;
            }
        }
    };
    cluster.run(
        RANKS,
        |_| {},
        sums,
        |cluster| {
            let _end = End(&is_over);
            attack(&cluster);
            cluster
        },
    );
}

fn attack(cluster: &Cluster) {
    let (switch, server) = (cluster.switch.address(), cluster.server.address());
    let open = || UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let (victim, named) = (open(), open());
    let address = |socket: &UdpSocket| socket.local_addr().expect("it is bound");
    let mut tenant = Tenant::new(switch, job_of(cluster));
    let before = cluster.switch.snapshot().expect("it runs").switch;

    tenant.amplify_at(address(&victim), server);
    let packets = received(&victim);
    println!("{} packets sent, {} have reached the victim", tenant.sent, packets.len());
    assert!(packets.is_empty());
    let after = cluster.switch.snapshot().expect("it runs").switch;
    let refused = after.forged - before.forged;
    assert!(refused >= u64::from(PACKETS), "{refused} of {} are refused", tenant.sent);

    // Where a switch has just started, the node that a contribution names may be the server. It gets notices, headers alone.
    let began = Instant::now();
    tenant.name_at(address(&named), server);
    let packets = received(&named);
    let gaps = began.elapsed().as_millis() / 2 + 1;
    println!("{} notices in {gaps} gaps have reached the node that is named", packets.len());
    assert!((packets.len() as u128) <= gaps.min(1_024));
    for packet in packets {
        assert_eq!((packet.len(), packet[3]), (HEADER_BYTES, Kind::AggregateNotice as u8));
    }
    let refused = cluster.switch.snapshot().expect("it runs").switch.unknown_server;
    assert!(refused >= u64::from(PACKETS), "{refused} of {} are refused", tenant.sent);
}

/// The job of the ranks, once they sum.
fn job_of(cluster: &Cluster) -> JobId {
    let end = Instant::now() + LIMIT;
    loop {
        let snapshot = cluster.server.snapshot().expect("it runs");
        let job = snapshot.jobs.iter().find(|(_, stats)| stats.parameters > 0);
        if let Some((job, _)) = job {
            return *job;
        }
        assert!(Instant::now() < end, "nobody sums within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends the job.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
