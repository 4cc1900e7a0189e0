//! Between the scheduler's words and their bytes.

use thalweg_core::Body;
use thalweg_pace::links::Report;
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Feedback, FlowId, Rank, Slot, VOLUME_MAX};
use thalweg_wire::pace::{Direction, Parts, Word};

/// What the body of a word says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Said {
    pub(super) rank: Rank,
    pub(super) plan: Ahead,
    pub(super) feedback: Feedback,
    pub(super) report: Report,
    pub(super) others: Vec<Progress>,
}

/// How far the flow of a word is.
pub(super) fn progress(word: &Word) -> Progress {
    let flow = FlowId { job: word.job, number: word.flow };
    Progress { flow, iteration: word.iteration, volume: word.volume }
}

/// Reads a body. `None` if it is not that of the word, or has volumes that cannot be.
pub(super) fn read(word: &Word, body: Body<'_>) -> Option<Said> {
    let Body::Bytes(bytes) = body else { return None };
    said(word, &word.parts(bytes)?)
}

pub(super) fn said(word: &Word, parts: &Parts<'_>) -> Option<Said> {
    let slot = Slot(word.slot);
    let ahead = |of: fn(&thalweg_wire::pace::SlotView) -> u64| {
        let mut ahead = Ahead::empty(slot, parts.slots.len());
        let slots = ahead.volumes_mut().iter_mut().zip(parts.slots.iter());
        slots.for_each(|(volume, view)| *volume = of(view));
        ahead
    };
    let plan = ahead(|view| view.plan.get());
    let report = Report { asked: parts.facts.asked.get(), carried: parts.facts.carried.get() };
    let told = [report.asked, report.carried];
    if plan.volumes().iter().chain(&told).any(|&volume| volume > VOLUME_MAX) {
        return None;
    }
    let feedback = Feedback {
        load: ahead(|view| view.load.get()),
        free: ahead(|view| view.free.get()),
        narrowest: parts.facts.narrowest.get(),
    };
    let rank = u8::try_from(parts.facts.rank.get()).map_or(Rank::LAST, Rank);
    let iteration = word.iteration;
    let other = |view: &thalweg_wire::pace::OtherView| Progress {
        flow: FlowId { job: word.job, number: view.flow.get() },
        iteration,
        volume: view.volume.get(),
    };
    let others = parts.others.iter().map(other).collect();
    Some(Said { rank, plan, feedback, report, others })
}

/// Writes a body, whose length is that of the word.
pub(super) fn write(said: &Said, parts: Parts<'_>) {
    parts.facts.narrowest.set(said.feedback.narrowest);
    parts.facts.asked.set(said.report.asked);
    parts.facts.carried.set(said.report.carried);
    parts.facts.rank.set(said.rank.0.into());
    let (load, free) = (said.feedback.load.volumes(), said.feedback.free.volumes());
    let volumes = said.plan.volumes().iter().zip(load).zip(free);
    for (view, ((plan, load), free)) in parts.slots.iter_mut().zip(volumes) {
        view.plan.set(*plan);
        view.load.set(*load);
        view.free.set(*free);
    }
    for (view, other) in parts.others.iter_mut().zip(&said.others) {
        view.flow.set(other.flow.number);
        view.volume.set(other.volume);
        view.reserved.set(0);
    }
}

/// A word that goes with a flow.
pub(super) fn question(
    slot: Slot,
    slots: usize,
    (has_plan, is_summed): (bool, bool),
    at: Progress,
) -> Word {
    Word {
        job: at.flow.job,
        epoch: 0,
        flow: at.flow.number,
        direction: Direction::Ask,
        slot: slot.0,
        slots: slots as u8,
        has_plan,
        is_summed,
        refused: None,
        iteration: at.iteration,
        volume: at.volume,
    }
}
