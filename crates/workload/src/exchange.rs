//! Traffic between a training job and its parameter servers, as flows that wait for nothing.
//!
//! A worker pushes a gradient when its backward pass has made it ready. A server sends the sum back when
//! its link could have taken in the gradient of every worker, one gradient after the other; and an
//! iteration begins when the servers' links could have sent back everything of the one before. So flows
//! start when they would on a perfect network, whatever carries them: transports are compared on the
//! same arrivals.

use thalweg_core::{Bytes, Rate, Rng, Span, Time};
use thiserror::Error;

use crate::arrivals::{FlowSpec, LayerOf};
use crate::training::{TrainingError, TrainingJob};

/// A job and its servers.
#[derive(Clone, PartialEq, Debug)]
pub struct Exchange {
    /// The job and its workers.
    pub job: TrainingJob,
    /// The hosts that sum, each an index, and the rates of their links. They may be workers too: what
    /// stays in a host is no flow.
    pub servers: Vec<(usize, Rate)>,
    /// Gradients are cut into parts of at most this size, which are dealt out to the servers in turn.
    pub chunk: Bytes,
    /// Every worker is late by a random time up to this, in every iteration another.
    pub jitter: Span,
    /// When the first iteration begins.
    pub start: Time,
}

/// Why a job exchanges nothing.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum ExchangeError {
    /// It has no plan.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// Nobody sums.
    #[error("the job has no servers: name at least one host")]
    NoServers,
    /// Parts of nothing.
    #[error("gradients cannot be cut into parts of 0 bytes: give at least 4 bytes")]
    NoChunk,
}

/// A part of a gradient.
#[derive(Clone, Copy)]
struct Part {
    at: Span,
    bytes: Bytes,
    layer: LayerOf,
}

/// When the links of a server are free.
#[derive(Clone, Copy, Default)]
struct Links {
    takes_in_from: Time,
    sends_from: Time,
}

impl Exchange {
    /// All flows, in order of starting.
    pub fn flows(&self, rng: &Rng) -> Result<Vec<FlowSpec>, ExchangeError> {
        let parts = self.parts()?;
        let mut delays = rng.stream("exchange");
        let choices = self.jitter.as_ps().saturating_add(1);
        let mut flows = Vec::new();
        let mut begin = self.start;
        let mut turn = 0;
        for _ in 0..self.job.iterations {
            let workers = self.job.workers.iter();
            let late: Vec<Span> = workers.map(|_| Span::from_ps(delays.below(choices))).collect();
            let mut links = vec![Links::default(); self.servers.len()];
            for part in &parts {
                let server = turn % self.servers.len();
                turn += 1;
                let dst = self.servers[server].0;
                for (&src, &late) in
                    self.job.workers.iter().zip(&late).filter(|(src, _)| **src != dst)
                {
                    flows.push(part.flow(begin + part.at + late, src, dst));
                }
                flows.extend(self.pull(begin, part, server, &mut links[server]));
            }
            begin = links.iter().map(|links| links.sends_from).fold(begin, Time::max);
        }
        flows.sort_by_key(|flow| flow.start);
        Ok(flows)
    }

    fn parts(&self) -> Result<Vec<Part>, ExchangeError> {
        if self.servers.is_empty() {
            return Err(ExchangeError::NoServers);
        }
        if self.chunk == Bytes::ZERO {
            return Err(ExchangeError::NoChunk);
        }
        let layers = u16::try_from(self.job.model.layers().len()).unwrap_or(u16::MAX);
        let mut parts = Vec::new();
        for gradient in self.job.plan()?.gradients {
            let layer = u16::try_from(gradient.layer).unwrap_or(u16::MAX);
            let layer = LayerOf { layer, layers };
            let mut left = gradient.bytes;
            while left > Bytes::ZERO {
                let bytes = left.min(self.chunk);
                parts.push(Part { at: gradient.at, bytes, layer });
                left -= bytes;
            }
        }
        Ok(parts)
    }

    /// The server sends the sum to every worker.
    fn pull(&self, begin: Time, part: &Part, server: usize, links: &mut Links) -> Vec<FlowSpec> {
        let (src, rate) = self.servers[server];
        let receivers = || self.job.workers.iter().filter(|&&worker| worker != src);
        let all = rate.serialization(part.bytes * receivers().count() as u64);
        // The last worker is late by the jitter.
        links.takes_in_from = links.takes_in_from.max(begin + part.at + self.jitter) + all;
        links.sends_from = links.sends_from.max(links.takes_in_from) + all;
        receivers().map(|&dst| part.flow(links.takes_in_from, src, dst)).collect()
    }
}

