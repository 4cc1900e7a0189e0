//! Flows to replay.

use thalweg_console::Failure;
use thalweg_core::{Bytes, Rng, Span};
use thalweg_workload::{Pattern, PoissonArrivals, SizeDistribution, Until};

use super::{FlowsArguments, Sizes};

/// Shares of the types, small ones first; the size of each is that in the middle of its part of the curve.
const SHARES: [f64; 8] = [0.14, 0.14, 0.14, 0.14, 0.14, 0.12, 0.14, 0.04];
/// Samples of the curve that sizes are taken from.
const SAMPLES: usize = 2_001;
/// Every host sends to the hosts that are this many further.
const DISTANCES: [usize; 2] = [1, 3];
/// Sizes of one type differ by at most this share.
const JITTER: f64 = 0.001;
/// Share of flows that have the size of another type than their port says.
const STRANGERS: f64 = 0.0005;
/// The first port of types; web search uses it alone.
pub(super) const FIRST_PORT: u16 = 5_000;
/// Bytes of a full packet on the wire over its payload.
const WIRE_FACTOR: f64 = 1_514.0 / 1_448.0;

/// A flow to replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) start: Span,
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) port: u16,
    pub(super) bytes: Bytes,
}

/// Flows in the order of their starts.
pub(super) struct Workload {
    pub(super) flows: Vec<Planned>,
    /// Ports on which hosts listen.
    pub(super) ports: u16,
    pub(super) mean_bytes: f64,
}

impl Workload {
    pub(super) fn new(arguments: &FlowsArguments) -> Result<Workload, Failure> {
        let rng = Rng::new(arguments.seed);
        let types = match arguments.sizes {
            Sizes::Types => Some(types(&rng)),
            Sizes::WebSearch => None,
        };
        let sizes = match &types {
            Some(types) => curve(types)?,
            None => SizeDistribution::web_search(),
        };
        let mean_bytes = sizes.mean();
        let arrivals = PoissonArrivals {
            host_rates: vec![arguments.rate; arguments.hosts as usize],
            load: arguments.load,
            wire_factor: WIRE_FACTOR,
            sizes,
            pattern: Pattern::AllToAll,
            until: Until::Elapsed(Span::from_s(arguments.warm_up + arguments.seconds)),
        };
        let mut details = rng.stream("flow details");
        let planned = |flow: thalweg_workload::FlowSpec| {
            let hosts = arguments.hosts as usize;
            let (dst, port, bytes) = match &types {
                Some(types) => {
                    let (port, bytes) = detail(types, flow.bytes, &mut details);
                    let distance = DISTANCES[details.below(DISTANCES.len() as u64) as usize];
                    ((flow.src + distance) % hosts, port, bytes)
                }
                None => (flow.dst, FIRST_PORT, flow.bytes),
            };
            let start = flow.start.since(thalweg_core::Time::ZERO);
            Planned { start, src: flow.src, dst, port, bytes }
        };
        let flows = arrivals.flows(&rng).map_err(Failure::usage)?.map(planned).collect();
        let ports = if types.is_some() { SHARES.len() as u16 } else { 1 };
        Ok(Workload { flows, ports, mean_bytes })
    }
}

/// Sizes of all types, and their probabilities.
fn types(rng: &Rng) -> Vec<(u64, f64)> {
    let curve = SizeDistribution::web_search();
    let mut draws = rng.stream("types");
    let mut samples: Vec<u64> = (0..SAMPLES).map(|_| curve.sample(&mut draws).as_u64()).collect();
    samples.sort_unstable();
    let mut below = 0.0;
    let size = |share: f64| {
        let middle = below + share / 2.0;
        below += share;
        (samples[(middle * SAMPLES as f64) as usize], share)
    };
    SHARES.map(size).into()
}

/// The curve of sizes that repeat: steps.
fn curve(types: &[(u64, f64)]) -> Result<SizeDistribution, Failure> {
    let all: f64 = types.iter().map(|(_, share)| share).sum();
    let (mut text, mut below) = ("size_bytes,cdf\n".to_owned(), 0.0);
    for (number, (size, share)) in types.iter().enumerate() {
        let above = if number + 1 == types.len() { 1.0 } else { below + share / all };
        text += &format!("{size},{below}\n{size},{above}\n");
        below = above;
    }
    SizeDistribution::from_csv(&text).map_err(Failure::ran)
}

/// Port and size of a flow of the type that has this size.
fn detail(types: &[(u64, f64)], bytes: Bytes, rng: &mut Rng) -> (u16, Bytes) {
    let size = bytes.as_u64();
    let number = types.iter().position(|(own, _)| *own == size).unwrap_or_default();
    let is_stranger = rng.chance(STRANGERS);
    let other = types[rng.below(types.len() as u64) as usize].0;
    let size = if is_stranger { other } else { size };
    let jitter = 1.0 + JITTER * (2.0 * rng.uniform() - 1.0);
    let jittered = (size as f64 * jitter).round().max(1.0) as u64;
    (FIRST_PORT + number as u16, Bytes::new(jittered))
}
