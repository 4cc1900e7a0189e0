//! The tuner: NCCL's costs are changed so that it chooses CollNet where that wins, and its own algorithms elsewhere.
//!
//! A ring moves 2 (n − 1) / n times the tensor over every link, and a switch moves it once. So with n nodes a switch saves
//! (n − 2) / n times the time that the tensor takes on a link. That has to be more than an operation of CollNet takes beyond
//! one of NCCL's own: the length at which both are equal grows with the rate of the link. Left alone, NCCL chooses CollNet
//! for short tensors as well, and without a switch, where the ranks sum by themselves.
// spec: N-03

use std::ffi::c_int;

use crate::abi::{ALGO_COLLNET_CHAIN, COST_IGNORED, FUNC_ALL_REDUCE, PROTO_SIMPLE};
use crate::device::device;
use crate::settings::Settings;

/// Time that an operation of CollNet takes beyond one of NCCL's own algorithms, in microseconds: measured with 64 KiB
/// between four ranks at 10 Gbps (`scripts/nccl_in_a_lab.py`).
const COLLNET_EXTRA_US: usize = 750;

/// Fastest link on which CollNet is chosen without being asked for. At 10 Gbps and packets of 1,500 bytes, where four ranks, a
/// switch and a server shared 16 cores with NCCL's threads, sums of 64 MiB took 0.85 of NCCL's own time (`docs/nccl.md`), and
/// with an earlier build those of 4 MiB took longer. The length at which both are equal there is not known.
const FASTEST_MBPS: c_int = 5_000;

/// The tuner of a communicator.
pub struct Tuner {
    /// Least bytes for which CollNet is chosen. `None` if it is never.
    from_bytes: Option<usize>,
}

impl Tuner {
    /// A tuner for a number of nodes.
    pub fn new(nodes: usize, settings: Option<&Settings>) -> Tuner {
        let from_bytes = settings.and_then(|settings| least_bytes(nodes, settings));
        Tuner { from_bytes }
    }

    /// Changes the costs of an operation, `algorithms` rows of `protocols` costs.
    pub fn choose(&self, function: c_int, bytes: usize, costs: &mut [f32], protocols: usize) {
        if function != FUNC_ALL_REDUCE || protocols <= PROTO_SIMPLE {
            return;
        }
        let cost = costs.get_mut(ALGO_COLLNET_CHAIN * protocols + PROTO_SIMPLE);
        // NCCL does not allow what it ignores: there is no CollNet, or not for this operation.
        if let Some(cost) = cost.filter(|cost| **cost != COST_IGNORED) {
            let is_chosen = self.from_bytes.is_some_and(|from| bytes >= from);
            *cost = if is_chosen { 0.0 } else { COST_IGNORED };
        }
    }
}

/// Least bytes for which CollNet is chosen, by the settings or by the rate of the link. `None` if it is never. All ranks
/// have to choose alike, so that the nodes compare it when they connect.
pub fn least_bytes(nodes: usize, settings: &Settings) -> Option<usize> {
    // Without a switch, sums take longer than NCCL's own.
    let has_switch = settings.switch.is_some() || settings.server.is_some();
    let by_rate = || equal_bytes(nodes, device().speed_mbps);
    settings.collnet_from_bytes.or_else(|| has_switch.then(by_rate)?)
}

/// Length at which CollNet takes as long as a ring. `None` if it always takes longer.
fn equal_bytes(nodes: usize, rate_mbps: c_int) -> Option<usize> {
    let rate_mbps = usize::try_from(rate_mbps).ok().filter(|_| rate_mbps <= FASTEST_MBPS)?;
    let bytes_per_us = rate_mbps / 8;
    (COLLNET_EXTRA_US * bytes_per_us * nodes).checked_div(nodes.saturating_sub(2))
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

    fn with_collnet(cost: f32) -> Vec<f32> {
        let mut costs = vec![5.0; 21];
        costs[11] = cost;
        costs
    }

    // spec: N-03 sockets
    #[test]
    fn collnet_is_chosen_from_a_length_on_and_never_below() {
        let settings = Settings {
            switch: Some("a:8".into()),
            collnet_from_bytes: Some(187_500),
            ..Settings::default()
        };
        let tuner = Tuner::new(4, Some(&settings));
        let least = 187_500;
        assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, least, 5.0), with_collnet(0.0));
        assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, least - 1, 5.0), with_collnet(COST_IGNORED));
        assert_eq!(costs(&tuner, 2, least, 5.0), [5.0; 21], "another function");
        assert_eq!(costs(&tuner, FUNC_ALL_REDUCE, least, COST_IGNORED), with_collnet(COST_IGNORED));
        for tuner in [Tuner::new(8, Some(&Settings::default())), Tuner::new(8, None)] {
            let costs = costs(&tuner, FUNC_ALL_REDUCE, 1 << 40, 5.0);
            assert_eq!(costs, with_collnet(COST_IGNORED));
        }
    }

    #[test]
    fn the_length_grows_with_the_rate_and_falls_with_the_nodes() {
        assert_eq!(
            [3, 4, 8, 64].map(|nodes| equal_bytes(nodes, 1_000)),
            [Some(281_250), Some(187_500), Some(125_000), Some(96_774)]
        );
        assert_eq!(equal_bytes(4, 2_500), Some(468_000));
        assert_eq!([5_001, 10_000, -1].map(|mbps| equal_bytes(4, mbps)), [None; 3]);
        assert_eq!([0, 1, 2].map(|nodes| equal_bytes(nodes, 1_000)), [None; 3]);
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
