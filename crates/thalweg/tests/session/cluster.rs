//! A server, a switch, and ranks on threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::internal::{Event, Tap, listen};
use thalweg::{Session, SessionConfig};
use thalweg_wire::tag::Secret;

/// Secret that all daemons of a test share.
pub const SECRET: Secret = Secret([5; 16]);

/// The daemons of a cluster on loopback.
pub struct Cluster {
    pub server: ServerDaemon,
    pub switch: SwitchDaemon,
    /// True if ranks and the server name the switch.
    is_switch_named: bool,
    notes: Arc<Mutex<Vec<String>>>,
}

/// Receives all events from now on.
pub fn noted() -> mpsc::Receiver<Event> {
    let (sender, received) = mpsc::channel();
    let sender = Mutex::new(sender);
    listen(move |event| {
        // A test that has ended no longer receives.
        let _ = sender.lock().expect("nobody panics with it").send(event.clone());
    });
    received
}

/// Jobs of one test program have different names.
static JOBS: AtomicU32 = AtomicU32::new(0);

impl Cluster {
    /// A cluster whose switch loses this share of packets.
    pub fn losing(loss: f64) -> Cluster {
        Cluster::start(1, loss, true, None)
    }

    /// A cluster whose switch is behind a tap.
    pub fn tapped(tap: Tap) -> Cluster {
        Cluster::start(1, 0.0, true, Some(tap))
    }

    /// The same with daemons on this number of cores.
    pub fn on_cores(cores: u16, loss: f64) -> Cluster {
        Cluster::start(cores, loss, true, None)
    }

    /// A cluster whose switch nobody names.
    pub fn without_switch() -> Cluster {
        Cluster::start(1, 0.0, false, None)
    }

    fn start(cores: u16, loss: f64, is_switch_named: bool, tap: Option<Tap>) -> Cluster {
        let loopback = ([127, 0, 0, 1], 0).into();
        let mut switch = SwitchDaemonConfig::new(loopback, SECRET);
        (switch.loss, switch.cores) = (loss, cores);
        // Tests count packets.
        switch.mtu_bytes = Some(1_500);
        let switch = SwitchDaemon::start_tapped(&switch, tap).expect("a switch starts on loopback");
        let mut server = ServerDaemonConfig::new(loopback, SECRET);
        server.switch = is_switch_named.then(|| switch.address());
        server.cores = cores;
        let server = ServerDaemon::start(&server).expect("a server starts on loopback");
        let notes = Arc::new(Mutex::new(Vec::new()));
        let (kept, address) = (Arc::clone(&notes), server.address().to_string());
        listen(move |event| {
            if event.target == "thalweg::server" && event.field("address") == Some(&address) {
                kept.lock().expect("nobody panics with it").push(event.text.clone());
            }
        });
        Cluster { server, switch, is_switch_named, notes }
    }

    /// Lines for the operator of the server.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().expect("nobody panics with it").clone()
    }

    /// The settings of a rank on a host of its own.
    pub fn config(&self, job: &str, rank: u32, ranks: u32) -> SessionConfig {
        let builder = Session::builder(self.server.address().to_string(), job)
            .rank(rank, ranks)
            .share_memory(false)
            .operation_timeout(Duration::from_secs(20))
            .stall_after(Duration::from_secs(2));
        let is_named = self.is_switch_named;
        if is_named { builder.switch(self.switch.address()).config() } else { builder.config() }
    }

    /// Runs the same program at all ranks of a job, and gives their results by rank.
    pub fn run<R: Send>(
        &self,
        ranks: u32,
        change: impl Fn(&mut SessionConfig) + Sync,
        program: impl Fn(&Session) -> R + Sync,
    ) -> Vec<R> {
        let job = format!("job-{}", JOBS.fetch_add(1, Ordering::Relaxed));
        std::thread::scope(|scope| {
            let rank = |rank| {
                let mut config = self.config(&job, rank, ranks);
                change(&mut config);
                let program = &program;
                scope.spawn(move || {
                    let session = Session::join(config).expect("all ranks are there");
                    let result = program(&session);
                    session.leave().expect("everything has ended");
                    result
                })
            };
            let threads: Vec<_> = (0..ranks).map(rank).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
        })
    }
}
