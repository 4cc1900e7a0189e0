//! A session that sends when the agent of its host says so.

mod shared;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thalweg_control::local::{AgentLink, Announced, Dependence, FromJob, ToJob};
use thalweg_core::Reports;
use thalweg_net::{Driver, Network};

use crate::error::{Error, ErrorKind};
use crate::events::{Note, Notes};
use crate::session::SessionConfig;
use shared::{Counts, Paced, Shared};

/// Source of the times at which a session sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Pacing {
    /// No source: packets leave at once.
    #[default]
    Off,
    /// The agent of the host (`thalweg agent`), which listens on this socket. A session whose agent ends
    /// or is silent for a second goes on, and sends at once.
    Scheduled {
        /// The socket.
        agent: PathBuf,
    },
}

/// How often the agent is told how far the session is.
const REPORT_EVERY: Duration = Duration::from_millis(3);

/// Holds a sending thread to what the agent says. Lets go when dropped.
pub(crate) struct Rein {
    shared: Arc<Shared>,
    should_stop: Arc<AtomicBool>,
    reporter: Option<JoinHandle<()>>,
}

impl Rein {
    // spec: C-09
    /// Joins the agent, if the session obeys one, and puts its pacer into the driver. Packets count as flows to the hosts
    /// that they leave for, which the agent hears of with their first packets.
    pub(crate) fn join<M: Reports>(
        config: &SessionConfig,
        thread: u32,
        server: SocketAddr,
        driver: &mut Driver<M>,
    ) -> Result<Option<Rein>, Error> {
        let Pacing::Scheduled { agent } = &config.pacing else { return Ok(None) };
        let wrong = |error: std::io::Error| {
            let agent = agent.display();
            let text = format!("no agent at {agent}: {error}; start one with `thalweg agent`");
            Error::caused(ErrorKind::System, text, error)
        };
        if server.is_ipv6() {
            return Err(Error::config(format!("{server} is IPv6: agents name hosts by IPv4")));
        }
        let waker = driver.waker().map_err(Error::system("cannot make a wake-up"))?;
        let shared = Arc::new(Shared::new(Network::of(server.ip())));
        let notes = Notes::new(&config.job, config.rank);
        let (heard, refused) = (Arc::clone(&shared), notes.clone());
        let hear = move |words: Option<ToJob>| {
            match words {
                Some(ToJob::Welcome { idle_bps, .. }) => heard.begin(idle_bps),
                Some(ToJob::Rate { flow, bps, bytes, within_us }) => {
                    heard.grant(flow, bps, bytes, within_us);
                }
                Some(ToJob::Refused { reason }) => refused.send(Note::Unpaced(reason)),
                Some(ToJob::Class { .. } | ToJob::Hold { .. } | ToJob::Enter { .. }) => {}
                None => heard.release(),
            }
            waker.wake();
        };
        // Ranks of one host are told apart, and so are their threads; those that share memory have one that sends.
        let thread = if thread == 0 { String::new() } else { format!("#{thread}") };
        let name = format!("{}{thread}/{}", config.job, config.rank);
        let link = AgentLink::join(agent, &name, false, hear).map_err(wrong)?;
        driver.set_pacer(Some(Box::new(Paced(Arc::clone(&shared)))));
        let should_stop = Arc::new(AtomicBool::new(false));
        let (counted, stop) = (Arc::clone(&shared), Arc::clone(&should_stop));
        let body = move || {
            if report(&link, &counted, &stop, &notes).is_err() {
                counted.release();
                notes.send(Note::Unpaced("its connection broke".into()));
            }
        };
        let reporter = thread::Builder::new().name("thalweg-rein".into()).spawn(body);
        let reporter = Some(reporter.map_err(Error::system("cannot start a thread"))?);
        Ok(Some(Rein { shared, should_stop, reporter }))
    }

    /// Notes that bytes were handed over.
    pub(crate) fn ready(&self, bytes: u64) {
        self.shared.ready(bytes);
    }
}

impl Drop for Rein {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
        self.shared.release();
        if let Some(reporter) = self.reporter.take() {
            // A panic was printed by the thread itself.
            let _ = reporter.join();
        }
    }
}

/// Tells the agent how far the session is, until it is to stop.
#[expect(clippy::disallowed_methods, reason = "reports are made in real time")]
fn report(
    link: &AgentLink,
    shared: &Shared,
    should_stop: &AtomicBool,
    notes: &Notes,
) -> std::io::Result<()> {
    let (mut reported, mut was_silent) = (BTreeMap::new(), false);
    while !should_stop.load(Ordering::Relaxed) {
        for counts in shared.counts() {
            let Counts { flow, to, is_announced, ready, sent } = counts;
            if !is_announced {
                if !link.say(&announced(flow, to))? {
                    break;
                }
                shared.announce(flow);
            }
            if reported.get(&flow) != Some(&(ready, sent))
                && link.say(&FromJob::Report { flow, ready, sent })?
            {
                reported.insert(flow, (ready, sent));
            }
        }
        let is_silent = shared.is_silent();
        if is_silent && !was_silent {
            notes.send(Note::Unpaced("it is silent".into()));
        }
        was_silent = is_silent;
        thread::sleep(REPORT_EVERY);
    }
    Ok(())
}

// spec: C-18
/// Announces a flow. Its counters are a guess: nobody knows yet where all that was handed over goes.
fn announced(flow: u32, to: Ipv4Addr) -> FromJob {
    let (relation, others) = (Dependence::Alone, Vec::new());
    FromJob::Flow(Announced { flow, to, volume: None, is_exact: false, relation, others })
}
