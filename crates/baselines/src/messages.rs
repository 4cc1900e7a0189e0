//! What published transports of messages have in common, however they decide what to send when.
//!
//! They speak with the packets of [`thalweg_wire::flow`] and are protocols of
//! [`thalweg_transport::Endpoint`]. An acknowledgement that asks for a packet again says that its header
//! came without its payload.

mod belief;
mod outbound;
mod probes;
mod transfer;

pub(crate) use belief::Belief;
pub use belief::Past;
pub(crate) use outbound::{Outbound, Outgoing};
pub(crate) use probes::Probes;
use thalweg_core::{NodeId, Outbox, TrafficClass};
use thalweg_transport::messages::{FlowId, Incoming};
use thalweg_transport::{Credentials, MessageConfig};
use thalweg_wire::flow::Credit;
pub(crate) use transfer::{Label, Transfer};

/// Sender and flow of a message that arrives.
pub(crate) type Name = (NodeId, FlowId);

/// How many messages whose senders are gone are never looked for.
const SPARE_MESSAGES: usize = 64;

/// Whether somebody who remembers so many of the messages should forget those that are over, or whose
/// senders are gone. Only at twice as many as arrive: so looking at all of them costs each arrival next to
/// nothing.
pub(crate) fn is_outgrown(incoming: &Incoming, remembered: usize) -> bool {
    remembered > 2 * incoming.live() + SPARE_MESSAGES
}

/// Sends leave to send: so many transmissions of a message since its beginning, with that priority. `None`
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
