//! Between what travels and what it means.

use std::sync::Arc;

use thalweg_aggregate::join::Process;
use thalweg_aggregate::{JobParameters, Numeric, Recovery};
use thalweg_core::{JobId, MTU_BYTES_MAX, MTU_BYTES_MIN, NodeId, Span};
use thalweg_transport::path::{NarrowPath, PathReport};
use thalweg_wire::aggregate::Scale;
use thalweg_wire::fingerprint;
use thalweg_wire::tag::Key;
use thiserror::Error;

use crate::clock::milliseconds;
use crate::message::{
    Diagnosis, Failure, FailureKind, FromRank, Join, LANES, Place, Progress, RankTicket, Resume,
    Stall, TREES_MAX, Ticket, ToRank, Waits, Welcome,
};
use crate::proof::Proof;
use crate::registry::Registration;
use crate::settings::Settings;
use crate::v1;
use crate::versions::{VersionError, Versions};

mod setup;
#[cfg(test)]
mod tests;

/// A message that means nothing. Its sender is at fault.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("the message makes no sense: {0} is missing or out of range")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Message of a stream from a rank.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StreamMessage {
    /// The first message.
    Join(Join),
    /// Every other one, with the tree of the job that it is about.
    Later(u32, FromRank),
}

pub(crate) fn registration(request: v1::RegisterRequest) -> Result<Registration, Malformed> {
    let settings = request.settings.ok_or(Malformed("settings"))?;
    let resume = request.resume.map(ticket).transpose()?;
    let (name, workers) = (request.name, request.workers);
    Ok(Registration { name, workers, settings: from_settings(settings)?, resume })
}

pub(crate) fn to_registration(registration: &Registration) -> v1::RegisterRequest {
    v1::RegisterRequest {
        name: registration.name.clone(),
        workers: registration.workers,
        settings: Some(to_settings(&registration.settings)),
        resume: registration.resume.as_ref().map(to_ticket),
        versions: Some(Versions::OWN.to_message()),
    }
}

/// Job that a rank has registered, at a server that understands the rank.
// spec: E-05
pub(crate) fn registered(answer: v1::RegisterResponse) -> Result<JobId, VersionError> {
    Versions::check(Versions::OWN, Versions::from_message(answer.versions))?;
    Ok(JobId(answer.job))
}

pub(crate) fn to_registered(job: JobId) -> v1::RegisterResponse {
    v1::RegisterResponse { job: job.0, versions: Some(Versions::OWN.to_message()) }
}

fn from_settings(settings: v1::Settings) -> Result<Settings, Malformed> {
    Ok(Settings {
        // Switches say how long fragments may be, and how many aggregators there are.
        parameters: JobParameters {
            recovery: recovery(settings.recovery())?,
            numeric: numeric(settings.numeric)?,
            span_fragments: narrow("span_fragments", settings.span_fragments)?,
            seals_bodies: settings.seals_bodies,
            widens_halves: !settings.sends_halves,
            ..JobParameters::default()
        },
        failure_after: Span::from_ms(settings.failure_after_ms),
        stall_after: Span::from_ms(settings.stall_after_ms),
        operation_timeout: Span::from_ms(settings.operation_timeout_ms),
        join_timeout: Span::from_ms(settings.join_timeout_ms),
    })
}

fn to_settings(settings: &Settings) -> v1::Settings {
    let parameters = &settings.parameters;
    v1::Settings {
        fragment_values: parameters.fragment_values.into(),
        numeric: Some(to_numeric(parameters.numeric)),
        recovery: to_recovery(parameters.recovery).into(),
        aggregators: parameters.aggregators,
        span_fragments: parameters.span_fragments.into(),
        operation_timeout_ms: milliseconds(settings.operation_timeout),
        stall_after_ms: milliseconds(settings.stall_after),
        failure_after_ms: milliseconds(settings.failure_after),
        join_timeout_ms: milliseconds(settings.join_timeout),
        seals_bodies: parameters.seals_bodies,
        sends_halves: !parameters.widens_halves,
    }
}

fn numeric(numeric: Option<v1::Numeric>) -> Result<Numeric, Malformed> {
    let Some(fixed) = numeric.ok_or(Malformed("numeric"))?.fixed else {
        return Ok(Numeric::Float);
    };
    let scale = Scale::new(fixed.scale).ok_or(Malformed("scale"))?;
    Ok(Numeric::Fixed { scale, dynamic: fixed.dynamic })
}

