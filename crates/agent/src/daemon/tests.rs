use std::io::Write;
use std::sync::mpsc;

use thalweg_control::local::{AgentLink, VERSION};
use thalweg_control::pacing::{PacingConfig, PacingService};
use thalweg_pace::board::Route;

use super::*;

const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A socket that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("thalweg-agent-{}-{name}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn agent(socket: &Path, switches: Vec<(Prefix, Access)>) -> (AgentDaemon, mpsc::Receiver<String>) {
    let (notes, noted) = mpsc::channel();
    let agent = AgentDaemon::start(AgentConfig {
        socket: socket.into(),
        address: Ipv4Addr::new(10, 77, 0, 1),
        uplink: Rate::from_gbps(1),
        settings: Settings::default(),
        switches,
        on_record: Box::new(|_| {}),
        on_note: Box::new(move |note| drop(notes.send(note))),
    });
    (agent.unwrap(), noted)
}

/// A job that has 20 MB to send, and what it hears.
fn job(socket: &Path) -> (AgentLink, mpsc::Receiver<Option<ToJob>>) {
    let (words, heard) = mpsc::channel();
    let link = AgentLink::join(socket, "vgg", move |said| drop(words.send(said))).unwrap();
    let (volume, relation, others) = (None, Default::default(), Vec::new());
    link.say(&FromJob::Flow { flow: 0, to: PEER, volume, relation, others }).unwrap();
    link.say(&FromJob::Report { flow: 0, ready: 20_000_000, sent: 0 }).unwrap();
    (link, heard)
}

fn within<T>(heard: &mpsc::Receiver<T>) -> T {
    heard.recv_timeout(Duration::from_secs(10)).expect("something is said")
}

/// Whether the job is granted nearly all of its link before long.
fn is_granted(heard: &mpsc::Receiver<Option<ToJob>>) -> bool {
    (0..100).any(|_| {
        matches!(within(heard), Some(ToJob::Rate { bps, bytes: Some(_), .. }) if bps > 900_000_000)
    })
}

// spec: C-08 sockets
#[test]
fn jobs_are_welcomed_and_get_rates() {
    let scratch = Scratch::new("rates");
    let (agent, _notes) = agent(&scratch.0, Vec::new());
    let (link, heard) = job(&scratch.0);
    assert!(matches!(within(&heard), Some(ToJob::Welcome { version: VERSION, .. })));
    assert!(is_granted(&heard));
    let other = AgentDaemon::start(AgentConfig {
        socket: scratch.0.clone(),
        address: PEER,
        uplink: Rate::from_gbps(1),
        settings: Settings::default(),
        switches: Vec::new(),
        on_record: Box::new(|_| {}),
        on_note: Box::new(drop),
    });
    assert!(other.err().is_some_and(|error| error.to_string().contains("another agent")));
    drop(agent);
    assert!(!scratch.0.exists(), "it takes its socket away");
    assert!((0..1_000).any(|_| within(&heard).is_none()), "the job learns that it is alone");
    drop(link);
}

// spec: C-11 sockets
#[test]
fn an_agent_that_loses_its_switch_goes_on_and_says_so() {
    let scratch = Scratch::new("blind");
    let service = PacingService::start(PacingConfig {
        bind: ([127, 0, 0, 1], 0).into(),
        token: None,
        tls: None,
        settings: Settings::default(),
        routes: vec![Route { to: Prefix::ALL, rate: Rate::from_gbps(1), is_each: true }],
        on_note: Box::new(drop),
    });
    let service = service.unwrap();
    let endpoint = service.local_address().to_string();
    let access = Access { endpoint, token: None, tls_ca: None };
    let (_agent, notes) = agent(&scratch.0, vec![(Prefix::ALL, access)]);
    let (_link, heard) = job(&scratch.0);
    let noted = |part: &str| (0..10).any(|_| within(&notes).contains(part));
    assert!(noted("are here") && is_granted(&heard));
    let is_known = (0..100).any(|_| {
        within(&heard);
        let stats = service.stats();
        stats.updates > 0 && stats.fetches > 0 && stats.flows == 1
    });
    assert!(is_known, "{:?}", service.stats());
    drop(service);
    assert!(noted("going on with those of the own link"));
    while heard.try_recv().is_ok() {}
    assert!(is_granted(&heard), "rates go on");
}

#[test]
fn whoever_says_nonsense_is_sent_off_and_others_stay() {
    let scratch = Scratch::new("nonsense");
    let (_agent, _notes) = agent(&scratch.0, Vec::new());
    let (_link, heard) = job(&scratch.0);
    let hostile: [&[u8]; 5] = [
        b"\xff\xfe\n",
        b"{\"say\":\"join\",\"version\":99,\"job\":\"x\"}\n",
        b"{\"say\":\"report\",\"flow\":0,\"ready\":5,\"sent\":5}\n",
        b"{\"say\":\"join\",\"version\":1,\"job\":\"\"}\n",
        &[b'['; 100_000],
    ];
    for words in hostile {
        let mut stream = UnixStream::connect(&scratch.0).unwrap();
        // It may be hung up on before everything is written.
        let _ = stream.write_all(words);
        let mut lines = Lines::new(stream);
        while let Ok(Some(answer)) = lines.next_line::<ToJob>() {
            assert!(matches!(answer, ToJob::Refused { .. }), "{answer:?}");
        }
    }
    assert!(is_granted(&heard));
}
