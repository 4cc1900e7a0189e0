//! The sending threads of a session.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thalweg_control::{Access, AttendConfig, Attendance, Departure, Welcome, random};
use thalweg_net::{
    Driver, DriverConfig, Endpoint, EndpointConfig, Network, OpenError, PORTS_PER_NODE, Peers,
};
use thalweg_stack::TrainingHost;

use super::SessionConfig;
use crate::engine::{
    Command, Control, Deadlines, End, Engine, HostDriver, Identity, Joined, Leaving, Post, Shared,
    lock,
};
use crate::error::{Error, ErrorKind};
use crate::events::Notes;
use crate::handle::{Handle, pair};
use crate::lossy::Lossy;
use crate::pacing::Rein;

/// One sending thread: a socket, an engine, and a job of its own, so that its fragments have numbers
/// of their own.
struct Lane {
    post: Post,
    address: SocketAddr,
    control: Control,
    engine: Option<JoinHandle<()>>,
    /// What obeys the agent of the host, if the session does.
    rein: Option<Rein>,
    /// Number of operations that it has ended. Known once it leaves.
    operations: Option<u64>,
}

/// All sending threads. The first one also carries everything that is not a sum.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    given: Mutex<Given>,
    /// Set when one of them fails.
    pub(super) end: Arc<End>,
}

/// The work that each sending thread was given.
///
/// Threads are jobs of their own, so a sum ends only if all ranks give it to the same thread. They agree
/// without a message because the choice depends on nothing but the lengths of all sums before it, which are
/// the same at every rank. What a thread has left to do is not: ranks finish sums at different moments, and
/// a rank that chose by it would wait for others that chose otherwise.
#[derive(Debug)]
struct Given {
    /// By thread.
    bytes: Vec<u64>,
}

impl Given {
    fn new(threads: usize) -> Given {
        Given { bytes: vec![0; threads] }
    }

    /// Chooses the thread for the next sum, of this number of bytes: the first of those that were given least.
    // spec: A-35
    fn choose(&mut self, bytes: u64) -> usize {
        let threads = 0..self.bytes.len();
        let least = threads.min_by_key(|&thread| self.bytes[thread]).unwrap_or(0);
        self.bytes[least] = self.bytes[least].saturating_add(bytes);
        least
    }
}

impl Lanes {
    /// Starts all threads, and waits until everybody is there.
    pub fn join(config: &SessionConfig) -> Result<(Lanes, Arc<Welcome>), Error> {
        let given = Mutex::new(Given::new(config.threads as usize));
        // Those that have started leave when a later one cannot join.
        let mut all = Lanes { lanes: Vec::new(), given, end: Arc::default() };
        let mut first = None;
        for thread in 0..config.threads {
            let job = match thread {
                0 => config.job.clone(),
                thread => format!("{}#{thread}", config.job),
            };
            let (lane, joined) = Lane::start(config, job, &all.end)?;
            all.lanes.push(lane);
            let Joined { welcome } = joined.wait()?;
            first.get_or_insert(welcome);
        }
        let welcome = first.ok_or_else(|| Error::internal("a session has no sending thread"))?;
        Ok((all, welcome))
    }

    pub fn first(&self) -> &Post {
        &self.lanes[0].post
    }

    pub fn get(&self, thread: usize) -> Option<&Post> {
        self.lanes.get(thread).map(|lane| &lane.post)
    }

    /// All of them, by thread.
    pub fn posts(&self) -> Vec<Post> {
        self.lanes.iter().map(|lane| lane.post.clone()).collect()
    }

    /// Address of the first thread.
    pub fn address(&self) -> SocketAddr {
        self.lanes[0].address
    }

    /// Chooses the least loaded thread, for a sum of this number of bytes: the same at every rank.
    pub fn choose(&self, bytes: u64) -> &Post {
        let least = self.given.lock().unwrap_or_else(PoisonError::into_inner).choose(bytes);
        if let Some(rein) = &self.lanes[least].rein {
            rein.ready(bytes);
        }
        &self.lanes[least].post
    }

    /// Ends everything that is under way, here and at all other ranks. Does not wait.
    // spec: E-03
    pub fn abort(&self, reason: &str) {
        for lane in &self.lanes {
            lane.post.send(Command::Abort(reason.to_owned()));
        }
    }

    /// Leaves all jobs when everything that was begun has ended.
    pub fn leave(&mut self) -> Result<(), Error> {
        let left = self.say_goodbye(Leaving::WhenDone);
        self.end();
        left
    }

    /// Has all threads leave, and waits until they are about to.
    pub fn say_goodbye(&mut self, how: Leaving) -> Result<(), Error> {
        let ask = |lane: &Lane| {
            let (handle, reply) = pair(|operations: u64| Ok(operations));
            lane.post.send(Command::Leave(how, reply));
            handle
        };
        let handles: Vec<_> = self.lanes.iter().map(ask).collect();
        let mut result = Ok(());
        for (lane, handle) in self.lanes.iter_mut().zip(handles) {
            match handle.wait() {
                Ok(operations) => lane.operations = Some(operations),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    fn end(&mut self) {
        let leave = |lane: &Lane| {
            // Of a thread that broke down nothing is known, and it has failed the job.
            let operations = lane.operations.unwrap_or(u64::MAX);
            Some(lock(&lane.control).take()?.leave(operations))
        };
        let departures: Vec<Departure> = self.lanes.iter().filter_map(leave).collect();
        departures.into_iter().for_each(Departure::wait);
        for lane in &mut self.lanes {
            if let Some(engine) = lane.engine.take() {
                // What it died of, its commands were told.
                let _ = engine.join();
            }
        }
    }

    /// Forgets all threads, in a process that does not have them: a child of the one that joined.
    pub fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.lanes));
    }
}

