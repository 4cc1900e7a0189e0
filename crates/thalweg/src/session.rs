//! One rank's part in a job.

mod config;
mod lane;
mod lent;
mod missing;
mod team;

use std::ops::Range;
use std::sync::Arc;

use thalweg_collective::mesh::{Call, Outcome, Request};
use thalweg_core::fingerprint::digest_of_lengths;
use thalweg_core::{Element, Fingerprint, Intent};
use thalweg_values::{Coverage, Tensor};

pub use self::config::{Note, SessionConfig};
use self::lane::Lanes;
pub use self::lent::Memory;
use self::missing::Hosts;
pub use self::missing::Reduced;
use self::team::TeamThread;
use crate::counters::Counters;
use crate::engine::{Command, Leaving, Sum, Summed};
use crate::error::Error;
use crate::handle::{Handle, pair};
use crate::policy::{Policy, Reduce};
use crate::value::{Array, Value};

/// One rank's part in a job.
///
/// All ranks make the same calls in the same order; they need not wait for each other. A call returns
/// at once, with a [`Handle`] to wait for; many operations may be on the way. Results of sums are the
/// same bits at every rank.
///
/// **Failures.** A rank whose process or host dies fails the job at every rank within
/// [`failure_after`](SessionConfig::failure_after) and two seconds; the error has the rank, its address and the evidence.
/// An operation that does not move is explained after a while ([`Note::Stalled`]): which rank, which fragment, which link,
/// since when. If that lasts until [`operation_timeout`](SessionConfig::operation_timeout), the job fails at every rank
/// with the same error. A rank that leaves while others still need it fails them at once. A switch or a server that is
/// started again in time costs nothing but time.
pub struct Session {
    /// The process that joined. A child that inherits this is not the rank.
    pid: u32,
    rank: u32,
    ranks: u32,
    policy: Policy,
    hosts: Arc<Hosts>,
    /// The ranks of this host, if there are several. It uses the lanes, so it goes before them.
    team: Option<TeamThread>,
    lanes: Lanes,
}

impl Session {
    /// Joins a job, and waits until all of its ranks are there.
    pub fn join(config: SessionConfig) -> Result<Session, Error> {
        let (lanes, welcome) = Lanes::join(&config)?;
        let team = TeamThread::join(&config, &welcome, &lanes.end)?;
        Ok(Session {
            pid: std::process::id(),
            rank: config.rank,
            ranks: config.ranks,
            policy: config.policy,
            hosts: Arc::new(Hosts::new(&welcome)),
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
        self.hosts.count()
    }

    /// How its sums are carried out where a call does not say.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Everybody gets the values of all ranks, combined. Where the session's policy has a loss bound, sums
    /// and means of floats are refused: [`Session::all_reduce_with`] reports their coverage.
    pub fn all_reduce<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
    ) -> Result<Handle<Vec<T>>, Error> {
        if may_lack(&self.policy, how, T::ELEMENT) {
            return Err(Error::call(
                "the session's policy has a loss bound, and all_reduce returns no coverage: call \
                 all_reduce_with, with this policy or with Reliability::Exact",
            ));
        }
        let reduced = self.all_reduce_with(values, how, self.policy)?;
        Ok(reduced.and_then(|reduced| Ok(reduced.values)))
    }

    /// [`Session::all_reduce`] by another policy than the session's, except for its numeric. Reports the
    /// coverage of the result.
    pub fn all_reduce_with<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
        policy: Policy,
    ) -> Result<Handle<Reduced<Vec<T>>>, Error> {
        let reduced = self.all_reduce_array(T::into_array(values), how, policy)?;
        Ok(reduced.and_then(|Reduced { values, coverage }| {
            let values = T::from_array(values).ok_or_else(other_type)?;
            Ok(Reduced { values, coverage })
        }))
    }

    /// [`Session::all_reduce_with`] for values whose type is known at run time.
    pub fn all_reduce_array(
        &self,
        array: Array,
        how: Reduce,
        policy: Policy,
    ) -> Result<Handle<Reduced<Array>>, Error> {
        self.check(&policy)?;
        if self.ranks == 1 {
            return Ok(exact(ready(array)));
        }
        let fingerprint = fingerprint(array.element(), array.len() as u64, how, policy);
        self.all_reduce_as(array, how, (policy, fingerprint))
    }

