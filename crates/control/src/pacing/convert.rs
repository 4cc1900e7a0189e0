//! Between what travels and what is meant. Everything that comes in is checked here or by the board.

use thalweg_core::{JobId, NodeId};
use thalweg_pace::board::{AgentId, Answer, Plan, Question, Update, Verdict};
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Feedback, FlowId, HORIZON_MAX, Rank, Refusal, Settings, Slot};
use thiserror::Error;

use super::slot_us;
use crate::v1;
use crate::v1::fetch_feedback_request as question;
use crate::v1::fetch_feedback_response as answer;
use crate::v1::update_schedule_request as plan;
use crate::v1::update_schedule_response as verdict;
use verdict::Outcome;

/// Why a message means nothing.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// A part that must be there is not.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A plan or an answer goes further ahead than anybody plans.
    #[error("{given} slots, and at most {HORIZON_MAX} can be planned")]
    Slots {
        /// Number of slots of the plan.
        given: usize,
    },
    /// The other side counts by other slots.
    #[error(
        "slots of {slot_us} µs and {horizon_slots} of them ahead, and here they last {own_us} µs and \
         {own_horizon}: give all the same settings"
    )]
    Slotting {
        /// Length of its slots.
        slot_us: u64,
        /// Number of slots that it plans ahead.
        horizon_slots: u32,
        /// Length of slots here.
        own_us: u64,
        /// Number of slots that are planned ahead here.
        own_horizon: usize,
    },
    /// A number of answers that differs from that of the questions.
    #[error("{given} answers for {asked} questions")]
    Answers {
        /// Number of answers.
        given: usize,
        /// Number of answers that there should be.
        asked: usize,
    },
    /// A rank out of range.
    #[error("a rank of {0}: give 0 to {max}", max = Rank::LAST.0)]
    Rank(u32),
}

/// Reads a rank. Without one it is the last.
fn to_rank(given: Option<u32>) -> Result<Rank, Malformed> {
    let Some(given) = given else { return Ok(Rank::LAST) };
    u8::try_from(given).map(Rank).map_err(|_| Malformed::Rank(given))
}

pub(super) fn slotting(settings: &Settings) -> v1::Slotting {
    let horizon_slots = settings.horizon_slots as u32;
    v1::Slotting { slot_us: slot_us(settings), horizon_slots }
}

pub(super) fn check_slotting(
    given: Option<v1::Slotting>,
    settings: &Settings,
) -> Result<(), Malformed> {
    let given = given.ok_or(Malformed::Missing("slotting"))?;
    if given == slotting(settings) {
        return Ok(());
    }
    Err(Malformed::Slotting {
        slot_us: given.slot_us,
        horizon_slots: given.horizon_slots,
        own_us: slot_us(settings),
        own_horizon: settings.horizon_slots,
    })
}

pub(super) fn from_question(question: &Question) -> question::Question {
    question::Question {
        flow: Some(from_flow(question.flow)),
        to: question.to.0,
        rank: Some(question.rank.0.into()),
        others: question.others.iter().map(|other| from_flow(*other)).collect(),
    }
}

pub(super) fn to_question(question: question::Question) -> Result<Question, Malformed> {
    let others = question.others.into_iter().map(|other| to_flow(Some(other)));
    Ok(Question {
        flow: to_flow(question.flow)?,
        rank: to_rank(question.rank)?,
        to: NodeId(question.to),
        others: others.collect::<Result<_, _>>()?,
    })
}

pub(super) fn from_answer(given: &Answer) -> answer::Answer {
    answer::Answer {
        feedback: given.feedback.as_ref().map(|feedback| v1::LinkFeedback {
            load: feedback.load.volumes().to_vec(),
            free: feedback.free.volumes().to_vec(),
            narrowest: feedback.narrowest,
        }),
        progress: given.progress.iter().map(from_progress).collect(),
        rank: given.rank.map(|rank| rank.0.into()),
    }
}

/// `slot` is the one that was asked about.
pub(super) fn to_answer(slot: Slot, given: answer::Answer) -> Result<Answer, Malformed> {
    let feedback = given.feedback.map(|feedback| {
        Ok(Feedback {
            load: ahead(slot, &feedback.load)?,
            free: ahead(slot, &feedback.free)?,
            narrowest: feedback.narrowest,
        })
    });
    let progress = given.progress.into_iter().map(to_progress);
    Ok(Answer {
        feedback: feedback.transpose()?,
        progress: progress.collect::<Result<_, _>>()?,
        rank: given.rank.map(|rank| to_rank(Some(rank))).transpose()?,
    })
}

