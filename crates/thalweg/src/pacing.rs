//! A session that sends when the agent of its host says so.

mod relations;
mod shared;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thalweg_control::local::{AgentLink, FromJob, Obeys, ToJob, Unrelated};
use thalweg_core::{Span, Time};
use thalweg_net::{Network, Waker};
use thalweg_stack::TrainingHost;

use crate::engine::HostDriver;
use crate::error::{Error, ErrorKind};
use crate::events::{Note, Notes};
use crate::lossy::Lossy;
use crate::policy::{Collective, Policy};
use crate::session::SessionConfig;
use crate::tap::Tapped;
pub(crate) use relations::Hosts;
use shared::{Counts, Paced, Shared};

/// Socket on which an agent listens by default.
pub const AGENT_SOCKET: &str = "/run/thalweg-agent.sock";

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

/// Time between two reports to the agent of how far the session is.
const REPORT_EVERY: Duration = Duration::from_millis(3);

/// A session that obeys the agent of its host, with all its sending threads. Lets go when dropped.
pub(crate) struct PacedSession {
    shared: Arc<Shared>,
    /// Wakes the drivers of all threads.
    wakers: Arc<Mutex<Vec<Waker>>>,
    began: Instant,
    collective: Collective,
    /// Known when all ranks are there. `None` where this one sends no sums: another one of its host does.
    hosts: OnceLock<Option<Hosts>>,
    should_stop: Arc<AtomicBool>,
    reporter: Option<JoinHandle<()>>,
}

/// A sum that the agent knows of. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PacedSum(Arc<Shared>);

impl Drop for PacedSum {
    fn drop(&mut self) {
        self.0.end_sum();
    }
}

impl PacedSession {
    // spec: C-09, C-18
    /// Joins the agent, if the session obeys one: once, under the name of its job, which all its processes on the host
    /// share.
    #[expect(clippy::disallowed_methods, reason = "threads need a common clock")]
    pub(crate) fn join(
        config: &SessionConfig,
        server: SocketAddr,
    ) -> Result<Option<PacedSession>, Error> {
        let Pacing::Scheduled { agent } = &config.pacing else { return Ok(None) };
        let wrong = |error: std::io::Error| {
            let agent = agent.display();
            let text = format!("no agent at {agent}: {error}; start one with `thalweg agent`");
            Error::caused(ErrorKind::System, text, error)
        };
        if server.is_ipv6() {
            return Err(Error::config(format!("{server} is IPv6: agents name hosts by IPv4")));
        }
        let shared = Arc::new(Shared::new(Network::of(server.ip())));
        let wakers = Arc::<Mutex<Vec<Waker>>>::default();
        let notes = Notes::new(&config.job, config.rank);
        let (heard, refused, woken) = (Arc::clone(&shared), notes.clone(), Arc::clone(&wakers));
        let hear = move |words: Option<ToJob>| {
            hear(&heard, &refused, words);
            lock(&woken).iter().for_each(Waker::wake);
        };
        let obeys = Obeys { classes: true, leaf: false };
        let link = AgentLink::join(agent, &config.job, obeys, hear).map_err(wrong)?;
        let should_stop = Arc::new(AtomicBool::new(false));
        let (counted, stop) = (Arc::clone(&shared), Arc::clone(&should_stop));
        let body = move || {
            if report(&link, &counted, &stop, &notes).is_err() {
                counted.release();
                notes.send(Note::Unpaced("its connection broke".into()));
            }
        };
        let reporter = thread::Builder::new().name("thalweg-pacing".into()).spawn(body);
        let reporter = Some(reporter.map_err(Error::system("cannot start a thread"))?);
        Ok(Some(PacedSession {
            shared,
            wakers,
            began: Instant::now(),
            collective: config.policy.collective,
            hosts: OnceLock::new(),
            should_stop,
            reporter,
        }))
    }

    // spec: C-16, C-18
    /// Has a sending thread obey: its driver counts what leaves for whom, and its packets get the class of the job.
    pub(crate) fn attach(&self, driver: &mut HostDriver) -> Result<(), Error> {
        let waker = driver.waker().map_err(Error::system("cannot make a wake-up"))?;
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let session = Time::ZERO + Span::from_ns(elapsed);
        let paced = Paced::new(Arc::clone(&self.shared), session, driver.now());
        driver.set_pacer(Some(Box::new(paced.clone())));
        let follow = |lossy: &mut Lossy<Tapped<TrainingHost>>, _| {
            lossy.machine_mut().machine_mut().follow_class(Box::new(paced));
        };
        driver.command(follow, |_| {});
        lock(&self.wakers).push(waker);
        Ok(())
    }

    // spec: C-05, C-06, C-18
    /// All ranks are there. `hosts` is `None` where another rank of this host sends the sums of both.
    pub(crate) fn declare(&self, hosts: Option<Hosts>, has_switch: bool) {
        let collective = self.resolved(self.collective, has_switch);
        let declared = hosts.iter().flat_map(|hosts| hosts.declared(collective)).collect();
        let related = hosts.as_ref().map_or(&[][..], |hosts| hosts.related(collective));
        self.shared.declare(declared, related);
        let _ = self.hosts.set(hosts);
    }

    fn resolved(&self, collective: Collective, has_switch: bool) -> Collective {
        Policy::default().collective(collective).resolved(has_switch).collective
    }

    // spec: C-17
    /// Notes that a sum of this number of values was handed over, of `bytes` bytes in all.
    pub(crate) fn ready(
        &self,
        collective: Collective,
        values: u64,
        bytes: u64,
    ) -> Option<PacedSum> {
        let hosts = self.hosts.get()?.as_ref()?;
        self.shared.ready(&hosts.sum(collective, values, bytes));
        Some(PacedSum(Arc::clone(&self.shared)))
    }
}

impl Drop for PacedSession {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
        self.shared.release();
        if let Some(reporter) = self.reporter.take() {
            // A panic was printed by the thread itself.
            let _ = reporter.join();
        }
    }
}

/// Takes in a message of the agent. `None` if the agent has hung up.
fn hear(shared: &Shared, notes: &Notes, words: Option<ToJob>) {
    match words {
        Some(ToJob::Welcome { idle_bps, slot_us, by_class, .. }) => {
            shared.begin(idle_bps, slot_us, by_class);
        }
        Some(ToJob::Rate { flow, bps, bytes, within_us }) => {
            shared.grant(flow, bps, bytes, within_us);
        }
        // A session marks its own packets.
        Some(ToJob::Leaf { .. }) => {}
        Some(ToJob::Class { class }) => shared.set_class(class),
        Some(ToJob::Hold { is_held }) => shared.hold(is_held),
        Some(ToJob::Enter { bytes, within_us }) => shared.enter(bytes, within_us),
        Some(ToJob::Refused { reason }) => notes.send(Note::Unpaced(reason)),
        None => shared.release(),
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
            let Counts { flow, is_announced, ready, sent, unrelated } = counts;
            if !is_announced {
                let Some(announced) = shared.announcement(flow) else { continue };
                if !link.say(&FromJob::Flow(announced))? {
                    break;
                }
                shared.announce(flow);
            }
            // What is handed over beside sums is not known before it leaves.
            let unrelated = Unrelated { ready: unrelated, sent: unrelated };
            if reported.get(&flow) != Some(&(ready, sent))
                && link.say(&FromJob::Report { flow, ready, sent, unrelated })?
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

/// A thread that panicked while it held them did not change them.
fn lock(wakers: &Mutex<Vec<Waker>>) -> MutexGuard<'_, Vec<Waker>> {
    wakers.lock().unwrap_or_else(PoisonError::into_inner)
}
