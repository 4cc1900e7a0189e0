//! A path for every packet.

use thalweg_core::Rng;

/// Chooses the path of each packet: all of them in turn, in an order that is drawn anew each time round, or after some
/// rounds, so that senders do not march over the paths in step.
// spec: M-02
#[derive(Clone, Debug)]
pub struct Spray {
    /// The paths in the order of this round.
    order: Vec<u16>,
    next: usize,
    /// Rounds in the same order.
    rounds_kept: u32,
    /// Rounds that are left in this order.
    rounds_left: u32,
    rng: Rng,
}

impl Spray {
    /// Over this number of paths, at least one.
    pub fn new(paths: u16, rng: Rng) -> Spray {
        Spray::over((0..paths.max(1)).map(entropy).collect(), rng)
    }

    /// Over paths with these entropies, at least one.
    pub fn over(order: Vec<u16>, rng: Rng) -> Spray {
        let next = order.len();
        Spray { order, next, rounds_kept: 1, rounds_left: 0, rng }
    }

    /// The same with this number of rounds in each order, at least one: packets on one path keep their distance, so that
    /// queues in front of links that are full stay short.
    pub fn keeping(self, rounds: u32) -> Spray {
        Spray { rounds_kept: rounds.max(1), ..self }
    }

    /// A random byte, where a part of the entropy is not drawn in turn.
    pub fn random_byte(&mut self) -> u8 {
        self.rng.bits() as u8
    }

    /// The entropy of the next packet.
    #[inline]
    pub fn next_path(&mut self) -> u16 {
        if self.next == self.order.len() {
            if self.rounds_left == 0 {
                self.rng.shuffle(&mut self.order);
                self.rounds_left = self.rounds_kept;
            }
            self.rounds_left -= 1;
            self.next = 0;
        }
        self.next += 1;
        self.order[self.next - 1]
    }
}

/// The entropy of a path: a byte for each of two choices of a route. The second counts with its bits turned round:
/// which of the second choices is taken says nothing about the first.
fn entropy(path: u16) -> u16 {
    let [low, high] = path.to_le_bytes();
    u16::from_le_bytes([low, high ^ low.reverse_bits()])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    // spec: M-02 machine
    #[test]
    fn every_path_gets_its_share_at_every_hop() {
        let mut spray = Spray::new(256, Rng::new(1));
        let mut pairs = BTreeMap::new();
        for _ in 0..512 {
            let [first, second] = spray.next_path().to_le_bytes();
            *pairs.entry((first % 4, second % 8)).or_insert(0) += 1;
        }
        assert_eq!(pairs.len(), 32);
        assert!(pairs.values().all(|&packets| packets == 16), "{pairs:?}");
    }

    #[test]
    fn an_order_is_kept_for_some_rounds() {
        let mut spray = Spray::over((0..16).collect(), Rng::new(1)).keeping(3);
        let rounds: Vec<Vec<u16>> =
            (0..6).map(|_| (0..16).map(|_| spray.next_path()).collect()).collect();
        assert!(rounds[..3].iter().all(|round| *round == rounds[0]));
        assert!(rounds[3..].iter().all(|round| *round == rounds[3]));
        assert_ne!(rounds[0], rounds[3]);
    }

    #[test]
    fn two_senders_take_different_orders() {
        let draw = |seed| {
            let mut spray = Spray::new(16, Rng::new(seed));
            (0..32).map(|_| spray.next_path()).collect::<Vec<_>>()
        };
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1)[..16], draw(1)[16..], "and another one each time round");
        assert_eq!(Spray::new(0, Rng::new(1)).next_path(), 0);
    }
}
