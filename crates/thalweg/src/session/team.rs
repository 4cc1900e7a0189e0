//! The ranks of one host, which send once for all.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_control::{Failure, FailureKind, Welcome};
use thalweg_core::{Combine, Element, Fingerprint, Mismatch};
use thalweg_shared::{Team, TeamError};
use thalweg_values::{Coverage, Tensor};
use thalweg_wire::coverage;
use zerocopy::IntoBytes;

use super::SessionConfig;
use super::missing::{Hosts, Reduced};
use super::spread::Spread;
use crate::engine::{Command, End, JointOperation, OpenPart, Post, Summed};
use crate::error::Error;
use crate::handle::{Handle, pair};
use crate::policy::{Policy, Reduce};

/// The member that sends for all.
const LEADER: u32 = 0;

/// The thread on which a rank works together with those of its host: they wait for each other, and the
/// application should not.
pub(super) struct TeamThread {
    /// `None` when it is to end.
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    mates: Mates,
}

/// Least time that the ranks of a host have to meet: the last one may have joined when the time was almost over.
const MEET_WITHIN: Duration = Duration::from_secs(1);

/// Time that the reason for the end of a session has to reach all ranks of a host.
const REASON_WITHIN: Duration = Duration::from_secs(2);

/// The ranks of this host, by member of the team.
#[derive(Clone)]
struct Mates {
    ranks: Arc<[u32]>,
    end: Arc<End>,
}

type Work = Box<dyn FnOnce(&mut Team) + Send>;

impl TeamThread {
    /// Meets the other ranks of the host, within what is left of the time to join. `None` if there are none.
    // spec: E-02
    pub fn join(
        config: &SessionConfig,
        welcome: &Welcome,
        end: &Arc<End>,
        joining: Duration,
    ) -> Result<Option<TeamThread>, Error> {
        let host = welcome.roster[config.rank as usize].host;
        let is_mate = |rank: &u32| welcome.roster[*rank as usize].host == host;
        let mates: Arc<[u32]> = (0..config.ranks).filter(is_mate).collect();
        if mates.len() == 1 {
            return Ok(None);
        }
        let me = mates.partition_point(|&mate| mate < config.rank) as u32;
        let mates = Mates { ranks: mates, end: Arc::clone(end) };
        let team = thalweg_shared::Config {
            patience: config.operation_deadline(),
            join_patience: Some(config.join_timeout.saturating_sub(joining).max(MEET_WITHIN)),
            stop: Some(Arc::clone(&end.flag)),
            ..thalweg_shared::Config::new(
                format!("thalweg-{:016x}-{host}", welcome.ticket.job.0),
                mates.ranks.len() as u32,
                me,
            )
        };
        let mut team = Team::join(team).map_err(|error| mates.reason_of(error))?;
        let (work, queue) = channel::<Work>();
        let thread = std::thread::Builder::new()
            .name(format!("thalweg-{}-host", config.rank))
            .spawn(move || queue.into_iter().for_each(|work| work(&mut team)))
            .map_err(Error::system("cannot start a thread"))?;
        Ok(Some(TeamThread { work: Some(work), thread: Some(thread), mates }))
    }

    /// Combines values of the ranks of this host, which are all there are, where they are.
    pub fn all_reduce<B: AsMut<[u8]> + Send + 'static>(
        &self,
        lane: &Post,
        mut values: B,
        fingerprint: Fingerprint,
        (element, how, divisor): (Element, Combine, u32),
    ) -> Handle<B> {
        let (handle, reply) = pair(|values: B| Ok(values));
        let (post, mates) = (lane.clone(), self.mates.clone());
        let part = begin(&post, fingerprint);
        self.queue(move |team| {
            team.label(Some(fingerprint));
            let combined = team.all_reduce_divided(element, how, divisor, values.as_mut());
            let combined = combined.map_err(|error| mates.fail(&post, error));
            drop(part);
            reply.end(combined.map(|()| values));
        });
        handle
    }

    /// Sums within the host, then over all hosts, and shares the sum within the host again.
    pub fn sum(
        &self,
        spread: Spread,
        mut tensor: Tensor,
        (policy, fingerprint): (Policy, Fingerprint),
        (how, hosts): (Reduce, Arc<Hosts>),
    ) -> Handle<Reduced<Tensor>> {
        let (handle, reply) = pair(|sum: Reduced<Tensor>| Ok(sum));
        let (post, mates) = (spread.first().clone(), self.mates.clone());
        let begun = spread.begin(fingerprint);
        self.queue(move |team| {
            team.label(Some(fingerprint));
            let summed = sum_within(team, &mut tensor)
                .map_err(|error| mates.fail(&post, error))
                .and_then(|()| {
                    sum_over_hosts(team, tensor, (policy, fingerprint), (spread, &begun))
                })
                .map(|summed| hosts.reduced(summed))
                .and_then(|sum| {
                    share(team, sum, (policy, hosts.ranks()))
                        .map_err(|error| mates.fail(&post, error))
                });
            drop(begun);
            reply.end(summed.and_then(|sum| hosts.finish(sum, how, policy.collective)));
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
            // If it died, the replies of its work have reported that.
            let _ = thread.join();
        }
    }
}

