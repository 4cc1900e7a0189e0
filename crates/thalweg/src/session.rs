//! One rank's part in a job.

mod config;
mod team;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use thalweg_collective::mesh::{Call, Outcome};
use thalweg_control::{Access, AttendConfig, Attendance, Welcome};
use thalweg_core::Tensor;
use thalweg_net::{Driver, DriverConfig, Endpoint, EndpointConfig, Network, Peers};
use thalweg_stack::Host;

pub use self::config::{Note, SessionConfig};
use self::team::TeamThread;
use crate::counters::Counters;
use crate::engine::{Command, Control, Engine, Identity, Joined, Patience, Post, Sum, lock};
use crate::error::Error;
use crate::handle::{Handle, pair};
use crate::policy::{Collective, Policy, Reduce};
use crate::random;
use crate::value::{Array, Value};

/// One rank's part in a job.
///
/// All ranks make the same calls in the same order; they need not wait for each other. A call returns
/// at once, with a [`Handle`] to wait for; many operations may be on the way. Results of sums are the
/// same bits at every rank.
///
/// **Failures.** An operation that does not move is explained after a while ([`Note::Stalled`]): which
/// rank, which fragment, which link, since when. If that lasts, the job fails at every rank with the
/// same error. A switch or a server that is started again in time costs nothing but time.
pub struct Session {
    rank: u32,
    ranks: u32,
    policy: Policy,
    hosts: u32,
    post: Post,
    /// The ranks of this host, if there are several.
    team: Option<TeamThread>,
    control: Control,
    engine: Mutex<Option<JoinHandle<()>>>,
}

impl Session {
    /// Joins a job, and waits until all of its ranks are there.
    pub fn join(config: SessionConfig) -> Result<Session, Error> {
        let settings = config.settings()?;
        let server = config.server_address()?;
        let endpoint = open(&config, server)?;
        let network = Network::of(endpoint.local_address().ip());
        let own = endpoint.local_address();
        if network.node(server).is_none() {
            return Err(Error::Network { own, server });
        }
        let node = network.node(own).ok_or(Error::Network { own, server })?;
        let switch = config.switch_node(network)?;
        let identity = Identity { rank: config.rank, node };
        let driver = driver(&config, endpoint, network, identity)?;
        let control = Control::default();
        let (joined, joining) = pair(|joined: Joined| Ok(joined));
        let patience =
            Patience { stall_after: settings.stall_after, give_up_after: settings.patience };
        let notes = Arc::clone(&config.notes);
        let (post, engine) =
            Engine::start(driver, identity, patience, Arc::clone(&control), notes, joining)?;
        let attend = AttendConfig {
            access: Access {
                endpoint: config.server.clone(),
                token: config.token.clone(),
                tls_ca: config.tls_ca.clone(),
            },
            name: config.job.clone(),
            workers: config.ranks,
            rank: config.rank,
            node,
            host: config.host_identity(own),
            switch,
            life: random::draw()?,
            patience: settings.patience,
            settings,
        };
        let events = post.clone();
        let attendance =
            Attendance::start(attend, move |event| events.send(Command::Control(event)))
                .map_err(|error| Error::Config(error.to_string()))?;
        *lock(&control) = Some(attendance);
        let Joined { welcome } = joined.wait()?;
        let team = TeamThread::join(&config, &welcome, post.clone())?;
        Ok(Session {
            rank: config.rank,
            ranks: config.ranks,
            policy: config.policy,
            hosts: hosts(&welcome),
            post,
            team,
            control,
            engine: Mutex::new(Some(engine)),
        })
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// On how many hosts they are, as far as memory is shared.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Everybody gets the values of all ranks, combined.
    pub fn all_reduce<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
    ) -> Result<Handle<Vec<T>>, Error> {
        Ok(typed(self.all_reduce_array(T::into_array(values), how, self.policy.collective)?))
    }

