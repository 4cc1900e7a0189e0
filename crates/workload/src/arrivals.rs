//! Arrivals of flows.

use thalweg_core::{Bytes, Rate, Rng, Span, Time};
use thiserror::Error;

use crate::sizes::SizeDistribution;

/// One flow to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// When its first byte may leave.
    pub start: Time,
    /// The sending host, an index.
    pub src: usize,
    /// The receiving host, another index.
    pub dst: usize,
    /// Payload to deliver, at least one byte.
    pub bytes: Bytes,
    /// Index of its path among several equally short ones, if the caller chose one.
    pub path: Option<u16>,
    /// The layer of a model that it belongs to, where it belongs to one.
    pub layer: Option<LayerOf>,
    /// The type of message that it looks like, where messages have types.
    pub kind: Option<u32>,
}

/// Position of a layer in its model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerOf {
    /// From 0 at the front.
    pub layer: u16,
    /// Number of layers of the model.
    pub layers: u16,
}

/// The highest load that is taken for one: more is a percentage or a slip of the pen.
const MAX_LOAD: f64 = 100.0;

/// Flows that arrive as a Poisson process at a target load.
///
/// **Load** is a fraction of the sum of all hosts' access rates. With flows of mean size S that
/// start λ times a second in the whole network,
///
/// λ · S · `wire_factor` · 8 = `load` · Σ rates.
///
/// Senders are drawn uniformly, so with equal rates every host sends, and receives, at `load` times
/// its rate on average. Above 1 the backlog grows for ever.
#[derive(Clone, PartialEq, Debug)]
pub struct PoissonArrivals {
    /// The access rate of every host.
    pub host_rates: Vec<Rate>,
    /// The target load.
    pub load: f64,
    /// Bytes of load for each byte of payload: 1 makes `load` the load of payload; a full packet's bytes on the wire
    /// divided by its payload makes it the load of the links. Flows below one packet have more overhead than that,
    /// acknowledgements are not counted.
    pub wire_factor: f64,
    /// Distribution of flow sizes.
    pub sizes: SizeDistribution,
    /// Pairs of senders and receivers.
    pub pattern: Pattern,
    /// When to stop.
    pub until: Until,
}

/// Pairs of senders and receivers. Senders are any host, equally likely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Any other host, equally likely.
    AllToAll,
    /// Any host of another rack, equally likely.
    InterRack {
        /// Hosts are numbered rack by rack.
        hosts_per_rack: usize,
    },
}

/// When arrivals stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// After that many flows.
    Flows(u64),
    /// With the last flow that starts before this much time has passed.
    Elapsed(Span),
}

/// Why flows cannot be made.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ArrivalError {
    /// A flow needs a host at each end.
    #[error("there are {0} hosts: flows need at least 2")]
    TooFewHosts(usize),
    /// The load is not a positive number, or absurdly high.
    #[error("the load is {0}: give a fraction above 0 and up to {MAX_LOAD}, such as 0.6")]
    Load(f64),
    /// Time cannot be cut as finely as flows would start.
    #[error(
        "flows would start every {0:.3} ps on average, and time counts in whole picoseconds: give \
         a lower load or larger flows"
    )]
    TooDense(f64),
    /// Packets cannot be smaller than their payload.
    #[error("the wire factor is {0}: give 1 or more, such as 1500/1460")]
    WireFactor(f64),
    /// Nobody is in another rack.
    #[error("{hosts} hosts in racks of {hosts_per_rack} make no two racks: give smaller racks")]
    Racks {
        /// Number of hosts.
        hosts: usize,
        /// Number of hosts in a rack.
        hosts_per_rack: usize,
    },
    /// An incast has nobody to send.
    #[error("the incast has no senders: name at least one")]
    NoSenders,
    /// An incast's receiver would send to itself.
    #[error("host {0} is both receiver and sender of the incast: take it off the senders")]
    OwnSender(usize),
    /// Listed flows have no rate that could be changed.
    #[error(
        "all flows of the list start in the same moment: give them different starts, or no load"
    )]
    NoSpan,
    /// Listed flows would start after the end of time.
    #[error("at a load of {0} the list would last longer than 213 days: give a higher load")]
    TooSparse(f64),
    /// Flows would be empty.
    #[error("flows of 0 bytes carry nothing: give at least 1")]
    NoBytes,
}

impl PoissonArrivals {
    /// The flows, in order of time. Times, sizes and hosts come from streams of their own: another
    /// size distribution of the same mean leaves the times as they are.
    pub fn flows(self, rng: &Rng) -> Result<PoissonFlows, ArrivalError> {
        let hosts = self.host_rates.len();
        if hosts < 2 {
            return Err(ArrivalError::TooFewHosts(hosts));
        }
        check_load(self.load)?;
        if !(self.wire_factor >= 1.0 && self.wire_factor.is_finite()) {
            return Err(ArrivalError::WireFactor(self.wire_factor));
        }
        let hosts_per_rack = self.pattern.hosts_per_rack();
        if hosts_per_rack == 0 || hosts_per_rack >= hosts {
            return Err(ArrivalError::Racks { hosts, hosts_per_rack });
        }
        let mean_gap_ps = self.mean_gap_ps();
        // Below that, time would hardly advance, and flows until a moment would never end.
        if mean_gap_ps < 1.0 {
            return Err(ArrivalError::TooDense(mean_gap_ps));
        }
        Ok(PoissonFlows {
            mean_gap_ps,
            now: Time::ZERO,
            carry_ps: 0.0,
            yielded: 0,
            gaps: rng.stream("arrival gaps"),
            ends: rng.stream("arrival hosts"),
            draws: rng.stream("arrival sizes"),
            spec: self,
        })
    }

