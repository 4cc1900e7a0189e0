//! Max-min fair shares of links, for flows that want no more than a given amount.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One flow: its links, and the most it can use.
pub(crate) struct Wish<'a> {
    pub(crate) path: &'a [usize],
    pub(crate) most: u64,
}

/// Gives every flow its max-min fair share of what links have left, and takes it from there.
///
/// The level of water rises for all flows alike. A flow stops at the first of its links that is full,
/// or when it has what it wants. Shares are whole bytes; what rounding leaves over stays with the link.
pub(crate) fn max_min(left: &mut [u64], wishes: &[Wish<'_>]) -> Vec<u64> {
    let mut filling = Filling::new(left, wishes);
    while let Some(Reverse((level, what))) = filling.agenda.pop() {
        match what {
            What::Flow(flow) => filling.freeze(flow, level),
            What::Link(link) => filling.fill(link, level),
        }
    }
    filling.shares
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Flow(usize),
    Link(usize),
}

struct Filling<'a, 'w> {
    left: &'a mut [u64],
    wishes: &'a [Wish<'w>],
    /// By link, who is still rising; empty for links that nobody uses.
    users: Vec<Vec<usize>>,
    rising: Vec<u64>,
    is_frozen: Vec<bool>,
    shares: Vec<u64>,
    /// Flows and links to handle next, by level. A link's level may be too low, since others may have stopped; it
    /// is put back then.
    agenda: BinaryHeap<Reverse<(u64, What)>>,
}

impl<'a, 'w> Filling<'a, 'w> {
    fn new(left: &'a mut [u64], wishes: &'a [Wish<'w>]) -> Filling<'a, 'w> {
        let mut users = vec![Vec::new(); left.len()];
        for (flow, wish) in wishes.iter().enumerate() {
            wish.path.iter().for_each(|link| users[*link].push(flow));
        }
        let rising: Vec<u64> = users.iter().map(|users| users.len() as u64).collect();
        let flows = wishes.iter().enumerate().map(|(flow, wish)| (wish.most, What::Flow(flow)));
        let used = rising.iter().enumerate().filter(|(_, count)| **count > 0);
        let links = used.map(|(link, count)| (left[link] / count, What::Link(link)));
        let agenda = flows.chain(links).map(Reverse).collect();
        let (is_frozen, shares) = (vec![false; wishes.len()], vec![0; wishes.len()]);
        Filling { left, wishes, users, rising, is_frozen, shares, agenda }
    }

    fn freeze(&mut self, flow: usize, level: u64) {
        if std::mem::replace(&mut self.is_frozen[flow], true) {
            return;
        }
        self.shares[flow] = level;
        for &link in self.wishes[flow].path {
            self.left[link] -= level;
            self.rising[link] -= 1;
        }
    }

    fn fill(&mut self, link: usize, level: u64) {
        if self.rising[link] == 0 {
            return;
        }
        let full_at = self.left[link] / self.rising[link];
        if full_at > level {
            self.agenda.push(Reverse((full_at, What::Link(link))));
            return;
        }
        for flow in std::mem::take(&mut self.users[link]) {
            self.freeze(flow, level);
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rng;

    use super::*;

    fn shares(left: &[u64], wishes: &[(&[usize], u64)]) -> Vec<u64> {
        let wishes: Vec<Wish<'_>> =
            wishes.iter().map(|(path, most)| Wish { path, most: *most }).collect();
        max_min(&mut left.to_vec(), &wishes)
    }

    #[test]
    fn known_cases_come_out() {
        let all = u64::MAX;
        assert_eq!(shares(&[90], &[(&[0], all), (&[0], all), (&[0], all)]), [30, 30, 30]);
        assert_eq!(shares(&[90], &[(&[0], 10), (&[0], all), (&[0], all)]), [10, 40, 40]);
        // The textbook's: one flow over both links, one on each.
        assert_eq!(shares(&[100, 60], &[(&[0, 1], all), (&[0], all), (&[1], all)]), [30, 70, 30]);
        assert_eq!(shares(&[10, 100], &[(&[0, 1], all), (&[1], all)]), [10, 90]);
        assert_eq!(shares(&[0], &[(&[0], all)]), [0]);
        assert!(shares(&[7], &[]).is_empty());
    }

    /// A share is max-min fair if every flow has what it wants, or a full link on which nobody has more.
    #[test]
    fn every_flow_has_a_reason_to_stop() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let links: Vec<u64> = (0..6).map(|_| 100 + rng.below(900)).collect();
            let paths: Vec<(Vec<usize>, u64)> = (0..1 + rng.below(20))
                .map(|_| {
                    let path = (0..6).filter(|_| rng.chance(0.4)).collect();
                    (path, rng.below(500))
                })
                .collect();
            let wishes: Vec<Wish<'_>> =
                paths.iter().map(|(path, most)| Wish { path, most: *most }).collect();
            let mut left = links.clone();
            let shares = max_min(&mut left, &wishes);
            for (wish, share) in wishes.iter().zip(&shares) {
                let is_tight = |link: &&usize| {
                    let users = wishes.iter().zip(&shares).filter(|(w, _)| w.path.contains(link));
                    let most = users.map(|(_, share)| *share).max();
                    // Rounding leaves less than a byte for each of up to twenty flows.
                    left[**link] < 20 && most.is_some_and(|most| most <= share + 20)
                };
                assert!(
                    *share == wish.most || wish.path.iter().any(|l| is_tight(&l)),
                    "seed {seed}"
                );
            }
        }
    }
}
