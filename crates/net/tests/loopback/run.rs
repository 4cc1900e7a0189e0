//! The loop: time, events, commands, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use thalweg_core::{Machine, Outbox, Packet, Reports, Span, Time, Verdict};
use thalweg_net::{Driver, DriverConfig, DriverError, Wait};

use crate::machines::{Sample, Sender};
use crate::{LIMIT, driver, now, peers, plain, turn, until};

/// Counts to ten by timer and tells each count. Fails when the driver breaks the contract.
struct Ticker {
    period: Span,
    due: Time,
    last_seen: Time,
    ticks: u32,
    untold: Option<u32>,
    must_poll: bool,
}

impl Ticker {
    fn new(period: Span) -> Ticker {
        let due = Time::ZERO + period;
        Ticker { period, due, last_seen: Time::ZERO, ticks: 0, untold: None, must_poll: false }
    }

    fn handle(&mut self, now: Time) {
        assert!(now >= self.last_seen, "time does not go back");
        assert!(!self.must_poll, "outputs are taken between two inputs");
        assert_eq!(self.untold, None, "events are taken between two inputs");
        self.last_seen = now;
        self.must_poll = true;
    }
}

impl Machine for Ticker {
    fn handle_packet(&mut self, now: Time, _packet: Packet<'_>) -> Verdict<'_> {
        self.handle(now);
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        self.handle(now);
        assert!(now >= self.due, "{:?} early", self.due.since(now));
        self.ticks += 1;
        self.untold = Some(self.ticks);
        self.due = if self.ticks == 10 { Time::NEVER } else { now + self.period };
    }

    fn poll_transmit(&mut self, now: Time, _outbox: &mut dyn Outbox) {
        assert!(now >= self.last_seen);
        self.must_poll = false;
    }

    fn poll_timeout(&self) -> Time {
        self.due
    }
}

impl Reports for Ticker {
    type Event = u32;

    fn poll_event(&mut self) -> Option<u32> {
        self.untold.take()
    }
}

#[test]
fn timers_fire_and_not_early() {
    for wait in [Wait::Sleep, Wait::Spin] {
        let config = DriverConfig { wait, ..DriverConfig::default() };
        let ticker = Ticker::new(Span::from_us(700));
        let mut driver =
            Driver::new(config, plain(), peers(&[]), ticker).expect("the settings are right");
        let stop = AtomicBool::new(false);
        let (mut ticks, started) = (Vec::new(), now());
        driver
            .run(&stop, |tick| {
                ticks.push(tick);
                stop.store(tick == 10 || started.elapsed() > LIMIT, Ordering::Relaxed);
            })
            .expect("the socket works");
        assert_eq!(ticks, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        // The first is due whenever a driver begins.
        assert!(started.elapsed().as_micros() >= 9 * 700);
    }
}

#[test]
fn outputs_are_taken_after_every_packet_of_a_burst() {
    let (from, to) = (plain(), plain());
    let peers = peers(&[from.local_address(), to.local_address()]);
    let samples = (0..100).map(|seed| Sample::plain(1, seed, 10)).collect();
    let mut sender = driver(0, from, &peers, Sender { samples, sent: 0 });
    let mut ticker = driver(1, to, &peers, Ticker::new(Span::from_us(1)));
    until("100 packets", || {
        turn(&mut sender);
        turn(&mut ticker);
        ticker.stats().received_packets == 100
    });
    assert!(ticker.machine().ticks > 0);
}

#[test]
fn an_idle_driver_stops_on_command() {
    for wait in [Wait::Sleep, Wait::Spin] {
        let config = DriverConfig { wait, ..DriverConfig::default() };
        let mut driver = Driver::new(config, plain(), peers(&[]), Sender::default())
            .expect("the settings are right");
        let stop = AtomicBool::new(false);
        let (stopped, is_stopped) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                driver.run(&stop, |()| {}).expect("the socket works");
                stopped.send(()).expect("the test waits");
            });
            assert!(is_stopped.try_recv().is_err(), "not before the command");
            stop.store(true, Ordering::Relaxed);
            is_stopped.recv_timeout(LIMIT).expect("it stops");
        });
    }
}

#[test]
fn a_packet_wakes_a_sleeping_driver() {
    let (from, to) = (plain(), plain());
    let peers = peers(&[from.local_address(), to.local_address()]);
    let mut sender = driver(0, from, &peers, Sender::default());
    let mut sleeper = driver(1, to, &peers, Sender::default());
    let started = now();
    sender.command(|machine, _| machine.samples.push(Sample::plain(1, 0, 10)), |()| {});
    assert_eq!(sender.stats().sent_packets, 1, "a command's outputs are sent at once");
    sleeper.wait(2 * LIMIT).expect("the socket works");
    assert!(started.elapsed() < LIMIT);
    turn(&mut sleeper);
    assert_eq!(sleeper.stats().received_packets, 1);
}

#[test]
fn another_thread_wakes_a_sleeping_driver() {
    let mut sleeper = driver(0, plain(), &peers(&[]), Sender::default());
    let waker = sleeper.waker().expect("there are files left");
    let started = now();
    std::thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        sleeper.wait(2 * LIMIT).expect("the socket works");
    });
    assert!(started.elapsed() < LIMIT);
}

#[test]
fn wake_ups_before_a_sleep_end_one_sleep() {
    let mut sleeper = driver(0, plain(), &peers(&[]), Sender::default());
    let (waker, twin) = (sleeper.waker(), sleeper.waker());
    waker.expect("there are files left").wake();
    twin.expect("it is the same").wake();
    let started = now();
    sleeper.wait(2 * LIMIT).expect("the socket works");
    assert!(started.elapsed() < LIMIT);
    let (started, nap) = (now(), Duration::from_millis(2));
    sleeper.wait(nap).expect("the socket works");
    assert!(started.elapsed() >= nap);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |config| {
        Driver::new(config, plain(), peers(&[]), Sender::default()).err().expect("it is refused")
    };
    let right = DriverConfig::default();
    for burst_batches in [0, 17] {
        let error = refused(DriverConfig { burst_batches, ..right });
        assert!(matches!(error, DriverError::Burst(_)), "{error}");
    }
    for max_packet_bytes in [63, 65_508] {
        let error = refused(DriverConfig { max_packet_bytes, ..right });
        assert!(matches!(error, DriverError::PacketSize(_)), "{error}");
    }
    let error = refused(DriverConfig { outbox_bytes: 8_256, ..right });
    assert!(matches!(error, DriverError::OutboxSize(8_256)), "{error}");
}
