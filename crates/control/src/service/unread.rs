//! Memory of messages that wait for ranks to read them.
//!
//! Welcomes and set-ups grow with the ranks of a job, and every rank gets its own copy: those of a job of thousands of ranks
//! take gigabytes together. So a copy is made only when it can be sent, within a budget of bytes of its token and of all tokens,
//! which it holds until the connection has taken it: HTTP/2 keeps what a peer does not read, and much of it where
//! the peer announces a large window. A rank that does not read holds what it got. Its connection is closed if others wait for that, and
//! its stream if too many such messages wait for it.
// spec: E-12

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use prost::Message;
use thalweg_core::{Span, Time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time;
use tokio_stream::Stream;
use tonic::codegen::Bytes;

use crate::clock::Clock;
use crate::convert;
use crate::message::{TREES_MAX, ToRank};

/// Most welcomes and set-ups of a tree that wait for one rank. A set-up needs an answer of every rank, so that one that is
/// stopped has few of them.
const LARGE_MESSAGES_OF_TREE: usize = 4;

/// The same of all trees, and welcomes.
const LARGE_MESSAGES_MAX: usize = 16 + LARGE_MESSAGES_OF_TREE * TREES_MAX as usize;

/// Bytes that a welcome or a set-up takes for each rank while it is sent, at most.
pub(super) const RANK_BYTES: usize = 128;

/// Messages that take no more than this are made without memory of the budget, and the next message of a stream is made when
/// no more than this of those before has to be sent.
const SMALL_BYTES: usize = 4 << 10;

/// Bytes that a welcome takes beyond them for the node of a sending thread.
const NODE_BYTES: usize = 4;

/// Bytes before each message of a stream: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
const NOT_COMPRESSED: u8 = 0;

/// Bytes that an answer takes before it is encoded, for each byte that travels.
const MADE_FACTOR: usize = 3;

/// Time for which an answer about all jobs waits for memory.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Time for which a rank may hold memory that others wait for, and any caller that of an answer.
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

    /// Returns whether nothing of it is in use.
    pub(crate) fn is_free(&self) -> bool {
        self.free.available_permits() == self.units as usize
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

type Held = [OwnedSemaphorePermit; 2];

impl Rooms {
    async fn take(self, bytes: usize) -> Option<Held> {
        Some([self.own.take(bytes).await?, self.total.take(bytes).await?])
    }

    /// Takes memory for an answer of one message, before it is made: it holds that until the connection has taken all of it. `None`
    /// if there is too little for a while.
    pub(super) async fn reserve(self, now: Time, most_bytes: usize) -> Option<Unread> {
        let bytes = most_bytes.saturating_add(PREFIX_BYTES).saturating_mul(MADE_FACTOR);
        let taken = time::timeout(ANSWER_WITHIN, self.take(bytes)).await;
        let unread = Unread::default();
        unread.lock().held = Some((now, taken.ok()??));
        Some(unread)
    }
}

/// Messages of one stream that its peer has not read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Number of large messages in the queue.
    queued: AtomicUsize,
    sending: Mutex<Sending>,
}

/// The part of a stream that was made and that its connection has not taken.
#[derive(Debug, Default)]
struct Sending {
    /// Bytes that HTTP/2 has not asked for.
    made: usize,
    /// Bytes that HTTP/2 keeps.
    kept: usize,
    /// Memory of the budget, and when the stream got it.
    held: Option<(Time, Held)>,
    /// The task that makes the next message.
    waker: Option<Waker>,
}

impl Sending {
    fn is_little(&self) -> bool {
        self.made + self.kept <= SMALL_BYTES
    }

    /// Gives memory back once little is left to send.
    fn settle(&mut self) {
        if self.is_little() {
            self.held = None;
            self.waker.take().into_iter().for_each(Waker::wake);
        }
    }
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

    /// Resolves when little is left to send.
    fn poll_sent(&self, context: &Context<'_>) -> Poll<()> {
        let mut sending = self.lock();
        if sending.is_little() {
            return Poll::Ready(());
        }
        sending.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn make(&self, bytes: usize) {
        self.lock().made += bytes;
    }

    /// Takes down an answer for which memory was taken.
    pub(super) fn answer(&self, answer: &impl Message) {
        self.make(answer.encoded_len() + PREFIX_BYTES);
    }

    /// Takes down that HTTP/2 has asked for bytes.
    pub(super) fn keep(&self, bytes: usize) {
        let mut sending = self.lock();
        sending.made = sending.made.saturating_sub(bytes);
        sending.kept += bytes;
    }

    /// Takes down that HTTP/2 keeps bytes no longer.
    pub(super) fn release(&self, bytes: usize) {
        let mut sending = self.lock();
        sending.kept = sending.kept.saturating_sub(bytes);
        sending.settle();
    }

    /// Takes down that HTTP/2 will ask for no more.
    pub(super) fn end(&self) {
        let mut sending = self.lock();
        sending.made = 0;
        sending.settle();
    }

    /// Returns whether the stream has held memory for long that others wait for.
    pub(super) fn is_blocking(&self, now: Time, rooms: &Rooms) -> bool {
        let held = self.lock().held.as_ref().map(|(since, _)| *since);
        let is_long = held.is_some_and(|since| now.since(since) >= UNREAD_FOR);
        let is_awaited = |room: &Room| room.waiting.load(Ordering::Relaxed) > 0;
        is_long && (is_awaited(&rooms.own) || is_awaited(&rooms.total))
    }

    /// Resolves when the memory that is held now was held for too long, even if nobody waits for it: to `true` if it still is.
    pub(super) fn overdue(&self) -> impl Future<Output = bool> + Send + 'static {
        let (counts, is_held) = (Arc::downgrade(&self.0), self.lock().held.is_some());
        async move {
            if !is_held {
                return false;
            }
            time::sleep(Duration::from_millis(UNREAD_FOR.as_ps() / Span::from_ms(1).as_ps())).await;
            Weak::upgrade(&counts).is_some_and(|counts| Unread(counts).lock().held.is_some())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sending> {
        // Every change leaves the counts whole.
        self.0.sending.lock().unwrap_or_else(PoisonError::into_inner)
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

type Taken = Pin<Box<dyn Future<Output = Option<Held>> + Send>>;

/// Messages on their path to a rank. Each is encoded when it can be sent, into memory of its own: what tonic keeps to encode
/// the messages of a stream stays as long as the longest of them for as long as the stream is open, whatever was read.
pub(super) struct Answers {
    /// With the trees that they are about.
    messages: mpsc::Receiver<(u32, ToRank)>,
    rooms: Rooms,
    unread: Unread,
    clock: Clock,
    /// Gets the time of the thread that large messages take.
    spend: Box<dyn Fn(Span) + Send>,
    /// Message that waits for memory.
    next: Option<(u32, ToRank, Taken)>,
}

impl Answers {
    pub(super) fn new(
        messages: mpsc::Receiver<(u32, ToRank)>,
        rooms: Rooms,
        unread: Unread,
        clock: Clock,
        spend: Box<dyn Fn(Span) + Send>,
    ) -> Answers {
        Answers { messages, rooms, unread, clock, spend, next: None }
    }

    /// Encodes a message, with the prefix that gRPC has before each.
    fn make(&self, tree: u32, message: &ToRank) -> Bytes {
        let made = convert::write_to_rank(tree, message);
        let length = made.encoded_len();
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + length);
        bytes.push(NOT_COMPRESSED);
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        made.encode(&mut bytes).expect("a vector grows");
        self.unread.make(bytes.len());
        bytes.into()
    }
}

impl Stream for Answers {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.next.is_none() {
            ready!(self.unread.poll_sent(context));
            let Some((tree, message)) = ready!(self.messages.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            let bytes = large_bytes(&message);
            if bytes.is_some() {
                self.unread.dequeue();
            }
            match bytes.filter(|bytes| *bytes > SMALL_BYTES) {
                None => return Poll::Ready(Some(self.make(tree, &message))),
                Some(bytes) => {
                    let taken = self.rooms.clone().take(bytes);
                    self.next = Some((tree, message, Box::pin(taken)));
                }
            }
        }
        let Some((_, _, taken)) = &mut self.next else { return Poll::Ready(None) };
        let held = ready!(taken.as_mut().poll(context));
        let Some((tree, message, _)) = self.next.take() else { return Poll::Ready(None) };
        let began = self.clock.now();
        self.unread.lock().held = held.map(|held| (began, held));
        let made = self.make(tree, &message);
        (self.spend)(self.clock.now().since(began));
        Poll::Ready(Some(made))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

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
        let spend = Box::new(|_| {});
        let answers = Answers::new(messages, rooms.clone(), unread.clone(), Clock::start(), spend);
        (sender, unread, answers)
    }

    fn poll(answers: &mut Answers) -> Option<usize> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(answers).poll_next(&mut context) {
            Poll::Ready(message) => Some(message.unwrap().len()),
            Poll::Pending => None,
        }
    }

    /// The connection takes all that HTTP/2 keeps.
    fn send(unread: &Unread) {
        unread.release(usize::MAX);
    }

    /// HTTP/2 asks for all that there is.
    fn keep(unread: &Unread) {
        let made = unread.lock().made;
        unread.keep(made);
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
        keep(&streams[0].1);
        assert!(poll(&mut streams[1].2).is_some() && poll(&mut streams[2].2).is_none());
        assert_eq!(poll(&mut streams[0].2), None, "there is no other message");
        assert!(poll(&mut streams[2].2).is_none(), "HTTP/2 keeps both");
        send(&streams[0].1);
        assert!(poll(&mut streams[2].2).is_some());
        let others = self::rooms(1 << 30, rooms.total.units as usize * UNIT_BYTES);
        assert!(others.own.units > 0, "another token has its own");
    }

    /// A peer that announces a large window has HTTP/2 ask for more than the connection takes.
    // spec: E-12 machine
    #[test]
    fn a_message_is_made_when_the_ones_before_were_sent() {
        let rooms = rooms(1 << 30, 1 << 30);
        let (sender, unread, mut answers) = stream(&rooms);
        // Small ones are not counted, and there are few of them.
        let ranks = SMALL_BYTES / (RANK_BYTES + NODE_BYTES * TREES_MAX as usize);
        let small = || sender.try_send((0, welcome(ranks as u32))).unwrap();
        (0..9).for_each(|_| small());
        let mut made = 0;
        while let Some(bytes) = poll(&mut answers) {
            made += bytes;
            keep(&unread);
        }
        assert!((SMALL_BYTES..2 * SMALL_BYTES).contains(&made), "{made}");
        send(&unread);
        assert!(poll(&mut answers).is_some(), "the connection has taken them");
        keep(&unread);
        send(&unread);
        while poll(&mut answers).is_some() {
            keep(&unread);
            send(&unread);
        }
        sender.try_send((0, welcome(1_000))).unwrap();
        small();
        assert!(poll(&mut answers).is_some() && !rooms.own.is_free());
        keep(&unread);
        assert!(poll(&mut answers).is_none());
        send(&unread);
        assert!(rooms.own.is_free(), "memory is given back when it was sent");
        assert!(poll(&mut answers).is_some());
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
        keep(&streams[0].1);
        // The streams end.
        let unread = streams.map(|(_, unread, answers)| {
            drop(answers);
            unread.end();
            unread
        });
        assert!(!rooms.own.is_free(), "HTTP/2 still keeps what was not sent");
        send(&unread[0]);
        assert!(rooms.own.is_free() && !unread[0].is_blocking(later, &rooms));
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