impl Part {
    fn flow(&self, start: Time, src: usize, dst: usize) -> FlowSpec {
        FlowSpec {
            start,
            src,
            dst,
            bytes: self.bytes,
            path: None,
            layer: Some(self.layer),
            kind: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::training::Compute;

    /// Two layers of 1,000 and 500 bytes, ready after 3 and 4 µs, the back one first.
    fn exchange(workers: &[usize], servers: &[usize]) -> Exchange {
        let model = Model::from_json(
            r#"{"model": "two", "parameters": [
                {"name": "front.w", "shape": [125], "numel": 125, "grad_ready_rank": 1},
                {"name": "back.w", "shape": [250], "numel": 250, "grad_ready_rank": 0}],
                "layers": [{"module": "front", "fwd_flops": 1}, {"module": "back", "fwd_flops": 1}]}"#,
        );
        Exchange {
            job: TrainingJob {
                model: model.expect("a model of two layers"),
                workers: workers.to_vec(),
                iterations: 2,
                compute: Compute::Times { forward: Span::from_us(2), backward: Span::from_us(2) },
                bytes_per_value: 4,
                buckets: None,
            },
            servers: servers.iter().map(|&host| (host, Rate::from_gbps(8))).collect(),
            chunk: Bytes::new(1_000),
            jitter: Span::ZERO,
            start: Time::ZERO,
        }
    }

    fn shown(flows: &[FlowSpec]) -> Vec<(u64, usize, usize, u64, u16)> {
        let layer = |flow: &FlowSpec| flow.layer.expect("every one has a layer").layer;
        flows
            .iter()
            .map(|flow| {
                let us = flow.start.as_ps() / 1_000_000;
                (us, flow.src, flow.dst, flow.bytes.as_u64(), layer(flow))
            })
            .collect()
    }

    /// A byte takes a nanosecond. The server has the back layer at 3 + 2 · 1 µs, the front one at
    /// 5 + 2 · 0.5 µs, and has sent both at 8 µs.
    #[test]
    fn flows_start_as_on_a_perfect_network() {
        let flows = exchange(&[0, 1], &[2]).flows(&Rng::new(1)).expect("a good job");
        let first = [
            (3, 0, 2, 1_000, 1),
            (3, 1, 2, 1_000, 1),
            (4, 0, 2, 500, 0),
            (4, 1, 2, 500, 0),
            (5, 2, 0, 1_000, 1),
            (5, 2, 1, 1_000, 1),
            (6, 2, 0, 500, 0),
            (6, 2, 1, 500, 0),
        ];
        let second = first.map(|(us, src, dst, bytes, layer)| (us + 8, src, dst, bytes, layer));
        assert_eq!(shown(&flows), [first, second].concat());
    }

    #[test]
    fn parts_are_dealt_out_and_what_stays_in_a_host_is_no_flow() {
        let mut both = exchange(&[0, 1], &[0, 1]);
        both.chunk = Bytes::new(600);
        both.job.iterations = 1;
        let flows = both.flows(&Rng::new(1)).expect("a good job");
        let parts: Vec<_> =
            shown(&flows).into_iter().map(|(_, src, dst, bytes, _)| (src, dst, bytes)).collect();
        for expected in
            [(1, 0, 600), (0, 1, 600), (0, 1, 400), (1, 0, 400), (1, 0, 500), (0, 1, 500)]
        {
            assert!(parts.contains(&expected), "{expected:?} in {parts:?}");
        }
        assert_eq!(parts.len(), 6);
    }

    #[test]
    fn workers_are_late_within_the_jitter_and_others_with_another_seed() {
        let mut late = exchange(&[0, 1, 2], &[3]);
        late.jitter = Span::from_us(1);
        let starts = |seed| {
            let flows = late.flows(&Rng::new(seed)).expect("a good job");
            flows.iter().map(|flow| flow.start).collect::<Vec<Time>>()
        };
        assert_eq!(starts(5), starts(5));
        assert_ne!(starts(5), starts(6));
        let first = starts(5)[0];
        assert!(first > Time::ZERO + Span::from_us(3) && first < Time::ZERO + Span::from_us(4));
    }

    #[test]
    fn what_exchanges_nothing_is_refused() {
        assert_eq!(exchange(&[0], &[]).flows(&Rng::new(1)), Err(ExchangeError::NoServers));
        assert_eq!(
            exchange(&[], &[1]).flows(&Rng::new(1)),
            Err(ExchangeError::Training(TrainingError::NoWorkers))
        );
        let none = Exchange { chunk: Bytes::ZERO, ..exchange(&[0], &[1]) };
        assert_eq!(none.flows(&Rng::new(1)), Err(ExchangeError::NoChunk));
    }
}
