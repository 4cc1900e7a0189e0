//! Results for the switches below, where there are workers as well.
//!
//! A result is sealed with one key for workers and with another one for switches. Where a switch has both below, the
//! packet that came goes to the workers, and copies of it wait here for the switches.
// spec: E-13

use std::collections::VecDeque;

use thalweg_core::{Body, BodySize, Header, JobId, Meta, NodeId, Outbox, Purpose};

use super::Switch;

/// Most results that wait at once. A node that misses one that does not fit asks for it.
const RESULTS_MAX: usize = 256;

/// A sealed result that is sent to all switches below.
#[derive(Debug)]
struct Waiting {
    meta: Meta,
    header: Header,
    body: Copied,
    /// The tree: job, epoch and server.
    tree: (JobId, u32, NodeId),
    /// Index of the switch that is next.
    next: usize,
}

/// A body as it was.
#[derive(Debug)]
enum Copied {
    Bytes(Vec<u8>),
    Length(u32),
}

/// All results that wait, in memory that is reserved at start.
#[derive(Debug)]
pub(super) struct Results {
    waiting: VecDeque<Waiting>,
    /// Memory of bodies that have been sent.
    free: Vec<Vec<u8>>,
}

impl Results {
    /// Room for results with bodies of this length. Without seals there are none.
    pub(super) fn new(body_bytes: usize, has_seals: bool) -> Results {
        let count = if has_seals { RESULTS_MAX } else { 0 };
        Results {
            waiting: VecDeque::with_capacity(count),
            free: (0..count).map(|_| Vec::with_capacity(body_bytes)).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps a copy of a sealed result for the switches of a tree, if there is room.
    pub(super) fn push(
        &mut self,
        tree: (JobId, u32, NodeId),
        meta: Meta,
        header: Header,
        body: &Body<'_>,
    ) -> bool {
        if self.waiting.len() >= RESULTS_MAX {
            return false;
        }
        let body = match body {
            Body::Bytes(bytes) => {
                let mut memory = self.free.pop().unwrap_or_default();
                memory.extend_from_slice(bytes);
                Copied::Bytes(memory)
            }
            Body::Length(bytes) => Copied::Length(*bytes),
        };
        self.waiting.push_back(Waiting { meta, header, body, tree, next: 0 });
        true
    }

    fn finish(&mut self) {
        if let Some(Waiting { body: Copied::Bytes(mut memory), .. }) = self.waiting.pop_front() {
            memory.clear();
            self.free.push(memory);
        }
    }

    /// Panics where memory of bodies was lost.
    // spec: T-12
    pub(super) fn check(&self) {
        let is_copied = |waiting: &&Waiting| matches!(waiting.body, Copied::Bytes(_));
        let held = self.free.len() + self.waiting.iter().filter(is_copied).count();
        assert!(held == RESULTS_MAX || held == 0, "memory of results");
    }
}

impl Switch {
    /// Sends results that wait to the switches below, as long as there is room.
    pub(super) fn transmit_results(&mut self, outbox: &mut dyn Outbox) {
        while outbox.room() > 0
            && let Some(waiting) = self.results.waiting.front_mut()
        {
            let (job, epoch, server) = waiting.tree;
            let group = self.groups.find(job, epoch, server);
            let Some(&to) = group.and_then(|group| group.switches().get(waiting.next)) else {
                self.results.finish();
                continue;
            };
            let size = match &waiting.body {
                Copied::Bytes(bytes) => BodySize::Bytes(bytes.len() as u32),
                Copied::Length(bytes) => BodySize::Length(*bytes),
            };
            let Some(packet) = outbox.lend(size, Purpose::of_data(false)) else { return };
            *packet.meta = Meta { src: packet.meta.src, dst: to, ..waiting.meta };
            *packet.header = waiting.header;
            if let (Body::Bytes(body), Copied::Bytes(bytes)) = (packet.body, &waiting.body) {
                body.copy_from_slice(bytes);
            }
            waiting.next += 1;
            self.stats.results_copied += 1;
        }
    }
}
