//! Packets of 1 KB that the run loop forwards per second on one core.
//!
//! A blaster sends 64-byte headers with 960-byte bodies over loopback to a driver whose machine
//! rewrites and forwards every packet, to a sink. The driver has one core to itself; blaster and
//! sink share another, and one thread. The blaster keeps a window of packets in flight, so that
//! nothing is lost and the driver always has work.
//!
//! On loopback the sending thread does the receiver's softirq work too. So the driver's figures
//! hold all of what it sends up to the sink's socket buffer, and nothing of what arrives before it
//! is in its own.
//!
//! `cargo bench -p thalweg-net --bench forward -- [seconds per run] [runs]`

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_core::{HEADER_BYTES, NodeId, Relay};
use thalweg_net::thread::{pin_to_core, processor_time};
use thalweg_net::{
    Arrival, Driver, DriverConfig, Endpoint, EndpointConfig, MESSAGES_PER_CALL, Message, Offload,
    Peers, SEND_BYTES, Wait,
};

const PACKET_BYTES: usize = HEADER_BYTES + 960;
const PACKETS_PER_SEND: usize = SEND_BYTES / PACKET_BYTES;
const WINDOW_SENDS: usize = 32;
const WARM_UP: Duration = Duration::from_millis(100);
/// Time without an arrival after which the packets in flight count as lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
const BUFFER_BYTES: usize = 8 << 20;

const RELAY: NodeId = NodeId(0);
const BLASTER: NodeId = NodeId(1);
const SINK: NodeId = NodeId(2);

const DRIVER_CORE: usize = 0;
const PEERS_CORE: usize = 1;

/// Result of one run.
#[derive(Clone, Copy)]
struct Measured {
    wall_mpps: f64,
    processor_mpps: f64,
    packets_per_batch: f64,
    lost: u64,
}

fn main() {
    let numbers: Vec<f64> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    // Without the flag of `cargo bench` this only shows that it still runs.
    let is_bench = std::env::args().any(|text| text == "--bench");
    let seconds = numbers.first().copied().unwrap_or(if is_bench { 1.0 } else { 0.1 });
    let runs = numbers.get(1).map_or(if is_bench { 7 } else { 1 }, |&runs| runs as usize);
    println!("packets of {PACKET_BYTES} B, {runs} runs of {seconds} s; best / median");
    println!("(a spinning driver's processor time is all of the time, with work or without)");
    for (offload, wait) in [
        (Offload::Kernel, Wait::Sleep),
        (Offload::Kernel, Wait::Spin),
        (Offload::Plain, Wait::Sleep),
        (Offload::Plain, Wait::Spin),
    ] {
        let measured: Vec<Measured> = (0..runs.max(1))
            .map(|_| measure(offload, wait, Duration::from_secs_f64(seconds)))
            .collect();
        report(&format!("{offload:?}, {wait:?}"), &measured);
    }
}

fn report(name: &str, measured: &[Measured]) {
    let best_and_median = |value: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = measured.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        (values[values.len() - 1], values[values.len() / 2])
    };
    let (wall_best, wall) = best_and_median(|m| m.wall_mpps);
    let (processor_best, processor) = best_and_median(|m| m.processor_mpps);
    let (_, batch) = best_and_median(|m| m.packets_per_batch);
    let lost: u64 = measured.iter().map(|m| m.lost).sum();
    println!(
        "{name:14} {wall_best:5.2} / {wall:5.2} M a second, \
         {processor_best:5.2} / {processor:5.2} M a processor second \
         ({:4.0} / {:4.0} ns each), {batch:4.1} a batch, {lost} lost",
        1e3 / processor_best,
        1e3 / processor,
    );
}

fn measure(offload: Offload, wait: Wait, length: Duration) -> Measured {
    let open = |offload| {
        let config = EndpointConfig {
            offload,
            receive_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: BUFFER_BYTES,
            ..EndpointConfig::default()
        };
        Endpoint::open(&config).expect("loopback is there")
    };
    let (relay, blaster, sink) = (open(offload), open(Offload::Kernel), open(Offload::Kernel));
    let relay_address = relay.local_address();
    let mut peers = Peers::new();
    peers.insert(BLASTER, blaster.local_address()).expect("a new port");
    peers.insert(SINK, sink.local_address()).expect("a new port");
    let config = DriverConfig { node: RELAY, wait, ..DriverConfig::default() };
    let driver =
        Driver::new(config, relay, peers, Relay::new(SINK)).expect("the settings are right");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let relaying = scope.spawn(|| {
            let measured = forward(driver, length);
            stop.store(true, Ordering::Relaxed);
            measured
        });
        let lost = blast(&blaster, &sink, relay_address, &stop);
        Measured { lost, ..relaying.join().expect("the driver's thread does not panic") }
    })
}

