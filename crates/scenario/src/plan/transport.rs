//! From the table of the transport to its settings.

use thalweg_baselines::{Past, homa, ndp, pfabric};
use thalweg_core::{Bytes, NodeId, Rng, Span};
use thalweg_deliver::{LossBound, Start};
use thalweg_fabric::Topology;
use thalweg_flow::{
    Config, ConfigError, Endpoint, LossDetection, MessageConfig, MessageConfigError,
};
use thalweg_transport::control::Dctcp;
use thalweg_transport::{Control, ControlError};

use super::delivery::{DeliveryPlan, delivery};
use super::{as_key, control};
use crate::error::Mistake;
use crate::file::{ControlWord, LossDetectionWord, PastWord, TransportTable};
use crate::ideal::{Ideal, PacketSizes};
use crate::simulated::{Deliveries, SimulatedTransport};
use crate::traffic::Traffic;

/// Transport of the hosts' flows.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// By windows, under this control.
    Windows(Control),
    Ndp(ndp::Config),
    Pfabric(pfabric::Config),
    Homa {
        config: homa::Config,
        /// True if the file gives the priorities. Otherwise they balance the sizes of the traffic.
        is_given: bool,
    },
    /// As tensors of which a part may be lost.
    Deliver {
        loss: LossBound,
        plan: DeliveryPlan,
    },
}

/// Packets of a queue that cuts what comes on top, as published for NDP.
const NDP_QUEUE_PACKETS: u32 = 8;

/// Round trips that pFabric waits for an answer, as published.
const PFABRIC_ROUND_TRIPS: u64 = 3;

impl Protocol {
    /// Name in files.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Protocol::Windows(_) => "windows",
            Protocol::Ndp { .. } => "ndp",
            Protocol::Pfabric { .. } => "pfabric",
            Protocol::Homa { .. } => "homa",
            Protocol::Deliver { .. } => "deliver",
        }
    }

    /// The endpoint of a host. `windows` has passed its check.
    pub(crate) fn endpoint(
        &self,
        host: NodeId,
        windows: Config,
        topology: &Topology,
        rng: &Rng,
    ) -> SimulatedTransport {
        let checked = "checked when the file was read";
        let messages = windows.messages.clone();
        match self {
            &Protocol::Windows(control) => {
                let seed = rng.substream("control", host.0.into()).bits();
                let endpoint = Endpoint::new(Config { seed, control, ..windows });
                SimulatedTransport::Flow(Box::new(endpoint.expect(checked)))
            }
            Protocol::Ndp(config) => {
                let link_rate = topology.host_cable(host).rate;
                let rng = rng.substream("ndp", u64::from(host.0));
                let config = ndp::Config { messages, link_rate, rng, ..config.clone() };
                SimulatedTransport::Ndp(Box::new(ndp::Endpoint::new(config).expect(checked)))
            }
            Protocol::Pfabric(config) => {
                let config = pfabric::Config { messages, ..config.clone() };
                SimulatedTransport::Pfabric(Box::new(
                    pfabric::Endpoint::new(config).expect(checked),
                ))
            }
            Protocol::Homa { config, .. } => {
                let config = homa::Config { messages, ..config.clone() };
                SimulatedTransport::Homa(Box::new(homa::Endpoint::new(config).expect(checked)))
            }
            &Protocol::Deliver { loss, plan } => {
                let config = thalweg_deliver::Config {
                    // Sizes and bounds are agreed on before a training begins.
                    start: Start::AtOnce,
                    ..delivery(&windows, topology, (host, messages.credentials.job), plan)
                };
                let rng = rng.substream("deliver", u64::from(host.0));
                let deliveries = Deliveries::new(config, loss, messages.first_message, rng);
                SimulatedTransport::Deliver(Box::new(deliveries.expect(checked)))
            }
        }
    }
}

/// Number of flows that Homa's priorities are balanced for.
const BALANCED_FLOWS: u64 = 20_000;

impl Protocol {
    /// Divides priorities by the sizes of the traffic, where they follow from them and the file does not
    /// say how. The same for every seed, as if it had been measured long before.
    pub(crate) fn balance(&mut self, traffic: &[Traffic], messages: &MessageConfig) {
        let Protocol::Homa { config, is_given: false } = self else { return };
        let mut rng = Rng::new(0).stream("homa");
        let flows = BALANCED_FLOWS.div_ceil(traffic.len() as u64);
        let mut sizes = Vec::new();
        for table in traffic {
            sizes.extend((0..flows).map_while(|_| table.likely_size(&mut rng)));
        }
        let unscheduled = u64::from(config.round_trip_packets) * u64::from(messages.segment_bytes);
        config.priorities = homa::Priorities::balanced(&sizes, Bytes::new(unscheduled));
    }
}

