//! From the table of an exchange to its flows.

use thalweg_core::{Bytes, NodeId, Rng, Time};
use thalweg_workload::{Buckets, Compute, Exchange, ExchangeError, TrainingJob};

use super::training::training_mistake;
use super::{Setting, Traffic};
use crate::error::Mistake;
use crate::file::TensorsTable;
use crate::job::VALUE_BYTES;

/// Chunk size of gradients at parameter servers where the file gives none, as in training jobs.
const CHUNK: Bytes = Bytes::new(4_096_000);

impl Setting<'_> {
    pub(super) fn tensors(&self, table: &TensorsTable) -> Result<Traffic, Mistake> {
        let workers = self.nodes("workers", &table.workers)?;
        let servers = self.nodes("servers", &table.servers)?;
        let server = |host: NodeId| (host.index(), self.topology.host_cable(host).rate);
        let exchange = Exchange {
            job: TrainingJob {
                model: self.model(table.model.as_deref(), table.json.as_deref())?,
                workers: workers.iter().map(|host| host.index()).collect(),
                iterations: table.iterations,
                compute: Compute::Times { forward: table.forward, backward: table.backward },
                bytes_per_value: VALUE_BYTES as u8,
                buckets: table.bucket.map(|bytes| Buckets { first: bytes, others: bytes }),
            },
            servers: servers.into_iter().map(server).collect(),
            chunk: self.fits(table.chunk.unwrap_or(CHUNK), "chunk")?,
            jitter: table.jitter,
            start: Time::ZERO + table.start,
        };
        // Randomness moves flows, and leaves their sizes.
        let flows = exchange.flows(&Rng::new(0)).map_err(|error| exchange_mistake(&error))?;
        let sizes: Vec<Bytes> = flows.iter().map(|flow| flow.bytes).collect();
        if sizes.is_empty() {
            return Err(Mistake::at("servers", "nothing leaves a host: name another one"));
        }
        Ok(Traffic::Tensors { exchange: Box::new(exchange), sizes })
    }
}

fn exchange_mistake(error: &ExchangeError) -> Mistake {
    match error {
        ExchangeError::Training(error) => training_mistake(error),
        ExchangeError::NoServers => Mistake::at("servers", error),
        ExchangeError::NoChunk => Mistake::at("chunk", error),
    }
}