    /// An all-reduce that is, or is a part of, an operation with this fingerprint.
    fn all_reduce_as(
        &self,
        array: Array,
        how: Reduce,
        (policy, fingerprint): (Policy, Fingerprint),
    ) -> Result<Handle<Reduced<Array>>, Error> {
        if let Some(team) = self.whole_team() {
            let way = (array.element(), how.combine(), self.divisor(how));
            return Ok(exact(team.all_reduce(self.lanes.first(), array, fingerprint, way)));
        }
        match (how, array.into_tensor()) {
            // Without values, a sum by switches would send nothing that ranks could compare.
            (_, Ok(tensor)) if tensor.is_empty() => {
                Ok(exact(self.reduce_in_mesh(Array::from_tensor(tensor), how, fingerprint)))
            }
            (Reduce::Sum | Reduce::Mean, Ok(tensor)) => {
                let summed = self.sum(tensor, (policy, fingerprint), how);
                Ok(summed.and_then(|Reduced { values, coverage }| {
                    Ok(Reduced { values: Array::from_tensor(values), coverage })
                }))
            }
            (_, Ok(tensor)) => {
                Ok(exact(self.reduce_in_mesh(Array::from_tensor(tensor), how, fingerprint)))
            }
            (_, Err(array)) => Ok(exact(self.reduce_in_mesh(array, how, fingerprint))),
        }
    }

    /// [`Session::all_reduce_with`] on memory of the caller's, a whole number of values of a type. Sums and
    /// means of floats of up to 32 bits are made in place, and so is everything between ranks of one host.
    /// What is there after an error is nothing in particular.
    pub fn all_reduce_bytes<B: Memory>(
        &self,
        element: Element,
        values: B,
        how: Reduce,
        policy: Policy,
    ) -> Result<Handle<Reduced<B>>, Error> {
        self.all_reduce_bytes_for(Intent::default(), element, values, how, policy)
    }

    /// [`Session::all_reduce_bytes`] for a caller that does more than the all-reduce: multiplies before or after it,
    /// or keeps a part. Ranks with different intents call different operations.
    // spec: E-11
    pub fn all_reduce_bytes_for<B: Memory>(
        &self,
        intent: Intent,
        element: Element,
        values: B,
        how: Reduce,
        policy: Policy,
    ) -> Result<Handle<Reduced<B>>, Error> {
        self.check(&policy)?;
        let length = values.as_ref().len();
        if !length.is_multiple_of(element.bytes()) {
            let name = element.name();
            return Err(Error::call(format!("{length} bytes are no whole number of {name}")));
        }
        if self.ranks == 1 {
            return Ok(exact(ready(values)));
        }
        let count = (length / element.bytes()) as u64;
        let fingerprint = fingerprint(element, count, how, policy).with_intent(intent);
        if let Some(team) = self.whole_team() {
            let way = (element, how.combine(), self.divisor(how));
            let reduced = team.all_reduce(self.lanes.first(), values, fingerprint, way);
            return Ok(exact(reduced));
        }
        let mut values = match how {
            Reduce::Sum | Reduce::Mean if count > 0 => match lent::lend(element, values) {
                Ok(tensor) => {
                    let summed = self.sum(tensor, (policy, fingerprint), how);
                    return Ok(summed.and_then(returned));
                }
                Err(values) => values,
            },
            _ => values,
        };
        let copy = Array::from_bytes(element, values.as_ref());
        let reduced = self.all_reduce_as(copy, how, (policy, fingerprint))?;
        Ok(reduced.and_then(move |reduced| {
            values.as_mut().copy_from_slice(reduced.values.as_bytes());
            Ok(Reduced { values, coverage: reduced.coverage })
        }))
    }

