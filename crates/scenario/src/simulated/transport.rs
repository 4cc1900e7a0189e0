//! The transport of a simulated host's ordinary flows.

use thalweg_baselines::{homa, ndp, pfabric};
use thalweg_core::{Bytes, Check, NodeId, Packet, Reports, Time, machine_of_variants};
use thalweg_flow::{ArrivalStats, Endpoint, Event, FlowId, Message, StartError};
use thalweg_stack::Transport;
use thalweg_wire::Prefix;
use thalweg_workload::LayerOf;

use super::Deliveries;

/// The transport of a simulated host's ordinary flows: that of the product, or a published one that it is
/// compared with.
pub(crate) enum SimulatedTransport {
    /// Windows.
    Flow(Box<Endpoint>),
    /// Tensors of which a part may be lost.
    Deliver(Box<Deliveries>),
    /// NDP.
    Ndp(Box<ndp::Endpoint>),
    /// pFabric.
    Pfabric(Box<pfabric::Endpoint>),
    /// Homa.
    Homa(Box<homa::Endpoint>),
}

/// Hints that some transports want about a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct About {
    /// For deliveries: the layer of a model that it belongs to.
    pub(crate) layer: Option<LayerOf>,
    /// For pFabric and Homa: the size that it is ranked by, if that is not its own. Zero says that
    /// nothing is known.
    // spec: Q-12
    pub(crate) believed: Option<Bytes>,
}

/// Calls the same method of whichever it is.
macro_rules! delegate {
    ($transport:expr, $endpoint:ident => $call:expr) => {
        match $transport {
            SimulatedTransport::Flow($endpoint) => $call,
            SimulatedTransport::Deliver($endpoint) => $call,
            SimulatedTransport::Ndp($endpoint) => $call,
            SimulatedTransport::Pfabric($endpoint) => $call,
            SimulatedTransport::Homa($endpoint) => $call,
        }
    };
}

impl SimulatedTransport {
    /// Begins to send a message.
    pub(crate) fn start(
        &mut self,
        now: Time,
        message: Message,
        About { layer, believed }: About,
    ) -> Result<FlowId, StartError> {
        match self {
            SimulatedTransport::Flow(endpoint) => endpoint.start(now, message),
            SimulatedTransport::Ndp(endpoint) => endpoint.start(now, message),
            SimulatedTransport::Deliver(deliveries) => deliveries.start(now, &message, layer),
            SimulatedTransport::Pfabric(endpoint) => endpoint.start_hinted(now, message, believed),
            SimulatedTransport::Homa(endpoint) => endpoint.start_hinted(now, message, believed),
        }
    }

    /// Tells the receiver of a message about it before the first packet comes, where it needs to know.
    pub(crate) fn expect(&mut self, now: Time, src: NodeId, flow: FlowId, bytes: Bytes) {
        if let SimulatedTransport::Deliver(deliveries) = self {
            deliveries.expect(now, src, flow, bytes);
        }
    }

    /// Bytes that did not arrive, of messages that were complete without them: only deliveries lose any.
    pub(crate) fn lost(&self) -> Bytes {
        match self {
            SimulatedTransport::Deliver(deliveries) => deliveries.lost(),
            _ => Bytes::ZERO,
        }
    }

    /// Counts of the packets that have arrived; of published transports none are known.
    pub(crate) fn arrivals(&self) -> ArrivalStats {
        match self {
            SimulatedTransport::Flow(endpoint) => endpoint.arrivals(),
            _ => ArrivalStats::default(),
        }
    }

    /// Number of retransmissions so far.
    pub(crate) fn retransmissions(&self) -> u64 {
        delegate!(self, endpoint => endpoint.retransmissions())
    }
}

impl Transport for SimulatedTransport {
    #[inline]
    fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        delegate!(self, endpoint => endpoint.handle_checked(now, prefix, packet));
    }
}

impl Check for SimulatedTransport {
    fn check(&self) {
        delegate!(self, endpoint => endpoint.check());
    }
}

machine_of_variants!(SimulatedTransport { Flow, Deliver, Ndp, Pfabric, Homa });

impl Reports for SimulatedTransport {
    type Event = Event;

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        delegate!(self, endpoint => endpoint.poll_event())
    }
}
