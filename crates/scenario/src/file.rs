//! The scenario file as it is written. Everything that can be left out has its default here.

use serde::Deserialize;
use thalweg_core::{Bytes, Rate, Span};
use thalweg_fabric::Spread;
use thalweg_fabric::topology::{Dumbbell, LeafSpine, OneSwitch, ThreeTier};
use thalweg_transport::Control;

use crate::job::Collective;
use crate::plan::control_named;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub(crate) title: String,
    /// The run ends here even if flows are unfinished.
    pub(crate) stop_after: Option<Span>,
    pub(crate) topology: TopologyTable,
    #[serde(default)]
    pub(crate) switch: SwitchTable,
    #[serde(default)]
    pub(crate) transport: TransportTable,
    #[serde(default)]
    pub(crate) aggregation: AggregationTable,
    /// Without it jobs send when they like.
    pub(crate) pacing: Option<PacingTable>,
    #[serde(default)]
    pub(crate) traffic: Vec<TrafficTable>,
    #[serde(default)]
    pub(crate) faults: Vec<FaultTable>,
    /// Read before this one, and only here so that it is known.
    #[expect(dead_code, reason = "the sweep is taken from the text before it is varied")]
    pub(crate) sweep: Option<SweepTable>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct PacingTable {
    pub(crate) slot: Option<Span>,
    /// Number of slots that are planned ahead.
    pub(crate) slots: Option<usize>,
    /// Price of one more full slot of the flow's own on a path that is full already, in slots.
    pub(crate) price: Option<f64>,
    /// Classes where ports have priorities, rates elsewhere.
    pub(crate) enforce: Option<EnforceWord>,
    pub(crate) plans: PlansWord,
    pub(crate) unused: UnusedWord,
}

/// Effect of plans on packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EnforceWord {
    Class,
    Rate,
}

/// Bytes that plans cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlansWord {
    #[default]
    Ready,
    Iteration,
}

