//! Packets to send, in batches as the kernel wants them.
//!
//! A batch is of one destination, size and type of service; only its last packet may be shorter.
//! Packets stay where they are, in the memory of received packets or in that of lent ones, and a
//! batch lists the pieces. So packets for several destinations may come in any order and still
//! travel in large batches, and a packet for many destinations is never copied. Packets for one
//! destination keep their order.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use thalweg_core::{NodeId, Span, Time, fibonacci};

use crate::depth::Depth;
use crate::message::{MESSAGES_PER_CALL, Message};
use crate::socket::{Endpoint, SEGMENTS_PER_SEND, SEND_BYTES};
use crate::stats::Stats;

/// Pieces of one call. A batch has at most [`SEGMENTS_PER_SEND`], so at least two always fit.
const PARTS_PER_CALL: usize = 2 * SEGMENTS_PER_SEND;

/// Entries of the table of latest batches: several for each of the nodes that one burst is for.
const LATEST: usize = 1_024;

/// The end of a list of pieces.
const NONE: u32 = u32::MAX;

/// Memory that a packet is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Area {
    /// That of received packets, which the kernel wrote.
    Received,
    /// That of lent packets, which the machine wrote.
    Lent,
}

/// Location of bytes in an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) area: Area,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

/// The memory that extents refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas<'a> {
    pub(crate) received: &'a [u8],
    pub(crate) lent: &'a [u8],
}

/// Destination of a packet, and its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) node: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) tos: u8,
    /// Index of the port's socket that it leaves from.
    pub(crate) path: u8,
}

/// Socket, or a test's kernel, through which a queue sends.
pub(crate) trait Port {
    /// True if a message may hold several datagrams.
    fn cuts_sends(&self) -> bool;
    /// An interface turned out not to be able to.
    fn stop_cutting(&mut self);
    /// As [`Endpoint::send`].
    fn send(&mut self, path: u8, parts: &[IoSlice<'_>], messages: &[Message]) -> io::Result<usize>;
}

impl Port for Endpoint {
    fn cuts_sends(&self) -> bool {
        Endpoint::cuts_sends(self)
    }

    fn stop_cutting(&mut self) {
        Endpoint::stop_cutting(self);
    }

    fn send(&mut self, path: u8, parts: &[IoSlice<'_>], messages: &[Message]) -> io::Result<usize> {
        Endpoint::send(self, path, parts, messages)
    }
}

/// Batches that wait for the kernel.
#[derive(Debug)]
pub(crate) struct SendQueue {
    batches: Vec<Batch>,
    pieces: Vec<Piece>,
    /// The latest batch of the nodes that share an entry. The batch has its node: a packet of
    /// another node begins a batch of its own.
    latest: Box<[u32; LATEST]>,
    /// True if packets of the queue lie where received ones do.
    refers_to_received: bool,
    /// End of what was sent so far.
    sent: Cursor,
    /// State of the kernel if it had no room when it was last asked.
    deferral: Option<Deferral>,
    /// Longest time that the kernel may have no room before packets are dropped.
    patience: Span,
    /// Depth of the kernel's buffer, where it follows the interface.
    depth: Option<Depth>,
    /// The depth that the buffer has to be set to.
    changed_depth: Option<usize>,
    /// Kept for its allocation.
    messages: Vec<Message>,
}

/// The kernel has no room.
#[derive(Clone, Copy, Debug)]
struct Deferral {
    /// Time of the first refusal.
    since: Time,
    /// Reason of the last refusal.
    obstacle: Obstacle,
}

/// Why the kernel has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    /// The socket's buffer is full. The socket is writable when there is room again.
    FullBuffer,
    /// The system has no memory. Nothing says when it has some again: the socket stays writable.
    NoMemory,
}

#[derive(Debug)]
struct Batch {
    target: Target,
    segment_bytes: usize,
    bytes: usize,
    segments: usize,
    /// Ends of the list of pieces, and its length.
    first: u32,
    last: u32,
    pieces: usize,
    /// A shorter packet was added, which has to be the last.
    is_closed: bool,
    /// The kernel would not cut it, so its packets go one by one.
    is_single: bool,
}

#[derive(Debug)]
struct Piece {
    extent: Extent,
    next: u32,
}

/// A place between two packets of the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    batch: usize,
    /// Packets of the batch that lie behind. The next two mean something if there are any.
    segments: usize,
    piece: u32,
    bytes_of_piece: usize,
}

/// Treatment of a message that the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Repeat,
    Defer(Obstacle),
    SendSingly,
    NeverCut,
    Drop,
}

