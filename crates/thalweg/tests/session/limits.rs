//! Limits that switches report, and jobs that keep them.
// spec: E-06 sockets
#![allow(clippy::disallowed_methods, reason = "real daemons take real time")]

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use thalweg::daemon::{ServerDaemon, ServerDaemonConfig, SwitchDaemon, SwitchDaemonConfig};
use thalweg::internal::Event;
use thalweg::{Reduce, Session, SessionBuilder};

use crate::cluster::{SECRET, noted};

const RANKS: u32 = 3;

/// Values of a sum, and one more by which rank 0 ends the job.
const VALUES: usize = 5_000;

/// Longest time of anything that goes well.
const LIMIT: Duration = Duration::from_secs(25);

/// A switch with few aggregators and short fragments.
fn start_switch(bind: SocketAddr, aggregators: u32, values_max: u16) -> SwitchDaemon {
    let mut config = SwitchDaemonConfig::new(bind, SECRET);
    (config.aggregators, config.values_max) = (Some(aggregators), Some(values_max));
    SwitchDaemon::start(&config).expect("the address is free")
}

fn start_server(bind: SocketAddr, switch: SocketAddr) -> ServerDaemon {
    let mut config = ServerDaemonConfig::new(bind, SECRET);
    config.switch = Some(switch);
    ServerDaemon::start(&config).expect("the address is free")
}

/// An address of the test's own: while a daemon starts again, no other test takes its port.
fn own_address(own: u8) -> SocketAddr {
    ([127, 0, 9, own], 0).into()
}

/// A server whose ranks are below a switch, and all events of the library.
struct Rig {
    server: Mutex<Option<ServerDaemon>>,
    server_at: SocketAddr,
    switch: SocketAddr,
    job: &'static str,
    events: Receiver<Event>,
}

impl Rig {
    fn new(job: &'static str, switch: SocketAddr) -> Rig {
        let events = noted();
        let server = start_server((switch.ip(), 0).into(), switch);
        let server_at = server.address();
        Rig { server: Mutex::new(Some(server)), server_at, switch, job, events }
    }

    /// The server ends, and another one starts in its place and knows nothing.
    fn restart_server(&self) {
        let mut server = self.server.lock().expect("nobody panics with it");
        server.take().expect("it was started").stop().expect("it ran");
        *server = Some(start_server(self.server_at, self.switch));
    }

    /// Runs a job that sums until something else is done.
    fn run(&self, change: impl Fn(SessionBuilder) -> SessionBuilder, meanwhile: impl FnOnce(&Rig)) {
        let is_over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for rank in 0..RANKS {
                let builder = Session::builder(self.server_at.to_string(), self.job)
                    .rank(rank, RANKS)
                    .switch(self.switch)
                    .share_memory(false)
                    .failure_after(Duration::from_secs(2))
                    .operation_timeout(Duration::from_secs(20));
                let builder = change(builder);
                scope.spawn(move || {
                    let session = builder.join().expect("all ranks are there");
                    sum_until(&session, is_over);
                    session.leave().expect("everything has ended");
                });
            }
            // The ranks end whatever becomes of the test.
            let end = End(is_over);
            meanwhile(self);
            drop(end);
        });
    }

    /// Waits for an event of the job.
    fn expect(&self, what: &str, is_wanted: impl Fn(&Event) -> bool) -> Event {
        let (end, mut seen) = (Instant::now() + LIMIT, Vec::new());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left);
            let event = event.unwrap_or_else(|_| panic!("no {what} within {LIMIT:?}: {seen:#?}"));
            let is_of_job = event.field("job") == Some(self.job)
                || event.text.starts_with(&format!("job {:?}", self.job));
            if is_of_job && is_wanted(&event) {
                return event;
            }
            seen.extend(is_of_job.then_some(event.text));
        }
    }

    /// Waits for a set-up, and returns its numbers: values of a fragment, and aggregators.
    fn set_up(&self, epoch: u32) -> [String; 2] {
        let event = self.expect(&format!("epoch {epoch}"), |event| {
            event.field("event") == Some("set_up")
                && event.field("epoch") == Some(&epoch.to_string())
        });
        ["fragment_values", "aggregators"].map(|name| event.field(name).unwrap_or("").to_owned())
    }

    fn warning(&self, text: &str) -> Event {
        self.expect(text, |event| event.is_warning && event.text.contains(text))
    }
}

/// Ends the job.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Small integers, whose sums are exact.
fn value(rank: u32, operation: u64, at: usize) -> f32 {
    ((at as u64 * 7 + u64::from(rank) * 13 + operation * 31) % 101) as f32 - 50.0
}

