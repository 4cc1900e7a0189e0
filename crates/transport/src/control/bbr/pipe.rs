//! Capacity of a path: rounds, the largest rate of the last ones, and whether it still grows.

/// Rounds that a rate counts for: those of a cycle, and two more.
const RATE_ROUNDS: usize = 10;

/// A rate that grows by less than this has stopped growing.
const GROWTH: f64 = 1.25;

/// Rounds without growth after which the pipe is full.
const ROUNDS_WITHOUT_GROWTH: u32 = 3;

/// Counts round trips by what has arrived: one has passed when something is answered that left after it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rounds {
    /// Bytes that must have arrived when the packet left whose acknowledgement ends the round.
    end_bytes: u64,
}

impl Rounds {
    /// Returns whether an acknowledgement begins a round. `prior_bytes` had arrived when its packet left.
    pub fn on_ack(&mut self, prior_bytes: u64, delivered_bytes: u64) -> bool {
        let begins = prior_bytes >= self.end_bytes;
        if begins {
            self.end_bytes = delivered_bytes;
        }
        begins
    }

    /// Begins one now.
    pub fn begin(&mut self, delivered_bytes: u64) {
        self.end_bytes = delivered_bytes;
    }
}

/// The rate of the bottleneck, in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pipe {
    /// The largest of each of the last rounds.
    by_round: [f64; RATE_ROUNDS],
    round: usize,
    /// The rate at which it grew last.
    plateau: f64,
    rounds_without_growth: u32,
    is_full: bool,
}

impl Pipe {
    pub fn begin_round(&mut self) {
        self.round = (self.round + 1) % RATE_ROUNDS;
        self.by_round[self.round] = 0.0;
    }

    pub fn see(&mut self, rate: f64) {
        let largest = &mut self.by_round[self.round];
        *largest = largest.max(rate);
    }

    /// The largest rate of the last rounds. None before the first.
    pub fn rate(&self) -> Option<f64> {
        let largest = self.by_round.into_iter().fold(0.0, f64::max);
        (largest > 0.0).then_some(largest)
    }

    /// Once a round: whether the rate still grows.
    pub fn judge(&mut self) {
        let rate = self.rate().unwrap_or(0.0);
        if rate >= GROWTH * self.plateau {
            self.plateau = rate;
            self.rounds_without_growth = 0;
        } else {
            self.rounds_without_growth += 1;
            self.is_full |= self.rounds_without_growth >= ROUNDS_WITHOUT_GROWTH;
        }
    }

    /// Returns whether the search for the rate is over.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Forgets the plateau: a rate that stopped growing before everything was lost says nothing about now.
    pub fn forget_plateau(&mut self) {
        self.plateau = 0.0;
        self.rounds_without_growth = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_with_what_left_after_it_began() {
        let mut rounds = Rounds::default();
        // Two packets in flight, answered one by one: what had arrived when each left, and now.
        let answers = [(0, 1, true), (0, 2, false), (1, 3, true), (2, 4, false), (3, 5, true)];
        for (prior_bytes, delivered_bytes, begins) in answers {
            assert_eq!(rounds.on_ack(prior_bytes, delivered_bytes), begins, "{delivered_bytes}");
        }
        rounds.begin(5);
        assert!(!rounds.on_ack(4, 6));
        assert!(rounds.on_ack(5, 7));
    }

    fn round(pipe: &mut Pipe, rate: f64) {
        pipe.begin_round();
        pipe.see(rate);
        pipe.judge();
    }

    #[test]
    fn the_largest_rate_counts_for_ten_rounds() {
        let mut pipe = Pipe::default();
        assert_eq!(pipe.rate(), None);
        round(&mut pipe, 9.0);
        (0..9).for_each(|_| round(&mut pipe, 5.0));
        assert_eq!(pipe.rate(), Some(9.0));
        round(&mut pipe, 5.0);
        assert_eq!(pipe.rate(), Some(5.0));
    }

    #[test]
    fn three_rounds_without_a_quarter_more_fill_the_pipe() {
        for (rates, is_full) in [
            (&[8.0, 16.0, 20.0, 24.0, 24.0][..], false),
            (&[8.0, 16.0, 19.9, 19.9, 19.9][..], true),
            (&[8.0, 9.0, 9.0, 10.0, 10.0][..], false),
            (&[8.0, 7.0, 7.0, 7.0, 99.0][..], true),
        ] {
            let mut pipe = Pipe::default();
            rates.iter().for_each(|&rate| round(&mut pipe, rate));
            assert_eq!(pipe.is_full(), is_full, "{rates:?}");
        }
        let mut pipe = Pipe::default();
        [8.0, 8.0, 8.0].iter().for_each(|&rate| round(&mut pipe, rate));
        pipe.forget_plateau();
        [8.0, 8.0, 8.0].iter().for_each(|&rate| round(&mut pipe, rate));
        assert!(!pipe.is_full(), "it grew from nothing again");
    }
}
