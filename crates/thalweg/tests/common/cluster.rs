//! A server, a switch a rack, and ranks on threads: over real sockets, on loopback or in a lab.
#![allow(dead_code, reason = "each test program uses its part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::{Session, SessionConfig};
use thalweg_lab::{Lab, Place};
use thalweg_wire::tag::Secret;

/// Secret that all daemons of a test share.
pub const SECRET: Secret = Secret([5; 16]);

/// Token of the ranks of a lab.
pub const TOKEN: &str = "ranks of this test";

/// Jobs of one test program have different names.
static JOBS: AtomicU32 = AtomicU32::new(0);

/// Places where daemons and ranks run.
pub enum Ground {
    Loopback,
    Lab(Lab),
}

/// One of a cluster.
#[derive(Clone, Copy)]
enum Role {
    Switch(u32),
    Server,
    Rank(u32),
}

impl Ground {
    /// Runs something where it belongs.
    fn run<T: Send>(&self, role: Role, work: impl FnOnce() -> T + Send) -> T {
        match self.place(role) {
            None => work(),
            Some(place) => place.run(work).expect("a place of the lab"),
        }
    }

    /// MTU that daemons announce: tests on loopback count packets of Ethernet.
    fn mtu_bytes(&self) -> Option<u16> {
        matches!(self, Ground::Loopback).then_some(1_500)
    }

    fn bind(&self, role: Role) -> SocketAddr {
        let address = self.place(role).map_or(Ipv4Addr::LOCALHOST, Place::address);
        (IpAddr::from(address), 0).into()
    }

    fn place(&self, role: Role) -> Option<&Place> {
        match (self, role) {
            (Ground::Loopback, _) => None,
            (Ground::Lab(lab), Role::Switch(rack)) => Some(lab.rack(rack)),
            (Ground::Lab(lab), Role::Server) => Some(lab.server(0)),
            (Ground::Lab(lab), Role::Rank(rank)) => Some(lab.host(rank)),
        }
    }
}

/// The racks of a cluster. The server is in the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Racks {
    /// Ranks are in all of this number of racks.
    Shared(u32),
    /// Ranks are in this number of further racks, and the server alone is in the first.
    Apart(u32),
}

impl Racks {
    pub const ONE: Racks = Racks::Shared(1);

    /// The number of switches.
    pub fn count(self) -> u32 {
        match self {
            Racks::Shared(racks) => racks,
            Racks::Apart(racks) => racks + 1,
        }
    }

    /// The rack of a rank: evenly and in order, as the hosts of a lab.
    pub fn of_rank(self, rank: u32, ranks: u32) -> u32 {
        match self {
            Racks::Shared(racks) => rank * racks / ranks,
            Racks::Apart(racks) => 1 + rank * racks / ranks,
        }
    }
}

/// The daemons of a cluster.
pub struct Cluster {
    ground: Ground,
    racks: Racks,
    pub server: ServerDaemon,
    /// The switch of the first rack.
    pub switch: SwitchDaemon,
    /// The switches of the other racks.
    pub further: Vec<SwitchDaemon>,
    /// The address that ranks and the server send to in place of the first switch's own.
    entry: SocketAddr,
}

impl Cluster {
    /// A cluster of one rack, whose switch loses this share of packets.
    pub fn start(ground: Ground, loss: f64) -> Cluster {
        Cluster::in_racks(ground, loss, Racks::ONE)
    }

    /// A cluster of several racks, whose switches lose this share of packets.
    pub fn in_racks(ground: Ground, loss: f64, racks: Racks) -> Cluster {
        let mtu_bytes = ground.mtu_bytes();
        Cluster::of_mtu(ground, loss, racks, mtu_bytes)
    }

    /// The same with switches that announce this MTU, or that of their interface.
    pub fn of_mtu(ground: Ground, loss: f64, racks: Racks, mtu_bytes: Option<u16>) -> Cluster {
        Cluster::of_shape(ground, racks, Shape { loss, mtu_bytes, cores: None })
    }

    /// A cluster with daemons on this number of cores.
    pub fn on_cores(ground: Ground, racks: Racks, cores: u16) -> Cluster {
        let mtu_bytes = ground.mtu_bytes();
        Cluster::of_shape(ground, racks, Shape { loss: 0.0, mtu_bytes, cores: Some(cores) })
    }

    fn of_shape(ground: Ground, racks: Racks, shape: Shape) -> Cluster {
        let start = |rack| start_switch(&ground, rack, shape);
        let further = (1..racks.count()).map(start).collect();
        let switch = start_switch(&ground, 0, shape);
        let entry = switch.address();
        let server = start_server(&ground, entry, shape.cores);
        Cluster { ground, racks, server, switch, further, entry }
    }

    /// A cluster of one rack on loopback, where something stands before the switch and passes packets on.
    /// It is given the address of the switch, and says its own.
    pub fn behind(before: impl FnOnce(SocketAddr) -> SocketAddr) -> Cluster {
        let ground = Ground::Loopback;
        let shape = Shape { loss: 0.0, mtu_bytes: ground.mtu_bytes(), cores: None };
        let switch = start_switch(&ground, 0, shape);
        let entry = before(switch.address());
        let server = start_server(&ground, entry, None);
        Cluster { ground, racks: Racks::ONE, server, switch, further: Vec::new(), entry }
    }

