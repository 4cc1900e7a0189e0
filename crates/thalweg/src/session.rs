//! One rank's part in a job.

mod config;
mod lane;
mod lent;
mod team;

use thalweg_collective::mesh::{Call, Outcome};
use thalweg_control::Welcome;
use thalweg_core::{Element, Tensor};

pub use self::config::{Note, SessionConfig};
use self::lane::Lanes;
pub use self::lent::Memory;
use self::team::TeamThread;
use crate::counters::Counters;
use crate::engine::{Command, Sum};
use crate::error::Error;
use crate::handle::{Handle, pair};
use crate::policy::{Collective, Policy, Reduce};
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
    /// The ranks of this host, if there are several. It uses the lanes, so it goes before them.
    team: Option<TeamThread>,
    lanes: Lanes,
}

impl Session {
    /// Joins a job, and waits until all of its ranks are there.
    pub fn join(config: SessionConfig) -> Result<Session, Error> {
        let (lanes, welcome) = Lanes::join(&config)?;
        let team = TeamThread::join(&config, &welcome)?;
        Ok(Session {
            rank: config.rank,
            ranks: config.ranks,
            policy: config.policy,
            hosts: hosts(&welcome),
            team,
            lanes,
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
        if let Some(team) = self.whole_team() {
            let (element, divisor) = (array.element(), self.divisor(how));
            return Ok(team.all_reduce(element, array, how.combine(), divisor));
        }
        match (how, array.into_tensor()) {
            (Reduce::Sum | Reduce::Mean, Ok(tensor)) => {
                let summed = self.sum(tensor, via, self.divisor(how));
                Ok(summed.and_then(|sum| Ok(Array::from_tensor(sum))))
            }
            (_, Ok(tensor)) => Ok(self.reduce_in_mesh(Array::from_tensor(tensor), how)),
            (_, Err(array)) => Ok(self.reduce_in_mesh(array, how)),
        }
    }

    /// [`Session::all_reduce`] on memory of the caller's, a whole number of values of a type. Sums and means
    /// of floats of up to 32 bits are made in place, and so is everything between ranks of one host. What is
    /// there after an error is nothing in particular.
    pub fn all_reduce_bytes<B: Memory>(
        &self,
        element: Element,
        values: B,
        how: Reduce,
        via: Collective,
    ) -> Result<Handle<B>, Error> {
        let length = values.as_ref().len();
        if !length.is_multiple_of(element.bytes()) {
            let name = element.name();
            return Err(Error::Call(format!("{length} bytes are no whole number of {name}")));
        }
        if self.ranks == 1 {
            return Ok(ready(values));
        }
        if let Some(team) = self.whole_team() {
            return Ok(team.all_reduce(element, values, how.combine(), self.divisor(how)));
        }
        let mut values = match how {
            Reduce::Sum | Reduce::Mean => match lent::lend(element, values) {
                Ok(tensor) => {
                    let summed = self.sum(tensor, via, self.divisor(how));
                    return Ok(summed.and_then(|sum| lent::give_back(sum).ok_or(Error::Closed)));
                }
                Err(values) => values,
            },
            Reduce::Min | Reduce::Max | Reduce::Product => values,
        };
        let copy = Array::from_bytes(element, values.as_ref());
        Ok(self.all_reduce_array(copy, how, via)?.and_then(move |array| {
            values.as_mut().copy_from_slice(array.as_bytes());
            Ok(values)
        }))
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
        let divisor = self.divisor(how);
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
        self.lanes.first().send(Command::Send { to, tag, bytes, reply });
        Ok(handle)
    }

    /// Receives what one rank sends with this tag, in the order of its sends.
    pub fn receive<T: Value>(&self, from: u32, tag: u64) -> Result<Handle<Vec<T>>, Error> {
        let to_values = |bytes: Vec<u8>| {
            let array = Array::from_bytes(T::ELEMENT, &bytes);
            T::from_array(array).ok_or(Error::Closed)
        };
        let (handle, reply) = pair(to_values);
        self.lanes.first().send(Command::Receive { from, tag, reply });
        Ok(handle)
    }

    /// What was counted so far by the first sending thread.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.counters_of(0)
    }

    /// What was counted so far by one of the sending threads.
    pub fn counters_of(&self, thread: usize) -> Result<Counters, Error> {
        let post = self.lanes.get(thread);
        let post = post.ok_or_else(|| Error::Call(format!("there is no thread {thread}")))?;
        let (handle, reply) = pair(|counters: Counters| Ok(counters));
        post.send(Command::Count(reply));
        handle.wait()
    }

    /// Leaves the job when everything that was begun has ended.
    pub fn leave(mut self) -> Result<(), Error> {
        // It has to have handed over what it works on.
        self.team = None;
        self.lanes.leave()
    }

    /// The ranks of this host, where they are all there are.
    fn whole_team(&self) -> Option<&TeamThread> {
        self.team.as_ref().filter(|_| self.hosts == 1)
    }

    /// What sums are divided by.
    fn divisor(&self, how: Reduce) -> u32 {
        if how == Reduce::Mean { self.ranks } else { 1 }
    }

    fn sum(&self, tensor: Tensor, via: Collective, divisor: u32) -> Handle<Tensor> {
        let lane = self.lanes.choose(bytes_of(&tensor));
        if let Some(team) = &self.team {
            return team.sum(lane, tensor, via, divisor);
        }
        let (handle, reply) = pair(move |sum: Tensor| Ok(team::divided(sum, divisor)));
        lane.send(Command::Sum(Sum { tensor, via, reply }));
        handle
    }

    fn reduce_in_mesh(&self, array: Array, how: Reduce) -> Handle<Array> {
        let element = array.element();
        let data = array.as_bytes().to_vec();
        let call = Call::AllReduce { element, how: how.combine(), data };
        let divisor = self.divisor(how);
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
        self.lanes.first().send(Command::Call(call, reply));
        handle
    }
}

fn hosts(welcome: &Welcome) -> u32 {
    welcome.roster.iter().map(|place| place.host + 1).max().unwrap_or(0)
}

fn bytes_of(tensor: &Tensor) -> u64 {
    let size = if matches!(tensor, Tensor::Halves(..)) { 2 } else { 4 };
    tensor.len() * size
}

/// A handle whose result is there.
fn ready<T: Send + 'static>(values: T) -> Handle<T> {
    let (handle, reply) = pair(|values: T| Ok(values));
    reply.end(Ok(values));
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
