//! Thresholds for the queues of a switch, from a model of what their losses cost.
//!
//! Every queue is taken apart into two, one of small and one of large gradients, and each is an M/M/1/m
//! queue: packets come and are served at random, and m of them fit. A queue that fits more loses less,
//! and what it loses costs rounds of training. The buffer is dealt out so that the sum of these costs is
//! least (MLT, appendix B).

use std::ops::Range;

use thalweg_core::FULL_FRAME_BYTES;
use thiserror::Error;

use crate::policy::FrontFirst;

/// A layer of a model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LayerCost {
    /// Bytes of its gradients.
    pub bytes: u64,
    /// Rounds that training takes longer for each percent of its small gradients that is lost.
    pub small: f64,
    /// Rounds that training takes longer for each percent of its large gradients that is lost.
    pub large: f64,
}

/// A switch port and its traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Port {
    /// The priorities that layers are spread over.
    pub policy: FrontFirst,
    /// Most bytes that wait at a port.
    pub buffer_bytes: u64,
    /// Bytes that a packet occupies of it. Default 1,538: a full packet of delivery.
    pub packet_bytes: u32,
    /// Part of the port's rate that arrives, from above 0 to less than 1. Default 0.9.
    pub load: f64,
    /// The share of small gradients, between 0 and 1. Default a half: the median is the threshold.
    pub small_share: f64,
}

impl Port {
    /// A port with so large a buffer, and defaults.
    pub fn new(buffer_bytes: u64) -> Port {
        let policy = FrontFirst::default();
        Port { policy, buffer_bytes, packet_bytes: FULL_FRAME_BYTES, load: 0.9, small_share: 0.5 }
    }
}

/// Thresholds for all queues.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The most urgent first.
    pub queues: Vec<QueuePlan>,
    /// Rounds that the losses of all queues cost.
    pub cost: f64,
}

/// Thresholds for one queue.
#[derive(Clone, PartialEq, Debug)]
pub struct QueuePlan {
    /// Priority of the queue, 0 the most urgent.
    pub priority: u8,
    /// The layers that wait in it.
    pub layers: Range<usize>,
    /// Load of the queue: arriving bytes, divided by those that more urgent queues leave it.
    pub load: f64,
    /// Above this, packets that are not ECN-capable are dropped, and the others marked.
    pub threshold_bytes: u64,
    /// Most bytes that wait in it.
    pub limit_bytes: u64,
    /// The share of small gradients that the model loses.
    pub lost_small: f64,
    /// The share of large gradients that the model loses.
    pub lost_large: f64,
}

/// Why there is no plan. The caller is at fault.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum PlanError {
    /// Nothing to plan for.
    #[error("the model has no layers with gradients")]
    NoLayers,
    /// No queues to put them in.
    #[error("there is no queue for data: give at least 2, one of which is for control")]
    NoQueues,
    /// A share out of range.
    #[error("{name} is {value}: set it above 0 and below 1")]
    Share {
        /// Name of the setting.
        name: &'static str,
        /// Value of the setting.
        value: f64,
    },
    /// An invalid cost.
    #[error("layer {0} has a cost that is negative or no number")]
    Cost(usize),
    /// Not even a packet of each kind fits every queue.
    #[error("a buffer of {buffer_bytes} bytes is too small: {needed_bytes} are the least")]
    Buffer {
        /// Bytes of the buffer.
        buffer_bytes: u64,
        /// Bytes that are needed.
        needed_bytes: u64,
    },
}

/// Deals out the buffer of a port to the queues of a model's layers, the front first.
// spec: M-13
pub fn plan(layers: &[LayerCost], port: &Port) -> Result<Plan, PlanError> {
    check(layers, port)?;
    let shares = queues(layers, port);
    let packets = port.buffer_bytes / u64::from(port.packet_bytes).max(1);
    let mut halves: Vec<Half> = shares.iter().flat_map(Share::halves).collect();
    if packets < halves.len() as u64 {
        let needed_bytes = halves.len() as u64 * u64::from(port.packet_bytes);
        return Err(PlanError::Buffer { buffer_bytes: port.buffer_bytes, needed_bytes });
    }
    // Each place more brings less than the one before it, whatever the load. So the queue that gains most from
    // the next place gets it, and no other way of dealing them out is better.
    for _ in 0..packets - halves.len() as u64 {
        let most = halves.iter_mut().max_by(|one, other| one.gain().total_cmp(&other.gain()));
        if let Some(half) = most {
            half.grow();
        }
    }
    let cost = halves.iter().map(Half::expense).sum();
    let queues = shares.iter().zip(halves.as_chunks().0);
    let queues = queues.map(|(share, [small, large])| share.planned(port, small, large)).collect();
    Ok(Plan { queues, cost })
}

