//! Actions of a switch on a gradient: the first table of `docs/aggregation.md`.

use self::Action::*;
use self::Class::*;
use self::Found::*;
use self::Tier::*;

/// Content of the aggregator that a gradient finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Nothing.
    Empty,
    /// The fragment of the gradient, without its contribution.
    Unseen,
    /// The fragment of the gradient, with its contribution but not with all.
    Seen,
    /// The fragment of the gradient, with all contributions.
    Full,
    /// Another fragment.
    Other,
    /// Another fragment, which nobody waits for any more.
    Over,
}

/// Class of a gradient.
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

/// Tier of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tier {
    /// Level 0: only workers are below.
    First,
    /// Any other: stations are below, and workers may enter.
    Above,
}

/// Action of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// The packet takes the aggregator.
    Take,
    /// The packet takes the aggregator from a fragment that is over.
    Replace,
    /// The values of the packet are added.
    Add,
    /// Nothing but its mark is kept.
    Drop,
    /// The values of the packet are added, and it takes what there is with it: the aggregator is free.
    AddAndFlush,
    /// The packet takes what there is with it: the aggregator is free.
    Flush,
    /// The partial sum is forgotten, and the packet goes on to the parent.
    Discard,
    /// The packet takes a copy of the sum with it.
    SendAgain,
    /// The packet goes on to the parent.
    PassUp,
    /// The packet goes on to the server, past all sums.
    Bypass,
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
        (Empty | Other | Over, Repair, _) => Bypass,

        (_, Odd, _) => Bypass,
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
            (Empty, First, [Take, PassUp, Bypass, Bypass]),
            (Unseen, First, [Add, AddAndFlush, Add, Bypass]),
            (Seen, First, [Drop, Flush, Drop, Bypass]),
            (Full, First, [Drop, Flush, SendAgain, Bypass]),
            (Other, First, [Collide, PassUp, Bypass, Bypass]),
            (Over, First, [Replace, PassUp, Bypass, Bypass]),
            (Empty, Above, [Take, PassUp, Bypass, Bypass]),
            (Unseen, Above, [Add, Discard, Add, Bypass]),
            (Seen, Above, [Drop, Discard, Drop, Bypass]),
            (Full, Above, [Drop, Discard, SendAgain, Bypass]),
            (Other, Above, [Collide, PassUp, Bypass, Bypass]),
            (Over, Above, [Replace, PassUp, Bypass, Bypass]),
        ];
        for (found, tier, actions) in expected {
            for (class, expected) in classes.into_iter().zip(actions) {
                assert_eq!(action(found, class, tier), expected, "{found:?}, {class:?}, {tier:?}");
            }
        }
    }
}
