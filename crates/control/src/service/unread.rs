//! Memory of messages that wait for ranks to read them.
//!
//! Welcomes and set-ups grow with the ranks of a job, and every rank gets its own copy: those of a job of thousands of ranks
//! take gigabytes together. So a copy is made only when it can be sent, within a budget of bytes of its token and of all tokens,
//! which it holds until the rank has read it. A rank that does not read holds what it got. It loses its stream if others wait
//! for that, and if too many such messages wait for it.
// spec: E-12

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use thalweg_core::{Span, Time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::Stream;
use tonic::Status;

use crate::clock::Clock;
use crate::convert;
use crate::message::{TREES_MAX, ToRank};
use crate::v1;

/// Most welcomes and set-ups of a tree that wait for one rank. A set-up needs an answer of every rank, so that one that is
/// stopped has few of them.
const LARGE_MESSAGES_OF_TREE: usize = 4;

/// The same of all trees, and welcomes.
const LARGE_MESSAGES_MAX: usize = 16 + LARGE_MESSAGES_OF_TREE * TREES_MAX as usize;

/// Bytes that a welcome or a set-up takes for each rank while it is sent, at most.
pub(super) const RANK_BYTES: usize = 128;

/// Bytes that a welcome takes beyond them for the node of a sending thread.
const NODE_BYTES: usize = 4;

/// Messages that take no more than this are sent at once: they fit into what a connection has in flight anyway.
const SMALL_BYTES: usize = 16 << 10;

/// Time for which a rank may hold memory that others wait for.
const UNREAD_FOR: Span = Span::from_s(30);

/// Bytes that a permit of a semaphore stands for.
const UNIT_BYTES: usize = 1 << 10;

/// Memory for messages that are being sent.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    units: u32,
    /// Number of messages that wait for memory.
    waiting: AtomicUsize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Arc<Room> {
        let units = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let free = Arc::new(Semaphore::new(units));
        Arc::new(Room { free, units: units as u32, waiting: AtomicUsize::new(0) })
    }

    /// Waits for memory. A message that is longer than all of it waits for all of it.
    async fn take(self: Arc<Room>, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).min(self.units);
        let _waiting = Waiting::new(&self.waiting);
        // It is never closed.
        Arc::clone(&self.free).acquire_many_owned(units).await.ok()
    }
}

/// Counts a message that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory of a token and of all tokens.
#[derive(Clone, Debug)]
pub(crate) struct Rooms {
    pub(crate) own: Arc<Room>,
    pub(crate) total: Arc<Room>,
}

/// Welcomes and set-ups of one stream that were not read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Number of large messages in the queue.
    queued: AtomicUsize,
    /// When the stream got the memory that it holds, in picoseconds; 0 if it holds none.
    holds_since: AtomicU64,
}

impl Unread {
    /// Takes down that a message is put into the queue. Returns false if too many large ones wait there.
    pub(super) fn enqueue(&self, message: &ToRank) -> bool {
        large_bytes(message).is_none()
            || self.0.queued.fetch_add(1, Ordering::Relaxed) < LARGE_MESSAGES_MAX
    }

    fn dequeue(&self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }

    fn hold(&self, since: Option<Time>) {
        self.0.holds_since.store(since.map_or(0, Time::as_ps), Ordering::Relaxed);
    }

    /// Returns whether the stream has held memory for long that others wait for.
    pub(super) fn is_blocking(&self, now: Time, rooms: &Rooms) -> bool {
        let since = self.0.holds_since.load(Ordering::Relaxed);
        let is_long = since > 0 && now.since(Time::from_ps(since)) >= UNREAD_FOR;
        let is_awaited = |room: &Room| room.waiting.load(Ordering::Relaxed) > 0;
        is_long && (is_awaited(&rooms.own) || is_awaited(&rooms.total))
    }
}

/// Bytes that a message takes while it is sent, if it grows with the ranks of a job.
fn large_bytes(message: &ToRank) -> Option<usize> {
    let ranks = |count: usize, bytes: usize| Some(count.saturating_mul(bytes));
    match message {
        ToRank::Welcome(welcome) => {
            ranks(welcome.roster.len(), RANK_BYTES + NODE_BYTES * welcome.trees() as usize)
        }
        ToRank::Adopt { setup, .. } => {
            ranks(setup.trees.iter().map(|tree| tree.workers() as usize).sum(), RANK_BYTES)
        }
        _ => None,
    }
}

type Taken = Pin<Box<dyn Future<Output = Option<[OwnedSemaphorePermit; 2]>> + Send>>;

/// Messages on their path to a rank. Each is turned into what travels when it can be sent.
pub(super) struct Answers {
    /// With the trees that they are about.
    messages: mpsc::Receiver<(u32, ToRank)>,
    rooms: Rooms,
    unread: Unread,
    clock: Clock,
    /// Message that waits for memory.
    next: Option<(u32, ToRank, Taken)>,
    /// Memory of the message before, which has been sent when another one is asked for.
    held: Option<[OwnedSemaphorePermit; 2]>,
}

impl Answers {
    pub(super) fn new(
        messages: mpsc::Receiver<(u32, ToRank)>,
        rooms: Rooms,
        unread: Unread,
        clock: Clock,
    ) -> Answers {
        Answers { messages, rooms, unread, clock, next: None, held: None }
    }

    fn take(&self, bytes: usize) -> Taken {
        let Rooms { own, total } = self.rooms.clone();
        Box::pin(async move { Some([own.take(bytes).await?, total.take(bytes).await?]) })
    }
}

