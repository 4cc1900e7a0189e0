//! Collectives that move values, and transfers between two ranks.

use thalweg_collective::mesh::{Call, Outcome, Request};
use thalweg_core::Element;

use super::memory::{Bytes, Memory};
use super::part::Part;
use super::{Session, other_type};
use crate::engine::Command;
use crate::error::{Error, ErrorKind};
use crate::handle::{Handle, Reply, pair, ready};
use crate::value::{Array, Value};

impl Session {
    /// Gives every rank the values of every rank, by rank. Ranks may have different numbers of values.
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if a rank gives more than 16 GiB; otherwise as
    /// [every handle](Handle#errors).
    pub fn all_gather<T: Value>(&self, values: Vec<T>) -> Handle<Vec<Vec<T>>> {
        let data = T::into_array(values).as_bytes().to_vec();
        let request = of_values::<T>(Call::AllGather { data });
        self.begin("all_gather", move |part| part.call(request, |outcome| parts::<T>(outcome)))
    }

    /// Replaces the values of every rank by those of rank `root`. All ranks have the same number of values; where
    /// the others cannot know it, [`Session::all_gather`] moves values of any number.
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if there is no rank `root`, or it gives more than
    /// 16 GiB; with [`Disagreement`](crate::ErrorKind::Disagreement) if the ranks have different numbers of values;
    /// otherwise as [every handle](Handle#errors).
    pub fn broadcast<M: Memory>(&self, root: u32, memory: M) -> Handle<M> {
        let mut memory = Bytes(memory);
        let data = if root == self.rank { memory.as_ref().to_vec() } else { Vec::new() };
        let length = Some(memory.as_ref().len() as u64);
        let call = of_values::<M::Value>(Call::Broadcast { root, data });
        let request = Request { bytes: length, ..call };
        let received = self.begin("broadcast", move |part| part.call(request, bytes));
        received.and_then(move |received| {
            let own = memory.as_mut();
            if own.len() != received.len() {
                return Err(Error::internal("a broadcast brought another number of values"));
            }
            own.copy_from_slice(&received);
            Ok(memory.0)
        })
    }

    /// Gives every rank a part from each rank, by rank: `parts_by_rank[r]` goes to rank *r*.
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if there is not one part for each rank, or a part is
    /// longer than 16 GiB; otherwise as [every handle](Handle#errors).
    pub fn all_to_all<T: Value>(&self, parts_by_rank: Vec<Vec<T>>) -> Handle<Vec<Vec<T>>> {
        let to_bytes = |values| T::into_array(values).as_bytes().to_vec();
        let parts_by_rank = parts_by_rank.into_iter().map(to_bytes).collect();
        let request = of_values::<T>(Call::AllToAll { parts: parts_by_rank });
        self.begin("all_to_all", move |part| part.call(request, |outcome| parts::<T>(outcome)))
    }

    /// Ends when every rank has called it.
    ///
    /// # Errors
    ///
    /// As [every handle](Handle#errors).
    pub fn barrier(&self) -> Handle<()> {
        self.begin("barrier", |part| part.call(Call::Barrier.into(), |_| ()))
    }

    /// Sends values to rank `to`, which [receives](Session::receive) them with the same tag. Ends when they are
    /// there.
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if there is no rank `to`, it is this one, or the values
    /// are more than 16 GiB; otherwise as [every handle](Handle#errors).
    pub fn send<T: Value>(&self, to: u32, tag: u64, values: Vec<T>) -> Handle<()> {
        let bytes = T::into_array(values).as_bytes().to_vec();
        self.send_bytes(to, tag, Some(T::ELEMENT), bytes)
    }

    /// Receives the values that rank `from` [sends](Session::send) with this tag, in the order of its sends.
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if there is no rank `from`, or it is this one; with
    /// [`Disagreement`](crate::ErrorKind::Disagreement) if the rank sends values of another type; otherwise as
    /// [every handle](Handle#errors).
    pub fn receive<T: Value>(&self, from: u32, tag: u64) -> Handle<Vec<T>> {
        let received = self.receive_bytes(from, tag, (Some(T::ELEMENT), None));
        received.and_then(|bytes| {
            T::from_array(Array::from_bytes(T::ELEMENT, &bytes)).ok_or_else(other_type)
        })
    }