    /// Everybody gets its part of the values of all ranks, combined: `counts[r]` values for rank *r*.
    pub fn reduce_scatter<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
        counts: Vec<u64>,
    ) -> Result<Handle<Vec<T>>, Error> {
        self.reduce_scatter_exact(values, how, counts, self.policy)
    }

    /// [`Session::reduce_scatter`] by a policy. What may lack something is summed as a whole, and everybody
    /// keeps its part: in a network that sums, this takes no longer. The same calls are refused as by
    /// [`Session::all_reduce_with`].
    // spec: M-12, T-11
    pub fn reduce_scatter_with<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
        counts: Vec<u64>,
        policy: Policy,
    ) -> Result<Handle<Reduced<Vec<T>>>, Error> {
        if policy.reliability.loss().is_none() {
            return Ok(exact(self.reduce_scatter_exact(values, how, counts, policy)?));
        }
        let own = own_part(&counts, self.rank);
        let Some(own) = own.filter(|_| counts.iter().sum::<u64>() == values.len() as u64) else {
            let (parts, ranks, length) = (counts.len(), self.ranks, values.len());
            return Err(Error::call(format!(
                "{parts} counts for {ranks} ranks and {length} values: give one for each rank, that add up to \
                 the values"
            )));
        };
        let array = T::into_array(values);
        self.check(&policy)?;
        if self.ranks == 1 {
            return Ok(exact(typed(ready(array))));
        }
        let intent = Intent { parts: Some(digest_of_lengths(&counts)), ..Intent::default() };
        let fingerprint = fingerprint(array.element(), array.len() as u64, how, policy);
        let fingerprint = fingerprint.with_intent(intent);
        let reduced = self.all_reduce_as(array, how, (policy, fingerprint))?;
        Ok(reduced.and_then(move |Reduced { values, coverage }| {
            let values = T::from_array(values).ok_or_else(other_type)?;
            let part = values[own.start as usize..own.end as usize].to_vec();
            Ok(Reduced { values: part, coverage: coverage.within(&own) })
        }))
    }

    /// Everybody gets the values of every rank, which may be of different lengths.
    pub fn all_gather<T: Value>(&self, values: Vec<T>) -> Result<Handle<Vec<Vec<T>>>, Error> {
        let data = T::into_array(values).as_bytes().to_vec();
        let request = of_values::<T>(Call::AllGather { data });
        Ok(self.call(request, |outcome| parts::<T>(outcome)))
    }

    /// Everybody gets the values of one rank. Those of the others do not count.
    pub fn broadcast<T: Value>(&self, root: u32, values: Vec<T>) -> Result<Handle<Vec<T>>, Error> {
        let data = T::into_array(values).as_bytes().to_vec();
        let request = of_values::<T>(Call::Broadcast { root, data });
        Ok(typed(self.call(request, |outcome| Array::from_bytes(T::ELEMENT, &bytes(outcome)))))
    }

    /// Everybody gets a part from each rank: `parts[r]` goes to rank *r*.
    pub fn all_to_all<T: Value>(
        &self,
        parts_of_all: Vec<Vec<T>>,
    ) -> Result<Handle<Vec<Vec<T>>>, Error> {
        let to_bytes = |values| T::into_array(values).as_bytes().to_vec();
        let parts_of_all = parts_of_all.into_iter().map(to_bytes).collect();
        let request = of_values::<T>(Call::AllToAll { parts: parts_of_all });
        Ok(self.call(request, |outcome| parts::<T>(outcome)))
    }

    /// Ends when every rank is in it.
    pub fn barrier(&self) -> Result<Handle<()>, Error> {
        Ok(self.call(Call::Barrier.into(), |_| ()))
    }

    /// Any collective over reliable flows, in bytes.
    pub fn call_bytes(&self, request: Request) -> Result<Handle<Outcome>, Error> {
        Ok(self.call(request, |outcome| outcome))
    }

    /// Sends values to one rank, which receives them with the same tag. Ends when they are there.
    pub fn send<T: Value>(&self, to: u32, tag: u64, values: Vec<T>) -> Result<Handle<()>, Error> {
        let bytes = T::into_array(values).as_bytes().to_vec();
        self.send_bytes(to, tag, Some(T::ELEMENT), bytes)
    }

    /// [`Session::send`] of bytes, which are values of a type if that is known.
    pub fn send_bytes(
        &self,
        to: u32,
        tag: u64,
        element: Option<Element>,
        bytes: Vec<u8>,
    ) -> Result<Handle<()>, Error> {
        let (handle, reply) = pair(|(): ()| Ok(()));
        let values = (element, bytes);
        self.lanes.first().send(Command::Send { to, tag, values, reply });
        Ok(handle)
    }

    /// Receives what one rank sends with this tag, in the order of its sends.
    pub fn receive<T: Value>(&self, from: u32, tag: u64) -> Result<Handle<Vec<T>>, Error> {
        let to_values = |(_, bytes): (u32, Vec<u8>)| {
            let array = Array::from_bytes(T::ELEMENT, &bytes);
            T::from_array(array).ok_or_else(other_type)
        };
        let (handle, reply) = pair(to_values);
        let values = (Some(T::ELEMENT), None);
        self.lanes.first().send(Command::Receive { from: Some(from), tag, values, reply });
        Ok(handle)
    }

    /// [`Session::receive`] of bytes, of which the type and the length may be known.
    pub fn receive_bytes(
        &self,
        from: u32,
        tag: u64,
        expected: (Option<Element>, Option<u64>),
    ) -> Result<Handle<Vec<u8>>, Error> {
        let (handle, reply) = pair(|(_, bytes): (u32, Vec<u8>)| Ok(bytes));
        let from = Some(from);
        self.lanes.first().send(Command::Receive { from, tag, values: expected, reply });
        Ok(handle)
    }

    /// [`Session::receive_bytes`] from the rank whose transfer with this tag is here first. Ends with the rank as well.
    pub fn receive_any_bytes(
        &self,
        tag: u64,
        expected: (Option<Element>, Option<u64>),
    ) -> Result<Handle<(u32, Vec<u8>)>, Error> {
        let (handle, reply) = pair(|received: (u32, Vec<u8>)| Ok(received));
        self.lanes.first().send(Command::Receive { from: None, tag, values: expected, reply });
        Ok(handle)
    }

    /// What was counted so far by the first sending thread.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.counters_of(0)
    }

    /// What was counted so far by one of the sending threads.
    pub fn counters_of(&self, thread: usize) -> Result<Counters, Error> {
        let post = self.lanes.get(thread);
        let post = post.ok_or_else(|| Error::call(format!("there is no thread {thread}")))?;
        let (handle, reply) = pair(|counters: Counters| Ok(counters));
        post.send(Command::Count(reply));
        handle.wait()
    }

    /// Ends the job for all ranks, and returns at once. Operations that are under way here fail, and so does everything
    /// later; all other ranks fail within `failure_after` with an error that has the rank and the reason.
    // spec: E-03
    pub fn abort(&self, reason: impl AsRef<str>) {
        self.lanes.abort(reason.as_ref());
    }

    /// Leaves the job when everything that was begun has ended, and others have what they need of this rank. Waits for
    /// them for `failure_after` at most, and no longer than 5 s.
    pub fn leave(mut self) -> Result<(), Error> {
        if !self.is_own() {
            return Err(Error::closed());
        }
        // It has to have handed over what it works on.
        self.team = None;
        self.lanes.leave()
    }

    /// Whether this is the process that joined.
    fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }

    /// A reduce-scatter by flows, compared as what was asked for by this policy.
    fn reduce_scatter_exact<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
        counts: Vec<u64>,
        policy: Policy,
    ) -> Result<Handle<Vec<T>>, Error> {
        let array = T::into_array(values);
        let (element, combine) = (array.element(), how.combine());
        let data = array.as_bytes().to_vec();
        let call = Call::ReduceScatter { element, how: combine, data, counts };
        let divisor = self.divisor(how);
        let request = self.reduction(call, how, policy);
        Ok(typed(self.call(request, move |outcome| {
            let mut array = Array::from_bytes(element, &bytes(outcome));
            if divisor > 1 {
                array.divide(divisor);
            }
            array
        })))
    }

    /// The ranks of this host, where they are all there are.
    fn whole_team(&self) -> Option<&TeamThread> {
        self.team.as_ref().filter(|_| self.hosts() == 1)
    }

    /// What sums are divided by.
    fn divisor(&self, how: Reduce) -> u32 {
        if how == Reduce::Mean { self.ranks } else { 1 }
    }

    /// Numbers of one meaning only can be added.
    fn check(&self, policy: &Policy) -> Result<(), Error> {
        if policy.numeric != self.policy.numeric {
            let text = "another numeric than the session's: it is one for all sums of a job";
            return Err(Error::call(text));
        }
        Ok(())
    }

    fn sum(
        &self,
        tensor: Tensor,
        (policy, fingerprint): (Policy, Fingerprint),
        how: Reduce,
    ) -> Handle<Reduced<Tensor>> {
        let lane = self.lanes.choose(bytes_of(&tensor));
        let hosts = self.hosts.clone();
        if let Some(team) = &self.team {
            return team.sum(lane, tensor, (policy, fingerprint), (how, hosts));
        }
        let (handle, reply) =
            pair(move |summed: Summed| hosts.finish(hosts.reduced(summed), how, policy.collective));
        lane.send(Command::Sum(Sum { tensor, policy, fingerprint, shared: None, reply }));
        handle
    }

    fn reduce_in_mesh(&self, array: Array, how: Reduce, operation: Fingerprint) -> Handle<Array> {
        let element = array.element();
        let data = array.as_bytes().to_vec();
        let call = Call::AllReduce { element, how: how.combine(), data };
        let divisor = self.divisor(how);
        let request = Request { operation: Some(operation), ..call.into() };
        self.call(request, move |outcome| {
            let mut array = Array::from_bytes(element, &bytes(outcome));
            if divisor > 1 {
                array.divide(divisor);
            }
            array
        })
    }

    fn call<T>(
        &self,
        request: Request,
        finish: impl FnOnce(Outcome) -> T + Send + 'static,
    ) -> Handle<T> {
        let (handle, reply) = pair(move |outcome: Outcome| Ok(finish(outcome)));
        self.lanes.first().send(Command::Call(request, reply));
        handle
    }

    /// A reduction in the mesh, as the caller asked for it.
    fn reduction(&self, call: Call, how: Reduce, policy: Policy) -> Request {
        Request { is_mean: how == Reduce::Mean, policy: policy.agreement(), ..call.into() }
    }
}

