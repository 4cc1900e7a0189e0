//! The tuner: NCCL's costs are changed so that it chooses CollNet where that should win.
//!
//! With two nodes a ring moves no more bytes than a switch, so that there is nothing to gain. With more, a ring moves
//! 2 (n − 1) / n times the tensor over every link and a switch once; below some length NCCL's own algorithms need fewer
//! round trips. The lengths below are not measured yet: `specs/todo.toml` lists that.
// spec: N-03

use std::ffi::c_int;

use crate::abi::{ALGO_COLLNET_CHAIN, COST_IGNORED, FUNC_ALL_REDUCE, PROTO_SIMPLE};
use crate::settings::Settings;

/// Least bytes for which CollNet is preferred, from a number of nodes on.
const PREFERRED_FROM: [(usize, usize); 2] = [(3, 1 << 20), (8, 256 << 10)];

/// The tuner of a communicator.
pub struct Tuner {
    /// Least bytes for which CollNet is preferred. `None` if it is never.
    from_bytes: Option<usize>,
}

impl Tuner {
    /// A tuner for a number of nodes.
    pub fn new(nodes: usize, settings: Option<&Settings>) -> Tuner {
        let of_table = PREFERRED_FROM.iter().rev().find(|(from, _)| nodes >= *from);
        // Without a switch, sums take as long as NCCL's own.
        let has_switch = settings.is_some_and(|set| set.switch.is_some() || set.server.is_some());
        let of_table = of_table.filter(|_| has_switch).map(|(_, bytes)| *bytes);
        let given = settings.and_then(|settings| settings.collnet_from_bytes);
        Tuner { from_bytes: given.or(of_table) }
    }

    /// Changes the costs of an operation, `algorithms` rows of `protocols` costs.
    pub fn choose(&self, function: c_int, bytes: usize, costs: &mut [f32], protocols: usize) {
        let is_preferred = self.from_bytes.is_some_and(|from| bytes >= from);
        if function != FUNC_ALL_REDUCE || !is_preferred || protocols <= PROTO_SIMPLE {
            return;
        }
        let cost = costs.get_mut(ALGO_COLLNET_CHAIN * protocols + PROTO_SIMPLE);
        // NCCL does not allow what it ignores: there is no CollNet, or not for this operation.
        if let Some(cost) = cost.filter(|cost| **cost != COST_IGNORED) {
            *cost = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(tuner: &Tuner, function: c_int, bytes: usize, collnet: f32) -> Vec<f32> {
        let mut costs = vec![5.0; 7 * 3];
        costs[11] = collnet;
        tuner.choose(function, bytes, &mut costs, 3);
        costs
    }

    #[test]
    fn collnet_is_preferred_from_a_length_on_where_it_may_be_used() {
        let settings = Settings { switch: Some("a:8".into()), ..Settings::default() };
        let tuner = Tuner::new(4, Some(&settings));
        let mut chosen = vec![5.0; 21];
        chosen[11] = 0.0;
        assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, 1 << 20, 5.0), chosen);
        assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, (1 << 20) - 1, 5.0), [5.0; 21]);
        assert_eq!(costs(&tuner, 2, 1 << 20, 5.0), [5.0; 21], "another function");
        assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, 1 << 20, COST_IGNORED)[11], COST_IGNORED);
        let never = [Tuner::new(2, Some(&settings)), Tuner::new(8, Some(&Settings::default()))];
        for tuner in never {
            assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, 1 << 40, 5.0), [5.0; 21]);
        }
        let given = Settings { collnet_from_bytes: Some(7), ..Settings::default() };
        assert_eq!(costs(&Tuner::new(2, Some(&given)), FUNC_ALL_REDUCE, 7, 5.0), chosen);
    }

    #[test]
    fn a_smaller_table_is_left_alone() {
        let given = Settings { collnet_from_bytes: Some(0), ..Settings::default() };
        let tuner = Tuner::new(8, Some(&given));
        let mut costs = [1.0; 9];
        tuner.choose(FUNC_ALL_REDUCE, 8, &mut costs, 3);
        tuner.choose(FUNC_ALL_REDUCE, 8, &mut costs, 2);
        assert_eq!(costs, [1.0; 9]);
    }
}
