//! Failures and stalls in words.

use thalweg_aggregate::TreeError;
use thalweg_aggregate::join::JoinError;
use thalweg_core::{NodeId, Span, Time};

use super::cluster::Cluster;
use super::job::{Attendee, Job};
use super::refusal::seconds;
use super::stall::Fragment;
use super::{Ending, NAMED_MAX};
use crate::message::{Diagnosis, Failure, FailureKind, Waits};
use crate::plane::Missing;
use crate::settings::Settings;

/// Number of culprits that are described.
const DESCRIBED_MAX: usize = 4;

/// Time without a message after which a connected rank is not in order: four heartbeats.
const SILENT_AFTER: Span = Span::from_s(2);

/// Why the job cannot go on, if it cannot.
// spec: E-01, E-02
pub(super) fn failure(now: Time, cluster: &Cluster, job: &Job) -> Option<Failure> {
    if let Some(dead) = dead(now, cluster, job) {
        return Some(dead);
    }
    if job.hosts.is_empty() {
        return late(now, job);
    }
    if job.welcome.is_none() && job.has_departed() {
        let culprits = job.missing();
        let text = format!("{} cannot be replaced: others have left", list(&culprits));
        return Some(Failure::new(FailureKind::Peer, text, culprits));
    }
    let (_, first) = job.stalls.first()?;
    if now.since(first.began) < job.settings.operation_timeout {
        return None;
    }
    let stall = explain_stall(now, cluster, job)?;
    let text = stall.text("timed out", "after");
    let (operation, since) = (Some(stall.operation), Some(stall.since));
    let failure = Failure::new(FailureKind::Timeout, text, stall.culprits);
    Some(Failure { operation, since, ..failure })
}

/// Why the job stalls, if it does and if that is known.
// spec: T-07
pub(super) fn diagnosis(now: Time, cluster: &Cluster, job: &Job) -> Option<Diagnosis> {
    let stall = explain_stall(now, cluster, job)?;
    let text = stall.text("stalls", "for");
    let Explained { culprits, fragment, since, .. } = stall;
    Some(Diagnosis { text, culprits, fragment, since })
}

/// Why a job cannot be set up. The registrar knows nodes and seats; people know addresses and ranks.
// spec: E-07
pub(super) fn no_set_up(cluster: &Cluster, job: &Job, error: &JoinError) -> Failure {
    let name = |rank: u32| name_of(cluster, job, rank);
    let (culprits, reason) = match error {
        // A server cannot be on a path to itself, whatever else is wrong with the tree.
        JoinError::Tree(_) if !below(job, cluster.server).is_empty() => {
            let culprits = below(job, cluster.server);
            let (server, whom) = (cluster.address(cluster.server), describe(&culprits, name));
            let reason = format!(
                "{server}, the switch of {whom}, is the server: name the switch of the rack, or none"
            );
            (culprits, reason)
        }
        JoinError::Tree(TreeError::TwoParents(switch)) => {
            let (culprits, switch) = (below(job, *switch), cluster.address(*switch));
            let whom = describe(&culprits, name);
            (culprits, format!("the switch {switch} of {whom} would send to two others"))
        }
        JoinError::Tree(TreeError::TooManyChildren { switch, children }) => {
            let (culprits, switch) = (below(job, *switch), cluster.address(*switch));
            (culprits, format!("{children} hosts are below the switch {switch}, which is too many"))
        }
        JoinError::Tree(TreeError::TooDeep { worker, levels }) => {
            let rank = leader(job, *worker).unwrap_or(*worker);
            (vec![rank], format!("{levels} switches are above {}, which is too many", name(rank)))
        }
        JoinError::Taken { rank: index, holder } => {
            let rank = leader(job, *index).unwrap_or(*index);
            let holder = cluster.address(holder.node);
            (vec![rank], format!("rank {rank} belongs to the process at {holder}"))
        }
        JoinError::UnknownServer(node) => {
            (Vec::new(), format!("{} is no server of a job", cluster.address(*node)))
        }
        JoinError::WornOut(_) => {
            let text = "it was set up too often: start it again under another name";
            (Vec::new(), text.to_owned())
        }
        _ => (Vec::new(), error.to_string()),
    };
    let text = format!("the job cannot be set up: {reason}");
    Failure::new(FailureKind::Other, text, culprits)
}

/// The rank that leads a host, by the host's index.
fn leader(job: &Job, index: u32) -> Option<u32> {
    job.hosts.get(index as usize).copied()
}