impl Drop for Session {
    /// Leaves without waiting for what is under way, within a second. Other ranks that need this one fail. In a child
    /// of the process that joined nothing happens: the session is its parent's.
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.team.take());
            return self.lanes.forget();
        }
        if self.team.is_some() {
            // Its thread may wait for other ranks of the host, or for what the others compute.
            self.lanes.end.set(&Error::closed());
            // A thread that is gone needs no goodbye.
            let _ = self.lanes.say_goodbye(Leaving::AtOnce);
        }
    }
}

/// Fingerprint that the ranks of an all-reduce have to agree on.
fn fingerprint(element: Element, values: u64, how: Reduce, policy: Policy) -> Fingerprint {
    Fingerprint {
        reduction: Some(how.reduction()),
        policy: policy.agreement(),
        ..Fingerprint::of_sum(element, values)
    }
}

/// A call that moves values of a type.
fn of_values<T: Value>(call: Call) -> Request {
    Request { element: Some(T::ELEMENT), ..call.into() }
}

/// Returns whether a result may lack values. Sums and means of floats of up to 32 bits may, everything
/// else is exact.
fn may_lack(policy: &Policy, how: Reduce, element: Element) -> bool {
    policy.reliability.loss().is_some()
        && matches!(how, Reduce::Sum | Reduce::Mean)
        && matches!(element, Element::F32 | Element::F16 | Element::Bf16)
}

