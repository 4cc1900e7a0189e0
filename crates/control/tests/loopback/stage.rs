//! A service with a data plane that remembers its calls, and ranks that can be watched.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use thalweg_aggregate::Setup;
use thalweg_aggregate::server::SwitchPath;
use thalweg_control::{
    Access, AttendConfig, Attendance, Budgets, ControlEvent, Counters, Credentials, DataPlane,
    FromRank, Missing, MissingAnswer, Reporter, Service, ServiceConfig, ServiceNote, Settings,
};
use thalweg_core::{JobId, NodeId};
use thalweg_wire::aggregate::{BodyFormats, SwitchLimits};
use thalweg_wire::tag::Secret;

pub const SECRET: Secret = Secret([9; 16]);
/// 127.0.0.1:4800.
pub const SERVER: NodeId = NodeId(0x0001_12c0);
/// 127.0.0.1:4808.
pub const SWITCH: NodeId = NodeId(0x0001_12c8);

/// Time that anything may take: far more than it does.
const WITHIN: Duration = Duration::from_secs(20);

/// Calls of the data plane.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    Adopt(Arc<Setup>),
    Retire(JobId),
    Missing(JobId, u64),
}

#[derive(Default)]
pub struct Plane {
    pub told: Mutex<Vec<Told>>,
    /// Time that it takes to count, if it is slow.
    pub counts_for: Mutex<Option<Duration>>,
    /// Answer about every fragment.
    pub missing: Mutex<Option<Missing>>,
    /// Receiver of the answers of switches.
    reporter: OnceLock<Reporter>,
}

/// Limits that every switch reports.
pub const LIMITS: SwitchLimits = SwitchLimits {
    aggregators: 96,
    fragment_values: 40,
    formats: BodyFormats::FLOAT_AND_FIXED,
    cores: 1,
    mtu_bytes: 1_500,
};

impl DataPlane for Plane {
    fn adopt(&self, setup: Arc<Setup>) {
        self.told.lock().expect("no test thread panicked").push(Told::Adopt(setup));
    }

    fn retire(&self, job: JobId) {
        self.told.lock().expect("no test thread panicked").push(Told::Retire(job));
    }

    fn missing(&self, job: JobId, sequence: u64, answer: MissingAnswer) {
        self.told.lock().expect("no test thread panicked").push(Told::Missing(job, sequence));
        if let Some(missing) = self.missing.lock().expect("no test thread panicked").clone() {
            // From another thread, as real ones do.
            std::thread::spawn(move || answer(missing));
        }
    }

    fn probe(&self, switch: NodeId) {
        let reporter = self.reporter.get().expect("ranks come when the service has started");
        reporter.switch_answered(switch, LIMITS);
    }

    fn probe_path(&self, _: SwitchPath, _: u16) {
        panic!("no rank announces an MTU");
    }

    fn counters(&self) -> Counters {
        if let Some(slow) = *self.counts_for.lock().expect("no test thread panicked") {
            std::thread::sleep(slow);
        }
        let setups = self.told.lock().expect("no test thread panicked");
        let jobs = setups.iter().filter_map(|one| match one {
            Told::Adopt(setup) => Some((setup.job, vec![("fragments", 42)])),
            _ => None,
        });
        Counters { total: vec![("packets", 42)], jobs: jobs.collect() }
    }
}

pub struct Stage {
    pub service: Service,
    pub plane: Arc<Plane>,
    pub notes: Receiver<ServiceNote>,
}

/// A port that nobody listens on, on an address of the test's own: no other test can come in between.
pub fn free_address(own: u8) -> SocketAddr {
    stage(|config| config.bind = ([127, 0, 7, own], 0).into()).service.local_address()
}

/// A service on a free port, with changes.
pub fn stage(change: impl FnOnce(&mut ServiceConfig)) -> Stage {
    let plane = Arc::new(Plane::default());
    let (notes, notes_out) = mpsc::channel();
    let mut config = config();
    config.on_note = Box::new(move |note| drop(notes.send(note)));
    change(&mut config);
    let service =
        Service::start(config, Arc::clone(&plane) as Arc<dyn DataPlane>).expect("it starts");
    let _ = plane.reporter.set(service.reporter());
    Stage { service, plane, notes: notes_out }
}

pub fn config() -> ServiceConfig {
    ServiceConfig {
        bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        server: SERVER,
        server_cores: 1,
        mtu_bytes: 1_500,
        switch: None,
        network: Ipv4Addr::LOCALHOST,
        secrets: SECRET.into(),
        credentials: Credentials::default(),
        budgets: Budgets::default(),
        tls: None,
        seed: 1,
        job_memory_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        on_note: Box::new(drop),
    }
}