/// Ranks that have named this node as their switch.
fn below(job: &Job, switch: NodeId) -> Vec<u32> {
    let is_below = |attendee: &Attendee| attendee.switch == Some(switch);
    job.ranks.iter().filter(|(_, attendee)| is_below(attendee)).map(|(rank, _)| *rank).collect()
}

/// A stall, with its cause.
struct Explained {
    operation: u64,
    fragment: Option<u64>,
    since: Span,
    culprits: Vec<u32>,
    reason: String,
}

impl Explained {
    fn text(&self, verb: &str, preposition: &str) -> String {
        let Explained { operation, fragment, since, reason, .. } = self;
        let place = fragment.map_or(String::new(), |fragment| format!(" at fragment {fragment}"));
        format!("operation {operation} {verb}{place} {preposition} {}: {reason}", seconds(*since))
    }
}

fn explain_stall(now: Time, cluster: &Cluster, job: &Job) -> Option<Explained> {
    let ((rank, tree), first) = job.stalls.first()?;
    let since = now.since(first.began);
    let operation = first.stall.operation;
    let (fragment, (mut culprits, reason)) = match &first.stall.waits {
        Waits::Fragment(sequence) => {
            let fragment = Fragment { tree, sequence: *sequence };
            (Some(*sequence), explain_fragment(now, cluster, job, fragment))
        }
        Waits::Ranks(ranks) => {
            let culprits = job.stalls.roots(ranks.clone());
            let asker = name_of(cluster, job, rank);
            let whom = describe(&culprits, |rank| {
                format!("{}, {}", name_of(cluster, job, rank), whereabouts(now, job, (rank, tree)))
            });
            (None, (culprits, format!("{asker} waits for {whom}")))
        }
    };
    // Every rank gets them.
    // spec: E-12
    culprits.truncate(NAMED_MAX);
    Some(Explained { operation, fragment, since, culprits, reason })
}

/// A rank and where it is.
pub(super) fn name_of(cluster: &Cluster, job: &Job, rank: u32) -> String {
    match job.ranks.get(&rank) {
        Some(attendee) => format!("rank {rank} ({})", cluster.address(attendee.process.node)),
        None => format!("rank {rank}"),
    }
}

/// Ranks that have not come in time, at first or after a restart of the registrar.
fn late(now: Time, job: &Job) -> Option<Failure> {
    let Settings { failure_after, join_timeout, .. } = job.settings;
    let (waited, within) =
        (now.since(job.created), if job.is_resumed { failure_after } else { join_timeout });
    if waited < within {
        return None;
    }
    let culprits = job.missing();
    let (who, after) = (list(&culprits), seconds(waited));
    if job.is_resumed {
        let text = format!("{who} did not come back since the server restarted {after} ago");
        return Some(Failure::new(FailureKind::Peer, text, culprits));
    }
    let refusal = job.refusal.as_ref();
    let refusal = refusal.map_or(String::new(), |refusal| {
        format!(" (the last process that was refused: {refusal})")
    });
    let text = format!("joining timed out after {after}: {who} did not come{refusal}");
    let failure = Failure::new(FailureKind::Timeout, text, culprits);
    Some(Failure { since: Some(waited), ..failure })
}

/// Ranks whose connection, or whose kernel, has been away for `failure_after`.
// spec: E-01
fn dead(now: Time, cluster: &Cluster, job: &Job) -> Option<Failure> {
    let is_dead = |attendee: &Attendee| now.since(attendee.broke.0) >= job.settings.failure_after;
    let dead = job.gone().filter(|(_, attendee)| is_dead(attendee));
    let culprits: Vec<u32> = dead.map(|(rank, _)| rank).collect();
    if culprits.is_empty() {
        return None;
    }
    let text = describe(&culprits, |rank| {
        format!("{} died: {}", name_of(cluster, job, rank), whereabouts(now, job, (rank, 0)))
    });
    Some(Failure::new(FailureKind::Peer, text, culprits))
}

