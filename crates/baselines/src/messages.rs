//! Parts that published transports of messages share, however they decide what to send when.
//!
//! They speak with the packets of [`thalweg_wire::flow`] and are protocols of
//! [`thalweg_transport::Endpoint`]. An acknowledgement that asks for a packet again says that its header
//! came without its payload.

mod estimate;
mod outbound;
mod probes;
mod transfer;

pub use estimate::Past;
pub(crate) use estimate::SizeEstimate;
pub(crate) use outbound::{Outbound, Outgoing};
pub(crate) use probes::Probes;
use thalweg_core::{NodeId, Outbox, TrafficClass};
use thalweg_transport::messages::{FlowId, Incoming};
use thalweg_transport::{Credentials, MessageConfig};
use thalweg_wire::flow::Credit;
pub(crate) use transfer::{Label, Transfer};

/// Sender and flow of a message that arrives.
pub(crate) type Name = (NodeId, FlowId);

/// Messages of vanished senders that are kept before any search for them.
const SPARE_MESSAGES: usize = 64;

/// True if an owner of state for `remembered` messages should forget those that are over, or whose senders are gone.
/// Only at twice as many as arrive: so a scan of all of them costs each arrival next to
/// nothing.
pub(crate) fn is_outgrown(incoming: &Incoming, remembered: usize) -> bool {
    remembered > 2 * incoming.live() + SPARE_MESSAGES
}

/// Sends a credit: a message's transmissions since its beginning that are allowed, with that priority. `None`
/// without room.
pub(crate) fn send_credit(
    config: &MessageConfig,
    (src, flow): Name,
    entropy: u16,
    transmissions: u32,
    priority: u8,
    outbox: &mut dyn Outbox,
) -> Option<()> {
    let Credentials { job, epoch, .. } = config.credentials;
    let credit = Credit { job, epoch, flow: flow.0, transmissions, priority };
    let class = TrafficClass::Ordinary;
    config.send_control(src, entropy, class, outbox, |header| credit.encode(header))
}