fn check(layers: &[LayerCost], port: &Port) -> Result<(), PlanError> {
    if layers.iter().all(|layer| layer.bytes == 0) {
        return Err(PlanError::NoLayers);
    }
    if port.policy.priorities == 0 {
        return Err(PlanError::NoQueues);
    }
    for (name, value) in [("load", port.load), ("small_share", port.small_share)] {
        if !(value > 0.0 && value < 1.0) {
            return Err(PlanError::Share { name, value });
        }
    }
    let is_cost = |cost: f64| cost.is_finite() && cost >= 0.0;
    match layers.iter().position(|layer| !is_cost(layer.small) || !is_cost(layer.large)) {
        Some(layer) => Err(PlanError::Cost(layer)),
        None => Ok(()),
    }
}

/// The part of the traffic that goes through one queue.
struct Share {
    priority: u8,
    layers: Range<usize>,
    load: f64,
    small: f64,
    large: f64,
}

/// One of the two queues that a queue is taken apart into.
#[derive(Clone, Copy, Debug)]
struct Half {
    load: f64,
    /// Rounds that a percent of loss costs.
    cost: f64,
    /// Number of packets that fit.
    places: u64,
    /// The share that is lost with that number.
    lost: f64,
}

/// A queue is served when the more urgent ones are empty.
fn queues(layers: &[LayerCost], port: &Port) -> Vec<Share> {
    let total = layers.iter().map(|layer| layer.bytes as f64).sum::<f64>();
    let level = |layer: usize| port.policy.level(layer, layers.len());
    let mut left = 1.0;
    let mut first = 0;
    let priorities = 0..u32::from(port.policy.priorities);
    let share = priorities.map(|own| {
        let end = (first..layers.len()).find(|&at| level(at) > own).unwrap_or(layers.len());
        let range = std::mem::replace(&mut first, end)..end;
        let own_layers = &layers[range.clone()];
        let arriving = own_layers.iter().map(|layer| layer.bytes as f64).sum::<f64>() / total;
        let arriving = arriving * port.load;
        let load = arriving / left;
        left -= arriving;
        Share {
            // Below the number of priorities, which fits a byte.
            priority: port.policy.first_priority.saturating_add(own as u8),
            layers: range,
            load,
            small: own_layers.iter().map(|layer| layer.small).sum(),
            large: own_layers.iter().map(|layer| layer.large).sum(),
        }
    });
    share.collect()
}

impl Share {
    /// Small gradients come and are served in proportion to their share, so both have the same load.
    fn halves(&self) -> [Half; 2] {
        [self.small, self.large].map(|cost| Half::new(self.load, cost))
    }

    fn planned(&self, port: &Port, small: &Half, large: &Half) -> QueuePlan {
        let packet_bytes = u64::from(port.packet_bytes);
        let limit_bytes = (small.places + large.places) * packet_bytes;
        // Large ones wait among the small ones, in proportion to their shares.
        let threshold_bytes = small.places as f64 * packet_bytes as f64 / port.small_share;
        QueuePlan {
            priority: self.priority,
            layers: self.layers.clone(),
            load: self.load,
            threshold_bytes: (threshold_bytes as u64).min(limit_bytes),
            limit_bytes,
            lost_small: small.lost,
            lost_large: large.lost,
        }
    }
}

impl Half {
    /// A queue for one packet.
    fn new(load: f64, cost: f64) -> Half {
        Half { load, cost, places: 1, lost: lost_with_one_more(load, 1.0) }
    }

    /// Rounds that its losses cost.
    fn expense(&self) -> f64 {
        100.0 * self.cost * self.lost
    }

    /// Rounds that one more place saves.
    fn gain(&self) -> f64 {
        100.0 * self.cost * (self.lost - lost_with_one_more(self.load, self.lost))
    }

    fn grow(&mut self) {
        self.places += 1;
        self.lost = lost_with_one_more(self.load, self.lost);
    }
}

/// The share that an M/M/1/m queue loses with one place more than it has. Without any it loses all. The
/// same as (ρᵐ − ρᵐ⁺¹) / (1 − ρᵐ⁺¹), also where ρ is 1.
fn lost_with_one_more(load: f64, lost: f64) -> f64 {
    load * lost / (1.0 + load * lost)
}

#[cfg(test)]
mod tests;
