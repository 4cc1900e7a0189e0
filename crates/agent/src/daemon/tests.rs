use std::io::Write;
use std::sync::mpsc;

use thalweg::internal::{Event, listen};
use thalweg_control::local::{AgentLink, Announced, Obeys, VERSION};
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
        let _ = fs::remove_dir_all(self.0.with_extension("state"));
    }
}

fn agent(socket: &Path, switches: Vec<(Prefix, Access)>) -> AgentDaemon {
    let agent = AgentDaemon::start(AgentConfig { switches, ..config(socket) });
    agent.unwrap()
}

fn config(socket: &Path) -> AgentConfig {
    AgentConfig {
        socket: socket.into(),
        address: Ipv4Addr::new(10, 77, 0, 1),
        uplink: Rate::from_gbps(1),
        settings: Settings::default(),
        switches: Vec::new(),
        safeguards: Safeguards { state_dir: socket.with_extension("state"), guardian: None },
        priorities: None,
        on_record: Box::new(|_| {}),
    }
}

/// Events of the agent of a host from now on.
fn events(address: Ipv4Addr) -> mpsc::Receiver<Event> {
    let (sender, received) = mpsc::channel();
    let sender = Mutex::new(sender);
    let address = address.to_string();
    listen(move |event| {
        if event.target == TARGET && event.field("address") == Some(&address) {
            let _ = sender.lock().map(|sender| sender.send(event.clone()));
        }
    });
    received
}

fn flow() -> FromJob {
    let (relation, others) = (Default::default(), Vec::new());
    let is_exact = false;
    FromJob::Flow(Announced { flow: 0, to: PEER, volume: None, is_exact, relation, others })
}

/// A job that has 20 MB to send, and what it hears.
fn job(socket: &Path) -> (AgentLink, mpsc::Receiver<Option<ToJob>>) {
    let (words, received) = mpsc::channel();
    let link = AgentLink::join(socket, "vgg", Obeys::default(), move |text| drop(words.send(text)))
        .unwrap();
    link.say(&flow()).unwrap();
    link.say(&FromJob::report(0, 20_000_000, 0)).unwrap();
    (link, received)
}

fn within<T>(received: &mpsc::Receiver<T>) -> T {
    received.recv_timeout(Duration::from_secs(10)).expect("a message comes")
}

/// True if the job is granted nearly all of its link before long.
fn is_granted(received: &mpsc::Receiver<Option<ToJob>>) -> bool {
    (0..100).any(|_| {
        matches!(within(received), Some(ToJob::Rate { bps, bytes: Some(_), .. }) if bps > 900_000_000)
    })
}

// spec: C-08 sockets
#[test]
fn jobs_are_welcomed_and_get_rates() {
    let scratch = Scratch::new("rates");
    let agent = agent(&scratch.0, Vec::new());
    let (link, received) = job(&scratch.0);
    assert!(matches!(within(&received), Some(ToJob::Welcome { version: VERSION, .. })));
    assert!(is_granted(&received));
    let other = AgentDaemon::start(AgentConfig { address: PEER, ..config(&scratch.0) });
    assert!(other.err().is_some_and(|error| error.to_string().contains("another agent")));
    drop(agent);
    assert!(!scratch.0.exists(), "it takes its socket away");
    assert!((0..1_000).any(|_| within(&received).is_none()), "the job learns that it is alone");
    drop(link);
}

// spec: C-11 sockets
#[test]
fn an_agent_that_loses_its_switch_goes_on_and_says_so() {
    let scratch = Scratch::new("blind");
    let service = PacingService::start(PacingConfig {
        bind: ([127, 0, 0, 1], 0).into(),
        credentials: Default::default(),
        tls: None,
        settings: Settings::default(),
        routes: vec![Route { to: Prefix::ALL, rate: Rate::from_gbps(1), is_each: true }],
        on_note: Box::new(drop),
    });
    let service = service.unwrap();
    let endpoint = service.local_address().to_string();
    let access = Access { endpoint, token: None, tls_ca: None };
    let name = access.endpoint.clone();
    // No other test has an agent with this address.
    let address = Ipv4Addr::new(10, 77, 0, 11);
    let events = events(address);
    let switches = vec![(Prefix::ALL, access)];
    let agent = AgentDaemon::start(AgentConfig { address, switches, ..config(&scratch.0) });
    let agent = agent.unwrap();
    let (_link, received) = job(&scratch.0);
    let next = |word: &str| (0..10).map(|_| within(&events)).find(|event| is(event, word)).unwrap();
    let found = next("tables_found");
    assert_eq!((found.is_warning, found.field("switch")), (false, Some(name.as_str())));
    assert!(is_granted(&received));
    let tables = |stats: &AgentStats| stats.switches[&name];
    assert!(tables(&agent.stats().unwrap()).is_connected);
    let is_known = (0..100).any(|_| {
        within(&received);
        let stats = service.stats();
        stats.updates > 0 && stats.fetches > 0 && stats.flows == 1
    });
    assert!(is_known, "{:?}", service.stats());
    drop(service);
    let lost = next("tables_lost");
    assert_eq!((lost.is_warning, lost.field("switch")), (true, Some(name.as_str())));
    assert!(lost.text.contains("going on with those of the own link"), "{}", lost.text);
    let stats = agent.stats().unwrap();
    assert_eq!(tables(&stats), TablesStats { is_connected: false, losses: 1 });
    assert!(stats.fetches > 0 && stats.updates > 0 && stats.plans_refused == 0, "{stats:?}");
    while received.try_recv().is_ok() {}
    assert!(is_granted(&received), "rates go on");
}