fn to_numeric(numeric: Numeric) -> v1::Numeric {
    let fixed = match numeric {
        Numeric::Float => None,
        Numeric::Fixed { scale, dynamic } => Some(v1::FixedPoint { scale: scale.value(), dynamic }),
    };
    v1::Numeric { fixed }
}

fn recovery(recovery: v1::Recovery) -> Result<Recovery, Malformed> {
    match recovery {
        v1::Recovery::Unspecified => Err(Malformed("recovery")),
        v1::Recovery::Selective => Ok(Recovery::Selective),
        v1::Recovery::Paper => Ok(Recovery::Paper),
    }
}

fn to_recovery(recovery: Recovery) -> v1::Recovery {
    match recovery {
        Recovery::Selective => v1::Recovery::Selective,
        Recovery::Paper => v1::Recovery::Paper,
        _ => v1::Recovery::Unspecified,
    }
}

fn ticket(ticket: v1::Ticket) -> Result<Ticket, Malformed> {
    Ok(Ticket { job: JobId(ticket.job), proof: proof(&ticket.proof)? })
}

fn rank_ticket(ticket: v1::RankTicket) -> Result<RankTicket, Malformed> {
    Ok(RankTicket {
        job: JobId(ticket.job),
        rank: ticket.rank,
        process: Process { node: NodeId(ticket.node), life: ticket.life },
        proof: proof(&ticket.proof)?,
    })
}

fn to_rank_ticket(ticket: &RankTicket) -> v1::RankTicket {
    v1::RankTicket {
        job: ticket.job.0,
        rank: ticket.rank,
        node: ticket.process.node.0,
        life: ticket.process.life,
        proof: ticket.proof.0.to_vec(),
    }
}

fn proof(bytes: &[u8]) -> Result<Proof, Malformed> {
    bytes.try_into().map(Proof).map_err(|_| Malformed("proof"))
}

fn to_ticket(ticket: &Ticket) -> v1::Ticket {
    v1::Ticket { job: ticket.job.0, proof: ticket.proof.0.to_vec() }
}

fn key(name: &'static str, bytes: &[u8]) -> Result<Key, Malformed> {
    bytes.try_into().map(Key).map_err(|_| Malformed(name))
}

fn narrow(name: &'static str, value: u32) -> Result<u16, Malformed> {
    value.try_into().map_err(|_| Malformed(name))
}

pub(crate) fn read_from_rank(message: v1::FromRank) -> Result<StreamMessage, Malformed> {
    use v1::from_rank::Message;
    let tree = tree(message.tree)?;
    let read = match message.message.ok_or(Malformed("message"))? {
        Message::Join(join) => return Ok(StreamMessage::Join(from_join(join)?)),
        Message::Answer(v1::Answer { round, seat, watermark }) => {
            FromRank::Answer { round, seat, watermark }
        }
        Message::Paths(paths) => FromRank::Paths { round: paths.round, report: from_paths(paths)? },
        Message::Progress(v1::Progress { operation, fragment, since_ms }) => {
            FromRank::Progress(Progress { operation, fragment, since: Span::from_ms(since_ms) })
        }
        Message::Stalled(v1::Stalled { operation, fragment, ranks, since_ms }) => {
            let waits = fragment.map_or(Waits::Ranks(ranks), Waits::Fragment);
            FromRank::Stalled(Stall { operation, waits, since: Span::from_ms(since_ms) })
        }
        Message::Failing(failing) => {
            let kind = from_kind(failing.kind());
            FromRank::Failing(Failure::new(kind, failing.text, failing.culprits))
        }
        Message::Aborting(v1::Aborting { reason }) => FromRank::Aborting { reason },
        Message::Operation(v1::Operation { number, fingerprint }) => {
            let encoded = fingerprint.as_slice().try_into().ok();
            let fingerprint = encoded.and_then(|bytes| fingerprint::decode(bytes).ok());
            let fingerprint = fingerprint.ok_or(Malformed("fingerprint"))?;
            FromRank::Operation { number, fingerprint }
        }
        Message::Leave(v1::Leave { operations }) => FromRank::Leave { operations },
    };
    Ok(StreamMessage::Later(tree, read))
}

