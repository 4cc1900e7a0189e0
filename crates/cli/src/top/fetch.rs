//! Asking daemons.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use ureq::Agent;

use super::picture::{Reading, Watched};
use thalweg::metrics::parse;

/// Longest time for a daemon to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Result of asking one of several daemons.
pub(super) struct Answer {
    /// Index of the daemon.
    pub daemon: usize,
    /// Reading of its metrics, or the error.
    pub result: Result<Reading, String>,
    /// When.
    pub at: SystemTime,
}

/// Asks each daemon again and again, each on its own thread: one that is silent holds up no other.
pub(super) fn again_and_again(addresses: &[String], interval: Duration) -> Receiver<Answer> {
    let (answers, answered) = channel();
    for (daemon, address) in addresses.iter().enumerate() {
        let (answers, address) = (answers.clone(), address.clone());
        thread::spawn(move || {
            let agent = agent();
            // Until nobody listens.
            while answers.send(answer(&agent, daemon, &address)).is_ok() {
                sleep(interval);
            }
        });
    }
    answered
}

/// Asks all daemons, and once more after the interval.
pub(super) fn twice(addresses: &[String], interval: Duration) -> Vec<Watched> {
    let ask = |daemon: usize, address: &String| {
        let agent = agent();
        let mut watched = Watched::new(address);
        watched.note(answer(&agent, daemon, address));
        sleep(interval);
        watched.note(answer(&agent, daemon, address));
        watched
    };
    thread::scope(|scope| {
        let daemons = addresses.iter().enumerate();
        let threads: Vec<_> =
            daemons.map(|(daemon, address)| scope.spawn(move || ask(daemon, address))).collect();
        threads.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}

fn agent() -> Agent {
    Agent::config_builder().timeout_global(Some(ANSWER_WITHIN)).build().new_agent()
}

#[expect(clippy::disallowed_methods, reason = "rates are over real time")]
fn answer(agent: &Agent, daemon: usize, address: &str) -> Answer {
    let fetched = agent.get(format!("http://{address}/metrics")).call();
    let text = fetched.and_then(|mut response| response.body_mut().read_to_string());
    let result = match text {
        Ok(text) => Reading::new(Instant::now(), parse(&text))
            .ok_or_else(|| "another program listens there".to_owned()),
        Err(ureq::Error::Io(error)) => Err(in_words(&error)),
        Err(error) => Err(error.to_string()),
    };
    Answer { daemon, result, at: SystemTime::now() }
}

/// The error without its number.
fn in_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[expect(clippy::disallowed_methods, reason = "the thread has nothing else to do")]
fn sleep(interval: Duration) {
    thread::sleep(interval);
}
