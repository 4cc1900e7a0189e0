//! Sessions and interfaces that obey an agent, in a lab.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig};
use thalweg::{Collective, Pacing, Policy, Reduce, Session};
use thalweg_agent::{AgentConfig, AgentDaemon, Safeguards};
use thalweg_control::local::{AgentLink, Obeys, ToJob};
use thalweg_core::Rate;
use thalweg_lab::testing::build_or_skip;
use thalweg_lab::{Lab, Place, Queues, Spec};
use thalweg_linux::{Discipline, Handle, Netlink};
use thalweg_pace::{Covers, Enforce, Settings};

const HOSTS: u32 = 2;
const VALUES: usize = 500_000;
const SECRET: Secret = Secret([7; 16]);
const TOKEN: &str = "a token of tests";

/// Files of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = format!("thalweg-agent-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Folder(folder)
    }

    /// Number of files about interfaces.
    fn files(&self) -> usize {
        let entries = std::fs::read_dir(self.0.join("state")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("interface-")).count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An agent that orders classes.
fn agent(folder: &Folder, place: &Place, rate: Rate) -> AgentDaemon {
    let config = AgentConfig {
        socket: folder.0.join(format!("agent-{}", place.address())),
        address: place.address(),
        uplink: rate,
        settings: Settings {
            enforce: Enforce::Class,
            covers: Covers::Ready,
            reclaims_unused: true,
            ..Settings::default()
        },
        switches: Vec::new(),
        priorities: None,
        safeguards: Safeguards { state_dir: folder.0.join("state"), guardian: None },
        on_record: Box::new(|_| {}),
    };
    place.run(|| AgentDaemon::start(config)).expect("a host").expect("an agent")
}

/// Sums on both hosts, with an agent on each if there are any. Packets that host 0 and the server sent, by queue.
fn queues(lab: &Lab, job: &str, collective: Collective, agents: &[AgentDaemon]) -> [[u64; 8]; 2] {
    let places = [lab.host(0), lab.server(0)];
    let packets = |place: &Place| {
        let queues = place.queues_from().expect("they are counted").expect("there are queues");
        queues.map(|queue| queue.packets)
    };
    let before = places.map(packets);
    let at = SocketAddr::from((lab.server(0).address(), 4_808));
    let mut config = ServerDaemonConfig::new(at, SECRET);
    config.token = Some(TOKEN.into());
    let start = || ServerDaemon::start(&config);
    let server = lab.server(0).run(start).expect("a host").expect("a server");
    std::thread::scope(|scope| {
        for rank in 0..HOSTS {
            let pacing = agents
                .get(rank as usize)
                .map_or(Pacing::Off, |agent| Pacing::Scheduled { agent: agent.socket().into() });
            let builder = Session::builder(server.address().to_string(), job)
                .rank(rank, HOSTS)
                .share_memory(false)
                .token(TOKEN)
                .policy(Policy::default().collective(collective))
                .pacing(pacing);
            let work = move || {
                let session = builder.join().expect("it joins");
                for _ in 0..6 {
                    let sum = session.all_reduce(vec![1.0_f32; VALUES], Reduce::Sum).wait();
                    assert!(sum.expect("it ends").values.iter().all(|value| *value == 2.0));
                }
                session.leave().expect("it leaves");
            };
            scope.spawn(move || lab.host(rank).run(work).expect("a host"));
        }
    });
    let after = places.map(packets);
    [0, 1].map(|at| std::array::from_fn(|queue| after[at][queue] - before[at][queue]))
}

// spec: C-16 lab
#[test]
fn packets_of_a_paced_session_and_results_have_the_class_of_their_job() {
    let rate = Rate::from_mbps(200);
    let spec =
        Spec { hosts: HOSTS, rate, servers: 1, queues: Some(Queues::default()), ..Spec::default() };
    let Some(lab) = build_or_skip(&spec) else { return };
    let folder = Folder::new("queues");
    let in_turn = |queues: &[u64; 8]| queues[1..7].iter().sum::<u64>();
    for (job, collective) in [("ring", Collective::Ring), ("sums", Collective::Aggregate)] {
        let [own, server] = queues(&lab, &format!("{job}-unpaced"), collective, &[]);
        assert_eq!((in_turn(&own), in_turn(&server)), (0, 0), "{job}: {own:?} {server:?}");
        let agents = [0, 1].map(|host| agent(&folder, lab.host(host), rate));
        let [own, server] = queues(&lab, job, collective, &agents);
        // What leaves before the agent knows of it, and beyond the plan, is not in the turn.
        assert!(in_turn(&own) > own[7] / 2, "{job}: {own:?}");
        if collective == Collective::Aggregate {
            assert!(in_turn(&server) > server[7] / 2, "{job}: results {server:?}");
        }
    }
}

// spec: C-16, E-14 lab
#[test]
fn an_interface_has_classes_while_a_program_needs_them() {
    let rate = Rate::from_mbps(100);
    let Some(lab) = build_or_skip(&Spec { hosts: 1, rate, ..Spec::default() }) else { return };
    let (folder, place) = (Folder::new("leaves"), lab.host(0));
    let disciplines = || {
        let all = place.run(|| {
            let mut netlink = Netlink::open()?;
            let index = netlink.index_of(place.interface())?;
            Discipline::all(&mut netlink, index)
        });
        let mut all = all.expect("a host").expect("they are described");
        // The kernel chooses handles of those that it was given none for.
        let below = all.iter_mut().filter(|discipline| discipline.parent != Handle::ROOT);
        below.for_each(|discipline| discipline.handle = Handle { major: 0, minor: 0 });
        all.sort_by_key(|discipline| u32::from(discipline.parent));
        all
    };
    let original = disciplines();
    let daemon = agent(&folder, place, rate);
    assert_eq!((disciplines(), folder.files()), (original.clone(), 0), "nobody needs them yet");
    let (sender, words) = channel();
    let obeys = Obeys { classes: false, leaf: true };
    let link = AgentLink::join(daemon.socket(), "program", obeys, move |words| {
        let _ = sender.send(words);
    });
    let link = link.expect("it joins");
    let mark = std::iter::from_fn(|| words.recv_timeout(Duration::from_secs(5)).ok().flatten());
    let mark = mark.take(4).find_map(|words| match words {
        ToJob::Leaf { mark } => Some(mark),
        _ => None,
    });
    assert_eq!(mark, Some(thalweg_agent::interface::Leaf::mark(0)));
    let changed = disciplines();
    assert!(changed.iter().any(|discipline| discipline.kind == "htb"), "{changed:?}");
    assert!(folder.files() > 0, "what was there is written down");
    drop(link);
    drop(daemon);
    assert_eq!((disciplines(), folder.files()), (original, 0));
}
