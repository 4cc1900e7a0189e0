//! How the ordinary flows of a host travel.

use thalweg_baselines::{homa, ndp, pfabric};
use thalweg_core::{Bytes, Check, Machine, NodeId, Outbox, Packet, Reports, Time, Verdict};
use thalweg_flow::{ArrivalStats, Endpoint, Event, FlowId, Message, StartError};

use crate::deliveries::{Deliveries, Layer};

/// The transport of a host's ordinary flows: ours, or a published one that it is compared with.
pub enum Transport {
    /// Windows.
    Flow(Endpoint),
    /// Tensors of which a part may be lost.
    Deliver(Box<Deliveries>),
    /// NDP.
    Ndp(ndp::Endpoint),
    /// pFabric.
    Pfabric(pfabric::Endpoint),
    /// Homa.
    Homa(Box<homa::Endpoint>),
}

/// What some transports want to know of a message beside what it consists of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct About {
    /// For deliveries: the layer of a model that it belongs to.
    pub layer: Option<Layer>,
    /// For pFabric and Homa: the size that it is ranked by, if that is not its own. Zero says that
    /// nothing is known.
    // spec: Q-12
    pub believed: Option<Bytes>,
}

/// Calls the same method of whichever it is.
macro_rules! delegate {
    ($transport:expr, $endpoint:ident => $call:expr) => {
        match $transport {
            Transport::Flow($endpoint) => $call,
            Transport::Deliver($endpoint) => $call,
            Transport::Ndp($endpoint) => $call,
            Transport::Pfabric($endpoint) => $call,
            Transport::Homa($endpoint) => $call,
        }
    };
}

impl Transport {
    /// Begins to send a message.
    pub fn start(&mut self, now: Time, message: Message) -> Result<FlowId, StartError> {
        delegate!(self, endpoint => endpoint.start(now, message))
    }

    /// The same for a message of which more is known.
    pub fn start_about(
        &mut self,
        now: Time,
        message: Message,
        about: About,
    ) -> Result<FlowId, StartError> {
        match (self, about) {
            (Transport::Deliver(deliveries), About { layer: Some(layer), .. }) => {
                deliveries.start_in(now, &message, layer)
            }
            (Transport::Pfabric(endpoint), About { believed: Some(bytes), .. }) => {
                endpoint.start_believed(now, message, bytes)
            }
            (Transport::Homa(endpoint), About { believed: Some(bytes), .. }) => {
                endpoint.start_believed(now, message, bytes)
            }
            (transport, _) => transport.start(now, message),
        }
    }

    /// Tells the receiver of a message about it before the first packet comes, where it needs to know.
    pub fn expect(&mut self, now: Time, src: NodeId, flow: FlowId, bytes: Bytes) {
        if let Transport::Deliver(deliveries) = self {
            deliveries.expect(now, src, flow, bytes);
        }
    }

    /// What did not arrive of messages that were complete without it: only deliveries lose anything.
    pub fn lost(&self) -> Bytes {
        match self {
            Transport::Deliver(deliveries) => deliveries.lost(),
            _ => Bytes::ZERO,
        }
    }

    /// How many messages are being sent.
    pub fn outgoing(&self) -> usize {
        delegate!(self, endpoint => endpoint.outgoing())
    }

    /// How packets of others' messages came so far; of published transports nothing is known.
    pub fn arrivals(&self) -> ArrivalStats {
        match self {
            Transport::Flow(endpoint) => endpoint.arrivals(),
            _ => ArrivalStats::default(),
        }
    }

    /// How many transmissions so far were not the first of their packet.
    pub fn retransmissions(&self) -> u64 {
        delegate!(self, endpoint => endpoint.retransmissions())
    }
}

impl From<Endpoint> for Transport {
    fn from(endpoint: Endpoint) -> Transport {
        Transport::Flow(endpoint)
    }
}

impl From<Deliveries> for Transport {
    fn from(deliveries: Deliveries) -> Transport {
        Transport::Deliver(Box::new(deliveries))
    }
}

impl From<ndp::Endpoint> for Transport {
    fn from(endpoint: ndp::Endpoint) -> Transport {
        Transport::Ndp(endpoint)
    }
}

impl From<pfabric::Endpoint> for Transport {
    fn from(endpoint: pfabric::Endpoint) -> Transport {
        Transport::Pfabric(endpoint)
    }
}

impl From<homa::Endpoint> for Transport {
    fn from(endpoint: homa::Endpoint) -> Transport {
        Transport::Homa(Box::new(endpoint))
    }
}

impl Check for Transport {
    fn check(&self) {
        match self {
            Transport::Flow(endpoint) => endpoint.check(),
            Transport::Deliver(deliveries) => deliveries.check(),
            // Published designs, to compare with.
            Transport::Ndp(_) | Transport::Pfabric(_) | Transport::Homa(_) => {}
        }
    }
}

impl Machine for Transport {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        delegate!(self, endpoint => endpoint.handle_packet(now, packet))
    }

    fn handle_timeout(&mut self, now: Time) {
        delegate!(self, endpoint => endpoint.handle_timeout(now));
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        delegate!(self, endpoint => endpoint.poll_transmit(now, outbox));
    }

    #[inline]
    fn has_backlog(&self) -> bool {
        delegate!(self, endpoint => endpoint.has_backlog())
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        delegate!(self, endpoint => endpoint.poll_timeout())
    }
}

impl Reports for Transport {
    type Event = Event;

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        delegate!(self, endpoint => endpoint.poll_event())
    }
}
