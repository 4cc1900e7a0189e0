//! The sending threads of a session.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thalweg_control::{Access, AttendConfig, Attendance, Welcome, random};
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, Peers};
use thalweg_stack::TrainingHost;

use super::SessionConfig;
use crate::engine::{
    Command, Control, End, Engine, HostDriver, Identity, Joined, Patience, Post, Shared, lock,
};
use crate::error::{Error, ErrorKind};
use crate::handle::pair;
use crate::lossy::Lossy;
use crate::pacing::Rein;

/// One sending thread: a socket, an engine, and a job of its own, so that its fragments have numbers
/// of their own.
struct Lane {
    post: Post,
    control: Control,
    engine: Option<JoinHandle<()>>,
    /// What obeys the agent of the host, if the session does.
    rein: Option<Rein>,
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
        if config.threads == 0 {
            return Err(Error::config("threads is 0: a session needs at least one"));
        }
        let end = Arc::<End>::default();
        let (first, welcome) = Lane::join(config, config.job.clone(), &end)?;
        let mut lanes = vec![first];
        for thread in 1..config.threads {
            lanes.push(Lane::join(config, format!("{}#{thread}", config.job), &end)?.0);
        }
        let given = Mutex::new(Given::new(lanes.len()));
        Ok((Lanes { lanes, given, end }, welcome))
    }

    pub fn first(&self) -> &Post {
        &self.lanes[0].post
    }

    pub fn get(&self, thread: usize) -> Option<&Post> {
        self.lanes.get(thread).map(|lane| &lane.post)
    }

    /// Chooses the least loaded thread, for a sum of this number of bytes: the same at every rank.
    pub fn choose(&self, bytes: u64) -> &Post {
        let least = self.given.lock().unwrap_or_else(PoisonError::into_inner).choose(bytes);
        if let Some(rein) = &self.lanes[least].rein {
            rein.ready(bytes);
        }
        &self.lanes[least].post
    }

    /// Leaves all jobs when everything that was begun has ended.
    pub fn leave(&mut self) -> Result<(), Error> {
        let ask = |lane: &Lane| {
            let (handle, reply) = pair(|(): ()| Ok(()));
            lane.post.send(Command::Leave(reply));
            handle
        };
        let handles: Vec<_> = self.lanes.iter().map(ask).collect();
        let left: Vec<_> = handles.into_iter().map(|handle| handle.wait()).collect();
        self.end();
        left.into_iter().collect()
    }

    fn end(&mut self) {
        for lane in &mut self.lanes {
            if let Some(attendance) = lock(&lane.control).take() {
                attendance.leave();
            }
            if let Some(engine) = lane.engine.take() {
                // What it died of, its commands were told.
                let _ = engine.join();
            }
        }
    }
}

impl Drop for Lanes {
    /// Leaves without waiting for what is under way.
    fn drop(&mut self) {
        for lane in self.lanes.iter().filter(|lane| lane.engine.is_some()) {
            let (_, reply) = pair(|(): ()| Ok(()));
            lane.post.send(Command::Leave(reply));
        }
        self.end();
    }
}

impl Lane {
    fn join(
        config: &SessionConfig,
        job: String,
        end: &Arc<End>,
    ) -> Result<(Lane, Arc<Welcome>), Error> {
        let settings = config.settings()?;
        let server = config.server_address()?;
        let endpoint = open(config, server)?;
        let own = endpoint.local_address();
        let network = Network::of(own.ip());
        let (Some(node), Some(_)) = (network.node(own), network.node(server)) else {
            return Err(Error::other_network(own, server));
        };
        let switch = config.switch_node(network)?;
        let identity = Identity { rank: config.rank, node };
        let mut driver = driver(config, endpoint, network, identity)?;
        let rein = Rein::join(config, &job, server, &mut driver)?;
        let patience =
            Patience { stall_after: settings.stall_after, give_up_after: settings.patience };
        let (joined, joining) = pair(|joined: Joined| Ok(joined));
        let control = Control::default();
        let shared = Shared {
            control: Arc::clone(&control),
            notes: Arc::clone(&config.notes),
            end: Arc::clone(end),
            window: config.window,
        };
        let (post, engine) = Engine::start(driver, identity, patience, shared, joining)?;
        let lane = Lane { post: post.clone(), control, engine: Some(engine), rein };
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
            patience: settings.patience,
            settings,
        };
        // What the engine has to answer may come before this thread goes on: then it waits for the channel.
        let mut control = lock(&lane.control);
        let attendance =
            Attendance::start(attend, move |event| post.send(Command::Control(event)))?;
        *control = Some(attendance);
        drop(control);
        let Joined { welcome } = joined.wait()?;
        Ok((lane, welcome))
    }
}

fn open(config: &SessionConfig, server: SocketAddr) -> Result<Endpoint, Error> {
    let endpoint = EndpointConfig {
        bind: config.bind_address(server)?,
        paths: config.paths,
        offload: config.offload,
        send_buffer_bytes: config.send_buffer_bytes,
        ..EndpointConfig::default()
    };
    Ok(Endpoint::open_block(&endpoint)?)
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
