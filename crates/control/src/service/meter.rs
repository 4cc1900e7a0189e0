//! Calls and streams of every holder, counted against their budgets.
// spec: E-12

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_core::{Span, Time};

use super::unread::{Room, Rooms};
use crate::bucket::Bucket;
use crate::budget::{CallBudgets, CallRate, Reason};
use crate::caller::Holder;

/// Calls and streams of all holders. What a holder has used is forgotten once its budget is whole again.
#[derive(Debug)]
pub(crate) struct Meter {
    budgets: CallBudgets,
    holders: BTreeMap<Holder, Account>,
    /// Calls without a valid token that may still come, by address.
    denials: BTreeMap<IpAddr, Bucket>,
    total: Bucket,
    /// Memory of messages of all tokens.
    room: Arc<Room>,
    streams: usize,
}

/// A handle of a meter.
#[derive(Clone, Debug)]
pub(crate) struct SharedMeter(Arc<Mutex<Meter>>);

/// A stream that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    meter: SharedMeter,
    holder: Holder,
    /// True if its first messages are read at once: its token has opened few streams lately.
    has_burst: bool,
}

/// Rate at which every stream is read, whatever its token has used up: more than a rank sends that only reports that it lives, and
/// at once all operations that it reports when ranks differ.
const LEAST_MESSAGES: CallRate = CallRate { per_s: 8, burst: 512 };

/// Streams of one token whose first messages are read at once, a second. As many as a token may have open begin so in any case:
/// a token that opens streams again and again gets no more messages read by that than by its rate.
const BURSTS_PER_S: u32 = 16;

/// Messages of one stream.
#[derive(Debug)]
pub(crate) struct MessageMeter {
    least: Bucket,
}

/// Most accounts before those are looked for that can be forgotten.
const ACCOUNTS_KEPT: usize = 1_024;

#[derive(Debug)]
struct Account {
    calls: Bucket,
    /// Calls beyond that which may be answered.
    refusals: Bucket,
    listings: Bucket,
    messages: Bucket,
    /// Microseconds of the service's thread.
    thread_us: Bucket,
    /// Streams whose first messages are read at once.
    bursts: Bucket,
    room: Arc<Room>,
    streams: usize,
}

impl Meter {
    pub(crate) fn new(budgets: CallBudgets, now: Time) -> Meter {
        let total = Bucket::new(budgets.calls_in_total, now);
        let room = Room::new(budgets.unread_bytes_in_total);
        let (holders, denials) = (BTreeMap::new(), BTreeMap::new());
        Meter { budgets, holders, denials, total, room, streams: 0 }
    }

    /// Takes down a call, or says which budget is used up.
    fn call(&mut self, now: Time, holder: Holder) -> Result<(), (Reason, String)> {
        if !self.account(now, holder).calls.take(now) {
            return Err(used_up(Reason::Calls, "of this token", self.budgets.calls));
        }
        if !self.total.take(now) {
            return Err(used_up(Reason::Calls, "of all tokens", self.budgets.calls_in_total));
        }
        Ok(())
    }

    /// Takes down the answer to a call beyond the budget: as many are answered as calls within it. Returns false if the token has
    /// none left.
    fn refuse(&mut self, now: Time, holder: Holder) -> bool {
        self.account(now, holder).refusals.take(now)
    }

    fn list(&mut self, now: Time, holder: Holder) -> Result<(), (Reason, String)> {
        if !self.account(now, holder).listings.take(now) {
            return Err(used_up(Reason::Listings, "of this token", self.budgets.listings));
        }
        Ok(())
    }

    /// Takes down a stream. Returns whether its first messages are read at once.
    fn open(&mut self, now: Time, holder: Holder) -> Result<bool, (Reason, String)> {
        let CallBudgets { streams, streams_in_total, .. } = self.budgets;
        let refused = |whose: &str, limit: usize| {
            let text = format!("the budget of streams {whose} is used up: {limit} are open");
            Err((Reason::Streams, text))
        };
        if self.streams >= streams_in_total {
            return refused("of all tokens", streams_in_total);
        }
        let account = self.account(now, holder);
        if account.streams >= streams {
            return refused("of this token", streams);
        }
        account.streams += 1;
        let has_burst = account.bursts.take(now);
        self.streams += 1;
        Ok(has_burst)
    }

    /// Takes down a call that was refused for its token. Returns false if the address has no such calls left.
    fn deny(&mut self, now: Time, address: IpAddr) -> bool {
        if self.denials.len() >= ACCOUNTS_KEPT && !self.denials.contains_key(&address) {
            self.denials.retain(|_, bucket| !bucket.is_full(now));
        }
        let rate = self.budgets.denials;
        self.denials.entry(address).or_insert_with(|| Bucket::new(rate, now)).take(now)
    }

