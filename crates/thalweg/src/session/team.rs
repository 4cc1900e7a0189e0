//! The ranks of one host, which send once for all.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use thalweg_control::Welcome;
use thalweg_core::{Combine, Element, Half, Tensor};
use thalweg_shared::Team;
use zerocopy::IntoBytes;

use super::SessionConfig;
use crate::engine::{Command, Post, Sum};
use crate::error::Error;
use crate::handle::{Handle, pair};
use crate::policy::Collective;
use crate::value::Array;

/// The member that sends for all.
const LEADER: u32 = 0;

/// The thread on which a rank works together with those of its host: they wait for each other, and the
/// application should not.
pub(super) struct TeamThread {
    /// `None` when it is to end.
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

type Work = Box<dyn FnOnce(&mut Team) + Send>;

impl TeamThread {
    /// Meets the other ranks of the host. `None` if there are none.
    pub fn join(config: &SessionConfig, welcome: &Welcome) -> Result<Option<TeamThread>, Error> {
        let host = welcome.roster[config.rank as usize].host;
        let mates = |ranks: &[thalweg_control::Place]| {
            ranks.iter().filter(|place| place.host == host).count() as u32
        };
        let members = mates(&welcome.roster);
        if members == 1 {
            return Ok(None);
        }
        let team = thalweg_shared::Config {
            patience: config.patience,
            ..thalweg_shared::Config::new(
                format!("thalweg-{:016x}-{host}", welcome.ticket.job.0),
                members,
                mates(&welcome.roster[..config.rank as usize]),
            )
        };
        let mut team = Team::join(team)?;
        let (work, queue) = channel::<Work>();
        let thread = std::thread::Builder::new()
            .name(format!("thalweg-{}-host", config.rank))
            .spawn(move || queue.into_iter().for_each(|work| work(&mut team)))
            .map_err(Error::system("cannot start a thread"))?;
        Ok(Some(TeamThread { work: Some(work), thread: Some(thread) }))
    }

    /// Combines values of the ranks of this host, which are all there are.
    pub fn all_reduce(&self, mut array: Array, how: Combine, divisor: u32) -> Handle<Array> {
        let (handle, reply) = pair(|array: Array| Ok(array));
        self.queue(move |team| {
            let element = array.element();
            let combined = team.all_reduce(element, how, array.as_bytes_mut());
            if divisor > 1 && combined.is_ok() {
                array.divide(divisor);
            }
            reply.end(combined.map(|()| array).map_err(Error::from));
        });
        handle
    }

    /// Sums within the host, then over all hosts, and shares the sum within the host again.
    pub fn sum(
        &self,
        lane: &Post,
        mut tensor: Tensor,
        via: Collective,
        divisor: u32,
    ) -> Handle<Array> {
        let (handle, reply) = pair(|array: Array| Ok(array));
        let post = lane.clone();
        self.queue(move |team| {
            let summed = sum_within(team, &mut tensor)
                .and_then(|()| sum_over_hosts(team, tensor, via, &post))
                .and_then(|tensor| share(team, tensor));
            reply.end(summed.map(|tensor| divided(tensor, divisor)));
        });
        handle
    }

    fn queue(&self, work: impl FnOnce(&mut Team) + Send + 'static) {
        // Work that nobody takes drops its reply, and so says that the session is over.
        let _ = self.work.as_ref().map(|queue| queue.send(Box::new(work)));
    }
}

impl Drop for TeamThread {
    /// Waits for what was begun.
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // What it died of, its work was told.
            let _ = thread.join();
        }
    }
}

fn sum_within(team: &mut Team, tensor: &mut Tensor) -> Result<(), Error> {
    let (element, bytes) = bytes_of(tensor);
    Ok(team.reduce_to(LEADER, element, Combine::Sum, bytes)?)
}

fn sum_over_hosts(
    team: &Team,
    tensor: Tensor,
    via: Collective,
    post: &Post,
) -> Result<Tensor, Error> {
    if team.me() != LEADER {
        return Ok(tensor);
    }
    let (handle, reply) = pair(|sum: Tensor| Ok(sum));
    post.send(Command::Sum(Sum { tensor, via, reply }));
    handle.wait()
}

fn share(team: &mut Team, mut tensor: Tensor) -> Result<Tensor, Error> {
    let (_, bytes) = bytes_of(&mut tensor);
    team.broadcast(LEADER, bytes)?;
    Ok(tensor)
}

fn bytes_of(tensor: &mut Tensor) -> (Element, &mut [u8]) {
    match tensor {
        Tensor::Values(values) => (Element::F32, values.as_mut_slice().as_mut_bytes()),
        Tensor::Halves(Half::F16, bits) => (Element::F16, bits.as_mut_slice().as_mut_bytes()),
        Tensor::Halves(Half::Bf16, bits) => (Element::Bf16, bits.as_mut_slice().as_mut_bytes()),
        Tensor::Length(_) => (Element::U8, &mut []),
    }
}

/// The values of a sum, divided.
pub(super) fn divided(sum: Tensor, divisor: u32) -> Array {
    let mut array = Array::from_tensor(sum);
    if divisor > 1 {
        array.divide(divisor);
    }
    array
}