/// Fate of a slot whose flow used less than half of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnusedWord {
    #[default]
    Halved,
    Kept,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TopologyTable {
    OneSwitch(OneSwitch),
    Dumbbell(Dumbbell),
    LeafSpine(LeafSpine),
    ThreeTier(ThreeTier),
    List(ListTable),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ListTable {
    pub(crate) hosts: Vec<String>,
    pub(crate) switches: Vec<String>,
    pub(crate) cables: Vec<ListedCable>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ListedCable {
    pub(crate) ends: [String; 2],
    pub(crate) rate: Rate,
    pub(crate) delay: Span,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct SwitchTable {
    pub(crate) queues: QueuesWord,
    /// Of each port.
    pub(crate) port_buffer: Option<Bytes>,
    /// Of the whole switch, in place of `port_buffer`.
    pub(crate) shared_buffer: Option<Bytes>,
    /// With strict queues: of each.
    pub(crate) queue_buffer: Option<Bytes>,
    /// With strict queues, in place of `queue_buffer`: how many times the free memory of its port each may hold.
    pub(crate) queue_alpha: Option<f64>,
    /// With `shared_buffer`: how many times the free memory a port may hold.
    pub(crate) alpha: Option<f64>,
    pub(crate) ecn_threshold: Option<Bytes>,
    /// Of each of the strict queues, in place of `ecn_threshold`.
    pub(crate) ecn_thresholds: Option<Vec<Bytes>>,
    pub(crate) ecn_counts: EcnWord,
    pub(crate) drop_unmarkable: bool,
    /// With queues that trim: what data may fill of a port.
    pub(crate) trim_above: Option<Bytes>,
    /// With fair queues: of ordinary traffic and of training.
    pub(crate) class_weights: Option<[u32; 2]>,
    /// With strict and fair queues: of the link, what the last priority has while others are waiting.
    pub(crate) last_share: Option<f64>,
    pub(crate) routing: Spread,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QueuesWord {
    #[default]
    Fifo,
    Strict,
    Trimming,
    Urgency,
    Fair,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EcnWord {
    #[default]
    Queue,
    Port,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct TransportTable {
    pub(crate) control: Option<ControlWord>,
    /// Name of the control of flows that belong to no job, where they have one of their own.
    pub(crate) flows_control: Option<String>,
    pub(crate) dctcp_gain: Option<f64>,
    pub(crate) dctcp_initial_alpha: Option<f64>,
    pub(crate) segment_bytes: Option<u32>,
    pub(crate) overhead_bytes: Option<u32>,
    pub(crate) ack_bytes: Option<u32>,
    pub(crate) ack_batch_packets: Option<u32>,
    pub(crate) initial_window_packets: Option<u32>,
    pub(crate) max_window_packets: Option<u32>,
    pub(crate) remembers_paths: Option<bool>,
    pub(crate) reordering_packets: Option<u32>,
    pub(crate) min_rto: Option<Span>,
    pub(crate) initial_rto: Option<Span>,
    /// With deliveries: the share of every flow that may be lost.
    pub(crate) loss: Option<f64>,
    /// With Homa: the edges between priorities of unscheduled packets.
    pub(crate) unscheduled_cutoffs: Option<Vec<Bytes>>,
    /// With hints, of pFabric and Homa: how flows are ranked past an estimate.
    pub(crate) past_estimate: Option<PastWord>,
    /// Of deliveries, in flows and in jobs.
    pub(crate) spray: Option<bool>,
    /// Of deliveries: name of a control, or a size that its window keeps.
    pub(crate) delivery_control: Option<String>,
    /// Of controls by delay: classes whose round trips they read.
    pub(crate) delay_classes: Option<DelayClassesWord>,
    /// Of the rate of deliveries: what a cut leaves at least,
    pub(crate) delivery_floor: Option<DeliveryFloorWord>,
    /// what a burst begins with,
    pub(crate) delivery_start: Option<DeliveryStartWord>,
    /// the order of tensors that wait,
    pub(crate) delivery_order: Option<DeliveryOrderWord>,
    /// the order of the packets of a tensor,
    pub(crate) delivery_segments: Option<DeliverySegmentsWord>,
    /// the round trip above which it falls,
    pub(crate) delivery_high: Option<Span>,
    /// and the base round trip from which on its thresholds grow with it.
    pub(crate) delivery_reference: Option<Span>,
    pub(crate) loss_detection: Option<LossDetectionWord>,
    pub(crate) tagger: Option<TaggerWord>,
    /// With `pias`: what counts as sent.
    pub(crate) counts: Option<CountsWord>,
    /// With a tagger: the edges between priorities.
    pub(crate) thresholds: Option<ThresholdsWord>,
    /// With a tagger: flows whose packets become more urgent leave congestion avoidance.
    pub(crate) rises_quickly: Option<bool>,
    pub(crate) slack: Option<Bytes>,
    pub(crate) hints: Option<HintsTable>,
}

/// Classes whose round trips a control by delay reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DelayClassesWord {
    #[default]
    All,
    MostUrgent,
}

/// Least rate that a cut of deliveries leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeliveryFloorWord {
    Least,
    Arrivals,
}

/// Order of tensors that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeliveryOrderWord {
    Packets,
    Tensors,
}

/// Order of the packets of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeliverySegmentsWord {
    AsTheyLie,
    ImportantFirst,
}

/// Rate of a burst of deliveries that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeliveryStartWord {
    LineRate,
    Shared,
}

/// Detector of losses and the evidence it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::enum_variant_names, reason = "the words that files have")]
pub(crate) enum LossDetectionWord {
    #[default]
    ByOrder,
    ByAdaptiveOrder,
    ByPriority,
    BySender,
}

/// Edges between priorities: those of a published set, or a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ThresholdsWord {
    Named(String),
    List(Vec<Bytes>),
}

/// Rank of a flow that is larger than its estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PastWord {
    #[default]
    Done,
    OnePacket,
}

/// Rule for the priority of a flow's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TaggerWord {
    Pias,
    Qclimb,
    PreciseSizes,
    FixedPriority,
    Promotion,
}

/// Bytes that count as sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CountsWord {
    Flow,
    Connection,
    OpenConnection,
}

/// Flows that a forest learns from, and features of flows that start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct HintsTable {
    pub(crate) learned_flows: Option<u32>,
    /// Sizes to learn from, in place of those of the traffic.
    pub(crate) sizes: Option<SizesTable>,
    pub(crate) width: Option<f64>,
    pub(crate) swapped: Option<f64>,
    pub(crate) trees: Option<u32>,
    pub(crate) depth: Option<u32>,
    /// The share of flows that go where none went before.
    pub(crate) unseen: Option<f64>,
    /// Flows that end before the forest learns again.
    pub(crate) learns_again_after: Option<u32>,
}

/// Transport of flows.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum ControlWord {
    /// Windows or rates by a congestion control.
    Windows(Control),
    Ndp,
    Pfabric,
    Homa,
    Deliver,
}

impl TryFrom<String> for ControlWord {
    type Error = String;

