//! Every decision of the server, as tables.
//!
//! Nothing here knows of slots or queues, so a test can go through all cases.

use thalweg_core::NodeId;

use crate::setup::{Attempt, Recovery};

/// State of a fragment at the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum State {
    /// Nothing.
    #[default]
    Empty,
    /// One or more contributions.
    Partial,
    /// None or some of the floats that it asked for.
    Floats,
    /// The result.
    Done,
}

/// Relation of a packet's set to the set that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// No worker is in both.
    Disjoint,
    /// The packet has all that is there, and more.
    Superset,
    /// Anything else.
    Overlap,
}

/// Relation of a packet's attempt to that of the sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Age {
    /// Fixed point, where floats are wanted.
    Older,
    /// The same.
    Current,
    /// Floats, where nobody has asked for them yet.
    Newer,
    /// Of another scale: no worker that agrees with the others sends it.
    Foreign,
}

/// Treatment of a gradient packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// A new sum begins with it.
    Begin,
    /// It is added.
    Add,
    /// It takes the place of what is there.
    Replace,
    /// It is dropped whole.
    Drop,
    /// It is dropped: it cannot be meant for this sum.
    Refuse,
    /// The sender does not know that floats are wanted.
    AskFloats,
    /// The sender does not have the result.
    Answer,
    /// The result: its values are taken for it.
    Adopt,
}

/// Asker for a result that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A worker, with a query. It is for itself, or for all below a switch.
    Query(Lacking),
    /// A node that sent a contribution again because no result came: the paper's way to ask.
    Resend,
    /// Nobody asked, but a contribution came late.
    Stray,
}

/// Node that lacks a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lacking {
    /// The worker of this rank.
    Worker(u32),
    /// A switch right below the server, and so everybody below it.
    Switch(NodeId),
}

/// Recipients of the last result or repeat that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Answered {
    /// Nobody in this epoch.
    #[default]
    Nobody,
    /// Everybody, when there was something new to tell.
    First,
    /// One that asked.
    One(Lacking),
    /// Everybody, once more.
    Again,
}

/// Recipients of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whom {
    /// One that asked.
    One(Lacking),
    /// All workers.
    All,
}

/// Decides on a gradient packet of a known set and the current epoch.
// spec, T-10
pub(super) fn judge(
    state: State,
    is_result: bool,
    age: Age,
    relation: Relation,
    recovery: Recovery,
) -> Action {
    match (state, is_result, age, relation, recovery) {
        (State::Done, ..) => Action::Answer,
        (_, true, ..) => Action::Adopt,
        (State::Empty, ..) => Action::Begin,
        (_, _, Age::Older, ..) => Action::AskFloats,
        (_, _, Age::Newer, ..) => Action::Begin,
        (_, _, Age::Foreign, ..) => Action::Refuse,
        (_, _, Age::Current, Relation::Disjoint, _) => Action::Add,
        (_, _, Age::Current, Relation::Superset, Recovery::Selective) => Action::Replace,
        (_, _, Age::Current, Relation::Superset, Recovery::Paper) => Action::Drop,
        (_, _, Age::Current, Relation::Overlap, _) => Action::Drop,
    }
}

/// Recipients of a result that is there. `recently`: less than an asking gap since it was sent.
// spec: A-21, T-10
pub(super) fn answer(asker: Asker, answered: Answered, recently: bool) -> Option<Whom> {
    match (asker, if recently { answered } else { Answered::Nobody }) {
        (Asker::Query(_) | Asker::Resend, Answered::Again) => None,
        // The others will ask as well.
        (Asker::Query(node), Answered::One(other)) => (node != other).then_some(Whom::All),
        (Asker::Query(node), Answered::Nobody | Answered::First) => Some(Whom::One(node)),
        (Asker::Resend, Answered::Nobody | Answered::First | Answered::One(_)) => Some(Whom::All),
        // Once it was sent, a worker that lacks it asks; a copy that comes late does not.
        (Asker::Stray, _) => (answered == Answered::Nobody).then_some(Whom::All),
    }
}

impl Relation {
    /// From how many workers the packet names, how many are there, and how many are in both.
    pub(super) fn of(named: u32, contributors: u32, both: u32) -> Relation {
        if both == 0 {
            Relation::Disjoint
        } else if both == contributors && named > contributors {
            Relation::Superset
        } else {
            Relation::Overlap
        }
    }
}

