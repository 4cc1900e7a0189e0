//! From the tables of the transport and of switches to the settings of deliveries.

use thalweg_core::{Bytes, JobId, NodeId, Span};
use thalweg_deliver::{SegmentOrder, SendOrder};
use thalweg_fabric::Topology;
use thalweg_flow::Config;
use thalweg_transport::control::{
    Delay, DelayRate, DelayRateError, RateFloor, RateStart, SampledClasses,
};
use thalweg_transport::{Control, Credentials, RtoLimits};

use super::control::{self, QUEUE_TARGET};
use super::transport::longest_round_trip;
use crate::error::Mistake;
use crate::file::{
    DeliveryFloorWord, DeliveryOrderWord, DeliverySegmentsWord, DeliveryStartWord, File,
    QueuesWord, TransportTable,
};

/// Settings of the deliveries of flows and of jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryPlan {
    /// Every packet takes another path.
    sprays: bool,
    /// The congestion control. `None` for the rate by delay, which begins with the link of each host.
    control: Option<Control>,
    /// That rate.
    rate: DelayRate,
    /// Classes whose round trips the control reads, if it is one by delay.
    classes: SampledClasses,
    /// Order of tensors that wait, if the file has one.
    order: Option<SendOrder>,
    /// Order of the packets of a tensor.
    segments: SegmentOrder,
}

impl DeliveryPlan {
    /// The same for a job with this number of servers. One server has the sums of all tensors to send, and begins with
    /// those that are complete; several, each with a part of a tensor, would wait for different ones.
    pub(crate) fn with_servers(self, servers: usize) -> DeliveryPlan {
        let order = if servers == 1 { SendOrder::Tensors } else { SendOrder::Packets };
        DeliveryPlan { order: self.order.or(Some(order)), ..self }
    }

    /// Returns whether the control is the rate by delay, which has no window.
    pub(super) fn is_rate(&self) -> bool {
        self.control.is_none()
    }
}

/// Base round trip at which the thresholds of the rate were published.
// spec: M-08
const PUBLISHED_BASE: Span = Span::from_us(24);

/// Most bytes of values in a packet of a delivery.
const MOST_SEGMENT_BYTES: u32 = u16::MAX as u32;

/// Settings of a host's deliveries.
pub(crate) fn delivery(
    windows: &Config,
    topology: &Topology,
    (host, job): (NodeId, JobId),
    plan: DeliveryPlan,
) -> thalweg_deliver::Config {
    let default = thalweg_deliver::Config::default();
    let line_rate = topology.host_cable(host).rate;
    let rate = DelayRate { line_rate, floor: plan.rate.floor.min(line_rate), ..plan.rate };
    let (messages, least) = (&windows.messages, windows.min_rto);
    thalweg_deliver::Config {
        credentials: Credentials { job, ..Credentials::default() },
        segment_bytes: messages.segment_bytes.min(MOST_SEGMENT_BYTES) as u16 & !3,
        overhead_bytes: messages.overhead_bytes,
        paths: if plan.sprays { default.paths } else { 1 },
        control: plan.control.unwrap_or(rate.into()).with_classes(plan.classes),
        initial_window_packets: windows.initial_window_packets,
        order: plan.order.unwrap_or(default.order),
        segments: plan.segments,
        waits: RtoLimits {
            initial: least,
            min: default.waits.min.min(least),
            max: default.waits.max.max(least),
        },
        ..default
    }
}

/// Reads the settings of deliveries.
pub(crate) fn delivery_plan(
    file: &File,
    windows: &Config,
    topology: &Topology,
) -> Result<DeliveryPlan, Mistake> {
    let table = &file.transport;
    let control = match table.delivery_control.as_deref() {
        None | Some("rate") => None,
        Some("delay") => Some(Delay::to(QUEUE_TARGET).into()),
        Some(word) => Some(control::named(word).ok_or_else(|| {
            let message = format!(
                "{word:?} is no control of deliveries: write \"rate\", \"delay\", {} or a size, \"240KB\"",
                control::names(|_| true)
            );
            Mistake::at("delivery-control", message)
        })?),
    };
    if control.is_some() {
        only_of_rate(table)?;
    }
    let round_trip = longest_round_trip(windows, topology);
    let has_classes = matches!(file.switch.queues, QueuesWord::Strict | QueuesWord::Fair);
    let default = if has_classes { SampledClasses::MostUrgent } else { SampledClasses::All };
    Ok(DeliveryPlan {
        sprays: table.spray.unwrap_or(true),
        control: control.map(|control: Control| control.with_base_rtt(round_trip)),
        rate: rate(file, topology, round_trip)?,
        // spec: M-17
        classes: table.delay_classes.map_or(default, control::sampled_classes),
        // spec: M-03
        order: table.delivery_order.map(|word| match word {
            DeliveryOrderWord::Packets => SendOrder::Packets,
            DeliveryOrderWord::Tensors => SendOrder::Tensors,
        }),
        segments: match table.delivery_segments.unwrap_or(DeliverySegmentsWord::AsTheyLie) {
            DeliverySegmentsWord::AsTheyLie => SegmentOrder::AsTheyLie,
            DeliverySegmentsWord::ImportantFirst => SegmentOrder::ImportantFirst,
        },
    })
}

/// Keys of the rate say nothing about another control.
fn only_of_rate(table: &TransportTable) -> Result<(), Mistake> {
    let given = [
        ("delivery-floor", table.delivery_floor.is_some()),
        ("delivery-start", table.delivery_start.is_some()),
        ("delivery-high", table.delivery_high.is_some()),
        ("delivery-reference", table.delivery_reference.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((key, _)) => {
            let message =
                "only delivery-control = \"rate\" has this setting: write that, or take this away";
            Err(Mistake::at(key, message))
        }
    }
}

/// The rate by delay, but for the link of the host.
// spec: M-08, M-18, M-19
fn rate(file: &File, topology: &Topology, round_trip: Span) -> Result<DelayRate, Mistake> {
    let (table, published) = (&file.transport, DelayRate::default());
    let high = table.delivery_high.unwrap_or_else(|| {
        let waits = file.switch.port_buffer.map_or(Span::ZERO, |buffer| half(buffer, topology));
        published.high.max(round_trip + waits)
    });
    let rate = DelayRate {
        high,
        reference: table.delivery_reference.unwrap_or(PUBLISHED_BASE),
        cuts_to: match table.delivery_floor.unwrap_or(DeliveryFloorWord::Arrivals) {
            DeliveryFloorWord::Least => RateFloor::Least,
            DeliveryFloorWord::Arrivals => RateFloor::Arrivals,
        },
        starts_at: match table.delivery_start.unwrap_or(DeliveryStartWord::Shared) {
            DeliveryStartWord::LineRate => RateStart::LineRate,
            DeliveryStartWord::Shared => RateStart::Shared,
        },
        ..published
    };
    rate.check().map_err(|error| {
        let key = match error {
            DelayRateError::Reference => "delivery-reference",
            _ => "delivery-high",
        };
        Mistake::at(key, error)
    })?;
    Ok(rate)
}

/// The time that half of the memory of a port takes on the link of a host.
fn half(buffer: Bytes, topology: &Topology) -> Span {
    topology.host_cable(NodeId(0)).rate.serialization(Bytes::new(buffer.as_u64() / 2))
}