    /// Any collective over reliable flows, in bytes.
    #[doc(hidden)]
    pub fn call_bytes(&self, request: Request) -> Handle<Outcome> {
        self.begin(name_of(&request.call), move |part| part.call(request, |outcome| outcome))
    }

    /// [`Session::send`] of bytes, which are values of a type if that is known.
    #[doc(hidden)]
    pub fn send_bytes(
        &self,
        to: u32,
        tag: u64,
        element: Option<Element>,
        bytes: Vec<u8>,
    ) -> Handle<()> {
        self.begin("send", move |part| {
            part.transfer(|reply| Command::Send { to, tag, values: (element, bytes), reply })
        })
    }

    /// [`Session::receive`] of bytes, of which the type and the length may be known.
    #[doc(hidden)]
    pub fn receive_bytes(
        &self,
        from: u32,
        tag: u64,
        expected: (Option<Element>, Option<u64>),
    ) -> Handle<Vec<u8>> {
        let received = self.begin("receive", move |part| {
            part.transfer(|reply| Command::Receive {
                from: Some(from),
                tag,
                values: expected,
                reply,
            })
        });
        received.and_then(|(_, bytes): (u32, Vec<u8>)| Ok(bytes))
    }

    /// [`Session::receive_bytes`] from the rank whose transfer with this tag is here first. Ends with the rank as well.
    #[doc(hidden)]
    pub fn receive_any_bytes(
        &self,
        tag: u64,
        expected: (Option<Element>, Option<u64>),
    ) -> Handle<(u32, Vec<u8>)> {
        self.begin("receive", move |part| {
            part.transfer(|reply| Command::Receive { from: None, tag, values: expected, reply })
        })
    }
}

impl Part {
    /// Begins a collective over reliable flows.
    pub(super) fn call<T: Send + 'static>(
        &self,
        request: Request,
        finish: impl FnOnce(Outcome) -> T + Send + 'static,
    ) -> Handle<T> {
        // What cannot begin has no number.
        let checked = request.check(self.rank, self.ranks);
        let checked = checked.map_err(|error| Error::of(ErrorKind::Call, error));
        if let Err(error) = checked.and_then(|()| self.calls.begin()) {
            return ready(Err(error));
        }
        let (handle, reply) = pair(move |outcome: Outcome| Ok(finish(outcome)));
        self.lanes.first().send(Command::Call(request, reply));
        handle
    }

    /// Begins a transfer between two ranks.
    pub(super) fn transfer<D: Send + 'static>(
        &self,
        command: impl FnOnce(Reply) -> Command,
    ) -> Handle<D> {
        self.calls.begin_transfer();
        let (handle, reply) = pair(|done: D| Ok(done));
        self.lanes.first().send(command(reply));
        handle
    }
}

/// Name of a collective, for metrics.
fn name_of(call: &Call) -> &'static str {
    match call {
        Call::AllReduce { .. } => "all_reduce",
        Call::Reduce { .. } => "reduce",
        Call::ReduceScatter { .. } => "reduce_scatter",
        Call::AllGather { .. } => "all_gather",
        Call::Gather { .. } => "gather",
        Call::Scatter { .. } => "scatter",
        Call::Broadcast { .. } => "broadcast",
        Call::AllToAll { .. } => "all_to_all",
        Call::Barrier => "barrier",
    }
}

/// A call that moves values of a type.
fn of_values<T: Value>(call: Call) -> Request {
    Request { element: Some(T::ELEMENT), ..call.into() }
}

pub(super) fn typed<T: Value>(handle: Handle<Array>) -> Handle<Vec<T>> {
    handle.and_then(|array| T::from_array(array).ok_or_else(other_type))
}

pub(super) fn bytes(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Bytes(bytes) => bytes,
        Outcome::Parts(_) | Outcome::Nothing => Vec::new(),
    }
}

/// The data of every rank.
pub(super) fn parts_of_bytes(outcome: Outcome) -> Vec<Vec<u8>> {
    match outcome {
        Outcome::Parts(parts) => parts,
        Outcome::Bytes(_) | Outcome::Nothing => Vec::new(),
    }
}

fn parts<T: Value>(outcome: Outcome) -> Vec<Vec<T>> {
    let values = |bytes: Vec<u8>| T::from_array(Array::from_bytes(T::ELEMENT, &bytes));
    parts_of_bytes(outcome).into_iter().filter_map(values).collect()
}