// spec: E-14 sockets
#[test]
fn a_clock_that_is_set_is_noted_and_rates_go_on() {
    for (number, by_s) in [(13, -600), (14, 600)] {
        let scratch = Scratch::new(&format!("clock-{number}"));
        // No other test has an agent with this address.
        let address = Ipv4Addr::new(10, 77, 0, number);
        let events = events(address);
        let set_by_s = Arc::new(std::sync::atomic::AtomicI64::new(0));
        let (started, set) = (instant(), Arc::clone(&set_by_s));
        let read = move || {
            let by_s = set.load(std::sync::atomic::Ordering::Relaxed);
            let span = Duration::from_secs(by_s.unsigned_abs());
            let wall = if by_s < 0 { since_epoch() - span } else { since_epoch() + span };
            Reading { wall, steady: started.elapsed() }
        };
        let config = AgentConfig { address, ..config(&scratch.0) };
        let agent = AgentDaemon::start_with(config, Box::new(read)).unwrap();
        let (_link, rates) = job(&scratch.0);
        assert!(is_granted(&rates));
        set_by_s.store(by_s, std::sync::atomic::Ordering::Relaxed);
        let set = (0..10).map(|_| within(&events)).find(|event| is(event, "clock_set"));
        let set = set.expect("it is noted");
        assert!(set.is_warning && set.text.contains(&format!("{by_s}.0")), "{}", set.text);
        while rates.try_recv().is_ok() {}
        assert!(is_granted(&rates), "rates go on");
        assert!(agent.is_running());
    }
}

// spec: E-14 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "renewals come in real time")]
fn rates_of_flows_without_anything_to_send_are_renewed() {
    let scratch = Scratch::new("renewed");
    let _agent = agent(&scratch.0, Vec::new());
    let (words, received) = mpsc::channel();
    let link =
        AgentLink::join(&scratch.0, "vgg", Obeys::default(), move |line| drop(words.send(line)))
            .unwrap();
    link.say(&flow()).unwrap();
    std::thread::sleep(thalweg_control::local::SILENT_AFTER);
    let renewed = received.try_iter().filter(|words| matches!(words, Some(ToJob::Rate { .. })));
    assert!(renewed.count() >= 3, "the first, and a few more in a second");
}

#[test]
fn a_client_that_sends_nonsense_is_sent_off_and_others_stay() {
    let scratch = Scratch::new("nonsense");
    let agent = agent(&scratch.0, Vec::new());
    let (_link, received) = job(&scratch.0);
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
    assert!(is_granted(&received));
    let stats = agent.stats().unwrap();
    assert_eq!((stats.joins, stats.refusals), (1, hostile.len() as u64));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "slots pass in real time")]
fn an_agent_counts_its_jobs_while_they_are_connected() {
    let scratch = Scratch::new("counted");
    // No other test has an agent with this address.
    let address = Ipv4Addr::new(10, 77, 0, 12);
    let events = events(address);
    let agent = AgentDaemon::start(AgentConfig { address, ..config(&scratch.0) }).unwrap();
    let (link, rates) = job(&scratch.0);
    let joined = within(&events);
    assert!(is(&joined, "joined") && !joined.is_warning, "{joined:?}");
    assert_eq!(joined.field("job"), Some("vgg"));
    assert!(is_granted(&rates));
    link.say(&FromJob::report(0, 20_000_000, 5_000_000)).unwrap();
    let counted = |is_there: &dyn Fn(&AgentStats) -> bool| {
        (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_there(&agent.stats().unwrap())
        })
    };
    // A slot is written down when it has ended.
    assert!(counted(&|stats| stats.jobs["vgg"].carried_bytes == 5_000_000));
    let stats = agent.stats().unwrap();
    let job = stats.jobs["vgg"];
    assert_eq!((job.processes, job.flows, stats.joins), (1, 1, 1));
    assert!(job.asked_bytes > 0 && stats.rates > 0, "{stats:?}");
    let text = agent.metrics().unwrap();
    let line = "thalweg_agent_job_carried_bytes_total{job_name=\"vgg\"} 5000000";
    assert!(text.lines().any(|found| found == line), "{text}");
    drop(link);
    assert!(counted(&|stats| stats.jobs.is_empty()), "it is forgotten");
    assert_eq!(agent.stats().unwrap().joins, 1);
}

fn is(event: &Event, word: &str) -> bool {
    event.field("event") == Some(word)
}