/// Sums until a rank knows that it is over, and checks every sum.
fn sum_until(session: &Session, is_over: &AtomicBool) {
    let rank = session.rank();
    for operation in 0.. {
        let mut own: Vec<f32> = (0..VALUES).map(|at| value(rank, operation, at)).collect();
        own.push(if is_over.load(Ordering::Relaxed) { 1.0 } else { 0.0 });
        let sum = session.all_reduce(own, Reduce::Sum).wait().expect("it ends").values;
        for (at, sum) in sum[..VALUES].iter().enumerate() {
            let expected: f32 = (0..RANKS).map(|rank| value(rank, operation, at)).sum();
            assert_eq!(*sum, expected, "value {at} of sum {operation}");
        }
        if sum[VALUES] > 0.0 {
            return;
        }
    }
}

/// Waits until a switch has completed a sum.
fn expect_sums(switch: &SwitchDaemon) {
    let (end, completed) =
        (Instant::now() + LIMIT, || switch.snapshot().map(|it| it.switch.completed));
    while completed().expect("it runs") == 0 {
        assert!(Instant::now() < end, "the switch sums nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_job_has_the_fragments_and_aggregators_of_its_switch_and_not_those_that_ranks_name() {
    let switch = start_switch(own_address(1), 24, 50);
    let rig = Rig::new("asked", switch.address());
    #[expect(deprecated, reason = "they have no effect")]
    let change = |builder: SessionBuilder| builder.fragment_values(10).aggregators(9);
    rig.run(change, |rig| {
        rig.expect("unused setting", |event| event.field("setting") == Some("aggregators"));
        let line = rig.expect("line of the server", |event| event.text.contains("set up in"));
        let numbers = "and 1 of 1 switches (24 aggregators, fragments of 50 values)";
        assert!(line.text.contains(numbers), "{}", line.text);
        assert_eq!(rig.set_up(1), ["50", "24"]);
        expect_sums(&switch);
    });
    let stats = switch.snapshot().expect("it runs").switch;
    assert!(stats.probes > 0 && stats.malformed == 0 && stats.forged == 0, "{stats:?}");
}

#[test]
fn a_switch_that_does_not_answer_is_left_out_with_a_warning_and_planned_in_when_it_does() {
    let before = start_switch(own_address(2), 1, 1);
    let rig = Rig::new("silent", before.address());
    before.stop().expect("it ran");
    rig.run(
        |builder| builder,
        |rig| {
            let address = rig.switch;
            rig.warning(&format!("switch {address} has not answered for"));
            // As long as packets of loopback.
            assert_eq!(rig.set_up(1), ["2224", "16384"]);
            rig.warning("the switch of this rank is left out of epoch 1");
            let switch = start_switch(address, 24, 2_224);
            rig.expect("return", |event| event.text.contains("answers again: planned with it"));
            assert_eq!(rig.set_up(2), ["2224", "24"]);
            expect_sums(&switch);
        },
    );
}

#[test]
fn a_switch_that_comes_back_with_shorter_fragments_is_left_out_until_it_has_longer_ones() {
    let switch = start_switch(own_address(3), 64, 50);
    let (address, rig) = (switch.address(), Rig::new("shrunk", switch.address()));
    // Longer than it takes to start a switch, so that it is never away.
    let change = |builder: SessionBuilder| builder.failure_after(Duration::from_secs(5));
    rig.run(change, |rig| {
        assert_eq!(rig.set_up(1), ["50", "64"]);
        expect_sums(&switch);
        switch.stop().expect("it ran");
        let short = start_switch(address, 64, 49);
        rig.warning("sums fragments of at most 49 values, and those of the job have 50");
        assert_eq!(rig.set_up(2), ["50", "16384"]);
        short.stop().expect("it ran");
        let long = start_switch(address, 32, 352);
        rig.expect("return", |event| event.text.contains("planned with it"));
        assert_eq!(rig.set_up(3), ["50", "32"]);
        expect_sums(&long);
    });
}

#[test]
fn a_job_that_outlives_its_server_keeps_its_fragments() {
    let switch = start_switch(own_address(4), 64, 50);
    let rig = Rig::new("outlived", switch.address());
    let change = |builder: SessionBuilder| builder.failure_after(Duration::from_secs(5));
    rig.run(change, |rig| {
        assert_eq!(rig.set_up(1), ["50", "64"]);
        expect_sums(&switch);
        switch.stop().expect("it ran");
        let switch = start_switch(rig.switch, 32, 352);
        rig.restart_server();
        assert_eq!(rig.set_up(2), ["50", "32"]);
        expect_sums(&switch);
    });
}