    fn mean_gap_ps(&self) -> f64 {
        let bits_per_s: f64 = self.host_rates.iter().map(|rate| rate.as_bps() as f64).sum();
        self.sizes.mean() * self.wire_factor * 8.0 / (self.load * bits_per_s) * 1e12
    }
}

pub(crate) fn check_load(load: f64) -> Result<(), ArrivalError> {
    if load > 0.0 && load <= MAX_LOAD { Ok(()) } else { Err(ArrivalError::Load(load)) }
}

impl Pattern {
    fn hosts_per_rack(self) -> usize {
        match self {
            // A host that leaves out only itself is a rack of one.
            Pattern::AllToAll => 1,
            Pattern::InterRack { hosts_per_rack } => hosts_per_rack,
        }
    }

    /// A sender and a receiver of another rack.
    fn draw(self, hosts: usize, rng: &mut Rng) -> (usize, usize) {
        let hosts_per_rack = self.hosts_per_rack();
        let src = rng.below(hosts as u64) as usize;
        let rack_start = src / hosts_per_rack * hosts_per_rack;
        let rack_hosts = hosts_per_rack.min(hosts - rack_start);
        let dst = rng.below((hosts - rack_hosts) as u64) as usize;
        (src, if dst < rack_start { dst } else { dst + rack_hosts })
    }
}

/// Poisson arrivals, made one by one.
#[derive(Clone, Debug)]
pub struct PoissonFlows {
    spec: PoissonArrivals,
    mean_gap_ps: f64,
    now: Time,
    /// Fraction of a picosecond that the last gap was longer than its whole picoseconds. Without it dense arrivals
    /// would come at a wrong rate.
    carry_ps: f64,
    yielded: u64,
    gaps: Rng,
    ends: Rng,
    draws: Rng,
}

impl Iterator for PoissonFlows {
    type Item = FlowSpec;

    fn next(&mut self) -> Option<FlowSpec> {
        if self.spec.until == Until::Flows(self.yielded) {
            return None;
        }
        // 1 − u lies in (0, 1], so the logarithm is finite.
        let gap_ps = self.carry_ps - self.mean_gap_ps * libm::log(1.0 - self.gaps.uniform());
        let whole_ps = gap_ps as u64;
        self.carry_ps = gap_ps - whole_ps as f64;
        self.now += Span::from_ps(whole_ps);
        let over = match self.spec.until {
            Until::Flows(_) => self.now == Time::NEVER,
            Until::Elapsed(span) => self.now >= Time::ZERO + span,
        };
        if over {
            return None;
        }
        self.yielded += 1;
        let (src, dst) = self.spec.pattern.draw(self.spec.host_rates.len(), &mut self.ends);
        let bytes = self.spec.sizes.sample(&mut self.draws);
        Some(FlowSpec { start: self.now, src, dst, bytes, path: None, layer: None, kind: None })
    }
}

/// Many hosts that send to one at about the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incast {
    /// Hosts that send.
    pub senders: Vec<usize>,
    /// Host that receives everything.
    pub receiver: usize,
    /// Bytes that each sender sends.
    pub bytes_each: Bytes,
    /// When the first may start.
    pub start: Time,
    /// Each starts up to this much later, every delay equally likely.
    pub start_jitter: Span,
}

impl Incast {
    /// The flows, in order of time; in the senders' order where times are equal.
    pub fn flows(&self, rng: &Rng) -> Result<Vec<FlowSpec>, ArrivalError> {
        if self.senders.is_empty() {
            return Err(ArrivalError::NoSenders);
        }
        if self.senders.contains(&self.receiver) {
            return Err(ArrivalError::OwnSender(self.receiver));
        }
        if self.bytes_each == Bytes::ZERO {
            return Err(ArrivalError::NoBytes);
        }
        let mut delays = rng.stream("incast");
        let choices = self.start_jitter.as_ps().saturating_add(1);
        let flow = |&src: &usize| FlowSpec {
            start: self.start + Span::from_ps(delays.below(choices)),
            src,
            dst: self.receiver,
            bytes: self.bytes_each,
            path: None,
            layer: None,
            kind: None,
        };
        let mut flows: Vec<FlowSpec> = self.senders.iter().map(flow).collect();
        flows.sort_by_key(|flow| flow.start);
        Ok(flows)
    }
}

/// One flow from every host, one to every host, none to itself: every such pairing is equally
/// likely.
pub fn permutation(
    hosts: usize,
    bytes: Bytes,
    start: Time,
    rng: &Rng,
) -> Result<Vec<FlowSpec>, ArrivalError> {
    if hosts < 2 {
        return Err(ArrivalError::TooFewHosts(hosts));
    }
    if bytes == Bytes::ZERO {
        return Err(ArrivalError::NoBytes);
    }
    let mut order = rng.stream("permutation");
    let mut receivers: Vec<usize> = (0..hosts).collect();
    // A third of all orders leave nobody in place, however many hosts there are.
    while receivers.iter().enumerate().any(|(src, &dst)| src == dst) {
        order.shuffle(&mut receivers);
    }
    let flow =
        |(src, dst)| FlowSpec { start, src, dst, bytes, path: None, layer: None, kind: None };
    Ok(receivers.into_iter().enumerate().map(flow).collect())
}

#[cfg(test)]
mod tests;
