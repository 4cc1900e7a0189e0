//! A sum's tensor, and the options of its call.

use thalweg_core::{
    Dscp, FRONT_PRIORITY, Fingerprint, LAYER_PRIORITIES, TrafficClass, layer_priority,
};
use thalweg_deliver::LossBound;
use thalweg_values::Tensor;

use thalweg_values::Coverage;

/// A tensor to be summed over all workers. A [`Tensor`] alone is one, of the front layer.
#[derive(Clone, PartialEq, Debug)]
pub struct SumCall {
    /// Values of this worker.
    pub tensor: Tensor,
    /// The layer of the model that they belong to, from 0 at the front: how urgent they are, where that
    /// makes a difference.
    pub layer: u16,
    /// Number of layers of the model, for aggregation and for sums over flows: without it all are as urgent. Deliveries
    /// have that in their settings.
    pub layers: Option<u16>,
    /// The largest share of it that may be missing. Without it, what the settings say. Flows lose nothing.
    pub loss: Option<LossBound>,
    /// Values of the same length that lost values of the result read as: for parameters, those of the
    /// round before. Without it nothing of the result may be lost. Flows lose nothing.
    pub older: Option<Tensor>,
    /// The operation that the caller was asked for. Default an exact sum of the tensor. Workers that differ in
    /// it fail.
    pub fingerprint: Option<Fingerprint>,
}

impl From<Tensor> for SumCall {
    fn from(tensor: Tensor) -> SumCall {
        SumCall { tensor, layer: 0, layers: None, loss: None, older: None, fingerprint: None }
    }
}

/// The care that messages of a sum need in flight.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Care {
    /// The layer of the model that the values belong to.
    pub layer: u16,
    /// Class of packets over flows. Without it, that of the settings.
    pub dscp: Option<Dscp>,
    /// The largest share of a message that may be missing. Without it, what the settings say.
    pub loss: Option<LossBound>,
}

impl Care {
    /// Coverage of a sum whose messages report none and travel with this care, where the settings allow a loss.
    // spec: T-11
    pub fn coverage(&self, settings: LossBound) -> Coverage {
        // The smaller one of both counts.
        match self.loss.map_or(settings, |loss| loss.min(settings)) {
            LossBound::EXACT => Coverage::Exact,
            _ => Coverage::Unreported,
        }
    }
}

impl SumCall {
    pub(crate) fn care(&self) -> Care {
        // spec: M-03
        let priority =
            |layers| layer_priority(self.layer, layers, FRONT_PRIORITY, LAYER_PRIORITIES);
        let dscp = |layers| Dscp::of_priority(priority(layers)).in_class(TrafficClass::Training);
        Care { layer: self.layer, dscp: self.layers.map(dscp), loss: self.loss }
    }

    /// The fingerprint of the operation.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let SumCall { tensor, .. } = self;
        self.fingerprint.unwrap_or_else(|| Fingerprint::of_sum(tensor.element(), tensor.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: T-11 machine
    #[test]
    fn a_sum_is_exact_unless_both_ends_allow_a_loss() {
        let tenth = LossBound::new(0.1).expect("a share");
        let coverage = |loss, settings| Care { loss, ..Care::default() }.coverage(settings);
        assert_eq!(coverage(None, LossBound::EXACT), Coverage::Exact);
        assert_eq!(coverage(Some(tenth), LossBound::EXACT), Coverage::Exact);
        assert_eq!(coverage(Some(LossBound::EXACT), tenth), Coverage::Exact);
        assert_eq!(coverage(None, tenth), Coverage::Unreported);
        assert_eq!(coverage(Some(tenth), LossBound::ANY), Coverage::Unreported);
    }
}
