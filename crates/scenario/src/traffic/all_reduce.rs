//! From the table of an all-reduce benchmark to the job.

use thalweg_core::{Span, Time};

use super::members::{Members, chunk, delivery};
use super::{Setting, Traffic};
use crate::error::Mistake;
use crate::file::AllReduceTable;
use crate::job::{Job, JobKind, Ready, Script, VALUE_BYTES};

impl Setting<'_> {
    pub(super) fn all_reduce(&self, table: &AllReduceTable) -> Result<Traffic, Mistake> {
        let Members { collective, workers, servers } =
            self.members(table.collective, &table.workers, table.server, table.servers.as_deref())?;
        if workers.is_empty() {
            return Err(Mistake::at("workers", "nobody has tensors: name at least one host"));
        }
        let bytes = table.bytes.as_u64();
        if bytes == 0 || !bytes.is_multiple_of(VALUE_BYTES) {
            let message = format!("{bytes} bytes are no values of 4 bytes: give a multiple of 4");
            return Err(Mistake::at("bytes", message));
        }
        for (key, count) in [("rounds", table.rounds), ("in-flight", table.in_flight)] {
            if count == 0 {
                return Err(Mistake::at(key, "nothing would be summed: give 1 or more"));
            }
        }
        Ok(Traffic::Job(Box::new(Job {
            kind: JobKind::AllReduce,
            model: JobKind::AllReduce.name().to_owned(),
            collective,
            workers,
            servers,
            chunk: chunk(collective, table.chunk)?,
            delivery: delivery(collective, (table.transport, table.loss, table.parameters), 1)?,
            layers: None,
            start: Time::ZERO + table.start,
            compute: Span::ZERO,
            script: Script {
                tensors: vec![Ready { at: Span::ZERO, values: bytes / VALUE_BYTES, layer: 0 }],
                rounds: table.rounds,
                open_rounds: table.in_flight,
                forward: Vec::new(),
            },
        })))
    }
}