    fn try_from(word: String) -> Result<ControlWord, String> {
        Ok(match word.as_str() {
            "ndp" => ControlWord::Ndp,
            "pfabric" => ControlWord::Pfabric,
            "homa" => ControlWord::Homa,
            "deliver" => ControlWord::Deliver,
            name => ControlWord::Windows(control_named(name).ok_or_else(|| {
                let names = [Control::NAMES, &["ndp", "pfabric", "homa", "deliver"]].concat();
                format!("unknown word `{name}`: write one of `{}`", names.join("`, `"))
            })?),
        })
    }
}

/// Settings of aggregation in jobs and switches. All jobs are alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct AggregationTable {
    /// Of each switch.
    pub(crate) aggregators: Option<u32>,
    pub(crate) fragment_values: Option<u16>,
    pub(crate) overhead_bytes: Option<u32>,
    pub(crate) numeric: NumericWord,
    pub(crate) scale: Option<f32>,
    pub(crate) recovery: RecoveryWord,
    pub(crate) indexing: IndexingWord,
    /// Name of a control, or a size that it keeps.
    pub(crate) window: Option<String>,
    pub(crate) initial_window: Option<Bytes>,
    pub(crate) queue_target: Option<Span>,
    /// Of windows by delay: classes whose round trips they read.
    pub(crate) delay_classes: Option<DelayClassesWord>,
    pub(crate) timeout: Option<Span>,
    pub(crate) reordering_packets: Option<u32>,
    pub(crate) span_fragments: Option<u16>,
    /// Rule that tells important fragments of bounded sums apart.
    pub(crate) importance: Option<ImportanceWord>,
    pub(crate) stale_after: Option<Span>,
    pub(crate) ask_gap: Option<Span>,
    pub(crate) levels: Option<u32>,
    /// Of each job with a static pool.
    pub(crate) slots: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NumericWord {
    #[default]
    Float,
    Fixed,
    Dynamic,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecoveryWord {
    #[default]
    Selective,
    Paper,
}

/// Rule that tells important fragments apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ImportanceWord {
    PacketMean,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IndexingWord {
    #[default]
    Hashed,
    Linear,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TrafficTable {
    Poisson(PoissonTable),
    Incast(IncastTable),
    Permutation(PermutationTable),
    List(FlowListTable),
    Tensors(TensorsTable),
    Training(TrainingTable),
    AllReduce(AllReduceTable),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PoissonTable {
    pub(crate) sizes: SizesTable,
    /// Larger flows are cut to this.
    pub(crate) cap: Option<Bytes>,
    pub(crate) load: f64,
    /// Stop after this number of flows,
    pub(crate) flows: Option<u64>,
    /// or after this time.
    pub(crate) lasting: Option<Span>,
    #[serde(default)]
    pub(crate) between: BetweenWord,
    /// Meaning of load: payload, or all that occupies the links.
    #[serde(default)]
    pub(crate) load_counts: LoadWord,
    /// True if these flows go to destinations that no flow was learned for.
    #[serde(default)]
    pub(crate) unseen: bool,
    /// Sizes repeat, and features say which.
    pub(crate) messages: Option<MessagesTable>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct MessagesTable {
    pub(crate) types: Option<u32>,
    pub(crate) popularity: Option<f64>,
    pub(crate) jitter: Option<f64>,
    pub(crate) strangers: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BetweenWord {
    #[default]
    AllHosts,
    Racks,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LoadWord {
    #[default]
    Payload,
    Wire,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SizesTable {
    WebSearch,
    DataMining,
    Fixed(Bytes),
    Uniform([Bytes; 2]),
    Csv(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct IncastTable {
    pub(crate) senders: Vec<u32>,
    pub(crate) receiver: u32,
    pub(crate) bytes_each: Bytes,
    #[serde(default)]
    pub(crate) start: Span,
    #[serde(default)]
    pub(crate) jitter: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PermutationTable {
    pub(crate) bytes_each: Bytes,
    #[serde(default)]
    pub(crate) start: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FlowListTable {
    /// A file with the columns `start_us,src,dst,bytes`, and perhaps `path`.
    pub(crate) csv: String,
    /// Starts are rescaled to this.
    pub(crate) load: Option<f64>,
    /// With `load`: what it counts.
    pub(crate) load_counts: Option<LoadWord>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TensorsTable {
    /// The name of a built-in model,
    pub(crate) model: Option<String>,
    /// or a file with the table of one.
    pub(crate) json: Option<String>,
    pub(crate) workers: Vec<u32>,
    pub(crate) servers: Vec<u32>,
    pub(crate) iterations: u64,
    pub(crate) forward: Span,
    pub(crate) backward: Span,
    /// Gradients are put together up to this.
    pub(crate) bucket: Option<Bytes>,
    /// Most bytes of a flow.
    pub(crate) chunk: Option<Bytes>,
    #[serde(default)]
    pub(crate) jitter: Span,
    #[serde(default)]
    pub(crate) start: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct TrainingTable {
    /// The name of a built-in model,
    pub(crate) model: Option<String>,
    /// or a file with the table of one.
    pub(crate) json: Option<String>,
    pub(crate) workers: Vec<u32>,
    #[serde(default)]
    pub(crate) collective: Collective,
    /// The host that sums,
    pub(crate) server: Option<u32>,
    /// or several.
    pub(crate) servers: Option<Vec<u32>>,
    pub(crate) iterations: u64,
    /// Measured times,
    pub(crate) forward: Option<Span>,
    pub(crate) backward: Option<Span>,
    /// or the speed of an accelerator and its samples.
    pub(crate) flops_per_s: Option<f64>,
    pub(crate) batch: Option<u32>,
    /// Gradients are put together up to this.
    pub(crate) bucket: Option<Bytes>,
    /// Most bytes of a message, where hosts sum.
    pub(crate) chunk: Option<Bytes>,
    #[serde(default)]
    pub(crate) transport: CarrierWord,
    /// With deliveries: the share of gradients that may be lost.
    pub(crate) loss: Option<f64>,
    pub(crate) parameters: Option<ParametersWord>,
    /// With aggregation: front layers are more urgent, as they always are with deliveries.
    #[serde(default)]
    pub(crate) layer_priorities: bool,
    /// The next forward pass goes on layer by layer, as sums come.
    #[serde(default)]
    pub(crate) pipelined: bool,
    #[serde(default)]
    pub(crate) start: Span,
}

/// Transport of a job's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CarrierWord {
    #[default]
    Flow,
    Deliver,
}

/// Reliability of what servers send back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ParametersWord {
    Exact,
    KeepValue,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AllReduceTable {
    pub(crate) workers: Vec<u32>,
    #[serde(default)]
    pub(crate) collective: Collective,
    pub(crate) server: Option<u32>,
    pub(crate) servers: Option<Vec<u32>>,
    /// Of each tensor.
    pub(crate) bytes: Bytes,
    pub(crate) rounds: u64,
    /// Tensors that a worker hands over before the first of them is summed.
    #[serde(default = "two")]
    pub(crate) in_flight: u64,
    /// Most bytes of a message, where hosts sum.
    pub(crate) chunk: Option<Bytes>,
    #[serde(default)]
    pub(crate) transport: CarrierWord,
    pub(crate) loss: Option<f64>,
    pub(crate) parameters: Option<ParametersWord>,
    #[serde(default)]
    pub(crate) start: Span,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultTable {
    Loss(ChanceTable),
    Bursts(BurstsTable),
    Duplicate(ChanceTable),
    Reorder(ReorderTable),
    Jitter(JitterTable),
    LinkDown(WhenTable),
    NodeDown(NodeDownTable),
}

/// Keys that every fault table has for place and time: `serde(flatten)` would lose the lines of errors.
macro_rules! fault_table {
    ($name:ident { $($(#[$meta:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub(crate) struct $name {
            #[serde(default)]
            pub(crate) on: PlaceTable,
            #[serde(default)]
            pub(crate) from: Span,
                    pub(crate) until: Option<Span>,
            $($(#[$meta])* pub(crate) $field: $kind,)*
        }

        impl $name {
            pub(crate) fn when(&self) -> WhenTable {
                WhenTable { on: self.on, from: self.from, until: self.until }
            }
        }
    };
}

fault_table!(WhenTable {});
fault_table!(ChanceTable { probability: f64 });
fault_table!(BurstsTable { begin: f64, end: f64 });
fault_table!(ReorderTable { probability: f64, by: Span });
fault_table!(JitterTable { up_to: Span });

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NodeDownTable {
    pub(crate) node: u32,
    pub(crate) from: Span,
    pub(crate) until: Option<Span>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlaceTable {
    #[default]
    Everywhere,
    HostCables,
    SwitchCables,
    Cable(u32),
    Into(u32),
    OutOf(u32),
}

/// Runs the scenario once for every combination.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct SweepTable {
    pub(crate) seeds: Vec<u64>,
    /// Keys as dotted paths, quoted or not, each with the values it takes.
    pub(crate) vary: toml::Table,
}

fn two() -> u64 {
    2
}