impl Drop for Lanes {
    /// Leaves without waiting for what is under way. Takes less than a second.
    fn drop(&mut self) {
        if self.lanes.iter().any(|lane| lane.engine.is_some()) {
            // A thread that is gone needs no goodbye.
            let _ = self.say_goodbye(Leaving::AtOnce);
        }
        self.end();
    }
}

impl Lane {
    /// Starts a thread. The handle ends when the rank has its place in the job.
    fn start(
        config: &SessionConfig,
        job: String,
        end: &Arc<End>,
    ) -> Result<(Lane, Handle<Joined>), Error> {
        let settings = config.settings()?;
        let server = config.server_address()?;
        let endpoint = open(config, server)?;
        let own = endpoint.local_address();
        let network = Network::of(own.ip());
        let (Some(node), Some(_)) = (network.node(own), network.node(server)) else {
            return Err(Error::other_network(own, server));
        };
        let switch = config.switch_node(network)?;
        let identity = Identity { rank: config.rank, node, switch };
        let mut driver = driver(config, endpoint, network, identity)?;
        let rein = Rein::join(config, &job, server, &mut driver)?;
        let deadlines = Deadlines::of(&settings);
        let (joined, joining) = pair(|joined: Joined| Ok(joined));
        let control = Control::default();
        let shared = Shared {
            control: Arc::clone(&control),
            notes: Notes::new(&config.job, config.rank),
            end: Arc::clone(end),
            window: config.window,
            cancel: config.cancel.clone(),
        };
        let (post, engine) = Engine::start(driver, identity, deadlines, shared, joining)?;
        let engine = Some(engine);
        let lane =
            Lane { post: post.clone(), address: own, control, engine, rein, operations: None };
        let attend = AttendConfig {
            access: Access {
                endpoint: config.server.clone(),
                token: config.token.clone(),
                tls_ca: config.tls_ca.clone(),
            },
            name: job,
            workers: config.ranks,
            rank: config.rank,
            node,
            life: random::draw().map_err(Error::system("the system gives no random numbers"))?,
            host: config.host_identity(own),
            switch,
            ticket: None,
            settings,
        };
        // What the engine has to answer may come before this thread goes on: then it waits for the channel.
        let mut control = lock(&lane.control);
        let attendance =
            Attendance::start(attend, move |event| post.send(Command::Control(event)))?;
        *control = Some(attendance);
        drop(control);
        Ok((lane, joined))
    }
}

fn open(config: &SessionConfig, server: SocketAddr) -> Result<Endpoint, Error> {
    let bind = config.bind_address(server)?;
    let endpoint = EndpointConfig {
        bind,
        paths: config.paths,
        offload: config.offload,
        send_buffer_bytes: config.send_buffer_bytes,
        ..EndpointConfig::default()
    };
    let Some(ports) = config.ports.clone().filter(|_| bind.port() == 0) else {
        return Ok(Endpoint::open_block(&endpoint)?);
    };
    let (first, last) = (*ports.start(), *ports.end());
    let is_whole = |port: &u16| {
        port.is_multiple_of(PORTS_PER_NODE) && *port > 0 && last - *port >= PORTS_PER_NODE - 1
    };
    let mut reason =
        String::from("it holds no block of eight ports that begins at a multiple of 8");
    for port in ports.filter(is_whole) {
        let bind = SocketAddr::new(bind.ip(), port);
        match Endpoint::open_block(&EndpointConfig { bind, ..endpoint.clone() }) {
            Ok(opened) => return Ok(opened),
            Err(error @ OpenError::Bind { .. }) => reason = format!("all are in use, {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    let text = format!("no free UDP port in {first} to {last}: {reason}; widen `ports`");
    Err(Error::new(ErrorKind::System, text))
}

fn driver(
    config: &SessionConfig,
    endpoint: Endpoint,
    network: Network,
    identity: Identity,
) -> Result<HostDriver, Error> {
    let flows = thalweg_flow::Endpoint::new(thalweg_flow::Config::default())
        .map_err(|error| Error::of(ErrorKind::Internal, error))?;
    let host = TrainingHost::new(identity.node, flows);
    let host = Lossy::new(host, config.drop_share, identity.rank.into());
    let driver = DriverConfig { node: identity.node, wait: config.wait, ..DriverConfig::default() };
    Ok(Driver::new(driver, endpoint, Peers::in_network(network), host)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: A-35 machine
    #[test]
    fn a_sum_goes_to_the_thread_that_was_given_least() {
        let mut given = Given::new(3);
        let lengths = [90, 60, 10, 10, 10, 50, 0, 5];
        let chosen = lengths.map(|bytes| given.choose(bytes));
        assert_eq!(chosen, [0, 1, 2, 2, 2, 2, 1, 1]);
        assert_eq!(given.bytes, [90, 65, 80]);
    }
}
