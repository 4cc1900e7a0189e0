//! A server, a switch, and ranks on threads: over real sockets, on loopback or in a lab.
#![allow(dead_code, reason = "each test program uses its part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::{Session, SessionConfig};
use thalweg_lab::{Lab, Place};
use thalweg_wire::tag::Secret;

/// What all daemons of a test share.
pub const SECRET: Secret = Secret([5; 16]);

/// What ranks of a lab have to say.
const TOKEN: &str = "ranks of this test";

/// Jobs of one test program have different names.
static JOBS: AtomicU32 = AtomicU32::new(0);

/// Where daemons and ranks run.
pub enum Ground {
    Loopback,
    Lab(Lab),
}

/// One of a cluster.
#[derive(Clone, Copy)]
enum Seat {
    Switch,
    Server,
    Rank(u32),
}

impl Ground {
    /// Runs something where it belongs.
    fn run<T: Send>(&self, seat: Seat, work: impl FnOnce() -> T + Send) -> T {
        match self.place(seat) {
            None => work(),
            Some(place) => place.run(work).expect("a place of the lab"),
        }
    }

    fn bind(&self, seat: Seat) -> SocketAddr {
        let address = self.place(seat).map_or(Ipv4Addr::LOCALHOST, Place::address);
        (IpAddr::from(address), 0).into()
    }

    fn place(&self, seat: Seat) -> Option<&Place> {
        match (self, seat) {
            (Ground::Loopback, _) => None,
            (Ground::Lab(lab), Seat::Switch) => Some(lab.rack(0)),
            (Ground::Lab(lab), Seat::Server) => Some(lab.server(0)),
            (Ground::Lab(lab), Seat::Rank(rank)) => Some(lab.host(rank)),
        }
    }
}

/// The daemons of a cluster.
pub struct Cluster {
    ground: Ground,
    pub server: ServerDaemon,
    pub switch: SwitchDaemon,
}

impl Cluster {
    /// A cluster whose switch loses this share of packets.
    pub fn start(ground: Ground, loss: f64) -> Cluster {
        let switch = SwitchDaemonConfig {
            loss,
            ..SwitchDaemonConfig::new(ground.bind(Seat::Switch), SECRET)
        };
        let switch = ground.run(Seat::Switch, || SwitchDaemon::start(&switch));
        let switch = switch.expect("a switch starts");
        let server = ServerDaemonConfig {
            switch: Some(switch.address()),
            token: Some(TOKEN.into()),
            ..ServerDaemonConfig::new(ground.bind(Seat::Server), SECRET)
        };
        let server = ground.run(Seat::Server, || ServerDaemon::start(&server, |_| {}));
        Cluster { ground, server: server.expect("a server starts"), switch }
    }

    /// The switch ends, and another one starts in its place.
    pub fn restart_switch(self) -> Cluster {
        let Cluster { ground, server, switch } = self;
        let config = SwitchDaemonConfig::new(switch.address(), SECRET);
        switch.stop().expect("it ran");
        let switch = ground.run(Seat::Switch, || SwitchDaemon::start(&config));
        Cluster { ground, server, switch: switch.expect("its port is free again") }
    }

    /// How a rank joins.
    pub fn seat(&self, job: &str, rank: u32, ranks: u32) -> SessionConfig {
        SessionConfig {
            switch: Some(self.switch.address().to_string()),
            token: Some(TOKEN.into()),
            share_memory: false,
            patience: Duration::from_secs(20),
            stall_after: Duration::from_secs(2),
            ..SessionConfig::new(self.server.address().to_string(), job, rank, ranks)
        }
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
                let mut config = self.seat(&job, rank, ranks);
                change(&mut config);
                let place = self.ground.place(Seat::Rank(rank)).cloned();
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
