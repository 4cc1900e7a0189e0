//! Data that does not fit is cut to its header, which overtakes it.

use thalweg_core::{Meta, Rng};

use super::{Admission, Lane, Queue, Waiting};
use crate::pool::PacketRef;

/// Division of a trimming port's memory and link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimmingSpec {
    /// Bytes of the port's memory that data may fill. The rest is for headers.
    pub data_bytes: u64,
    /// Bytes that a packet without its payload occupies of a link. Packets of that size or less, and all
    /// of the most urgent priority, are headers.
    pub header_bytes: u32,
    /// Headers that may leave before a waiting packet with data does.
    pub headers_per_data: u32,
    /// True if headers that find no room go back to their senders; otherwise they are dropped.
    pub returns_headers: bool,
}

impl Default for TrimmingSpec {
    /// Eight packets of 1,500 B, ten headers to one packet, and headers that go back to their senders, as published for
    /// NDP; headers as small as Ethernet allows.
    fn default() -> TrimmingSpec {
        TrimmingSpec {
            data_bytes: 12_000,
            header_bytes: 64,
            headers_per_data: 10,
            returns_headers: true,
        }
    }
}

/// Two queues, of headers and of data (NDP). When there is no room for a packet with data, it or the
/// last one of the data queue, as a coin decides, is cut to its header: if it were always the same,
/// senders in step could lose all the time. Headers leave first, but data is not starved. A header that
/// finds no room goes back to its sender, or is dropped, as the settings say.
#[derive(Debug)]
pub struct Trimming {
    spec: TrimmingSpec,
    headers: Lane,
    data: Lane,
    /// Headers that have left since the last packet with data.
    headers_in_row: u32,
    coin: Rng,
}

impl Trimming {
    /// An empty port.
    pub fn new(spec: TrimmingSpec, coin: Rng) -> Trimming {
        let (headers, data) = Default::default();
        Trimming { spec, headers, data, headers_in_row: 0, coin }
    }

    /// Says what becomes of a packet whose header has no room.
    fn turn_away(&self) -> Admission {
        let TrimmingSpec { header_bytes, returns_headers, .. } = self.spec;
        if returns_headers { Admission::Returned { header_bytes } } else { Admission::Full }
    }

    /// Trims a packet so that data fit; `came` has found no room.
    fn trim(&mut self, came: Waiting, data_limit_bytes: u64, header_limit_bytes: u64) -> Admission {
        let header_bytes = self.spec.header_bytes;
        if !self.headers.has_room(header_bytes, header_limit_bytes) {
            return self.turn_away();
        }
        let last_bytes = self.data.waiting.back().map_or(0, |last| u64::from(last.bytes));
        let left_bytes = self.data.bytes - last_bytes;
        let fits_instead = left_bytes + u64::from(came.bytes) <= data_limit_bytes;
        let mut cut = came;
        if fits_instead && self.coin.chance(0.5) {
            cut = self.data.pop_back().expect("something fills the queue");
            self.data.push(came);
        }
        self.headers.push(Waiting { bytes: header_bytes, ..cut });
        Admission::Trimmed { packet: cut.packet, header_bytes }
    }
}

impl Queue for Trimming {
    fn enqueue(&mut self, packet: PacketRef, meta: &mut Meta, limit_bytes: u64) -> Admission {
        let came = Waiting { packet, bytes: meta.wire_bytes };
        let data_limit_bytes = self.spec.data_bytes.min(limit_bytes);
        let header_limit_bytes = limit_bytes - data_limit_bytes;
        let is_header = meta.dscp.priority() == 0 || came.bytes <= self.spec.header_bytes;
        let (lane, lane_limit_bytes) = if is_header {
            (&mut self.headers, header_limit_bytes)
        } else {
            (&mut self.data, data_limit_bytes)
        };
        if lane.has_room(came.bytes, lane_limit_bytes) {
            lane.push(came);
            Admission::Queued
        } else if is_header {
            self.turn_away()
        } else {
            self.trim(came, data_limit_bytes, header_limit_bytes)
        }
    }

    fn dequeue(&mut self) -> Option<(PacketRef, u32)> {
        let is_datas_turn = self.headers_in_row >= self.spec.headers_per_data;
        let takes_data =
            self.headers.waiting.is_empty() || (is_datas_turn && !self.data.waiting.is_empty());
        let lane = if takes_data { &mut self.data } else { &mut self.headers };
        let left = lane.pop_front()?;
        self.headers_in_row = if takes_data { 0 } else { self.headers_in_row.saturating_add(1) };
        Some(left)
    }

    fn bytes(&self) -> u64 {
        self.headers.bytes + self.data.bytes
    }

    fn packets(&self) -> usize {
        self.headers.waiting.len() + self.data.waiting.len()
    }
}