/// The number of a tree.
fn tree(number: u32) -> Result<u32, Malformed> {
    if number < TREES_MAX { Ok(number) } else { Err(Malformed("tree")) }
}

pub(crate) fn write_from_rank(tree: u32, said: &FromRank) -> v1::FromRank {
    use v1::from_rank::Message;
    let message = match said.clone() {
        FromRank::Answer { round, seat, watermark } => {
            Message::Answer(v1::Answer { round, seat, watermark })
        }
        FromRank::Paths { round, report } => Message::Paths(v1::Paths {
            round,
            mtu_bytes: report.mtu_bytes.unwrap_or(0).into(),
            narrow: report.narrow.map(|path| path.node.0),
            silent: report.silent.map(|node| node.0),
        }),
        FromRank::Progress(Progress { operation, fragment, since }) => {
            Message::Progress(v1::Progress { operation, fragment, since_ms: milliseconds(since) })
        }
        FromRank::Stalled(Stall { operation, waits, since }) => {
            let (fragment, ranks) = match waits {
                Waits::Fragment(sequence) => (Some(sequence), Vec::new()),
                Waits::Ranks(ranks) => (None, ranks),
            };
            let since_ms = milliseconds(since);
            Message::Stalled(v1::Stalled { operation, fragment, ranks, since_ms })
        }
        FromRank::Failing(Failure { text, culprits, kind, .. }) => {
            Message::Failing(v1::Failing { text, culprits, kind: to_kind(kind).into() })
        }
        FromRank::Aborting { reason } => Message::Aborting(v1::Aborting { reason }),
        FromRank::Operation { number, fingerprint } => Message::Operation(v1::Operation {
            number,
            fingerprint: fingerprint::encode(&fingerprint).to_vec(),
        }),
        FromRank::Leave { operations } => Message::Leave(v1::Leave { operations }),
    };
    v1::FromRank { tree, message: Some(message) }
}

fn from_paths(paths: v1::Paths) -> Result<PathReport, Malformed> {
    let mtu_bytes = Some(mtu(paths.mtu_bytes)?).filter(|bytes| *bytes > 0);
    let narrow = |node| Some(NarrowPath { node: NodeId(node), mtu_bytes: mtu_bytes? });
    let narrow = paths.narrow.and_then(narrow);
    Ok(PathReport { mtu_bytes, narrow, silent: paths.silent.map(NodeId) })
}

/// An MTU, or 0.
fn mtu(bytes: u32) -> Result<u16, Malformed> {
    let bytes = narrow("mtu_bytes", bytes)?;
    let is_mtu = bytes == 0 || (MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&bytes);
    if is_mtu { Ok(bytes) } else { Err(Malformed("mtu_bytes")) }
}

fn from_join(join: v1::Join) -> Result<Join, Malformed> {
    let resume = |resume| {
        let v1::Resume { round, watermark, fragment_values, span_fragments, sends_halves } = resume;
        let narrow = |name, value: Option<u32>| value.map(|value| narrow(name, value)).transpose();
        let fragment_values = narrow("fragment_values", fragment_values)?;
        let span_fragments = narrow("span_fragments", span_fragments)?;
        Ok(Resume { round, watermark, fragment_values, span_fragments, sends_halves })
    };
    // spec: E-12
    if join.more_nodes.len() >= TREES_MAX as usize || join.resumes.len() > TREES_MAX as usize {
        return Err(Malformed("more_nodes or resumes"));
    }
    Ok(Join {
        job: JobId(join.job),
        rank: join.rank,
        process: Process { node: NodeId(join.node), life: join.life },
        host: join.host,
        switch: join.switch.map(NodeId),
        resumes: join.resumes.into_iter().map(resume).collect::<Result<_, Malformed>>()?,
        ticket: join.ticket.map(rank_ticket).transpose()?,
        more_nodes: join.more_nodes.into_iter().map(NodeId).collect(),
        mtu_bytes: Some(mtu(join.mtu_bytes)?).filter(|bytes| *bytes > 0),
    })
}