    /// Returns whether an address may be refused a call.
    fn may_deny(&mut self, now: Time, address: IpAddr) -> bool {
        self.denials.get_mut(&address).is_none_or(|bucket| bucket.has_one(now))
    }

    fn rooms(&mut self, now: Time, holder: Holder) -> Rooms {
        let total = Arc::clone(&self.room);
        Rooms { own: Arc::clone(&self.account(now, holder).room), total }
    }

    fn message(&mut self, now: Time, holder: Holder) -> bool {
        self.account(now, holder).messages.take(now)
    }

    fn has_time(&mut self, now: Time, holder: Holder) -> bool {
        self.account(now, holder).thread_us.has_one(now)
    }

    fn spend(&mut self, now: Time, holder: Holder, time: Span) {
        let us = u32::try_from(time.as_ps() / Span::from_us(1).as_ps()).unwrap_or(u32::MAX);
        self.account(now, holder).thread_us.spend(now, us);
    }

    fn close(&mut self, holder: Holder) {
        self.streams = self.streams.saturating_sub(1);
        if let Some(account) = self.holders.get_mut(&holder) {
            account.streams = account.streams.saturating_sub(1);
        }
    }

    fn account(&mut self, now: Time, holder: Holder) -> &mut Account {
        if self.holders.len() >= ACCOUNTS_KEPT && !self.holders.contains_key(&holder) {
            self.holders.retain(|_, account| !account.is_whole(now));
        }
        let CallBudgets { calls, listings, messages, thread_us, unread_bytes, streams, .. } =
            self.budgets;
        let burst = u32::try_from(streams).unwrap_or(u32::MAX);
        let bursts = CallRate { per_s: BURSTS_PER_S, burst };
        self.holders.entry(holder).or_insert_with(|| Account {
            calls: Bucket::new(calls, now),
            refusals: Bucket::new(calls, now),
            listings: Bucket::new(listings, now),
            messages: Bucket::new(messages, now),
            thread_us: Bucket::new(thread_us, now),
            bursts: Bucket::new(bursts, now),
            room: Room::new(unread_bytes),
            streams: 0,
        })
    }
}

impl Account {
    /// Returns whether it says no more than a new one.
    fn is_whole(&mut self, now: Time) -> bool {
        let Account { calls, refusals, listings, messages, thread_us, bursts, .. } = self;
        let buckets = [calls, refusals, listings, messages, thread_us, bursts];
        self.streams == 0
            && self.room.is_free()
            && buckets.into_iter().all(|bucket| bucket.is_full(now))
    }
}

fn used_up(reason: Reason, whose: &str, rate: CallRate) -> (Reason, String) {
    let CallRate { per_s, burst } = rate;
    let what = if reason == Reason::Listings { "calls that list jobs" } else { "calls" };
    let text =
        format!("the budget of {what} {whose} is used up: {per_s}/s after a burst of {burst}");
    (reason, text)
}

impl SharedMeter {
    pub(crate) fn new(meter: Meter) -> SharedMeter {
        SharedMeter(Arc::new(Mutex::new(meter)))
    }

    /// Takes down a call, or says which budget is used up.
    pub(crate) fn call(&self, now: Time, holder: Holder) -> Result<(), (Reason, String)> {
        self.lock().call(now, holder)
    }

    /// Takes down the answer to a call beyond the budget. Returns false if the token has none left.
    pub(crate) fn refuse(&self, now: Time, holder: Holder) -> bool {
        self.lock().refuse(now, holder)
    }

    /// Memory that answers to a holder may take.
    pub(super) fn rooms(&self, now: Time, holder: Holder) -> Rooms {
        self.lock().rooms(now, holder)
    }

    /// Takes down a call that lists jobs, or says that the budget is used up.
    pub(crate) fn list(&self, now: Time, holder: Holder) -> Result<(), (Reason, String)> {
        self.lock().list(now, holder)
    }

    /// Takes down a call that was refused for its token. Returns false if the address has no such calls left.
    pub(crate) fn deny(&self, now: Time, address: IpAddr) -> bool {
        self.lock().deny(now, address)
    }

    /// Returns whether an address has calls left that are refused for their token.
    pub(crate) fn may_deny(&self, now: Time, address: IpAddr) -> bool {
        self.lock().may_deny(now, address)
    }

    /// Returns whether a holder has time of the service's thread left.
    pub(crate) fn has_time(&self, now: Time, holder: Holder) -> bool {
        self.lock().has_time(now, holder)
    }

    /// Takes down time of the service's thread that was used because of a holder.
    pub(crate) fn spend(&self, now: Time, holder: Holder, time: Span) {
        self.lock().spend(now, holder, time);
    }

