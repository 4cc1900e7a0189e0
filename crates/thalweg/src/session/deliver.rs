//! Deliveries between two ranks: values of which a bounded part may be lost.
// spec: M-10

use std::ops::Range;
use std::sync::Arc;

use thalweg_core::Element;
use thalweg_deliver::{LossBound, Lost, Received};
use thalweg_values::Tensor;

use super::memory::{Bytes, Memory};
use super::{Session, lent, other_type};
use crate::engine::{Command, Deliver, DeliverCall};
use crate::error::Error;
use crate::handle::{Handle, ready};
use crate::policy::Priority;
use crate::tagging::Tagging;
use crate::value::Value;

/// Values for one rank.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before it is posted"]
pub struct SendPost<M> {
    /// The rank that gets them.
    pub to: u32,
    /// Number of the delivery. Both ends use the same, and neither uses it again in this direction.
    pub number: u64,
    /// The values: `f32`, `f16` or `bf16`. The memory is lent until the receiver has enough.
    pub values: M,
    /// Largest share that the sender allows to be lost. The smaller one of both ends counts. Default any.
    pub loss: LossBound,
    /// Priority of the packets. Default that of the last layer.
    pub priority: Priority,
    /// Classes of the packets. Default those of the [session](crate::SessionConfig::tagging).
    // spec: M-14
    pub tagging: Option<Tagging>,
}

impl<M> SendPost<M> {
    /// A delivery with the defaults.
    pub fn new(to: u32, number: u64, values: M) -> SendPost<M> {
        let (loss, priority) = (LossBound::ANY, Priority::default());
        SendPost { to, number, values, loss, priority, tagging: None }
    }
}

/// A buffer for the values of one rank.
#[derive(Clone, Debug)]
#[must_use = "nothing is received before it is posted"]
pub struct ReceivePost<M> {
    /// The rank that sends them.
    pub from: u32,
    /// Number of the delivery.
    pub number: u64,
    /// The buffer, as long as the values.
    pub buffer: M,
    /// Largest share of the values that may be missing. Default nothing.
    pub loss: LossBound,
    /// Meaning of a value that did not arrive. Default zero, for gradients. Parameters of an earlier round, which the
    /// buffer has, stay with [`Lost::KeepsValue`].
    // spec: M-07
    pub lost: Lost,
}

impl<M> ReceivePost<M> {
    /// A delivery with the defaults.
    pub fn new(from: u32, number: u64, buffer: M) -> ReceivePost<M> {
        let (loss, lost) = (LossBound::EXACT, Lost::ReadsZero);
        ReceivePost { from, number, buffer, loss, lost }
    }
}

/// Values that were delivered.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Delivered<M> {
    /// The values.
    pub values: M,
    /// Ranges of values that did not arrive, in order.
    pub lost: Vec<Range<u64>>,
}

impl Session {
    /// Posts values for one rank, which [posts a buffer](Session::post_receive) for them, before or after. The handle
    /// ends when the receiver has enough of them, with the memory; [`Handle::poll`] asks whether it has ended. A rank
    /// leaves only when the deliveries of others with it have ended: a [barrier](Session::barrier) after them shows it.
    ///
    /// ```no_run
    /// use thalweg::{LossBound, ReceivePost, SendPost, Session};
    ///
    /// # fn exchange(session: &Session) -> Result<(), thalweg::Error> {
    /// if session.rank() == 0 {
    ///     session.post_send(SendPost::new(1, 0, vec![1.0f32; 1_000])).wait()?;
    /// } else {
    ///     let loss = LossBound::new(0.1).expect("from 0 to less than 1");
    ///     let post = ReceivePost { loss, ..ReceivePost::new(0, 0, vec![0.0f32; 1_000]) };
    ///     let delivered = session.post_receive(post).wait()?;
    ///     println!("{:?} did not arrive", delivered.lost);
    /// }
    /// session.barrier().wait()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The handle ends with [`Call`](crate::ErrorKind::Call) if there is no other rank `to`, the values have another
    /// type than `f32`, `f16` and `bf16`, or the number is in use; with
    /// [`Disagreement`](crate::ErrorKind::Disagreement) if the buffer has another length; otherwise as
    /// [every handle](Handle#errors).
    // spec: M-10
    pub fn post_send<M: Memory>(&self, post: SendPost<M>) -> Handle<M> {
        let SendPost { to, number, values, loss, priority, tagging } = post;
        let values = match lend(values) {
            Ok(values) => Arc::new(values),
            Err(error) => return ready(Err(error)),
        };
        let tagging = tagging.unwrap_or_else(|| self.tagging.clone());
        let call = DeliverCall::Send { values: Arc::clone(&values), loss, priority, tagging };
        let delivered = self.deliver(to, number, call);
        delivered.and_then(move |_| {
            let values = Arc::into_inner(values);
            values.and_then(given_back).ok_or_else(other_type)
        })
    }

    /// Posts a buffer for values of one rank. The handle ends with the buffer when enough of them have arrived; nothing
    /// is written to it then. [`Handle::poll`] asks whether it has ended.
    ///
    /// # Errors
    ///
    /// As [`Session::post_send`].
    // spec: M-10
    pub fn post_receive<M: Memory>(&self, post: ReceivePost<M>) -> Handle<Delivered<M>> {
        let ReceivePost { from, number, buffer, loss, lost } = post;
        let buffer = match lend(buffer) {
            Ok(buffer) => buffer,
            Err(error) => return ready(Err(error)),
        };
        let delivered = self.deliver(from, number, DeliverCall::Receive { buffer, loss, lost });
        delivered.and_then(|received| {
            let received = received.ok_or_else(other_type)?;
            let lost = received.lost_values();
            let values = given_back(received.buffer).ok_or_else(other_type)?;
            Ok(Delivered { values, lost })
        })
    }

    fn deliver(&self, rank: u32, number: u64, call: DeliverCall) -> Handle<Option<Received>> {
        self.begin("deliver", move |part| {
            part.transfer(|reply| Command::Deliver(Deliver { rank, number, call, reply }))
        })
    }
}

/// Lends memory to a delivery.
fn lend<M: Memory>(memory: M) -> Result<Tensor, Error> {
    let element: Element = M::Value::ELEMENT;
    lent::lend(element, Bytes(memory)).map_err(|_| {
        Error::call(format!("deliveries carry f32, f16 and bf16, not {}", element.name()))
    })
}

/// The memory that was lent.
fn given_back<M: Memory>(tensor: Tensor) -> Option<M> {
    lent::give_back(tensor).map(|Bytes(memory)| memory)
}
