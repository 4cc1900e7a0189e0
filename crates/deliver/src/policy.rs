//! Classes of packets. A policy can be exchanged without a change to the transport or to
//! any switch.

use thalweg_core::{
    Bytes, Dscp, Ecn, FRONT_PRIORITY, LAYER_PRIORITIES, Tag, TrafficClass, layer_priority,
};

/// The class that control packets and echoes travel in, and no policy here gives to data.
// spec: M-09
pub const CONTROL_PRIORITY: u8 = 0;

/// A segment, as a policy sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The layer of its tensor, counted from the front of the model.
    pub layer: u16,
    /// Number of layers of the model.
    pub layers: u16,
    /// Start of the segment in its tensor.
    pub offset: Bytes,
    /// Length of the segment.
    pub bytes: u16,
    /// True if its values are large, or it must not be lost for another reason.
    pub is_important: bool,
}

/// Gives every segment its tag. Where two tensors wait, the one with the smaller rank is sent first.
///
/// A function from a [`Segment`] to a [`Tag`] is a policy.
// spec: M-14
pub trait Policy: Send + Sync {
    /// The tag of a segment.
    fn tag(&self, segment: &Segment) -> Tag;
}

impl<F: Fn(&Segment) -> Tag + Send + Sync> Policy for F {
    fn tag(&self, segment: &Segment) -> Tag {
        self(segment)
    }
}

/// The paper's policy: front layers, which the next forward pass needs first, are the most urgent, and
/// important packets are ECN-capable, so that full queues mark them and drop the others.
// spec: M-03, M-14
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrontFirst {
    /// The priority of the first layers. Default 1: what is above is for control.
    pub first_priority: u8,
    /// Number of priorities that the layers are spread over. Default 7.
    pub priorities: u8,
}

/// The same with the order of the layers turned round: back layers first.
// spec: M-14
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackFirst(pub FrontFirst);

impl Default for FrontFirst {
    fn default() -> FrontFirst {
        FrontFirst { first_priority: FRONT_PRIORITY, priorities: LAYER_PRIORITIES }
    }
}

impl Policy for FrontFirst {
    fn tag(&self, segment: &Segment) -> Tag {
        self.tag_at(place(segment), segment)
    }
}

impl Policy for BackFirst {
    fn tag(&self, segment: &Segment) -> Tag {
        let last = segment.layers.saturating_sub(1);
        self.0.tag_at(last - place(segment), segment)
    }
}

impl FrontFirst {
    /// Index of a layer's priority among the policy's, from 0: floor(i · P / L).
    // spec: M-03
    pub(crate) fn level(&self, layer: usize, layers: usize) -> u32 {
        (layer * usize::from(self.priorities) / layers.max(1)) as u32
    }

    /// The tag of a segment whose layer is the `place`th to be sent.
    fn tag_at(&self, place: u16, segment: &Segment) -> Tag {
        // spec: M-03
        let priority = layer_priority(place, segment.layers, self.first_priority, self.priorities);
        // spec: M-04
        let ecn = if segment.is_important { Ecn::Capable } else { Ecn::NotCapable };
        let dscp = Dscp::of_priority(priority).in_class(TrafficClass::Training);
        Tag { dscp, ecn, rank: u32::from(place) }
    }
}

/// The layer, held within the model.
fn place(segment: &Segment) -> u16 {
    segment.layer.min(segment.layers.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(layer: u16, layers: u16) -> Segment {
        Segment { layer, layers, offset: Bytes::ZERO, bytes: 1_408, is_important: false }
    }

    // spec: M-03 machine
    #[test]
    fn layers_are_spread_evenly_with_the_front_in_the_most_urgent() {
        let policy = FrontFirst { first_priority: 0, priorities: 8 };
        let priority = |layer, layers| policy.tag(&segment(layer, layers)).dscp.priority();
        for layer in 0..50 {
            assert_eq!(u32::from(priority(layer, 50)), u32::from(layer) * 8 / 50);
        }
        assert_eq!([0, 1, 2].map(|layer| priority(layer, 3)), [0, 2, 5]);
        assert_eq!((priority(9, 3), priority(0, 0)), (5, 0), "held within the model");
        let ranks = [0, 1, 49].map(|layer| policy.tag(&segment(layer, 50)).rank);
        assert_eq!(ranks, [0, 1, 49], "finer than the switches: the sender knows all layers");
    }

    // spec: M-09 machine
    #[test]
    fn no_data_travels_with_control() {
        for layer in 0..200 {
            for policy in [&FrontFirst::default() as &dyn Policy, &BackFirst::default()] {
                let priority = policy.tag(&segment(layer, 200)).dscp.priority();
                assert!(priority > CONTROL_PRIORITY && priority < 8);
            }
        }
    }

    // spec: M-14 machine
    #[test]
    fn another_policy_is_another_value() {
        let reversed = BackFirst::default();
        for layer in 0..50 {
            let front = FrontFirst::default().tag(&segment(layer, 50));
            assert_eq!(reversed.tag(&segment(49 - layer, 50)), front);
        }
        let own = |segment: &Segment| Tag { rank: u32::from(segment.bytes), ..Tag::default() };
        assert_eq!(Policy::tag(&own, &segment(3, 50)).rank, 1_408);
    }

    // spec: M-04 machine
    #[test]
    fn important_packets_are_marked_and_the_others_may_be_dropped() {
        for (is_important, ecn) in [(true, Ecn::Capable), (false, Ecn::NotCapable)] {
            let segment = Segment { is_important, ..segment(0, 50) };
            assert_eq!(FrontFirst::default().tag(&segment).ecn, ecn);
            assert_eq!(BackFirst::default().tag(&segment).ecn, ecn);
        }
    }
}