/// Ranks at fault that a fragment does not come, and why that is thought.
fn explain_fragment(
    now: Time,
    cluster: &Cluster,
    job: &Job,
    fragment: Fragment,
) -> (Vec<u32>, String) {
    let tree = fragment.tree;
    let server = cluster.address(cluster.server_of(tree));
    match job.stalls.answer_for(fragment) {
        Some(Missing::Complete) => {
            let culprits: Vec<u32> = job.stalls.waiting_for(fragment).into_iter().collect();
            let whom = describe(&culprits, |rank| not_received(cluster, job, (rank, tree)));
            (culprits, format!("the server {server} has sent the sum, but {whom}"))
        }
        Some(Missing::Seats(seats)) => {
            let leaders = seats.iter().filter_map(|index| leader(job, *index));
            let culprits = job.stalls.roots(leaders.collect());
            let whom = describe(&culprits, |rank| not_sent(now, cluster, job, (rank, tree)));
            (culprits, whom)
        }
        Some(Missing::Unknown) | None => {
            let waiting = job.stalls.waiting_for(fragment);
            let silent = job.hosts.iter().copied().filter(|leader| !waiting.contains(leader));
            let culprits = job.stalls.roots(silent.collect());
            let nothing = format!("nothing of it has reached the server {server}");
            if culprits.is_empty() {
                let reason = format!("{nothing}, all hosts wait for it: look at the links there");
                return (culprits, reason);
            }
            let whom = describe(&culprits, |rank| not_sent(now, cluster, job, (rank, tree)));
            (culprits, format!("{nothing}; {whom}"))
        }
    }
}

fn not_sent(now: Time, cluster: &Cluster, job: &Job, at: (u32, u32)) -> String {
    let (name, whereabouts) = (name_of(cluster, job, at.0), whereabouts(now, job, at));
    match link_of(cluster, job, at) {
        Some((own, hop)) => {
            format!("{name} has not contributed over the link {own} → {hop}, {whereabouts}")
        }
        None => format!("{name} has not contributed, {whereabouts}"),
    }
}

fn not_received(cluster: &Cluster, job: &Job, at: (u32, u32)) -> String {
    let name = name_of(cluster, job, at.0);
    match link_of(cluster, job, at) {
        Some((own, hop)) => format!("{name} has not got it: look at the link {hop} → {own}"),
        None => format!("{name} has not got it"),
    }
}

/// Both ends of a leader's first link in a tree.
fn link_of(cluster: &Cluster, job: &Job, (rank, tree): (u32, u32)) -> Option<(String, String)> {
    job.seat_of(rank)?;
    let attendee = job.ranks.get(&rank)?;
    let hop =
        cluster.path(attendee.switch).into_iter().find(|switch| job.has_switch(tree, *switch));
    let hop = hop.unwrap_or(cluster.server_of(tree));
    let text = |node| cluster.address(node).to_string();
    Some((text(attendee.node_of(tree)?), text(hop)))
}

/// Knowledge of the control channel about a rank, and about its progress in a tree.
fn whereabouts(now: Time, job: &Job, (rank, tree): (u32, u32)) -> String {
    let Some(attendee) = job.ranks.get(&rank) else { return "it never came".into() };
    if attendee.has_left() {
        return "it has left".into();
    }
    let last = attendee.progress_in(tree).map(|(_, progress)| {
        format!("operation {}, fragment {}", progress.operation, progress.fragment)
    });
    match (attendee.link, last) {
        (None, last) => {
            let (there, ending) = attendee.broke;
            let since = seconds(now.since(there));
            let last = last.map_or(String::new(), |last| format!("; last heard: {last}"));
            match ending {
                Ending::Closed => {
                    format!("its control connection closed without a goodbye {since} ago{last}")
                }
                Ending::Silent(_) => format!("its host has not answered for {since}{last}"),
            }
        }
        (Some(_), last) => {
            let silence = now.since(attendee.heard);
            let last = last.map_or(String::new(), |last| format!(" at {last}"));
            let state = if silence >= SILENT_AFTER {
                ", its connection is open: the process is stopped or busy"
            } else {
                ""
            };
            format!("last heard {} ago{last}{state}", seconds(silence))
        }
    }
}

/// The first few in words, and how many more there are.
fn describe(ranks: &[u32], words: impl Fn(u32) -> String) -> String {
    let mut text = Vec::from_iter(ranks.iter().take(DESCRIBED_MAX).map(|rank| words(*rank)));
    if ranks.len() > DESCRIBED_MAX {
        text.push(format!("{} more ranks like that", ranks.len() - DESCRIBED_MAX));
    }
    text.join("; ")
}

fn list(ranks: &[u32]) -> String {
    let shown = ranks.iter().take(DESCRIBED_MAX).map(u32::to_string).collect::<Vec<_>>().join(", ");
    match ranks.len() {
        1 => format!("rank {shown}"),
        2..=DESCRIBED_MAX => format!("ranks {shown}"),
        more => format!("ranks {shown} and {} more", more.saturating_sub(DESCRIBED_MAX)),
    }
}