/// Transport of flows. Windows and waits that the file leaves out follow from the longest way between
/// two hosts.
pub(crate) fn protocol(
    table: &TransportTable,
    windows: &Config,
    topology: &Topology,
    plan: DeliveryPlan,
) -> Result<Protocol, Mistake> {
    let (round_trip, product_packets) = longest_way(&windows.messages, topology);
    let past = match table.past_estimate.unwrap_or_default() {
        PastWord::Done => Past::Done,
        PastWord::OnePacket => Past::OnePacket,
    };
    let window_packets = |default: u32| table.initial_window_packets.unwrap_or(default);
    let protocol = match table.control.unwrap_or(ControlWord::Windows(Control::default())) {
        ControlWord::Windows(_) => {
            let control = flows_control(table, windows)?.with_base_rtt(round_trip);
            Protocol::Windows(control)
        }
        ControlWord::Ndp => Protocol::Ndp(ndp::Config {
            // With queues filled at the sender's and at the receiver's end, no link is idle yet.
            initial_window_packets: window_packets(product_packets + 2 * NDP_QUEUE_PACKETS),
            timeout_after: table.min_rto.unwrap_or(windows.min_rto),
            paths: paths(topology),
            ..ndp::Config::new(topology.host_cable(NodeId(0)).rate)
        }),
        ControlWord::Homa => {
            let config = homa::Config {
                round_trip_packets: window_packets(product_packets),
                timeout_after: table.min_rto.unwrap_or(windows.min_rto),
                priorities: cutoffs(table)?,
                past,
                ..homa::Config::default()
            };
            Protocol::Homa { config, is_given: table.unscheduled_cutoffs.is_some() }
        }
        ControlWord::Pfabric => {
            let initial_window_packets = window_packets(product_packets);
            Protocol::Pfabric(pfabric::Config {
                initial_window_packets,
                max_window_packets: initial_window_packets
                    .saturating_add(initial_window_packets / 4),
                timeout_after: table.min_rto.unwrap_or(round_trip * PFABRIC_ROUND_TRIPS),
                past,
                ..pfabric::Config::default()
            })
        }
        ControlWord::Deliver => {
            Protocol::Deliver { loss: loss_bound(table.loss.unwrap_or(0.0))?, plan }
        }
    };
    check_keys(table, &protocol)?;
    Ok(protocol)
}

/// Keys of one protocol say nothing about another.
fn check_keys(table: &TransportTable, protocol: &Protocol) -> Result<(), Mistake> {
    if table.unscheduled_cutoffs.is_some() && !matches!(protocol, Protocol::Homa { .. }) {
        let message =
            "only control = \"homa\" has unscheduled packets: write that, or take this away";
        return Err(Mistake::at("unscheduled-cutoffs", message));
    }
    if table.loss.is_some() && !matches!(protocol, Protocol::Deliver { .. }) {
        let message = "only control = \"deliver\" may lose anything: write that, or take this away";
        return Err(Mistake::at("loss", message));
    }
    let has_window = !matches!(protocol, Protocol::Deliver { plan, .. } if plan.is_rate());
    let foreign = [
        ("flows-control", table.flows_control.is_some()),
        ("dctcp-gain", table.dctcp_gain.is_some()),
        ("dctcp-initial-alpha", table.dctcp_initial_alpha.is_some()),
        ("remembers-paths", table.remembers_paths.is_some()),
        ("reordering-packets", table.reordering_packets.is_some()),
        ("loss-detection", table.loss_detection.is_some()),
        ("initial-rto", table.initial_rto.is_some()),
        ("max-window-packets", table.max_window_packets.is_some()),
        ("rises-quickly", table.rises_quickly.is_some()),
        ("initial-window-packets", table.initial_window_packets.is_some() && !has_window),
    ];
    match foreign.into_iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) if !matches!(protocol, Protocol::Windows(_)) => {
            let control = protocol.name();
            let message = format!("control = \"{control}\" has no such setting: take this away");
            Err(Mistake::at(key, message))
        }
        _ => Ok(()),
    }
}

fn cutoffs(table: &TransportTable) -> Result<homa::Priorities, Mistake> {
    let cutoffs = table.unscheduled_cutoffs.as_deref().unwrap_or_default();
    homa::Priorities::new(cutoffs).map_err(|error| Mistake::at("unscheduled-cutoffs", error))
}

/// A share that may be lost.
pub(crate) fn loss_bound(share: f64) -> Result<LossBound, Mistake> {
    LossBound::new(share).ok_or_else(|| {
        let message =
            format!("{share} is no share that may be lost: give 0 or more, and less than 1");
        Mistake::at("loss", message)
    })
}

/// The round trip of a full packet from the first host to one that is furthest from it, and the packets
/// that its link sends in that time.
fn longest_way(messages: &MessageConfig, topology: &Topology) -> (Span, u32) {
    let src = NodeId(0);
    let distances = topology.distances(src);
    let furthest = (0..topology.hosts()).map(NodeId).max_by_key(|host| distances[host.index()]);
    let sizes = PacketSizes::of(messages);
    let dst = furthest.expect("a topology has hosts");
    let segment = Bytes::from(messages.segment_bytes);
    let round_trip = Ideal::new(topology, sizes, false).completion(src, dst, segment);
    let full = segment + Bytes::from(messages.overhead_bytes);
    let one = topology.host_cable(src).rate.serialization(full);
    let packets = round_trip.as_ps().div_ceil(one.as_ps()).min(1 << 16);
    (round_trip, packets as u32)
}