    /// The switch of the first rack ends, and another one starts in its place.
    pub fn restart_switch(self) -> Cluster {
        let mut config = SwitchDaemonConfig::new(self.switch.address(), SECRET);
        config.mtu_bytes = self.ground.mtu_bytes();
        self.switch.stop().expect("it ran");
        let switch = self.ground.run(Role::Switch(0), || SwitchDaemon::start(&config));
        Cluster { switch: switch.expect("its port is free again"), ..self }
    }

    /// The lab that it runs in.
    pub fn lab(&self) -> Option<&Lab> {
        match &self.ground {
            Ground::Loopback => None,
            Ground::Lab(lab) => Some(lab),
        }
    }

    /// All switches, by rack.
    pub fn switches(&self) -> impl Iterator<Item = &SwitchDaemon> {
        std::iter::once(&self.switch).chain(&self.further)
    }

    /// Configuration of a rank that joins.
    pub fn seat(&self, job: &str, rank: u32, ranks: u32) -> SessionConfig {
        let switch = match self.racks.of_rank(rank, ranks) {
            0 => self.entry,
            rack => self.further[rack as usize - 1].address(),
        };
        Session::builder(self.server.address().to_string(), job)
            .rank(rank, ranks)
            .switch(switch)
            .token(TOKEN)
            .share_memory(false)
            .operation_timeout(Duration::from_secs(20))
            .stall_after(Duration::from_secs(2))
            .config()
    }

    /// The settings of a rank, and its host if there is a lab.
    fn rank(&self, job: &str, rank: u32, ranks: u32) -> (SessionConfig, Option<Place>) {
        (self.seat(job, rank, ranks), self.ground.place(Role::Rank(rank)).cloned())
    }

    /// As [`run`](Cluster::run), for a job that fails: nobody leaves it.
    pub fn run_to_failure<R: Send>(
        self,
        ranks: u32,
        change: impl Fn(&mut SessionConfig) + Sync,
        program: impl Fn(&Session) -> R + Sync,
        meanwhile: impl FnOnce(),
    ) -> (Cluster, Vec<R>) {
        let job = format!("job-{}", JOBS.fetch_add(1, Ordering::Relaxed));
        let (change, program) = (&change, &program);
        let results = std::thread::scope(|scope| {
            let start = |rank| {
                let (mut config, place) = self.rank(&job, rank, ranks);
                change(&mut config);
                scope.spawn(move || {
                    if let Some(place) = place {
                        place.move_thread().expect("a place of the lab");
                    }
                    program(&Session::join(config).expect("all ranks are there"))
                })
            };
            let threads: Vec<_> = (0..ranks).map(start).collect();
            meanwhile();
            threads.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
        });
        (self, results)
    }

    /// Starts the same program at all ranks of a job, and does something meanwhile. Gives the results
    /// by rank.
    pub fn run<R: Send>(
        self,
        ranks: u32,
        change: impl Fn(&mut SessionConfig) + Sync,
        program: impl Fn(&Session) -> R + Sync,
        meanwhile: impl FnOnce(Cluster) -> Cluster,
    ) -> (Cluster, Vec<R>) {
        let job = format!("job-{}", JOBS.fetch_add(1, Ordering::Relaxed));
        let (change, program) = (&change, &program);
        std::thread::scope(|scope| {
            let start = |rank| {
                let (mut config, place) = self.rank(&job, rank, ranks);
                change(&mut config);
                scope.spawn(move || {
                    if let Some(place) = place {
                        place.move_thread().expect("a place of the lab");
                    }
                    let session = Session::join(config).expect("all ranks are there");
                    let result = program(&session);
                    session.leave().expect("everything has ended");
                    result
                })
            };
            let threads: Vec<_> = (0..ranks).map(start).collect();
            let cluster = meanwhile(self);
            let results = threads.into_iter().map(|rank| rank.join().expect("no rank panics"));
            let results = results.collect();
            (cluster, results)
        })
    }
}

/// Settings that the daemons of a cluster have in common.
#[derive(Clone, Copy)]
struct Shape {
    /// Share of packets that switches lose: every rack's loses other ones.
    loss: f64,
    /// MTU that switches announce, or `None` for that of their interface.
    mtu_bytes: Option<u16>,
    /// Cores that sum, or `None` for the default.
    cores: Option<u16>,
}

fn start_switch(ground: &Ground, rack: u32, shape: Shape) -> SwitchDaemon {
    let role = Role::Switch(rack);
    let mut config = SwitchDaemonConfig::new(ground.bind(role), SECRET);
    (config.loss, config.seed) = (shape.loss, u64::from(rack) + 1);
    config.mtu_bytes = shape.mtu_bytes;
    config.cores = shape.cores.unwrap_or(config.cores);
    ground.run(role, || SwitchDaemon::start(&config)).expect("a switch starts")
}

fn start_server(ground: &Ground, switch: SocketAddr, cores: Option<u16>) -> ServerDaemon {
    let mut config = ServerDaemonConfig::new(ground.bind(Role::Server), SECRET);
    config.cores = cores.unwrap_or(config.cores);
    (config.switch, config.token) = (Some(switch), Some(TOKEN.into()));
    let server = ground.run(Role::Server, || ServerDaemon::start(&config));
    server.expect("a server starts")
}