impl Stream for Answers {
    type Item = Result<v1::ToRank, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<v1::ToRank, Status>>> {
        if self.held.take().is_some() {
            self.unread.hold(None);
        }
        if self.next.is_none() {
            let Some((tree, message)) = ready!(self.messages.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            let bytes = large_bytes(&message);
            if bytes.is_some() {
                self.unread.dequeue();
            }
            match bytes.filter(|bytes| *bytes > SMALL_BYTES) {
                None => return Poll::Ready(Some(Ok(convert::write_to_rank(tree, &message)))),
                Some(bytes) => self.next = Some((tree, message, self.take(bytes))),
            }
        }
        let Some((_, _, taken)) = &mut self.next else { return Poll::Ready(None) };
        let held = ready!(taken.as_mut().poll(context));
        let Some((tree, message, _)) = self.next.take() else { return Poll::Ready(None) };
        self.held = held;
        self.unread.hold(Some(self.clock.now()));
        Poll::Ready(Some(Ok(convert::write_to_rank(tree, &message))))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.unread.hold(None);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use prost::Message;
    use thalweg_core::{JobId, NodeId};
    use thalweg_wire::tag::Key;

    use super::*;
    use crate::message::{LANES, Place, Ticket, Welcome};
    use crate::proof::Proof;

    fn welcome(ranks: u32) -> ToRank {
        let ticket = Ticket { job: JobId(u64::MAX), proof: Proof([255; 32]) };
        let more_nodes = vec![NodeId(u32::MAX); TREES_MAX as usize - 1];
        let place = Place { node: NodeId(u32::MAX), more_nodes, host: u32::MAX };
        ToRank::Welcome(Arc::new(Welcome {
            ticket,
            lane_keys: vec![[Key([255; 16]); LANES]; TREES_MAX as usize],
            roster: vec![place; ranks as usize],
            rounds: vec![u32::MAX; TREES_MAX as usize],
            has_switch: true,
            probes_paths: true,
        }))
    }

    fn rooms(own: usize, total: usize) -> Rooms {
        Rooms { own: Room::new(own), total: Room::new(total) }
    }

    fn stream(rooms: &Rooms) -> (mpsc::Sender<(u32, ToRank)>, Unread, Answers) {
        let (sender, messages) = mpsc::channel(64);
        let unread = Unread::default();
        let answers = Answers::new(messages, rooms.clone(), unread.clone(), Clock::start());
        (sender, unread, answers)
    }

    fn poll(answers: &mut Answers) -> Option<usize> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(answers).poll_next(&mut context) {
            Poll::Ready(message) => Some(message.unwrap().unwrap().encoded_len()),
            Poll::Pending => None,
        }
    }

    // spec: E-12 machine
    #[test]
    fn copies_that_are_not_read_take_no_more_than_the_budget() {
        let ranks = 1_000;
        // Room for two copies.
        let budgeted = ranks * (RANK_BYTES + NODE_BYTES * TREES_MAX as usize);
        let rooms = rooms(2 * budgeted + UNIT_BYTES, 1 << 30);
        let mut streams = [(); 3].map(|()| stream(&rooms));
        for (sender, unread, _) in &streams {
            let message = welcome(ranks as u32);
            assert!(unread.enqueue(&message));
            sender.try_send((0, message)).unwrap();
        }
        let bytes = poll(&mut streams[0].2).expect("there is room");
        assert!(bytes < budgeted, "{bytes} bytes for {ranks} ranks");
        assert!(poll(&mut streams[1].2).is_some() && poll(&mut streams[2].2).is_none());
        assert_eq!(poll(&mut streams[0].2), None, "it has been read");
        assert!(poll(&mut streams[2].2).is_some());
        let others = self::rooms(1 << 30, rooms.total.units as usize * UNIT_BYTES);
        assert!(others.own.units > 0, "another token has its own");
    }

    // spec: E-12 machine
    #[test]
    fn who_holds_what_others_wait_for_is_blocking_after_a_while() {
        let rooms = rooms(300_000, 1 << 30);
        let mut streams = [(); 2].map(|()| stream(&rooms));
        for (sender, unread, _) in &streams {
            assert!(unread.enqueue(&welcome(1_000)));
            sender.try_send((0, welcome(1_000))).unwrap();
        }
        assert!(poll(&mut streams[0].2).is_some());
        let later = Clock::start().now() + UNREAD_FOR * 2;
        assert!(!streams[0].1.is_blocking(later, &rooms), "nobody waits");
        assert!(poll(&mut streams[1].2).is_none());
        assert!(streams[0].1.is_blocking(later, &rooms));
        assert!(!streams[0].1.is_blocking(Clock::start().now(), &rooms), "not yet");
        assert!(!streams[1].1.is_blocking(later, &rooms), "it has nothing");
        for (_, unread, answers) in streams {
            drop(answers);
            assert!(!unread.is_blocking(later, &rooms));
        }
        assert_eq!(rooms.own.free.available_permits(), rooms.own.units as usize);
    }

    // spec: E-12 machine
    #[test]
    fn few_large_messages_wait_for_one_rank() {
        let unread = Unread::default();
        let enqueue = |message: &ToRank| unread.enqueue(message);
        assert_eq!((0..1_000).filter(|_| enqueue(&welcome(2))).count(), LARGE_MESSAGES_MAX);
        assert!(enqueue(&ToRank::ReportOperations), "others are counted by number alone");
    }
}