pub(super) fn from_update(update: &Update, settings: &Settings) -> v1::UpdateScheduleRequest {
    let from_plan = |given: &Plan| plan::Plan {
        flow: Some(from_flow(given.flow)),
        to: given.to.0,
        volumes: given.plan.volumes().to_vec(),
        iteration: given.progress.iteration,
        volume: given.progress.volume,
        asked: given.asked,
        carried: given.carried,
        rank: Some(given.rank.0.into()),
    };
    v1::UpdateScheduleRequest {
        slotting: Some(slotting(settings)),
        slot: update.slot.0,
        agent: update.agent.0,
        sequence: update.sequence,
        plans: update.plans.iter().map(from_plan).collect(),
    }
}

pub(super) fn to_update(given: v1::UpdateScheduleRequest) -> Result<Update, Malformed> {
    let slot = Slot(given.slot);
    let to_plan = |given: plan::Plan| {
        let flow = to_flow(given.flow)?;
        Ok(Plan {
            flow,
            rank: to_rank(given.rank)?,
            to: NodeId(given.to),
            plan: ahead(slot, &given.volumes)?,
            progress: Progress { flow, iteration: given.iteration, volume: given.volume },
            asked: given.asked,
            carried: given.carried,
        })
    };
    Ok(Update {
        agent: AgentId(given.agent),
        sequence: given.sequence,
        slot,
        plans: given.plans.into_iter().map(to_plan).collect::<Result<_, _>>()?,
    })
}

pub(super) fn from_verdict(given: &Verdict) -> verdict::Verdict {
    let plain = |outcome: Outcome| verdict::Verdict { outcome: outcome.into(), slot: 0, free: 0 };
    match given {
        Verdict::Taken => plain(Outcome::Taken),
        Verdict::NoLink => plain(Outcome::NoLink),
        Verdict::Foreign => plain(Outcome::Foreign),
        Verdict::Full(refusal) => {
            verdict::Verdict { slot: refusal.slot.0, free: refusal.free, ..plain(Outcome::Full) }
        }
    }
}

/// `asked` is what was planned.
pub(super) fn to_verdict(given: verdict::Verdict, asked: &Plan) -> Result<Verdict, Malformed> {
    let slot = Slot(given.slot);
    Ok(match given.outcome() {
        Outcome::Unspecified => return Err(Malformed::Missing("outcome")),
        Outcome::Taken => Verdict::Taken,
        Outcome::NoLink => Verdict::NoLink,
        Outcome::Foreign => Verdict::Foreign,
        Outcome::Full => {
            Verdict::Full(Refusal { slot, asked: asked.plan.at(slot), free: given.free })
        }
    })
}

pub(super) fn check_count(given: usize, asked: usize) -> Result<(), Malformed> {
    if given == asked { Ok(()) } else { Err(Malformed::Answers { given, asked }) }
}

fn ahead(slot: Slot, volumes: &[u64]) -> Result<Ahead, Malformed> {
    if volumes.len() > HORIZON_MAX {
        return Err(Malformed::Slots { given: volumes.len() });
    }
    Ok(Ahead::of(slot, volumes))
}

fn from_flow(flow: FlowId) -> v1::PacedFlow {
    v1::PacedFlow { job: flow.job.0, number: flow.number }
}

fn to_flow(flow: Option<v1::PacedFlow>) -> Result<FlowId, Malformed> {
    let flow = flow.ok_or(Malformed::Missing("flow"))?;
    Ok(FlowId { job: JobId(flow.job), number: flow.number })
}

fn from_progress(progress: &Progress) -> v1::FlowProgress {
    v1::FlowProgress {
        flow: Some(from_flow(progress.flow)),
        iteration: progress.iteration,
        volume: progress.volume,
    }
}

fn to_progress(progress: v1::FlowProgress) -> Result<Progress, Malformed> {
    let flow = to_flow(progress.flow)?;
    Ok(Progress { flow, iteration: progress.iteration, volume: progress.volume })
}