pub(crate) fn to_join(join: &Join) -> v1::FromRank {
    let resume = |resume: &Resume| v1::Resume {
        round: resume.round,
        watermark: resume.watermark,
        fragment_values: resume.fragment_values.map(u32::from),
        span_fragments: resume.span_fragments.map(u32::from),
        sends_halves: resume.sends_halves,
    };
    let join = v1::Join {
        job: join.job.0,
        rank: join.rank,
        node: join.process.node.0,
        host: join.host.clone(),
        life: join.process.life,
        switch: join.switch.map(|switch| switch.0),
        resumes: join.resumes.iter().map(resume).collect(),
        ticket: join.ticket.as_ref().map(to_rank_ticket),
        more_nodes: join.more_nodes.iter().map(|node| node.0).collect(),
        mtu_bytes: join.mtu_bytes.unwrap_or(0).into(),
    };
    v1::FromRank { tree: 0, message: Some(v1::from_rank::Message::Join(join)) }
}

/// Reads a message to a rank, and the tree of the job that it is about.
pub(crate) fn read_to_rank(message: v1::ToRank) -> Result<(u32, ToRank), Malformed> {
    use v1::to_rank::Message;
    let tree = tree(message.tree)?;
    let read = match message.message.ok_or(Malformed("message"))? {
        Message::Welcome(welcome) => ToRank::Welcome(Arc::new(from_welcome(welcome)?)),
        Message::Waiting(v1::Waiting { missing }) => ToRank::Waiting { missing: missing.into() },
        Message::Report(v1::Report { round, seat }) => ToRank::Report { round, seat },
        Message::ProbePaths(v1::ProbePaths { round, mtu_bytes, nodes }) => ToRank::ProbePaths {
            round,
            mtu_bytes: mtu(mtu_bytes)?,
            nodes: nodes.into_iter().map(NodeId).collect(),
        },
        Message::PathMtu(v1::PathMtu { mtu_bytes }) => {
            ToRank::PathMtu { mtu_bytes: mtu(mtu_bytes)? }
        }
        Message::Adopt(v1::Adopt { seat, key: bytes, setup }) => {
            let key = key("key", &bytes)?;
            let setup = setup::from_setup(setup.ok_or(Malformed("setup"))?, key.generation())?;
            if seat >= setup.trees[0].workers() {
                return Err(Malformed("seat"));
            }
            ToRank::Adopt { seat, key, setup: Arc::new(setup) }
        }
        Message::Retire(v1::Retire { round }) => ToRank::Retire { round },
        Message::ReportOperations(v1::ReportOperations {}) => ToRank::ReportOperations,
        Message::Diagnosis(v1::Diagnosis { text, culprits, fragment, since_ms }) => {
            let since = Span::from_ms(since_ms);
            ToRank::Diagnosis(Arc::new(Diagnosis { text, culprits, fragment, since }))
        }
        Message::Left(v1::Left { rank, operations }) => ToRank::Left { rank, operations },
        Message::Joined(v1::Joined { ticket }) => {
            ToRank::Joined { ticket: rank_ticket(ticket.ok_or(Malformed("ticket"))?)? }
        }
        Message::Failed(failed) => {
            let kind = from_kind(failed.kind());
            let failure = Failure::new(kind, failed.text, failed.culprits);
            let (operation, since) = (failed.operation, failed.since_ms.map(Span::from_ms));
            ToRank::Failed(Arc::new(Failure { operation, since, ..failure }))
        }
    };
    Ok((tree, read))
}