impl Age {
    pub(super) fn of(packet: Attempt, sum: Attempt) -> Age {
        if packet == sum {
            Age::Current
        } else if packet.generation() != sum.generation() {
            Age::Foreign
        } else if packet.is_in_floats() {
            Age::Newer
        } else {
            Age::Older
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 4] = [State::Empty, State::Partial, State::Floats, State::Done];
    const AGES: [Age; 4] = [Age::Older, Age::Current, Age::Newer, Age::Foreign];
    const RELATIONS: [Relation; 3] = [Relation::Disjoint, Relation::Superset, Relation::Overlap];

    /// The table of the document, written the other way round: what has to hold for each action.
    // spec, T-10 machine
    #[test]
    fn every_case_is_what_the_document_says() {
        for state in STATES {
            for age in AGES {
                for relation in RELATIONS {
                    for recovery in [Recovery::Paper, Recovery::Selective] {
                        let case = (state, age, relation, recovery);
                        let action = judge(state, false, age, relation, recovery);
                        let collecting = matches!(state, State::Partial | State::Floats);
                        let current = collecting && age == Age::Current;
                        let is = |wanted: Action, holds: bool| {
                            assert_eq!(action == wanted, holds, "{wanted:?} in {case:?}");
                        };
                        is(Action::Answer, state == State::Done);
                        is(Action::Begin, state == State::Empty || collecting && age == Age::Newer);
                        is(Action::AskFloats, collecting && age == Age::Older);
                        is(Action::Add, current && relation == Relation::Disjoint);
                        let selective = recovery == Recovery::Selective;
                        is(Action::Replace, current && selective && relation == Relation::Superset);
                        is(Action::Refuse, collecting && age == Age::Foreign);
                        is(Action::Adopt, false);
                        let result = judge(state, true, age, relation, recovery);
                        let kept =
                            if state == State::Done { Action::Answer } else { Action::Adopt };
                        assert_eq!(result, kept, "{case:?}");
                    }
                }
            }
        }
    }

    // spec: A-21, T-10 machine
    #[test]
    fn who_asks_is_answered_once_per_gap_and_two_are_answered_together() {
        use Asker::{Query, Resend, Stray};
        let worker = Lacking::Worker;
        let (one, all) = (|rank| Some(Whom::One(worker(rank))), Some(Whom::All));
        let rows = [
            (Query(worker(1)), [one(1), one(1), None, all, None], [one(1); 5]),
            (Resend, [all, all, all, all, None], [all; 5]),
            (Stray, [all, None, None, None, None], [all, None, None, None, None]),
        ];
        for (asker, soon, later) in rows {
            let ones = [1, 2].map(|rank| Answered::One(worker(rank)));
            let answered = [Answered::Nobody, Answered::First, ones[0], ones[1], Answered::Again];
            for (answered, (soon, later)) in answered.into_iter().zip(soon.into_iter().zip(later)) {
                assert_eq!(answer(asker, answered, true), soon, "{asker:?} {answered:?}");
                assert_eq!(
                    answer(asker, answered, false),
                    later,
                    "{asker:?} {answered:?} long ago"
                );
            }
        }
    }

    #[test]
    fn relations_follow_from_three_counts() {
        assert_eq!(Relation::of(2, 0, 0), Relation::Disjoint);
        assert_eq!(Relation::of(2, 3, 0), Relation::Disjoint);
        assert_eq!(Relation::of(3, 2, 2), Relation::Superset);
        assert_eq!(Relation::of(2, 2, 2), Relation::Overlap, "the same again");
        assert_eq!(Relation::of(2, 3, 2), Relation::Overlap, "less than there is");
        assert_eq!(Relation::of(3, 2, 1), Relation::Overlap);
    }

    // spec: machine
    #[test]
    fn attempts_of_one_scale_are_ordered() {
        let (fixed, floats) = (Attempt(4), Attempt(5));
        assert_eq!(Age::of(fixed, fixed), Age::Current);
        assert_eq!(Age::of(fixed, floats), Age::Older);
        assert_eq!(Age::of(floats, fixed), Age::Newer);
        assert_eq!(Age::of(Attempt(6), fixed), Age::Foreign);
        assert_eq!(Age::of(Attempt(3), fixed), Age::Foreign);
    }
}