impl Mates {
    /// Returns the failure of the ranks of this host. If they called different operations, or one of them is gone, that
    /// is what everybody in the job has to know.
    // spec: E-11, E-01
    fn fail(&self, post: &Post, error: TeamError) -> Error {
        let failure = match &error {
            TeamError::Disagreement { one, one_call, other, other_call, .. } => {
                let (Some(its), Some(theirs)) = (one_call.operation, other_call.operation) else {
                    return self.blame(&error).map_or_else(|| error.into(), Error::failed);
                };
                let mismatch = Mismatch { one: (*one, its), other: (*other, theirs) };
                let mismatch = mismatch.renumbered(|member| self.rank(member));
                let ranks = mismatch.ranks().to_vec();
                Failure::new(FailureKind::Agreement, mismatch.to_string(), ranks)
            }
            // A member of this host may know the reason a little before this one, and leave because of it.
            TeamError::Stopped { .. } | TeamError::Gone { .. } => {
                match (self.end.wait_for(REASON_WITHIN), self.blame(&error)) {
                    (Some(reason), _) => return reason,
                    (None, Some(failure)) => failure,
                    (None, None) => return error.into(),
                }
            }
            _ => return self.blame(&error).map_or_else(|| error.into(), Error::failed),
        };
        // What everybody gets is the same, and names the rank that reports it.
        post.send(Command::Fail(failure.clone()));
        self.end.wait_for(REASON_WITHIN).unwrap_or_else(|| Error::failed(failure))
    }

    /// Returns why the ranks of this host did not come together: the reason of the session, if there is one.
    fn reason_of(&self, error: TeamError) -> Error {
        if let TeamError::Stopped { .. } = error
            && let Some(reason) = self.end.wait_for(REASON_WITHIN)
        {
            return reason;
        }
        self.blame(&error).map_or_else(|| error.into(), Error::failed)
    }

    /// The rank of a member.
    fn rank(&self, member: u32) -> u32 {
        self.ranks.get(member as usize).copied().unwrap_or(member)
    }

    /// A failure of the ranks that are at fault, in terms of ranks. `None` if nobody is.
    fn blame(&self, error: &TeamError) -> Option<Failure> {
        let culprits: Vec<u32> =
            error.culprits().into_iter().map(|member| self.rank(member)).collect();
        if culprits.is_empty() {
            return None;
        }
        let names: Vec<String> = culprits.iter().map(u32::to_string).collect();
        let who = format!("rank{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "));
        let (kind, text) = match error {
            TeamError::Gone { call, .. } => {
                (FailureKind::Peer, format!("{who} ended or left before {call} was done"))
            }
            TeamError::Died { .. } => {
                (FailureKind::Peer, format!("{who} ended before all ranks of the host had joined"))
            }
            TeamError::Stalled { call, after, .. } => (
                FailureKind::Timeout,
                format!("{call} timed out after {after:?}: {who} did not come"),
            ),
            TeamError::Absent { after, .. } => (
                FailureKind::Timeout,
                format!("joining timed out after {after:?}: {who} did not come"),
            ),
            TeamError::Stopped { .. } => (FailureKind::Other, format!("{who} stopped first")),
            _ => {
                (FailureKind::Other, format!("{who}: {error} (members are ranks {:?})", self.ranks))
            }
        };
        Some(Failure::new(kind, format!("{text}, on this host"), culprits))
    }
}

/// Has the first sending thread number an operation, in the order of the calls. Its part ends with the work of the ranks of the
/// host.
pub(super) fn begin(first: &Post, fingerprint: Fingerprint) -> OpenPart {
    let part = JointOperation::begin(fingerprint);
    first.leave_note(Command::Begin(Arc::clone(part.operation())));
    part
}

fn sum_within(team: &mut Team, tensor: &mut Tensor) -> Result<(), TeamError> {
    let (element, bytes) = bytes_of(tensor);
    team.reduce_to(LEADER, element, Combine::Sum, bytes)
}

fn sum_over_hosts(
    team: &Team,
    tensor: Tensor,
    operation: (Policy, Fingerprint),
    (spread, begun): (Spread, &OpenPart),
) -> Result<Summed, Error> {
    if team.me() != LEADER {
        // The leader reports it, see `share`.
        return Ok(Summed { tensor, coverage: Coverage::Unreported });
    }
    spread.sum(tensor, operation, Some(begun)).wait()
}

/// Hands on what the leader has: the sum, and its coverage where that is not always exact.
// spec: T-11
fn share(
    team: &mut Team,
    mut sum: Reduced<Tensor>,
    (policy, ranks): (Policy, u32),
) -> Result<Reduced<Tensor>, TeamError> {
    let (_, bytes) = bytes_of(&mut sum.values);
    team.broadcast(LEADER, bytes)?;
    if policy.reliability.loss().is_none() {
        return Ok(Reduced { coverage: Coverage::Exact, ..sum });
    }
    let mut bytes = coverage::encode(&sum.coverage, ranks);
    let mut count = [bytes.len() as u64];
    team.broadcast(LEADER, count.as_mut_bytes())?;
    bytes.resize(count[0] as usize, 0);
    team.broadcast(LEADER, &mut bytes)?;
    let coverage = coverage::decode(&bytes, sum.values.len(), ranks);
    Ok(Reduced { coverage: coverage.unwrap_or(Coverage::Unreported), ..sum })
}

pub(super) fn bytes_of(tensor: &mut Tensor) -> (Element, &mut [u8]) {
    match tensor {
        Tensor::Values(values) => (Element::F32, values.as_mut_bytes()),
        Tensor::F16(values) => (Element::F16, values.as_mut_bytes()),
        Tensor::Bf16(values) => (Element::Bf16, values.as_mut_bytes()),
        Tensor::Length(_) => (Element::U8, &mut []),
    }
}
