//! Reductions: values of all ranks become one.

use std::ops::Range;

use thalweg_collective::mesh::{Call, Request};
use thalweg_core::fingerprint::digest_of_lengths;
use thalweg_core::{Element, Fingerprint, Intent};
use thalweg_values::{Coverage, Tensor};

use super::exchange::{bytes, typed};
use super::memory::{ByteMemory, Bytes, Memory};
use super::missing::Reduced;
use super::options::ReduceOptions;
use super::part::Part;
use super::team::TeamThread;
use super::{Session, lent, other_type};
use crate::error::Error;
use crate::handle::{Handle, ready};
use crate::policy::{Policy, Reduce};
use crate::value::{Array, Value};

impl Session {
    /// Replaces values by those of all ranks, combined value by value. The memory comes back with the result, and
    /// with the ranks that are in it.
    ///
    /// Sums and means of `f32`, `f16` and `bf16` are made in place, in the network where there is a switch, and may
    /// have a loss bound. Everything else goes over reliable flows between the ranks, and is exact. Ranks of one
    /// host combine through shared memory first.
    ///
    /// ```
    /// use thalweg::{LossBound, Reduce, ReduceOptions};
    ///
    /// # use thalweg::daemon::{Secret, ServerDaemon, ServerDaemonConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let loopback = "127.0.0.1:0".parse()?;
    /// # let daemon = ServerDaemon::start(&ServerDaemonConfig::new(loopback, Secret([7; 16])))?;
    /// # let (server, rank, ranks) = (daemon.address().to_string(), 0, 1);
    /// # let session = thalweg::Session::builder(server, "resnet").rank(rank, ranks).join()?;
    /// # let gradient = vec![1.0f32; 1_000];
    /// let mean = session.all_reduce(gradient, Reduce::Mean).wait()?.values;
    ///
    /// let bound = LossBound::new(0.1).expect("from 0 to less than 1");
    /// let options = ReduceOptions::new(Reduce::Mean).missing_at_most(bound);
    /// let reduced = session.all_reduce(mean, options).wait()?;
    /// println!("{:?} is missing", reduced.coverage.missing());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if the options have another numeric than the session,
    /// if a rank gives more than 16 GiB to a reduction over flows, or if a mean has a loss bound and its coverage is
    /// unreported; otherwise as [every handle](Handle#errors).
    pub fn all_reduce<M: Memory>(
        &self,
        memory: M,
        options: impl Into<ReduceOptions>,
    ) -> Handle<Reduced<M>> {
        let element = M::Value::ELEMENT;
        let reduced = self.all_reduce_bytes(element, Bytes(memory), options, Intent::default());
        reduced.and_then(|Reduced { values, coverage }| Ok(Reduced { values: values.0, coverage }))
    }

    /// [`Session::all_reduce`] on bytes, for a caller that knows the type of the values at run time, and that may do
    /// more than the all-reduce: multiply before or after it, or keep a part. Ranks with different intents call
    /// different operations.
    // spec: E-11
    #[doc(hidden)]
    pub fn all_reduce_bytes<B: ByteMemory>(
        &self,
        element: Element,
        values: B,
        options: impl Into<ReduceOptions>,
        intent: Intent,
    ) -> Handle<Reduced<B>> {
        let options = options.into();
        self.begin("all_reduce", move |part| part.all_reduce(element, values, options, intent))
    }

    /// Combines the values of all ranks, and gives each rank its part of the result: `counts[r]` values to rank *r*.
    ///
    /// Where something may be missing, values are summed as a whole and each rank keeps its part: in a network that
    /// sums, this takes no longer.
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) unless there is one count for each rank and these add up
    /// to the number of values, and where [`Session::all_reduce`] does; otherwise as [every handle](Handle#errors).
    // spec: M-12, T-11
    pub fn reduce_scatter<T: Value>(
        &self,
        values: Vec<T>,
        counts: &[usize],
        options: impl Into<ReduceOptions>,
    ) -> Handle<Reduced<Vec<T>>> {
        let counts: Vec<u64> = counts.iter().map(|count| *count as u64).collect();
        let options = options.into();
        self.begin("reduce_scatter", move |part| part.reduce_scatter(values, counts, options))
    }
}