impl SendQueue {
    /// A queue that gives up what the kernel has no room for after `patience`. The kernel's buffer is as deep as it is, or
    /// follows the interface.
    pub(crate) fn new(patience: Span, depth: Option<Depth>) -> SendQueue {
        SendQueue {
            batches: Vec::new(),
            pieces: Vec::new(),
            latest: Box::new([NONE; LATEST]),
            refers_to_received: false,
            sent: Cursor::default(),
            deferral: None,
            patience,
            depth,
            changed_depth: None,
            messages: Vec::with_capacity(MESSAGES_PER_CALL),
        }
    }

    /// True if everything was sent, so that no memory is referred to any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns whether packets that were not sent lie where received ones do, so that nothing may be received.
    pub(crate) fn refers_to_received(&self) -> bool {
        self.refers_to_received
    }

    /// Returns the depth of the kernel's buffer if that has changed since the last call.
    pub(crate) fn take_changed_depth(&mut self) -> Option<usize> {
        self.changed_depth.take()
    }

    /// True if the kernel had no room when it was last asked.
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferral.is_some()
    }

    /// Why the kernel had no room, if it had none.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.deferral.map(|deferral| deferral.obstacle)
    }

    /// Adds a packet. Its memory stays as it is until the queue is empty.
    #[inline]
    pub(crate) fn push(&mut self, target: Target, extent: Extent) {
        self.refers_to_received |= extent.area == Area::Received;
        let index = target.entry();
        let latest = self.latest[index] as usize;
        if latest >= self.sent.batch
            && let Some(batch) = self.batches.get_mut(latest)
            && batch.takes(&target, extent.bytes)
        {
            batch.append(extent, &mut self.pieces);
        } else {
            self.latest[index] = self.batches.len() as u32;
            self.batches.push(Batch::new(target, extent, &mut self.pieces));
        }
    }

    /// Sends all that the kernel has room for.
    pub(crate) fn flush(
        &mut self,
        now: Time,
        areas: Areas<'_>,
        port: &mut impl Port,
        stats: &mut Stats,
    ) {
        let mut messages = std::mem::take(&mut self.messages);
        while self.sent.batch < self.batches.len() {
            let mut parts = [IoSlice::new(&[]); PARTS_PER_CALL];
            self.plan(areas, port.cuts_sends(), &mut parts, &mut messages);
            match port.send(self.path(), &parts, &messages) {
                Ok(taken) => {
                    self.deferral = None;
                    stats.sent_batches += taken as u64;
                    for _ in 0..taken {
                        stats.sent_packets += self.skip_sent(port.cuts_sends());
                    }
                }
                Err(error) => {
                    let several = messages.first().is_some_and(|m| m.segment_bytes.is_some());
                    if !self.handle_refusal(now, &error, several, port, stats) {
                        break;
                    }
                }
            }
        }
        self.messages = messages;
        if self.sent.batch == self.batches.len() {
            self.batches.clear();
            self.pieces.clear();
            self.refers_to_received = false;
            self.sent = Cursor::default();
            self.deferral = None;
        }
    }

    /// The socket that the next message leaves from.
    pub(crate) fn path(&self) -> u8 {
        self.batches.get(self.sent.batch).map_or(0, |batch| batch.target.path)
    }

    /// Writes down the next messages, as many as fit one call.
    fn plan<'a>(
        &self,
        areas: Areas<'a>,
        cuts: bool,
        parts: &mut [IoSlice<'a>; PARTS_PER_CALL],
        messages: &mut Vec<Message>,
    ) {
        messages.clear();
        let path = self.path();
        let mut cursor = self.sent;
        let mut used = 0;
        while messages.len() < MESSAGES_PER_CALL
            && let Some(batch) = self.batches.get(cursor.batch)
            && batch.target.path == path
            && used + batch.pieces <= PARTS_PER_CALL
        {
            let first = used;
            let segments = self.step(&mut cursor, cuts, |extent| {
                parts[used] = IoSlice::new(areas.slice(extent));
                used += 1;
            });
            messages.push(Message {
                to: batch.target.address,
                tos: batch.target.tos,
                segment_bytes: (segments > 1).then_some(batch.segment_bytes as u16),
                parts: first..used,
            });
        }
    }

    /// Moves a cursor over the next message, and says how many packets and which bytes it holds.
    fn step(&self, cursor: &mut Cursor, cuts: bool, mut emit: impl FnMut(Extent)) -> usize {
        let batch = &self.batches[cursor.batch];
        if cursor.segments == 0 {
            *cursor = Cursor { piece: batch.first, bytes_of_piece: 0, ..*cursor };
        }
        let segments_before = cursor.segments;
        if cuts && !batch.is_single {
            while let Some(piece) = self.pieces.get(cursor.piece as usize) {
                emit(piece.extent.after(cursor.bytes_of_piece));
                *cursor = Cursor { piece: piece.next, bytes_of_piece: 0, ..*cursor };
            }
            cursor.segments = batch.segments;
        } else {
            let piece = &self.pieces[cursor.piece as usize];
            let rest = piece.extent.after(cursor.bytes_of_piece);
            let bytes = rest.bytes.min(batch.segment_bytes);
            emit(Extent { bytes, ..rest });
            cursor.bytes_of_piece += bytes;
            cursor.segments += 1;
            if bytes == rest.bytes {
                *cursor = Cursor { piece: piece.next, bytes_of_piece: 0, ..*cursor };
            }
        }
        let segments = cursor.segments - segments_before;
        if cursor.segments == batch.segments {
            *cursor = Cursor { batch: cursor.batch + 1, ..Cursor::default() };
        }
        segments
    }

    /// Goes on to the next message, since the kernel took this one. Returns the packets that it leaves behind.
    fn skip_sent(&mut self, cuts: bool) -> u64 {
        let (mut cursor, mut bytes) = (self.sent, 0);
        let segments = self.step(&mut cursor, cuts, |extent| bytes += extent.bytes);
        self.sent = cursor;
        if let Some(depth) = &mut self.depth {
            depth.on_sent(bytes as u64);
        }
        segments as u64
    }

    /// Goes on to the next message, and says how many packets it leaves behind.
    fn skip(&mut self, cuts: bool) -> u64 {
        let mut cursor = self.sent;
        let segments = self.step(&mut cursor, cuts, |_| {});
        self.sent = cursor;
        segments as u64
    }

    /// Deals with an error of the next message. Answers whether to go on sending.
    fn handle_refusal(
        &mut self,
        now: Time,
        error: &io::Error,
        several: bool,
        port: &mut impl Port,
        stats: &mut Stats,
    ) -> bool {
        match Refusal::of(error, several) {
            Refusal::Repeat => true,
            Refusal::SendSingly => {
                self.batches[self.sent.batch].is_single = true;
                true
            }
            Refusal::NeverCut => {
                port.stop_cutting();
                true
            }
            Refusal::Drop => {
                let packets = self.skip(port.cuts_sends());
                // spec: F-01
                if error.raw_os_error() == Some(libc::EMSGSIZE) {
                    stats.dropped_oversize += packets;
                } else {
                    stats.dropped_refused += packets;
                    stats.last_refusal = Some(error.kind());
                }
                true
            }
            Refusal::Defer(obstacle) => {
                let since = self.deferral.map_or(now, |deferral| deferral.since);
                self.deferral = Some(Deferral { since, obstacle });
                let depth = self.depth.as_mut().filter(|_| obstacle == Obstacle::FullBuffer);
                if let Some(bytes) = depth.and_then(|depth| depth.on_full(now)) {
                    self.changed_depth = Some(bytes);
                }
                let has_waited_enough = now.since(since) >= self.patience;
                if has_waited_enough {
                    stats.dropped_deferred += self.skip(port.cuts_sends());
                } else {
                    stats.sends_deferred += 1;
                }
                has_waited_enough
            }
        }
    }
}