    /// [`Session::all_reduce`] for values whose type is known at run time, with another collective than
    /// the session's.
    pub fn all_reduce_array(
        &self,
        array: Array,
        how: Reduce,
        via: Collective,
    ) -> Result<Handle<Array>, Error> {
        if self.ranks == 1 {
            return Ok(ready(array));
        }
        let divisor = if how == Reduce::Mean { self.ranks } else { 1 };
        match &self.team {
            Some(team) if self.hosts == 1 => Ok(team.all_reduce(array, how.combine(), divisor)),
            team => match (how, array.into_tensor()) {
                (Reduce::Sum | Reduce::Mean, Ok(tensor)) => Ok(match team {
                    Some(team) => team.sum(tensor, via, divisor),
                    None => self.sum(tensor, via, divisor),
                }),
                (_, Ok(tensor)) => Ok(self.reduce_in_mesh(Array::from_tensor(tensor), how)),
                (_, Err(array)) => Ok(self.reduce_in_mesh(array, how)),
            },
        }
    }

    /// Everybody gets its part of the values of all ranks, combined: `counts[r]` values for rank *r*.
    pub fn reduce_scatter<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
        counts: Vec<u64>,
    ) -> Result<Handle<Vec<T>>, Error> {
        let array = T::into_array(values);
        let (element, combine) = (array.element(), how.combine());
        let data = array.as_bytes().to_vec();
        let call = Call::ReduceScatter { element, how: combine, data, counts };
        let divisor = if how == Reduce::Mean { self.ranks } else { 1 };
        Ok(typed(self.call(call, move |outcome| {
            let mut array = Array::from_bytes(element, &bytes(outcome));
            if divisor > 1 {
                array.divide(divisor);
            }
            array
        })))
    }

    /// Everybody gets the values of every rank, which may be of different lengths.
    pub fn all_gather<T: Value>(&self, values: Vec<T>) -> Result<Handle<Vec<Vec<T>>>, Error> {
        let data = T::into_array(values).as_bytes().to_vec();
        Ok(self.call(Call::AllGather { data }, |outcome| parts::<T>(outcome)))
    }

    /// Everybody gets the values of one rank. Those of the others do not count.
    pub fn broadcast<T: Value>(&self, root: u32, values: Vec<T>) -> Result<Handle<Vec<T>>, Error> {
        let data = T::into_array(values).as_bytes().to_vec();
        let call = Call::Broadcast { root, data };
        Ok(typed(self.call(call, |outcome| Array::from_bytes(T::ELEMENT, &bytes(outcome)))))
    }

    /// Everybody gets a part from each rank: `parts[r]` goes to rank *r*.
    pub fn all_to_all<T: Value>(
        &self,
        parts_of_all: Vec<Vec<T>>,
    ) -> Result<Handle<Vec<Vec<T>>>, Error> {
        let to_bytes = |values| T::into_array(values).as_bytes().to_vec();
        let parts_of_all = parts_of_all.into_iter().map(to_bytes).collect();
        Ok(self.call(Call::AllToAll { parts: parts_of_all }, |outcome| parts::<T>(outcome)))
    }

    /// Ends when every rank is in it.
    pub fn barrier(&self) -> Result<Handle<()>, Error> {
        Ok(self.call(Call::Barrier, |_| ()))
    }

    /// Any collective over reliable flows, in bytes.
    pub fn call_bytes(&self, call: Call) -> Result<Handle<Outcome>, Error> {
        Ok(self.call(call, |outcome| outcome))
    }

    /// Sends values to one rank, which receives them with the same tag. Ends when they are there.
    pub fn send<T: Value>(&self, to: u32, tag: u64, values: Vec<T>) -> Result<Handle<()>, Error> {
        let (handle, reply) = pair(|(): ()| Ok(()));
        let bytes = T::into_array(values).as_bytes().to_vec();
        self.post.send(Command::Send { to, tag, bytes, reply });
        Ok(handle)
    }

    /// Receives what one rank sends with this tag, in the order of its sends.
    pub fn receive<T: Value>(&self, from: u32, tag: u64) -> Result<Handle<Vec<T>>, Error> {
        let to_values = |bytes: Vec<u8>| {
            let array = Array::from_bytes(T::ELEMENT, &bytes);
            T::from_array(array).ok_or(Error::Closed)
        };
        let (handle, reply) = pair(to_values);
        self.post.send(Command::Receive { from, tag, reply });
        Ok(handle)
    }

    /// What was counted so far.
    pub fn counters(&self) -> Result<Counters, Error> {
        let (handle, reply) = pair(|counters: Counters| Ok(counters));
        self.post.send(Command::Count(reply));
        handle.wait()
    }

    /// Leaves the job when everything that was begun has ended.
    pub fn leave(mut self) -> Result<(), Error> {
        // It has to have handed over what it works on.
        self.team = None;
        let (handle, reply) = pair(|(): ()| Ok(()));
        self.post.send(Command::Leave(reply));
        let left = handle.wait();
        self.end();
        left
    }

    fn sum(&self, tensor: Tensor, via: Collective, divisor: u32) -> Handle<Array> {
        let (handle, reply) = pair(move |sum: Arc<Tensor>| Ok(team::divided(sum, divisor)));
        self.post.send(Command::Sum(Sum { tensor, via, reply }));
        handle
    }

    fn reduce_in_mesh(&self, array: Array, how: Reduce) -> Handle<Array> {
        let element = array.element();
        let data = array.as_bytes().to_vec();
        let call = Call::AllReduce { element, how: how.combine(), data };
        let divisor = if how == Reduce::Mean { self.ranks } else { 1 };
        self.call(call, move |outcome| {
            let mut array = Array::from_bytes(element, &bytes(outcome));
            if divisor > 1 {
                array.divide(divisor);
            }
            array
        })
    }

    fn call<T>(&self, call: Call, finish: impl FnOnce(Outcome) -> T + Send + 'static) -> Handle<T> {
        let (handle, reply) = pair(move |outcome: Outcome| Ok(finish(outcome)));
        self.post.send(Command::Call(call, reply));
        handle
    }

    fn end(&mut self) {
        self.team = None;
        if let Some(attendance) = lock(&self.control).take() {
            attendance.leave();
        }
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(engine) = engine {
            // What it died of, its commands were told.
            let _ = engine.join();
        }
    }
}