impl Part {
    fn all_reduce<B: ByteMemory>(
        &self,
        element: Element,
        values: B,
        options: ReduceOptions,
        intent: Intent,
    ) -> Handle<Reduced<B>> {
        let (how, policy) = self.chosen(options);
        let length = values.as_ref().len();
        if let Err(error) = self.check(&policy).and_then(|()| check_whole(element, length)) {
            return failed(error);
        }
        if self.ranks == 1 {
            return exact(ready(Ok(values)));
        }
        let count = (length / element.bytes()) as u64;
        let fingerprint = fingerprint(element, count, how, policy).with_intent(intent);
        if let Some(team) = self.whole_team() {
            let way = (element, how.combine(), self.divisor(how));
            // Ranks of one host have no paths, and so no numbers to keep.
            return exact(team.all_reduce(self.lanes.first(), values, fingerprint, way));
        }
        // Without values, a sum by switches would send nothing that ranks could compare.
        let mut values = match how {
            Reduce::Sum | Reduce::Mean if count > 0 => match lent::lend(element, values) {
                Ok(tensor) => {
                    let summed = self.sum(tensor, (policy, fingerprint), how);
                    return summed.and_then(returned);
                }
                Err(values) => values,
            },
            _ => values,
        };
        let copy = Array::from_bytes(element, values.as_ref());
        let reduced = self.all_reduce_array(copy, how, (policy, fingerprint));
        reduced.and_then(move |reduced| {
            values.as_mut().copy_from_slice(reduced.values.as_bytes());
            Ok(Reduced { values, coverage: reduced.coverage })
        })
    }

    fn reduce_scatter<T: Value>(
        &self,
        values: Vec<T>,
        counts: Vec<u64>,
        options: ReduceOptions,
    ) -> Handle<Reduced<Vec<T>>> {
        let (how, policy) = self.chosen(options);
        let whole = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
        let own = own_part(&counts, self.rank).filter(|_| counts.len() == self.ranks as usize);
        let Some(own) = own.filter(|_| whole == Some(values.len() as u64)) else {
            let (parts, ranks, length) = (counts.len(), self.ranks, values.len());
            return failed(Error::call(format!(
                "{parts} counts for {ranks} ranks and {length} values: give one for each rank, that add up to \
                 the values"
            )));
        };
        if let Err(error) = self.check(&policy) {
            return failed(error);
        }
        if policy.reliability.loss().is_none() {
            return exact(self.reduce_scatter_exact(values, how, counts, policy));
        }
        let array = T::into_array(values);
        if self.ranks == 1 {
            return exact(typed(ready(Ok(array))));
        }
        let intent = Intent { parts: Some(digest_of_lengths(&counts)), ..Intent::default() };
        let fingerprint = fingerprint(array.element(), array.len() as u64, how, policy);
        let fingerprint = fingerprint.with_intent(intent);
        let reduced = self.all_reduce_array(array, how, (policy, fingerprint));
        reduced.and_then(move |Reduced { values, coverage }| {
            let values = T::from_array(values).ok_or_else(other_type)?;
            let part = values[own.start as usize..own.end as usize].to_vec();
            Ok(Reduced { values: part, coverage: coverage.within(&own) })
        })
    }

    /// An all-reduce that is, or is a part of, an operation with this fingerprint.
    fn all_reduce_array(
        &self,
        array: Array,
        how: Reduce,
        (policy, fingerprint): (Policy, Fingerprint),
    ) -> Handle<Reduced<Array>> {
        if let Some(team) = self.whole_team() {
            let way = (array.element(), how.combine(), self.divisor(how));
            return exact(team.all_reduce(self.lanes.first(), array, fingerprint, way));
        }
        match (how, array.into_tensor()) {
            (Reduce::Sum | Reduce::Mean, Ok(tensor)) if !tensor.is_empty() => {
                let summed = self.sum(tensor, (policy, fingerprint), how);
                summed.and_then(|Reduced { values, coverage }| {
                    Ok(Reduced { values: Array::from_tensor(values), coverage })
                })
            }
            (_, Ok(tensor)) => {
                exact(self.reduce_in_mesh(Array::from_tensor(tensor), how, fingerprint))
            }
            (_, Err(array)) => exact(self.reduce_in_mesh(array, how, fingerprint)),
        }
    }

