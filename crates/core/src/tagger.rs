//! Queue of a packet, and what a congested queue may do to it.

use crate::packet::{Dscp, Ecn, LAST_PRIORITY, PRIORITIES, TrafficClass};
use crate::units::Bytes;

/// The priority of the first layers of a model. The one above is for control.
pub const FRONT_PRIORITY: u8 = 1;

/// Number of priorities that the layers of a model are spread over: the front layers' and all below.
pub const LAYER_PRIORITIES: u8 = PRIORITIES as u8 - FRONT_PRIORITY;

/// Decision of a tagger for one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The class of service.
    pub dscp: Dscp,
    /// ECN field: queues may mark a capable packet instead of dropping it.
    pub ecn: Ecn,
    /// Urgency for queues that sort by it, smaller first.
    pub rank: u32,
}

impl Default for Tag {
    /// The least urgent class, ECN-capable: what a transport without priorities sends.
    fn default() -> Tag {
        Tag { dscp: Dscp::of_priority(LAST_PRIORITY), ecn: Ecn::Capable, rank: 0 }
    }
}

impl Tag {
    /// The same in the class of training, so that ports can divide a link between it and the rest.
    // spec: M-15
    pub const fn training() -> Tag {
        let dscp = Dscp::of_priority(LAST_PRIORITY).in_class(TrafficClass::Training);
        Tag { dscp, ecn: Ecn::Capable, rank: 0 }
    }
}

/// The priority of a layer of a model: front layers are needed first. One of `priorities` from `first` on.
// spec: M-03
pub const fn layer_priority(layer: u16, layers: u16, first: u8, priorities: u8) -> u8 {
    let layers = if layers == 0 { 1 } else { layers };
    let last = layers - 1;
    let layer = if layer > last { last } else { layer };
    // Below the number of priorities, which fits a byte.
    first.saturating_add((layer as u32 * priorities as u32 / layers as u32) as u8)
}

/// Tags the packets of one flow.
pub trait Tagger {
    /// The tag of the next packet, when `sent` bytes of the flow went before it.
    fn tag(&mut self, sent: Bytes) -> Tag;
}

/// The same tag for every packet.
impl Tagger for Tag {
    fn tag(&mut self, _sent: Bytes) -> Tag {
        *self
    }
}