    /// Takes down a stream, or says which budget is used up.
    pub(crate) fn open(&self, now: Time, holder: Holder) -> Result<StreamPermit, (Reason, String)> {
        let has_burst = self.lock().open(now, holder)?;
        Ok(StreamPermit { meter: self.clone(), holder, has_burst })
    }

    fn lock(&self) -> MutexGuard<'_, Meter> {
        // Every call leaves the counts whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamPermit {
    /// Memory that messages on the stream may take.
    pub(super) fn rooms(&self, now: Time) -> Rooms {
        self.meter.rooms(now, self.holder)
    }

    /// Counts of the messages that come on the stream.
    pub(crate) fn messages(&self, now: Time) -> MessageMeter {
        let new = if self.has_burst { Bucket::new } else { Bucket::empty };
        MessageMeter { least: new(LEAST_MESSAGES, now) }
    }

    /// Returns whether the next message of the stream may be read now, or the budget that is used up.
    pub(crate) fn may_read(&self, now: Time, stream: &mut MessageMeter) -> Result<(), Reason> {
        let mut meter = self.meter.lock();
        if !meter.has_time(now, self.holder) {
            return Err(Reason::Time);
        }
        if stream.least.take(now) || meter.message(now, self.holder) {
            return Ok(());
        }
        Err(Reason::Messages)
    }