    /// A reduce-scatter by flows, compared as what was asked for by this policy.
    fn reduce_scatter_exact<T: Value>(
        &self,
        values: Vec<T>,
        how: Reduce,
        counts: Vec<u64>,
        policy: Policy,
    ) -> Handle<Vec<T>> {
        let array = T::into_array(values);
        let (element, combine) = (array.element(), how.combine());
        let data = array.as_bytes().to_vec();
        let call = Call::ReduceScatter { element, how: combine, data, counts };
        let divisor = self.divisor(how);
        let is_mean = how == Reduce::Mean;
        let request = Request { is_mean, policy: policy.agreement(), ..call.into() };
        typed(self.call(request, move |outcome| {
            let mut array = Array::from_bytes(element, &bytes(outcome));
            if divisor > 1 {
                array.divide(divisor);
            }
            array
        }))
    }

    fn sum(
        &self,
        tensor: Tensor,
        (policy, fingerprint): (Policy, Fingerprint),
        how: Reduce,
    ) -> Handle<Reduced<Tensor>> {
        if let Err(error) = self.calls.begin() {
            return failed(error);
        }
        let paced = self.lanes.pace(&tensor, policy.collective);
        let spread = self.lanes.spread(&tensor);
        let hosts = self.hosts.clone();
        if let Some(team) = &self.team {
            let summed = team.sum(spread, tensor, (policy, fingerprint), (how, hosts));
            return summed.and_then(move |summed| {
                drop(paced);
                Ok(summed)
            });
        }
        let summed = spread.sum(tensor, (policy, fingerprint), None);
        summed.and_then(move |summed| {
            drop(paced);
            hosts.finish(hosts.reduced(summed), how, policy.collective)
        })
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

    /// The reduction of a call, and the policy that it is carried out by.
    fn chosen(&self, options: ReduceOptions) -> (Reduce, Policy) {
        let (how, policy) = options.within(&self.policy);
        (how, policy.resolved(self.has_switch))
    }

    /// The ranks of this host, where they are all there are.
    fn whole_team(&self) -> Option<&TeamThread> {
        self.team.as_ref().filter(|_| self.hosts.count() == 1)
    }

    /// Number that sums are divided by.
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
}

fn check_whole(element: Element, length: usize) -> Result<(), Error> {
    if length.is_multiple_of(element.bytes()) {
        return Ok(());
    }
    Err(Error::call(format!("{length} bytes are no whole number of {}", element.name())))
}

/// Fingerprint that the ranks of an all-reduce have to agree on.
fn fingerprint(element: Element, values: u64, how: Reduce, policy: Policy) -> Fingerprint {
    Fingerprint {
        reduction: Some(how.reduction()),
        policy: policy.agreement(),
        ..Fingerprint::of_sum(element, values)
    }
}

/// An operation that cannot begin.
fn failed<T: Send + 'static>(error: Error) -> Handle<T> {
    ready(Err(error))
}

/// The result of what loses nothing.
fn exact<T: 'static>(handle: Handle<T>) -> Handle<Reduced<T>> {
    handle.and_then(|values| Ok(Reduced { values, coverage: Coverage::Exact }))
}

/// Memory that was lent, with its result.
fn returned<B: ByteMemory>(sum: Reduced<Tensor>) -> Result<Reduced<B>, Error> {
    let Reduced { values, coverage } = sum;
    Ok(Reduced { values: lent::give_back(values).ok_or_else(other_type)?, coverage })
}

/// The values that are a rank's part.
fn own_part(counts: &[u64], rank: u32) -> Option<Range<u64>> {
    let mut before = counts.iter().take(rank as usize);
    let before = before.try_fold(0u64, |sum, count| sum.checked_add(*count))?;
    let own = *counts.get(rank as usize)?;
    Some(before..before.checked_add(own)?)
}