impl Drop for Session {
    /// Leaves without waiting for what is under way.
    fn drop(&mut self) {
        if self.engine.lock().is_ok_and(|engine| engine.is_some()) {
            let (_, reply) = pair(|(): ()| Ok(()));
            self.post.send(Command::Leave(reply));
            self.end();
        }
    }
}

fn open(config: &SessionConfig, server: std::net::SocketAddr) -> Result<Endpoint, Error> {
    let bind = config.bind_address(server)?;
    let endpoint = EndpointConfig {
        bind,
        paths: config.paths,
        offload: config.offload,
        send_buffer_bytes: config.send_buffer_bytes,
        ..EndpointConfig::default()
    };
    Endpoint::open_block(&endpoint).map_err(|error| Error::Config(error.to_string()))
}

fn driver(
    config: &SessionConfig,
    endpoint: Endpoint,
    network: Network,
    identity: Identity,
) -> Result<Driver<Host>, Error> {
    let flows = thalweg_flow::Endpoint::new(thalweg_flow::Config::default())
        .map_err(|error| Error::Config(error.to_string()))?;
    let host = Host::new(identity.node, flows);
    let driver = DriverConfig { node: identity.node, wait: config.wait, ..DriverConfig::default() };
    Driver::new(driver, endpoint, Peers::in_network(network), host)
        .map_err(|error| Error::Config(error.to_string()))
}

fn hosts(welcome: &Welcome) -> u32 {
    welcome.roster.iter().map(|place| place.host + 1).max().unwrap_or(0)
}

/// A handle whose result is there.
fn ready(array: Array) -> Handle<Array> {
    let (handle, reply) = pair(|array: Array| Ok(array));
    reply.end(Ok(array));
    handle
}

fn typed<T: Value>(handle: Handle<Array>) -> Handle<Vec<T>> {
    handle.and_then(|array| T::from_array(array).ok_or(Error::Closed))
}

fn bytes(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Bytes(bytes) => bytes,
        Outcome::Parts(_) | Outcome::Nothing => Vec::new(),
    }
}

fn parts<T: Value>(outcome: Outcome) -> Vec<Vec<T>> {
    let Outcome::Parts(parts) = outcome else { return Vec::new() };
    let values = |bytes: Vec<u8>| T::from_array(Array::from_bytes(T::ELEMENT, &bytes));
    parts.into_iter().filter_map(values).collect()
}