    /// The holder that the stream counts for.
    pub(crate) fn holder(&self) -> Holder {
        self.holder
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.meter.lock().close(self.holder);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const START: Time = Time::from_ps(1_000_000_000_000);

    fn meter() -> Meter {
        let budgets = CallBudgets {
            calls: CallRate { per_s: 10, burst: 20 },
            listings: CallRate { per_s: 1, burst: 2 },
            calls_in_total: CallRate { per_s: 100, burst: 50 },
            denials: CallRate { per_s: 5, burst: 10 },
            messages: CallRate { per_s: 50, burst: 100 },
            streams: 3,
            streams_in_total: 5,
            ..CallBudgets::default()
        };
        Meter::new(budgets, START)
    }

    fn calls(meter: &mut Meter, now: Time, holder: Holder) -> usize {
        (0..1_000).filter(|_| meter.call(now, holder).is_ok()).count()
    }

    // spec: E-12 machine
    #[test]
    fn one_token_cannot_use_up_the_calls_of_another() {
        let mut meter = meter();
        assert_eq!(calls(&mut meter, START, Holder::Token(1)), 20);
        assert_eq!(calls(&mut meter, START, Holder::Token(2)), 20);
        let (reason, text) = meter.call(START, Holder::Token(1)).unwrap_err();
        assert_eq!(reason, Reason::Calls);
        assert!(text.contains("of this token") && text.contains("10/s"), "{text}");
        let later = START + Span::from_ms(1_050);
        assert_eq!(calls(&mut meter, later, Holder::Token(1)), 10, "it fills with time");
        assert_eq!(calls(&mut meter, later + Span::from_s(9_999), Holder::Token(1)), 20);
    }

    // spec: E-12 machine
    #[test]
    fn all_tokens_together_have_a_budget() {
        let mut meter = meter();
        let made: usize = (0..9).map(|token| calls(&mut meter, START, Holder::Token(token))).sum();
        assert_eq!(made, 50);
        assert!(meter.call(START, Holder::Token(9)).unwrap_err().1.contains("of all tokens"));
    }

    #[test]
    fn lists_are_counted_apart() {
        let mut meter = meter();
        assert_eq!((0..9).filter(|_| meter.list(START, Holder::Token(1)).is_ok()).count(), 2);
        assert!(meter.call(START, Holder::Token(1)).is_ok());
        let text = meter.list(START, Holder::Token(1)).unwrap_err().1;
        assert!(text.contains("calls that list jobs"), "{text}");
    }

    // spec: E-12 machine
    #[test]
    fn streams_are_counted_until_they_end() {
        let meter = SharedMeter::new(meter());
        let open = |token| meter.open(START, Holder::Token(token));
        let mut own: Vec<_> = (0..3).map(|_| open(1).unwrap()).collect();
        assert!(open(1).unwrap_err().1.contains("of this token is used up: 3"));
        let _others = [open(2).unwrap(), open(2).unwrap()];
        assert!(open(3).unwrap_err().1.contains("of all tokens is used up: 5"));
        own.pop();
        assert!(open(1).is_ok());
    }

    // spec: E-12 machine
    #[test]
    fn calls_without_a_token_are_counted_by_address() {
        let mut meter = meter();
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        assert!(meter.may_deny(START, address(1)));
        assert_eq!((0..99).filter(|_| meter.deny(START, address(1))).count(), 10);
        assert!(!meter.may_deny(START, address(1)) && meter.may_deny(START, address(2)));
        let later = START + Span::from_ms(1_050);
        assert!(meter.may_deny(later, address(1)), "it fills with time");
        assert_eq!((0..99).filter(|_| meter.deny(later, address(1))).count(), 5);
        assert!(meter.call(START, Holder::Address(address(1))).is_ok(), "others are not affected");
        for at in 0..100_000_u32 {
            let now = later + Span::from_ms(5) * u64::from(at);
            meter.deny(now, IpAddr::V4(Ipv4Addr::from_bits(at)));
        }
        assert!(meter.denials.len() <= 2 * ACCOUNTS_KEPT, "{}", meter.denials.len());
    }

    // spec: E-12 machine
    #[test]
    fn a_stream_is_read_at_the_rate_of_its_token_and_never_less_than_a_rank_needs() {
        let meter = SharedMeter::new(meter());
        let permits = [1, 1, 2].map(|token| meter.open(START, Holder::Token(token)).unwrap());
        let mut streams = permits.each_ref().map(|permit| permit.messages(START));
        let mut read = |now, at: usize| {
            (0..1_000).filter(|_| permits[at].may_read(now, &mut streams[at]).is_ok()).count()
        };
        assert_eq!(read(START, 0), 612, "its own and those of the token");
        assert_eq!(read(START, 1), 512, "what every stream has");
        assert_eq!(read(START, 2), 612, "another token");
        let later = START + Span::from_s(1);
        assert_eq!((read(later, 0), read(later, 1)), (58, 8));
    }

    /// A token that opens streams again and again would have the first messages of each read at once.
    // spec: E-12 machine
    #[test]
    fn streams_that_are_opened_again_and_again_begin_without_a_burst() {
        let meter = SharedMeter::new(meter());
        let read = |now, token| {
            let permit = meter.open(now, Holder::Token(token)).unwrap();
            let mut stream = permit.messages(now);
            (0..1_000).filter(|_| permit.may_read(now, &mut stream).is_ok()).count()
        };
        let all: usize = (0..99).map(|_| read(START, 1)).sum();
        assert_eq!(
            all,
            3 * 512 + 100,
            "as many bursts as it may have streams, and those of the token"
        );
        assert_eq!(read(START, 2), 612, "another token");
        let later = START + Span::from_ms(1_050);
        let all: usize = (0..99).map(|_| read(later, 1)).sum();
        assert_eq!(all, 3 * 512 + 52, "it fills with time, up to as many");
        let permit = meter.open(later, Holder::Token(1)).unwrap();
        let mut stream = permit.messages(later);
        assert_eq!(permit.may_read(later, &mut stream), Err(Reason::Messages));
        assert!(
            permit.may_read(later + Span::from_ms(130), &mut stream).is_ok(),
            "it is read as others are"
        );
    }

    // spec: E-12 machine
    #[test]
    fn one_token_cannot_use_up_the_time_of_the_thread() {
        let meter = SharedMeter::new(meter());
        let permits = [1, 2].map(|token| meter.open(START, Holder::Token(token)).unwrap());
        let mut streams = permits.each_ref().map(|permit| permit.messages(START));
        let mut read = |now, at: usize| permits[at].may_read(now, &mut streams[at]);
        assert!(meter.has_time(START, Holder::Token(1)));
        meter.spend(START, Holder::Token(1), Span::from_s(3));
        assert_eq!((read(START, 0), read(START, 1)), (Err(Reason::Time), Ok(())));
        assert!(!meter.has_time(START, Holder::Token(1)), "nor do its calls pass");
        assert!(meter.has_time(START, Holder::Token(2)), "another token");
        // A second is owed, and it has a quarter of the thread.
        assert_eq!(read(START + Span::from_ms(3_990), 0), Err(Reason::Time));
        assert_eq!(read(START + Span::from_ms(4_010), 0), Ok(()));
    }

    // spec: E-12 machine
    #[test]
    fn calls_beyond_the_budget_are_answered_at_a_rate() {
        let mut meter = meter();
        let refused = |meter: &mut Meter, token| {
            (0..99).filter(|_| meter.refuse(START, Holder::Token(token))).count()
        };
        assert_eq!((refused(&mut meter, 1), refused(&mut meter, 2)), (20, 20));
        assert_eq!(calls(&mut meter, START, Holder::Token(1)), 20, "its calls are others");
    }

    #[test]
    fn those_that_pause_are_forgotten() {
        let mut meter = meter();
        for at in 0..100_000_u32 {
            let holder = Holder::Address(IpAddr::V4(Ipv4Addr::from_bits(at)));
            let now = START + Span::from_ms(1) * u64::from(at);
            let _ = meter.call(now, holder);
        }
        assert!(meter.holders.len() <= 2 * ACCOUNTS_KEPT, "{}", meter.holders.len());
    }
}