/// A rank and what it learns.
pub struct Rank {
    pub attendance: Attendance,
    events: Receiver<ControlEvent>,
    /// Time for which the next event holds the rank's thread up.
    pause: Arc<Mutex<Option<Duration>>>,
}

pub fn attend_config(address: SocketAddr, workers: u32, rank: u32, host: &str) -> AttendConfig {
    AttendConfig {
        access: Access { endpoint: address.to_string(), token: None, tls_ca: None },
        name: "train".into(),
        workers,
        rank,
        node: node(rank),
        life: 1_000 + u64::from(rank),
        host: host.into(),
        switch: None,
        more_nodes: Vec::new(),
        mtu_bytes: None,
        ticket: None,
        settings: Settings::default(),
    }
}

/// 127.0.0.1:5000, 5008 and on.
pub fn node(rank: u32) -> NodeId {
    NodeId(0x0001_1388 + 8 * rank)
}

impl Rank {
    pub fn start(config: AttendConfig) -> Rank {
        let (sender, events) = mpsc::channel();
        let pause = Arc::new(Mutex::new(None));
        let pauses = Arc::clone(&pause);
        let attendance = Attendance::start(config, move |_, event| {
            let pause = pauses.lock().expect("no test thread panicked").take();
            if let Some(pause) = pause {
                std::thread::sleep(pause);
            }
            // The test may be over before the rank is.
            drop(sender.send(event));
        });
        let attendance = attendance.expect("the address is one");
        Rank { attendance, events, pause }
    }

    /// Holds the rank's thread up when the next event comes: it neither hears nor sends meanwhile.
    pub fn pause(&self, time: Duration) {
        *self.pause.lock().expect("no test thread panicked") = Some(time);
    }

    /// Asserts that the rank has lost no connection and its job has not failed until the time has passed.
    pub fn assert_undisturbed(&self, time: Duration) {
        let end = std::time::Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            let Ok(event) = self.events.recv_timeout(left) else { return };
            let is_disturbed = matches!(
                event,
                ControlEvent::Failed(_)
                    | ControlEvent::Disconnected { .. }
                    | ControlEvent::GaveUp { .. }
            );
            assert!(!is_disturbed, "{event:?}");
        }
    }

    /// Waits for the first event that is wanted.
    pub fn expect<T>(&self, wanted: impl Fn(&ControlEvent) -> Option<T>) -> T {
        let mut seen = Vec::new();
        loop {
            match self.events.recv_timeout(WITHIN) {
                Ok(event) => match wanted(&event) {
                    Some(found) => return found,
                    None => seen.push(event),
                },
                Err(error) => panic!("{error}; came: {seen:?}"),
            }
        }
    }

    /// Answers the next report.
    pub fn answer(&self, watermark: Option<u64>) -> u32 {
        let (round, seat) = self.expect(|event| match *event {
            ControlEvent::Report { round, seat } => Some((round, seat)),
            _ => None,
        });
        self.attendance.send(FromRank::Answer { round, seat, watermark });
        round
    }

    pub fn adopt(&self) -> (Arc<Setup>, u32) {
        self.expect(|event| match event {
            ControlEvent::Adopt { setup, seat, .. } => Some((Arc::clone(setup), *seat)),
            _ => None,
        })
    }

    pub fn failed(&self) -> (String, Vec<u32>) {
        self.expect(|event| match event {
            ControlEvent::Failed(failure) => Some((failure.text.clone(), failure.culprits.clone())),
            _ => None,
        })
    }

    pub fn gave_up(&self) -> String {
        self.expect(|event| match event {
            ControlEvent::GaveUp { text, .. } => Some(text.clone()),
            _ => None,
        })
    }

    pub fn ticket(&self) -> thalweg_control::RankTicket {
        self.expect(|event| match event {
            ControlEvent::Joined { ticket } => Some(*ticket),
            _ => None,
        })
    }

    pub fn welcome(&self) -> Arc<thalweg_control::Welcome> {
        self.expect(|event| match event {
            ControlEvent::Welcome(welcome) => Some(Arc::clone(welcome)),
            _ => None,
        })
    }
}

/// Two ranks on two hosts, set up.
pub fn pair(address: SocketAddr, settings: &Settings) -> [Rank; 2] {
    let rank = |rank: u32, host| {
        let settings = settings.clone();
        Rank::start(AttendConfig { settings, ..attend_config(address, 2, rank, host) })
    };
    let pair = [rank(0, "a"), rank(1, "b")];
    for rank in &pair {
        rank.answer(None);
    }
    for rank in &pair {
        rank.adopt();
    }
    pair
}
