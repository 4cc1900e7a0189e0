//! Ring all-reduce: everybody sends to the next one only.
//!
//! A piece is cut into as many segments as there are workers. In the first half of its rounds,
//! reduce-scatter, segment s begins at worker s and collects the values of everybody as it goes
//! around; the last one has the sum. In the second half, all-gather, the sum goes around once more.
//! In every one of the 2(W − 1) rounds a worker sends one segment and receives another, so all links
//! are busy all the time. Several pieces are in flight at once, which hides the wait between the
//! rounds of one.
//!
//! Segment s is summed in the order s, s + 1, … and one sum goes to all: every worker ends with the
//! same bits.
// spec: A-52

mod config;
mod rounds;

pub use config::Config;

use thalweg_core::NodeId;

use crate::config::ConfigError;
use crate::delivery::{Delivery, Results, SumDelivery};
use crate::member::Member;
use crate::post::Post;

use rounds::Rounds;

/// A worker in a ring.
pub type Ring = Member<Rounds>;

impl Member<Rounds> {
    /// A worker without operations.
    pub fn new(config: Config) -> Result<Ring, ConfigError> {
        let chunk_values = config.check()?;
        let workers = config.members.len();
        let at = |rank: usize| -> NodeId { config.members[rank % workers] };
        let rank = config.rank as usize;
        let neighbours = rounds::Neighbours {
            predecessor: at(rank + workers - 1),
            successor: at(rank + 1),
            rank: config.rank.into(),
            workers: workers as u64,
        };
        // A segment is lost bit by bit on the hops of the first half; sums are never.
        let hops = workers as u64 - 1;
        let exact = |delivery: Delivery| Delivery { results: Results::Exact, ..delivery };
        let delivery = config.delivery.map(|delivery| exact(delivery.divided(hops)));
        let in_flight = config.pieces_in_flight;
        let rounds = Rounds::new(neighbours, chunk_values, in_flight, delivery.as_ref());
        let ranks = workers as u32;
        let delivery = delivery.map(|delivery| SumDelivery { delivery, ranks, senders: 1 });
        Ok(Member::of(rounds, Post::new(config.flow, config.tag, delivery)?))
    }
}