/// Runs the driver and measures it after it has warmed up.
fn forward(mut driver: Driver<Relay>, length: Duration) -> Measured {
    pin(DRIVER_CORE);
    turn_for(&mut driver, WARM_UP);
    let (before, started, processor_before) = (*driver.stats(), now(), processor_time());
    turn_for(&mut driver, length);
    let processor = processor_time() - processor_before;
    let wall = started.elapsed();
    let packets = (driver.stats().sent_packets - before.sent_packets) as f64;
    let batches = (driver.stats().sent_batches - before.sent_batches) as f64;
    assert_eq!(driver.stats().lost_sends(), 0, "the kernel took everything");
    Measured {
        wall_mpps: packets / wall.as_secs_f64() / 1e6,
        processor_mpps: packets / processor.as_secs_f64() / 1e6,
        packets_per_batch: packets / batches,
        lost: 0,
    }
}

fn turn_for(driver: &mut Driver<Relay>, length: Duration) {
    let started = now();
    while started.elapsed() < length {
        for _ in 0..16 {
            if driver.turn(|()| {}).expect("the socket works").is_idle {
                driver.wait(Duration::from_millis(1)).expect("the socket works");
            }
        }
    }
}

/// Keeps the window full until `stop` is set, and returns the number of packets that did not come through.
fn blast(blaster: &Endpoint, sink: &Endpoint, relay: SocketAddr, stop: &AtomicBool) -> u64 {
    pin(PEERS_CORE);
    let payload = vec![7; PACKETS_PER_SEND * PACKET_BYTES];
    let (mut in_flight, mut lost, mut last_arrival) = (0, 0, now());
    while !stop.load(Ordering::Relaxed) {
        let arrived = drain(sink);
        in_flight -= arrived.min(in_flight);
        if arrived > 0 {
            last_arrival = now();
        } else if last_arrival.elapsed() > LOST_AFTER {
            lost += in_flight as u64;
            in_flight = 0;
            last_arrival = now();
        }
        let free = WINDOW_SENDS - in_flight.div_ceil(PACKETS_PER_SEND).min(WINDOW_SENDS);
        let sends = free.min(MESSAGES_PER_CALL);
        if sends > 0 {
            in_flight += send(blaster, &payload, relay, sends) * PACKETS_PER_SEND;
        }
    }
    lost
}

fn send(blaster: &Endpoint, payload: &[u8], relay: SocketAddr, sends: usize) -> usize {
    let message =
        Message { to: relay, tos: 0, segment_bytes: Some(PACKET_BYTES as u16), parts: 0..1 };
    let messages = vec![message; sends];
    unless_blocked(blaster.send(0, &[IoSlice::new(payload)], &messages))
}

/// Counts what arrived. Reads only the first header of each GSO batch, so that the sink costs
/// the core it shares as little as possible.
fn drain(sink: &Endpoint) -> usize {
    let mut headers = [[0; HEADER_BYTES]; MESSAGES_PER_CALL];
    let mut buffers = headers.each_mut().map(|header| IoSliceMut::new(header));
    let mut arrivals = [Arrival::default(); MESSAGES_PER_CALL];
    let count = unless_blocked(sink.receive(&mut buffers, &mut arrivals));
    for header in &headers[..count] {
        assert_eq!(header, &[7; HEADER_BYTES], "as the blaster sent it");
    }
    arrivals[..count].iter().map(|arrival| arrival.bytes.div_ceil(PACKET_BYTES)).sum()
}

fn unless_blocked(result: io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        result => result.expect("the socket works"),
    }
}

fn pin(core: usize) {
    if pin_to_core(core).is_err() {
        eprintln!("no core {core} to pin to: threads run where the system puts them");
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