impl Batch {
    fn new(target: Target, extent: Extent, pieces: &mut Vec<Piece>) -> Batch {
        let first = pieces.len() as u32;
        pieces.push(Piece { extent, next: NONE });
        Batch {
            target,
            segment_bytes: extent.bytes,
            bytes: extent.bytes,
            segments: 1,
            first,
            last: first,
            pieces: 1,
            is_closed: false,
            is_single: false,
        }
    }

    #[inline]
    fn takes(&self, target: &Target, bytes: usize) -> bool {
        !self.is_closed
            && self.target.node == target.node
            && self.target.tos == target.tos
            && self.target.path == target.path
            && bytes <= self.segment_bytes
            && self.segments < SEGMENTS_PER_SEND
            && self.bytes + bytes <= SEND_BYTES
    }

    #[inline]
    fn append(&mut self, extent: Extent, pieces: &mut Vec<Piece>) {
        self.bytes += extent.bytes;
        self.segments += 1;
        self.is_closed = extent.bytes < self.segment_bytes;
        let next = pieces.len() as u32;
        let last = &mut pieces[self.last as usize];
        if last.extent.is_followed_by(&extent) {
            last.extent.bytes += extent.bytes;
            return;
        }
        last.next = next;
        pieces.push(Piece { extent, next: NONE });
        self.last = next;
        self.pieces += 1;
    }
}