/// Number of links from the first host's switch to other switches.
fn paths(topology: &Topology) -> u8 {
    let links = topology.links_out(topology.edge_of(NodeId(0)));
    let up = links.iter().filter(|link| !topology.is_host(topology.link_ends(**link).1));
    up.count().clamp(1, 255) as u8
}

/// Settings of the transport.
pub(crate) fn transport(table: &TransportTable) -> Result<Config, Mistake> {
    let (default, messages) = (Config::default(), MessageConfig::default());
    let config = Config {
        control: flow_control(table)
            .with_classes(control::sampled_classes(table.delay_classes.unwrap_or_default())),
        messages: MessageConfig {
            segment_bytes: table.segment_bytes.unwrap_or(messages.segment_bytes),
            overhead_bytes: table.overhead_bytes.unwrap_or(messages.overhead_bytes),
            ack_wire_bytes: table.ack_bytes.unwrap_or(messages.ack_wire_bytes),
            ack_batch_packets: table.ack_batch_packets.unwrap_or(messages.ack_batch_packets),
            ..messages
        },
        initial_window_packets: table
            .initial_window_packets
            .unwrap_or(default.initial_window_packets),
        loss_detection: match table.loss_detection.unwrap_or_default() {
            LossDetectionWord::ByOrder => LossDetection::ByOrder,
            LossDetectionWord::ByAdaptiveOrder => LossDetection::ByAdaptiveOrder,
            LossDetectionWord::ByPriority => LossDetection::ByPriority,
            LossDetectionWord::BySender => LossDetection::BySender,
        },
        max_window_packets: table.max_window_packets.unwrap_or(default.max_window_packets),
        rises_quickly: table.rises_quickly.unwrap_or(default.rises_quickly),
        reordering_packets: table.reordering_packets.unwrap_or(default.reordering_packets),
        min_rto: table.min_rto.unwrap_or(default.min_rto),
        initial_rto: table.initial_rto.unwrap_or(default.initial_rto),
        remembers_paths: table.remembers_paths.unwrap_or(default.remembers_paths),
        ..default
    };
    if config.messages.ack_wire_bytes == 0 {
        return Err(Mistake::at("ack-bytes", "no packet has 0 bytes: give at least 1"));
    }
    config.check().map_err(transport_mistake)?;
    Ok(config)
}

/// The settings with the round trip of the longest path, for controls that need it.
pub(crate) fn on_topology(windows: Config, topology: &Topology) -> Config {
    let round_trip = longest_round_trip(&windows, topology);
    Config { control: windows.control.with_base_rtt(round_trip), ..windows }
}

/// The round trip of a full packet on the longest path.
pub(crate) fn longest_round_trip(windows: &Config, topology: &Topology) -> Span {
    longest_way(&windows.messages, topology).0
}

fn transport_mistake(error: ConfigError) -> Mistake {
    let key = match error {
        ConfigError::Messages(error) => match error {
            MessageConfigError::Zero(name) | MessageConfigError::TooManyPackets { name, .. } => {
                as_key(name)
            }
            MessageConfigError::AckBatch(_) => as_key("ack_batch_packets"),
            MessageConfigError::FirstMessage(_) => as_key("first_message"),
            MessageConfigError::PacketTooLarge => "segment-bytes".to_owned(),
        },
        ConfigError::TimeoutOrder { max, .. } => {
            return Mistake::at("min-rto", format!("no wait may pass {max}: give that or less"));
        }
        // No key sets up another control.
        ConfigError::Control(ControlError::Share { name, .. }) => format!("dctcp-{}", as_key(name)),
        ConfigError::Control(_) => "control".to_owned(),
    };
    Mistake::at(key, as_key(&error.to_string()))
}

/// The control of flows that belong to no job: that of jobs, unless the file names another one.
fn flows_control(table: &TransportTable, windows: &Config) -> Result<Control, Mistake> {
    let Some(name) = &table.flows_control else { return Ok(windows.control) };
    let named = control::named(name).ok_or_else(|| {
        let names = control::names(|_| true);
        let message = format!("unknown control \"{name}\": give a size, or one of {names}");
        Mistake::at("flows-control", message)
    })?;
    let classes = control::sampled_classes(table.delay_classes.unwrap_or_default());
    Ok(named.with_classes(classes))
}

fn flow_control(table: &TransportTable) -> Control {
    let control = match table.control {
        Some(ControlWord::Windows(control)) => control,
        // What has no such control sends its flows in another way, and its jobs not at all.
        _ => Control::default(),
    };
    match control {
        Control::Dctcp(dctcp) => Dctcp {
            gain: table.dctcp_gain.unwrap_or(dctcp.gain),
            initial_alpha: table.dctcp_initial_alpha.unwrap_or(dctcp.initial_alpha),
        }
        .into(),
        other => other,
    }
}
