//! Failures and stalls in words.

use thalweg_core::{Span, Time};

use super::SILENT_AFTER;
use super::cluster::Cluster;
use super::job::{Attendee, Job};
use super::refusal::seconds;
use crate::message::{Diagnosis, Failure, FailureKind, Waits};
use crate::plane::Missing;

/// How many culprits are described.
const DESCRIBED_MAX: usize = 4;

/// Why the job cannot go on, if it cannot.
pub(super) fn failure(now: Time, cluster: &Cluster, job: &Job) -> Option<Failure> {
    let patience = job.settings.patience;
    if job.hosts.is_empty() {
        let waited = now.since(job.created);
        return (job.is_resumed && waited >= patience).then(|| not_back(job, waited));
    }
    if job.welcome.is_none() && job.ranks.values().any(|attendee| attendee.has_left) {
        let culprits = job.missing();
        let text = format!("{} cannot be replaced: others have left", list(&culprits));
        return Some(Failure::new(FailureKind::Peer, text, culprits));
    }
    gone(now, cluster, job).or_else(|| {
        let (_, first) = job.stalls.first()?;
        if now.since(first.began) < patience {
            return None;
        }
        let Diagnosis { text, culprits, since, .. } = diagnosis(now, cluster, job)?;
        let failure = Failure::new(FailureKind::Timeout, text, culprits);
        Some(Failure { operation: Some(first.stall.operation), since: Some(since), ..failure })
    })
}

/// Why the job stalls, if it does and if that is known.
// spec: T-07
pub(super) fn diagnosis(now: Time, cluster: &Cluster, job: &Job) -> Option<Diagnosis> {
    let (rank, first) = job.stalls.first()?;
    let since = now.since(first.began);
    let operation = first.stall.operation;
    let (fragment, (culprits, reason)) = match &first.stall.waits {
        Waits::Fragment(sequence) => {
            (Some(*sequence), explain_fragment(now, cluster, job, *sequence))
        }
        Waits::Ranks(ranks) => {
            let culprits = job.stalls.roots(ranks.clone());
            let asker = name_of(cluster, job, rank);
            let whom = describe(&culprits, |rank| {
                format!("{}, {}", name_of(cluster, job, rank), whereabouts(now, job, rank))
            });
            (None, (culprits, format!("{asker} waits for {whom}")))
        }
    };
    let place = fragment.map_or(String::new(), |fragment| format!(" at fragment {fragment}"));
    let text = format!("operation {operation} stalls{place} for {}: {reason}", seconds(since));
    Some(Diagnosis { text, culprits, fragment, since })
}

/// A rank and where it is.
pub(super) fn name_of(cluster: &Cluster, job: &Job, rank: u32) -> String {
    match job.ranks.get(&rank) {
        Some(attendee) => format!("rank {rank} ({})", cluster.address(attendee.process.node)),
        None => format!("rank {rank}"),
    }
}

fn not_back(job: &Job, waited: Span) -> Failure {
    let culprits = job.missing();
    let (who, waited) = (list(&culprits), seconds(waited));
    let text = format!("{who} did not come back since the registrar restarted {waited} ago");
    Failure::new(FailureKind::Peer, text, culprits)
}

/// Those who were away for longer than the patience.
fn gone(now: Time, cluster: &Cluster, job: &Job) -> Option<Failure> {
    let patience = job.settings.patience;
    let is_gone = |attendee: &Attendee| match attendee.link {
        _ if attendee.has_left => false,
        None => now.since(attendee.broke) >= patience,
        Some(_) => now.since(attendee.heard) >= patience.max(SILENT_AFTER),
    };
    let gone = job.ranks.iter().filter(|(_, attendee)| is_gone(attendee));
    let culprits: Vec<u32> = gone.map(|(rank, _)| *rank).collect();
    if culprits.is_empty() {
        return None;
    }
    let text = describe(&culprits, |rank| {
        format!("{} is gone: {}", name_of(cluster, job, rank), whereabouts(now, job, rank))
    });
    Some(Failure::new(FailureKind::Peer, text, culprits))
}

/// Whose fault it is that a fragment does not come, and why that is thought.
fn explain_fragment(now: Time, cluster: &Cluster, job: &Job, sequence: u64) -> (Vec<u32>, String) {
    let server = cluster.address(cluster.server);
    match job.stalls.answer_for(sequence) {
        Some(Missing::Complete) => {
            let culprits: Vec<u32> = job.stalls.waiting_for(sequence).collect();
            let whom = describe(&culprits, |rank| not_received(cluster, job, rank));
            (culprits, format!("the server {server} has sent the sum, but {whom}"))
        }
        Some(Missing::Seats(seats)) => {
            let leader = |seat: &u32| job.hosts.get(*seat as usize).copied();
            let culprits = job.stalls.roots(seats.iter().filter_map(leader).collect());
            (culprits.clone(), describe(&culprits, |rank| not_sent(now, cluster, job, rank)))
        }
        Some(Missing::Unknown) | None => {
            let waits = |rank: &u32| job.stalls.waiting_for(sequence).any(|other| other == *rank);
            let silent = job.hosts.iter().copied().filter(|leader| !waits(leader));
            let culprits = job.stalls.roots(silent.collect());
            let nothing = format!("nothing of it has reached the server {server}");
            if culprits.is_empty() {
                let reason = format!("{nothing}, all hosts wait for it: look at the links there");
                return (culprits, reason);
            }
            let whom = describe(&culprits, |rank| not_sent(now, cluster, job, rank));
            (culprits, format!("{nothing}; {whom}"))
        }
    }
}

fn not_sent(now: Time, cluster: &Cluster, job: &Job, rank: u32) -> String {
    let (name, whereabouts) = (name_of(cluster, job, rank), whereabouts(now, job, rank));
    match link_of(cluster, job, rank) {
        Some((own, hop)) => {
            format!("{name} has not contributed over the link {own} → {hop}, {whereabouts}")
        }
        None => format!("{name} has not contributed, {whereabouts}"),
    }
}

fn not_received(cluster: &Cluster, job: &Job, rank: u32) -> String {
    let name = name_of(cluster, job, rank);
    match link_of(cluster, job, rank) {
        Some((own, hop)) => format!("{name} has not got it: look at the link {hop} → {own}"),
        None => format!("{name} has not got it"),
    }
}

/// Both ends of a leader's first link.
fn link_of(cluster: &Cluster, job: &Job, rank: u32) -> Option<(String, String)> {
    job.seat_of(rank)?;
    let attendee = job.ranks.get(&rank)?;
    let hop = cluster.first_hop(attendee.switch);
    let text = |node| cluster.address(node).to_string();
    Some((text(attendee.process.node), text(hop)))
}

/// What the control channel knows of a rank.
fn whereabouts(now: Time, job: &Job, rank: u32) -> String {
    let Some(attendee) = job.ranks.get(&rank) else { return "it never came".into() };
    if attendee.has_left {
        return "it has left".into();
    }
    let last = attendee.progress.map(|(_, progress)| {
        format!("operation {}, fragment {}", progress.operation, progress.fragment)
    });
    match (attendee.link, last) {
        (None, last) => {
            let broke = seconds(now.since(attendee.broke));
            let last = last.map_or(String::new(), |last| format!("; last heard: {last}"));
            format!("its control connection broke {broke} ago{last}")
        }
        (Some(_), last) => {
            let heard = seconds(now.since(attendee.heard));
            let last = last.map_or(String::new(), |last| format!(" at {last}"));
            format!("last heard {heard} ago{last}")
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
