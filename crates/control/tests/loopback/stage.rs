//! A service with a data plane that remembers what it was told, and ranks that can be watched.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use thalweg_aggregate::Setup;
use thalweg_control::{
    Access, AttendConfig, Attendance, ControlEvent, DataPlane, FromRank, Missing, MissingAnswer,
    Reporter, Service, ServiceConfig, ServiceNote, Settings,
};
use thalweg_core::{JobId, NodeId};
use thalweg_wire::aggregate::{BodyFormats, SwitchLimits};
use thalweg_wire::tag::Secret;

pub const SECRET: Secret = Secret([9; 16]);
/// 127.0.0.1:4800.
pub const SERVER: NodeId = NodeId(0x0001_12c0);
/// 127.0.0.1:4801.
pub const SWITCH: NodeId = NodeId(0x0001_12c1);

/// How long anything may take: far more than it does.
const WITHIN: Duration = Duration::from_secs(20);

/// What the data plane was told.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    Adopt(Arc<Setup>),
    Retire(JobId),
    Missing(JobId, u64),
}

#[derive(Default)]
pub struct Plane {
    pub told: Mutex<Vec<Told>>,
    /// What it says of every fragment.
    pub missing: Mutex<Option<Missing>>,
    /// Receiver of the answers of switches.
    reporter: OnceLock<Reporter>,
}

/// Limits that every switch reports.
pub const LIMITS: SwitchLimits =
    SwitchLimits { aggregators: 96, fragment_values: 40, formats: BodyFormats::FLOAT_AND_FIXED };

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

    fn counters(&self, job: Option<JobId>) -> Vec<(String, u64)> {
        vec![(if job.is_some() { "fragments" } else { "packets" }.into(), 42)]
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
        switch: None,
        network: Ipv4Addr::LOCALHOST,
        secrets: SECRET.into(),
        token: None,
        tls: None,
        seed: 1,
        on_note: Box::new(drop),
    }
}

/// A rank and what it learns.
pub struct Rank {
    pub attendance: Attendance,
    events: Receiver<ControlEvent>,
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
        settings: Settings::default(),
    }
}

/// 127.0.0.1:5000 and on.
pub fn node(rank: u32) -> NodeId {
    NodeId(0x0001_1388 + rank)
}

impl Rank {
    pub fn start(config: AttendConfig) -> Rank {
        let (sender, events) = mpsc::channel();
        // The test may be over before the rank is.
        let attendance = Attendance::start(config, move |event| drop(sender.send(event)));
        let attendance = attendance.expect("the address is one");
        Rank { attendance, events }
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