pub(crate) fn write_to_rank(tree: u32, told: &ToRank) -> v1::ToRank {
    use v1::to_rank::Message;
    let message = match told {
        ToRank::Welcome(welcome) => Message::Welcome(to_welcome(welcome)),
        ToRank::Waiting { missing } => Message::Waiting(v1::Waiting { missing: missing.to_vec() }),
        &ToRank::Report { round, seat } => Message::Report(v1::Report { round, seat }),
        ToRank::ProbePaths { round, mtu_bytes, nodes } => Message::ProbePaths(v1::ProbePaths {
            round: *round,
            mtu_bytes: (*mtu_bytes).into(),
            nodes: nodes.iter().map(|node| node.0).collect(),
        }),
        &ToRank::PathMtu { mtu_bytes } => {
            Message::PathMtu(v1::PathMtu { mtu_bytes: mtu_bytes.into() })
        }
        ToRank::Adopt { seat, key, setup } => Message::Adopt(v1::Adopt {
            seat: *seat,
            key: key.0.to_vec(),
            setup: Some(setup::to_setup(setup)),
        }),
        &ToRank::Retire { round } => Message::Retire(v1::Retire { round }),
        ToRank::ReportOperations => Message::ReportOperations(v1::ReportOperations {}),
        ToRank::Diagnosis(diagnosis) => Message::Diagnosis(v1::Diagnosis {
            text: diagnosis.text.clone(),
            culprits: diagnosis.culprits.clone(),
            fragment: diagnosis.fragment,
            since_ms: milliseconds(diagnosis.since),
        }),
        ToRank::Failed(failure) => Message::Failed(v1::Failed {
            text: failure.text.clone(),
            culprits: failure.culprits.clone(),
            kind: to_kind(failure.kind).into(),
            operation: failure.operation,
            since_ms: failure.since.map(milliseconds),
        }),
        &ToRank::Left { rank, operations } => Message::Left(v1::Left { rank, operations }),
        ToRank::Joined { ticket } => {
            Message::Joined(v1::Joined { ticket: Some(to_rank_ticket(ticket)) })
        }
    };
    v1::ToRank { tree, message: Some(message) }
}

fn from_kind(kind: v1::FailureKind) -> FailureKind {
    match kind {
        v1::FailureKind::Unspecified => FailureKind::Other,
        v1::FailureKind::Peer => FailureKind::Peer,
        v1::FailureKind::Timeout => FailureKind::Timeout,
        v1::FailureKind::Aborted => FailureKind::Aborted,
        v1::FailureKind::Agreement => FailureKind::Agreement,
        v1::FailureKind::Refused => FailureKind::Refused,
        v1::FailureKind::Path => FailureKind::Path,
    }
}

fn to_kind(kind: FailureKind) -> v1::FailureKind {
    match kind {
        FailureKind::Other => v1::FailureKind::Unspecified,
        FailureKind::Peer => v1::FailureKind::Peer,
        FailureKind::Timeout => v1::FailureKind::Timeout,
        FailureKind::Aborted => v1::FailureKind::Aborted,
        FailureKind::Agreement => v1::FailureKind::Agreement,
        FailureKind::Refused => v1::FailureKind::Refused,
        FailureKind::Path => v1::FailureKind::Path,
    }
}

fn from_welcome(welcome: v1::Welcome) -> Result<Welcome, Malformed> {
    let lanes = welcome.lane_keys.iter().map(|bytes| key("lane_keys", bytes));
    let lanes = lanes.collect::<Result<Vec<Key>, Malformed>>()?;
    let (lane_keys, rest) = lanes.as_chunks::<LANES>();
    let trees = lane_keys.len();
    if !rest.is_empty() || !(1..=TREES_MAX as usize).contains(&trees) {
        return Err(Malformed("lane_keys"));
    }
    if welcome.rounds.len() != trees {
        return Err(Malformed("rounds"));
    }
    let place = |place: v1::Place| Place {
        node: NodeId(place.node),
        more_nodes: place.more_nodes.into_iter().map(NodeId).collect(),
        host: place.host,
    };
    let roster: Vec<Place> = welcome.roster.into_iter().map(place).collect();
    if roster.iter().any(|place| place.more_nodes.len() + 1 != trees) {
        return Err(Malformed("more_nodes"));
    }
    Ok(Welcome {
        ticket: ticket(welcome.ticket.ok_or(Malformed("ticket"))?)?,
        lane_keys: lane_keys.to_vec(),
        roster,
        rounds: welcome.rounds,
        has_switch: welcome.has_switch,
        probes_paths: welcome.probes_paths,
    })
}

fn to_welcome(welcome: &Welcome) -> v1::Welcome {
    let place = |place: &Place| v1::Place {
        node: place.node.0,
        more_nodes: place.more_nodes.iter().map(|node| node.0).collect(),
        host: place.host,
    };
    v1::Welcome {
        ticket: Some(to_ticket(&welcome.ticket)),
        lane_keys: welcome.lane_keys.iter().flatten().map(|key| key.0.to_vec()).collect(),
        roster: welcome.roster.iter().map(place).collect(),
        rounds: welcome.rounds.clone(),
        has_switch: welcome.has_switch,
        probes_paths: welcome.probes_paths,
    }
}
