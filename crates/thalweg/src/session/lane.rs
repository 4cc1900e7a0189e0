//! The sending threads of a session.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thalweg_control::{Access, AttendConfig, Attendance, JobTree, Welcome, random};
use thalweg_core::{FRAME_OVERHEAD_BYTES, NodeId, body_bytes_of_mtu};
use thalweg_net::{Driver, DriverConfig, Endpoint, Network, Peers, mtu_of};
use thalweg_pace::gate::Framing;
use thalweg_stack::TrainingHost;
use thalweg_values::Tensor;

use super::SessionConfig;
use super::ports::open_all;
use super::route::Routes;
use super::spread::{Spread, parts_of};
use crate::engine::{
    Command, Control, Deadlines, End, Engine, HostDriver, Identity, Joined, Leaving, Post, Shared,
    lock, ring_of,
};
use crate::error::{Error, ErrorKind};
use crate::events::Notes;
use crate::handle::{Handle, pair};
use crate::lossy::Lossy;
use crate::pacing::{Hosts, PacedSession, PacedSum};
use crate::policy::Collective;
use crate::tap::Tapped;

/// One sending thread: a socket, an engine, and a tree of the job, so that its fragments have numbers of their own.
struct Lane {
    post: Post,
    engine: Option<JoinHandle<()>>,
}

/// All sending threads, which the rank has joined with as one. The first one also carries everything that is not a sum, and
/// speaks for the rank.
// spec: F-04
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Address of the first thread.
    address: SocketAddr,
    /// The control channel of the rank.
    control: Control,
    /// Number of operations that the rank has ended. Known once it leaves.
    operations: Option<u64>,
    given: Mutex<Given>,
    /// Set if the session obeys the agent of its host.
    paced: Option<PacedSession>,
    /// Set when one of them fails.
    pub(super) end: Arc<End>,
}

/// The work that each sending thread was given.
///
/// Every thread has a tree of its own, so a sum ends only if all ranks give it to the same thread. They agree
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

/// Settings and handles that all sending threads of a rank begin with.
struct Start<'a> {
    config: &'a SessionConfig,
    server: SocketAddr,
    /// Address of the first thread.
    address: SocketAddr,
    network: Network,
    switch: Option<NodeId>,
    deadlines: Deadlines,
    control: Control,
    routes: Arc<Routes>,
    end: Arc<End>,
}

impl Lanes {
    /// Joins with all threads that all ranks can use, and waits until everybody is there.
    /// They end by the given end.
    pub fn join(config: &SessionConfig, end: Arc<End>) -> Result<(Lanes, Arc<Welcome>), Error> {
        let server = config.server_address()?;
        let endpoints = open_all(config, server)?;
        let address = endpoints[0].local_address();
        let network = Network::of(address.ip());
        let start = Start {
            config,
            server,
            address,
            network,
            switch: config.switch_node(network)?,
            deadlines: Deadlines::of(&config.settings()?),
            control: Control::default(),
            routes: Arc::default(),
            end,
        };
        let nodes = endpoints.iter().map(|endpoint| start.node(endpoint));
        let nodes = nodes.collect::<Result<Vec<_>, Error>>()?;
        // Those that have started leave when a later one does not.
        let mut all = Lanes {
            lanes: Vec::new(),
            address,
            control: Arc::clone(&start.control),
            operations: None,
            given: Mutex::new(Given::new(1)),
            paced: PacedSession::join(config, server)?,
            end: Arc::clone(&start.end),
        };
        let mut unused = (0..).zip(endpoints);
        let joined = all.add(&start, unused.next())?;
        start.attend(&nodes)?;
        all.end.attend();
        let joined = joined.wait()?;
        let welcome = Arc::clone(&joined.welcome);
        let threads = welcome.trees();
        // The sockets of those that others do not have are closed.
        let others = (1..threads).map(|_| all.add(&start, unused.next()));
        let others = others.collect::<Result<Vec<_>, Error>>()?;
        all.given = Mutex::new(Given::new(threads as usize));
        for joined in others {
            joined.wait()?;
        }
        if let Some(paced) = &all.paced {
            let hosts = welcome.is_leader(config.rank).then(|| start.hosts(&joined));
            paced.declare(hosts.flatten(), welcome.has_switch);
        }
        Ok((all, welcome))
    }

    /// Starts the next thread on its socket. The handle ends when it has its place in the job.
    fn add(
        &mut self,
        start: &Start,
        socket: Option<(u32, Endpoint)>,
    ) -> Result<Handle<Joined>, Error> {
        let text = "the server counts more sending threads than the rank offers";
        let (thread, endpoint) = socket.ok_or_else(|| Error::internal(text))?;
        let (lane, joined) = start.thread(thread, endpoint, self.paced.as_ref())?;
        self.lanes.push(lane);
        Ok(joined)
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
        self.address
    }

    /// Spreads a sum over threads: the same at every rank.
    pub fn spread(&self, tensor: &Tensor) -> Spread {
        let bytes = tensor.len() * tensor.element().bytes() as u64;
        let chosen = self.given.lock().unwrap_or_else(PoisonError::into_inner).choose(bytes);
        let numbering = (self.first().clone(), chosen.contains(&0));
        let threads = chosen.into_iter().map(|thread| self.lanes[thread].post.clone());
        Spread::new(tensor.len(), threads.collect(), numbering)
    }