/// The result of what loses nothing.
fn exact<T: 'static>(handle: Handle<T>) -> Handle<Reduced<T>> {
    handle.and_then(|values| Ok(Reduced { values, coverage: Coverage::Exact }))
}

/// Memory that was lent, with its result.
fn returned<B: Memory>(sum: Reduced<Tensor>) -> Result<Reduced<B>, Error> {
    let Reduced { values, coverage } = sum;
    Ok(Reduced { values: lent::give_back(values).ok_or_else(other_type)?, coverage })
}

/// Which values are a rank's part.
fn own_part(counts: &[u64], rank: u32) -> Option<Range<u64>> {
    let before: u64 = counts.iter().take(rank as usize).sum();
    counts.get(rank as usize).map(|count| before..before + count)
}

fn bytes_of(tensor: &Tensor) -> u64 {
    tensor.len() * tensor.element().bytes() as u64
}

/// A handle whose result is there.
fn ready<T: Send + 'static>(values: T) -> Handle<T> {
    let (handle, reply) = pair(|values: T| Ok(values));
    reply.end(Ok(values));
    handle
}

fn typed<T: Value>(handle: Handle<Array>) -> Handle<Vec<T>> {
    handle.and_then(|array| T::from_array(array).ok_or_else(other_type))
}

/// An operation ends with values of the type that it began with.
fn other_type() -> Error {
    Error::internal("an operation ended with values of another type than it began with")
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