impl Target {
    /// Entry in which the latest batch of its node and path is noted.
    #[inline]
    fn entry(&self) -> usize {
        let key = u64::from(self.node.0) << 8 | u64::from(self.path);
        (fibonacci(key) >> (64 - LATEST.ilog2())) as usize
    }
}

impl Extent {
    /// All but the first `bytes`.
    fn after(self, bytes: usize) -> Extent {
        Extent { start: self.start + bytes, bytes: self.bytes - bytes, ..self }
    }

    fn is_followed_by(&self, next: &Extent) -> bool {
        self.area == next.area && self.start + self.bytes == next.start
    }
}

impl<'a> Areas<'a> {
    fn slice(&self, extent: Extent) -> &'a [u8] {
        let area = match extent.area {
            Area::Received => self.received,
            Area::Lent => self.lent,
        };
        &area[extent.start..extent.start + extent.bytes]
    }
}

impl Refusal {
    /// Treatment after an error of a message of one or of several datagrams.
    fn of(error: &io::Error, several: bool) -> Refusal {
        match error.raw_os_error() {
            Some(libc::EINTR) => Refusal::Repeat,
            Some(libc::EAGAIN) => Refusal::Defer(Obstacle::FullBuffer),
            Some(libc::ENOBUFS | libc::ENOMEM) => Refusal::Defer(Obstacle::NoMemory),
            // Only the last of them may fit the interface's MTU.
            Some(libc::EINVAL | libc::EMSGSIZE) if several => Refusal::SendSingly,
            // The interface computes no checksums, or the kernel does not know the option.
            Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) if several => Refusal::NeverCut,
            _ => Refusal::Drop,
        }
    }
}

#[cfg(test)]
mod tests;
