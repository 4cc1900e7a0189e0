//! Between the scheduler's words and those of the network.

use thalweg_core::NodeId;
use thalweg_pace::board::Plan;
use thalweg_pace::links::Report;
use thalweg_pace::path::Progress;
use thalweg_pace::{Ahead, Feedback, FlowId, Rank, Slot, VOLUME_MAX};
use thalweg_wire::pace::{Direction, FactsView, OtherView, SlotView, Word};

/// Contents of a word's body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    pub(super) rank: Rank,
    pub(super) plan: Ahead,
    pub(super) feedback: Feedback,
    pub(super) report: Report,
    pub(super) others: Vec<Progress>,
}

/// Progress of the flow of a word.
pub(super) fn progress(word: &Word) -> Progress {
    let flow = FlowId { job: word.job, number: word.flow };
    Progress { flow, iteration: word.iteration, volume: word.volume }
}

/// The plan of a flow in a word that goes to `to`.
pub(super) fn plan(flow: FlowId, to: NodeId, word: &Word, body: &Contents) -> Plan {
    let Report { asked, carried } = body.report;
    let progress = progress(word);
    Plan { flow, rank: body.rank, to, plan: body.plan, progress, asked, carried }
}

/// Reads a body. `None` if it is not that of the word, or has volumes that no flow has.
pub(super) fn read(word: &Word, body: &[u8]) -> Option<Contents> {
    let body = word.read_body(body).ok()?;
    let slot = Slot(word.slot);
    let ahead = |of: fn(&SlotView) -> u64| {
        let mut ahead = Ahead::empty(slot, word.slots.into());
        let slots = ahead.volumes_mut().iter_mut().zip(body.slots);
        slots.for_each(|(volume, volumes)| *volume = of(volumes));
        ahead
    };
    let FactsView { narrowest, asked, carried, rank } = *body.facts;
    let (asked, carried) = (asked.get(), carried.get());
    let plan = ahead(|slot| slot.plan.get());
    if plan.volumes().iter().chain(&[asked, carried]).any(|&volume| volume > VOLUME_MAX) {
        return None;
    }
    let other = |other: &OtherView| Progress {
        flow: FlowId { job: word.job, number: other.flow.get() },
        iteration: word.iteration,
        volume: other.volume.get(),
    };
    let (load, free) = (ahead(|slot| slot.load.get()), ahead(|slot| slot.free.get()));
    Some(Contents {
        rank: Rank(rank.get() as u8),
        plan,
        feedback: Feedback { load, free, narrowest: narrowest.get() },
        report: Report { asked, carried },
        others: body.others.iter().map(other).collect(),
    })
}

/// Writes a body, whose length is that of the word.
pub(super) fn write(contents: &Contents, word: &Word, body: &mut [u8]) {
    let Contents { rank, plan, feedback, report, others } = contents;
    let facts = FactsView {
        narrowest: feedback.narrowest.into(),
        asked: report.asked.into(),
        carried: report.carried.into(),
        rank: u64::from(rank.0).into(),
    };
    let (load, free) = (feedback.load.volumes(), feedback.free.volumes());
    let volumes = plan.volumes().iter().zip(load).zip(free);
    let slots = volumes.map(|((&plan, &load), &free)| SlotView {
        plan: plan.into(),
        load: load.into(),
        free: free.into(),
    });
    let other = |other: &Progress| OtherView {
        volume: other.volume.into(),
        flow: other.flow.number.into(),
        reserved: 0.into(),
    };
    word.write_body(body, facts, slots, others.iter().map(other));
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
