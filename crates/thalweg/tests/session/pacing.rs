//! Sessions that obey the agent of their host.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thalweg::internal::Event;
use thalweg::{Pacing, Reduce, Session};
use thalweg_agent::{AgentConfig, AgentDaemon, Safeguards};
use thalweg_core::Rate;
use thalweg_pace::Settings;

use crate::Cluster;
use crate::cluster::noted;

const VALUES: usize = 500_000;

fn agent(name: &str, uplink: &str) -> AgentDaemon {
    let uplink: Rate = uplink.parse().expect("a rate");
    let socket = format!("thalweg-session-{}-{name}", std::process::id());
    let agent = AgentDaemon::start(AgentConfig {
        socket: std::env::temp_dir().join(socket),
        // Not that of the switch: what stays on a host is not paced.
        address: Ipv4Addr::new(127, 0, 0, 99),
        uplink,
        settings: Settings::default(),
        switches: Vec::new(),
        safeguards: Safeguards { state_dir: state_dir(), guardian: None },
        priorities: None,
        on_record: Box::new(|_| {}),
    });
    agent.expect("an agent starts")
}

fn state_dir() -> PathBuf {
    std::env::temp_dir().join("thalweg-session-state")
}

fn summed(session: &Session) -> Vec<f32> {
    let values = vec![session.rank() as f32 + 1.0; VALUES];
    session.all_reduce(values, Reduce::Sum).wait().expect("it ends").values
}

// spec: C-09, C-18 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "rates are kept in real time")]
fn sums_are_exact_and_no_faster_than_the_agent_says() {
    let cluster = Cluster::losing(0.0);
    let agent = agent("paced", "40mbit");
    let begin = Instant::now();
    let sums = cluster.run(
        2,
        |config| config.pacing = Pacing::Scheduled { agent: agent.socket().into() },
        |session| (0..2).map(|_| summed(session)).collect::<Vec<_>>(),
    );
    let took = begin.elapsed();
    assert!(sums.iter().flatten().all(|sum| *sum == vec![3.0; VALUES]));
    // Both ranks are on this host: 8 MB and more at 40 Mbps take 1.6 s, less what leaves before a burst
    // is noticed and what a late host may make up for.
    assert!(took >= Duration::from_millis(1_400), "{took:?}");
}

// spec: C-11 sockets
#[test]
fn a_session_whose_agent_goes_is_told_and_goes_on() {
    let cluster = Cluster::losing(0.0);
    let agent = agent("leaves", "1gbit");
    let socket = agent.socket().to_owned();
    let agent = std::sync::Mutex::new(Some(agent));
    let noted = noted();
    let jobs = std::sync::Mutex::new(Vec::new());
    let sums = cluster.run(
        2,
        |config| {
            jobs.lock().expect("nobody panics").push(config.job.clone());
            config.pacing = Pacing::Scheduled { agent: socket.clone() };
        },
        |session| {
            let before = summed(session);
            drop(agent.lock().expect("nobody panics").take());
            (before, summed(session), summed(session))
        },
    );
    let expected = vec![3.0; VALUES];
    for (first, second, third) in &sums {
        assert!(*first == expected && *second == expected && *third == expected);
    }
    let job = jobs.lock().expect("nobody panics")[0].clone();
    let is_reported =
        |event: Event| event.field("job") == Some(&job) && event.field("event") == Some("unpaced");
    assert!(noted.try_iter().any(is_reported));
}

/// An agent that limits everybody to 1 Mbps, and then hangs: it reads nothing and says nothing.
fn hung_agent(name: &str) -> PathBuf {
    let socket = format!("thalweg-session-{}-{name}", std::process::id());
    let socket = std::env::temp_dir().join(socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::thread::spawn(move || {
        let mut held: Vec<UnixStream> = Vec::new();
        for stream in listener.incoming().flatten() {
            let mut join = String::new();
            let _ = BufReader::new(&stream).read_line(&mut join);
            let welcome = r#"{"say":"welcome","version":1,"slot_us":60000,"idle_bps":1000000}"#;
            let _ = writeln!(&stream, "{welcome}");
            held.push(stream);
        }
    });
    socket
}

// spec: E-14 sockets
#[test]
#[expect(clippy::disallowed_methods, reason = "limits end in real time")]
fn a_session_whose_agent_hangs_sends_freely_after_a_second() {
    let cluster = Cluster::losing(0.0);
    let socket = hung_agent("hangs");
    let begin = Instant::now();
    let noted = noted();
    let jobs = std::sync::Mutex::new(Vec::new());
    let sums = cluster.run(
        2,
        |config| {
            jobs.lock().expect("nobody panics").push(config.job.clone());
            config.pacing = Pacing::Scheduled { agent: socket.clone() };
        },
        |session| (0..4).map(|_| summed(session)).collect::<Vec<_>>(),
    );
    let took = begin.elapsed();
    let _ = std::fs::remove_file(&socket);
    assert!(sums.iter().flatten().all(|sum| *sum == vec![3.0; VALUES]));
    // 8 MB of each rank would take 64 s.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let job = jobs.lock().expect("nobody panics")[0].clone();
    let is_reported =
        |event: Event| event.field("job") == Some(&job) && event.field("event") == Some("unpaced");
    assert!(noted.try_iter().any(is_reported));
}

#[test]
fn a_session_without_its_agent_does_not_begin() {
    let cluster = Cluster::losing(0.0);
    let mut config = cluster.config("nobody", 0, 1);
    config.pacing = Pacing::Scheduled { agent: "no-such-agent".into() };
    let error = Session::join(config).err().expect("there is no agent").to_string();
    assert!(error.contains("start one with `thalweg agent`"), "{error}");
}
