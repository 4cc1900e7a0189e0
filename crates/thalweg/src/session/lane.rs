//! The sending threads of a session.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thalweg_control::{Access, AttendConfig, Attendance, Departure, Welcome, random};
use thalweg_core::NodeId;
use thalweg_net::{
    Driver, DriverConfig, Endpoint, EndpointConfig, Network, OpenError, PORTS_PER_NODE, Peers,
    mtu_of, shard_of,
};
use thalweg_stack::TrainingHost;
use thalweg_values::Tensor;

use super::SessionConfig;
use super::spread::{Spread, parts_of};
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

    /// Chooses the threads for the next sum, of this number of bytes, by the parts that it has: those that were given
    /// least. The first of them is the same whatever the length, so that ranks whose calls differ meet at a thread, which
    /// compares them.
    // spec: A-35, F-04
    fn choose(&mut self, bytes: u64) -> Vec<usize> {
        let mut threads: Vec<usize> = (0..self.bytes.len()).collect();
        threads.sort_by_key(|thread| self.bytes[*thread]);
        threads.truncate(parts_of(bytes, threads.len()));
        for thread in &threads {
            let part = bytes / threads.len() as u64;
            self.bytes[*thread] = self.bytes[*thread].saturating_add(part);
        }
        threads
    }
}

impl Lanes {
    /// Starts all threads, and waits until everybody is there.
    pub fn join(config: &SessionConfig) -> Result<(Lanes, Arc<Welcome>), Error> {
        let given = Mutex::new(Given::new(1));
        // Those that have started leave when a later one cannot join.
        let mut all = Lanes { lanes: Vec::new(), given, end: Arc::default() };
        let (first, joined) = Lane::start(config, 0, &all.end)?;
        all.lanes.push(first);
        let Joined { welcome } = joined.wait()?;
        // Ranks of one host alone send nothing.
        let hosts = welcome.roster.iter().map(|place| place.host).max();
        let threads = if hosts == Some(0) { 1 } else { welcome.threads() };
        let start = |thread| Lane::start(config, thread, &all.end);
        let others = (1..threads).map(start).collect::<Result<Vec<_>, Error>>()?;
        let (others, joins): (Vec<Lane>, Vec<Handle<Joined>>) = others.into_iter().unzip();
        all.lanes.extend(others);
        all.given = Mutex::new(Given::new(threads as usize));
        for joined in joins {
            joined.wait()?;
        }
        Ok((all, welcome))
    }

    pub fn first(&self) -> &Post {
        &self.lanes[0].post
    }

    pub fn get(&self, thread: usize) -> Option<&Post> {
        self.lanes.get(thread).map(|lane| &lane.post)
    }

    pub fn count(&self) -> u32 {
        // As many as the server announced, in 32 bits.
        self.lanes.len() as u32
    }

    /// All of them, by thread.
    pub fn posts(&self) -> Vec<Post> {
        self.lanes.iter().map(|lane| lane.post.clone()).collect()
    }

    /// Address of the first thread.
    pub fn address(&self) -> SocketAddr {
        self.lanes[0].address
    }

    /// Spreads a sum over threads: the same at every rank.
    pub fn spread(&self, tensor: &Tensor) -> Spread {
        let bytes = tensor.len() * tensor.element().bytes() as u64;
        let chosen = self.given.lock().unwrap_or_else(PoisonError::into_inner).choose(bytes);
        let part = bytes / chosen.len() as u64;
        let threads = chosen.into_iter().map(|thread| {
            let lane = &self.lanes[thread];
            lane.rein.iter().for_each(|rein| rein.ready(part));
            lane.post.clone()
        });
        Spread::new(tensor.len(), threads.collect())
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
        thread: u32,
        end: &Arc<End>,
    ) -> Result<(Lane, Handle<Joined>), Error> {
        let job = match thread {
            0 => config.job.clone(),
            thread => format!("{}#{thread}", config.job),
        };
        let settings = config.settings()?;
        let server = config.server_address()?;
        let endpoint = open(config, thread, server)?;
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
        end.add(post.clone());
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
            threads: config.threads_max(own.ip()),
            mtu_bytes: Some(config.mtu_bytes.unwrap_or_else(|| mtu_of(own.ip()))),
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

fn open(config: &SessionConfig, thread: u32, server: SocketAddr) -> Result<Endpoint, Error> {
    let mut bind = config.bind_address(server)?;
    if bind.port() > 0 {
        let port = shard_of(NodeId(bind.port().into()), u16::MAX, thread).0;
        let port = u16::try_from(port).map_err(|_| {
            let text = format!(
                "bind: {thread} more sending threads need ports above {bind}: choose a lower one"
            );
            Error::config(text)
        })?;
        bind.set_port(port);
    }
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
    let driver = DriverConfig {
        node: identity.node,
        wait: config.wait,
        send_buffer_most_bytes: Some(config.send_buffer_bytes),
        ..DriverConfig::default()
    };
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
        assert_eq!(chosen, [0, 1, 2, 2, 2, 2, 1, 1].map(|thread| [thread]));
        assert_eq!(given.bytes, [90, 65, 80]);
    }

    // spec: F-04 machine
    #[test]
    fn a_long_sum_goes_to_several_threads_and_begins_where_a_short_one_would() {
        let mut given = Given::new(3);
        assert_eq!(given.choose(100), [0]);
        assert_eq!(given.choose(6 << 20), [1, 2, 0]);
        assert_eq!(given.bytes, [(2 << 20) + 100, 2 << 20, 2 << 20]);
        let mut other = Given { bytes: given.bytes.clone() };
        assert_eq!(given.choose(1_200_000), [1, 2]);
        assert_eq!(other.choose(1), [1]);
    }
}