    /// Tells the agent of the host about a sum, if the session obeys it, until the sum ends.
    // spec: C-17
    pub fn pace(&self, tensor: &Tensor, collective: Collective) -> Option<PacedSum> {
        let values = tensor.len();
        self.paced.as_ref()?.ready(collective, values, values * tensor.element().bytes() as u64)
    }

    /// Ends everything that is under way, here and at all other ranks. Does not wait.
    // spec: E-03, F-04
    pub fn abort(&self, reason: &str) {
        // The others end with the first one.
        self.first().send(Command::Abort(reason.to_owned()));
    }

    /// Leaves the job when everything that was begun has ended.
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
        for (thread, handle) in handles.into_iter().enumerate() {
            match handle.wait() {
                // The first one counts those of all.
                Ok(operations) if thread == 0 => self.operations = Some(operations),
                Ok(_) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }

    fn end(&mut self) {
        // Of a thread that broke down nothing is known, and it has failed the job.
        let operations = self.operations.unwrap_or(u64::MAX);
        let control = lock(&self.control).take();
        if let Some(control) = control {
            control.leave(operations).wait();
        }
        for lane in &mut self.lanes {
            if let Some(engine) = lane.engine.take() {
                // If it died, the replies of its commands have reported that.
                let _ = engine.join();
            }
        }
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

impl Start<'_> {
    fn node(&self, endpoint: &Endpoint) -> Result<NodeId, Error> {
        let own = endpoint.local_address();
        let node = self.network.node(own).filter(|_| self.network.node(self.server).is_some());
        node.ok_or_else(|| Error::other_network(own, self.server))
    }

    /// Starts a thread. The handle ends when it has its place in the job.
    fn thread(
        &self,
        thread: u32,
        endpoint: Endpoint,
        paced: Option<&PacedSession>,
    ) -> Result<(Lane, Handle<Joined>), Error> {
        let config = self.config;
        let (rank, node) = (config.rank, self.node(&endpoint)?);
        let identity = Identity { rank, thread, node, switch: self.switch };
        let mut driver = driver(config, endpoint, self.network, identity)?;
        if let Some(paced) = paced {
            paced.attach(&mut driver)?;
        }
        let (joined, joining) = pair(|joined: Joined| Ok(joined));
        let shared = Shared {
            control: Arc::clone(&self.control),
            notes: Notes::new(&config.job, rank),
            end: Arc::clone(&self.end),
            sending: config.sending(self.address.ip()),
            tagging: config.tagging.clone(),
            cancel: config.cancel.clone(),
        };
        let (post, engine) = Engine::start(driver, identity, self.deadlines, shared, joining)?;
        self.end.add(post.clone());
        self.routes.add(post.clone());
        Ok((Lane { post, engine: Some(engine) }, joined))
    }

    /// The hosts of the job, for the agent. `None` if one of them has no IPv4 address.
    // spec: C-18
    fn hosts(&self, joined: &Joined) -> Option<Hosts> {
        let Joined { welcome, paths, span_fragments } = joined;
        let address = |node: NodeId| match self.network.address(node)?.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        };
        let ranks = 0..welcome.roster.len() as u32;
        let leaders: Vec<u32> = ranks.filter(|rank| welcome.is_leader(*rank)).collect();
        let number = leaders.iter().position(|leader| *leader == self.config.rank)?;
        let leaders = leaders.iter().map(|leader| address(welcome.roster[*leader as usize].node));
        let leaders = leaders.collect::<Option<Vec<_>>>()?;
        // Seats of a set-up are those of leaders.
        let first_hops = paths.iter().map(|path| address(path.first_hop)).collect::<Option<_>>()?;
        let trees = (0..welcome.trees()).map(|tree| JobTree { job: welcome.ticket.job, tree }.id());
        let mtu_bytes = self.config.mtu_bytes.unwrap_or_else(|| mtu_of(self.address.ip()));
        Some(Hosts {
            number,
            leaders,
            first_hops,
            span_fragments: u64::from(*span_fragments),
            aggregation: trees.clone().collect(),
            rings: trees.map(ring_of).collect(),
            framing: Framing {
                segment_bytes: body_bytes_of_mtu(mtu_bytes).into(),
                overhead_bytes: FRAME_OVERHEAD_BYTES,
            },
        })
    }

    /// Attends the job with all threads that the rank offers, at these nodes.
    // spec: F-04
    fn attend(&self, nodes: &[NodeId]) -> Result<(), Error> {
        let (config, own) = (self.config, self.address);
        let attend = AttendConfig {
            access: Access {
                endpoint: config.server.clone(),
                token: config.token.clone(),
                tls_ca: config.tls_ca.clone(),
            },
            name: config.job.clone(),
            workers: config.ranks,
            rank: config.rank,
            node: nodes[0],
            more_nodes: nodes[1..].to_vec(),
            life: random::draw().map_err(Error::system("the system gives no random numbers"))?,
            host: config.host_identity(own),
            switch: self.switch,
            mtu_bytes: Some(config.mtu_bytes.unwrap_or_else(|| mtu_of(own.ip()))),
            ticket: None,
            settings: config.settings()?,
        };
        let routes = Arc::clone(&self.routes);
        // What threads have to answer may come before this one goes on: then it waits for the channel.
        let mut control = lock(&self.control);
        *control = Some(Attendance::start(attend, move |tree, event| routes.pass(tree, event))?);
        Ok(())
    }
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
    let host = Tapped::new(host, config.tap.clone());
    let host = Lossy::new(host, config.drop_share, identity.rank.into());
    let host = host.with_limit(config.packet_limit.clone());
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
