//! What a switch does with a gradient: the first table of `docs/aggregation.md`.

use self::Action::*;
use self::Class::*;
use self::Found::*;
use self::Tier::*;

/// What a gradient finds where its fragment is summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Nothing.
    Empty,
    /// Its fragment, without its contribution.
    Unseen,
    /// Its fragment, with its contribution but not with all.
    Seen,
    /// Its fragment, with all contributions.
    Full,
    /// Another fragment.
    Other,
    /// Another fragment, which nobody waits for any more.
    Over,
}

/// How a gradient comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// For the first time.
    Fresh,
    /// Again, past the sums.
    Resent,
    /// Again, because somebody asked for it.
    Repair,
    /// As something that no station counts: it names neither one worker nor one whole child, or it
    /// is a result.
    Odd,
}

/// Where a station stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    /// Level 0: only workers are below.
    First,
    /// Any other: stations are below, and workers may enter.
    Above,
}

/// What a switch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// The packet takes the aggregator.
    Take,
    /// The packet takes the aggregator from a fragment that is over.
    Replace,
    /// Its values are added.
    Add,
    /// Nothing but its mark is kept.
    Drop,
    /// Its values are added, and the packet takes what there is with it: the aggregator is free.
    AddAndFlush,
    /// The packet takes what there is with it: the aggregator is free.
    Flush,
    /// What there is, is forgotten, and the packet goes on to the parent.
    Discard,
    /// The packet takes a copy of the sum with it.
    SendAgain,
    /// The packet goes on to the parent.
    PassUp,
    /// The packet goes on to the server, past all sums.
    PassStraight,
    /// The same, and says why.
    Collide,
}

/// The table. A station sends a sum on as soon as it is full, whatever filled it.
// spec: A-12
pub(super) const fn action(found: Found, class: Class, tier: Tier) -> Action {
    match (found, class, tier) {
        // spec: A-02
        (Empty, Fresh, _) => Take,
        // spec: A-09
        (Over, Fresh, _) => Replace,
        // spec: A-04
        (Unseen, Fresh, _) => Add,
        (Seen | Full, Fresh, _) => Drop,
        // spec: A-03
        (Other, Fresh, _) => Collide,

        // spec: A-07
        (Unseen, Resent, First) => AddAndFlush,
        (Seen | Full, Resent, First) => Flush,
        // spec: A-08
        (Unseen | Seen | Full, Resent, Above) => Discard,
        // spec: A-02
        (Empty | Other | Over, Resent, _) => PassUp,

        // spec: T-10
        (Unseen, Repair, _) => Add,
        (Seen, Repair, _) => Drop,
        (Full, Repair, _) => SendAgain,
        (Empty | Other | Over, Repair, _) => PassStraight,

        (_, Odd, _) => PassStraight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: machine
    #[test]
    fn every_combination_has_its_action() {
        let classes = [Fresh, Resent, Repair, Odd];
        let expected = [
            (Empty, First, [Take, PassUp, PassStraight, PassStraight]),
            (Unseen, First, [Add, AddAndFlush, Add, PassStraight]),
            (Seen, First, [Drop, Flush, Drop, PassStraight]),
            (Full, First, [Drop, Flush, SendAgain, PassStraight]),
            (Other, First, [Collide, PassUp, PassStraight, PassStraight]),
            (Over, First, [Replace, PassUp, PassStraight, PassStraight]),
            (Empty, Above, [Take, PassUp, PassStraight, PassStraight]),
            (Unseen, Above, [Add, Discard, Add, PassStraight]),
            (Seen, Above, [Drop, Discard, Drop, PassStraight]),
            (Full, Above, [Drop, Discard, SendAgain, PassStraight]),
            (Other, Above, [Collide, PassUp, PassStraight, PassStraight]),
            (Over, Above, [Replace, PassUp, PassStraight, PassStraight]),
        ];
        for (found, tier, actions) in expected {
            for (class, expected) in classes.into_iter().zip(actions) {
                assert_eq!(action(found, class, tier), expected, "{found:?}, {class:?}, {tier:?}");
            }
        }
    }
}
