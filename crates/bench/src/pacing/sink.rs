//! Receivers that count bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thalweg_console::Failure;
use thalweg_control::pacing::since_epoch;
use thalweg_lab::Place;

use crate::tools::sleep;

const SLOT_US: u64 = 60_000;

/// A listener at a place that reads everything, answers each iteration, and counts. Its threads end with
/// the connections and with this.
pub(super) struct Sink {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    should_stop: Arc<AtomicBool>,
}

impl Sink {
    #[expect(clippy::disallowed_methods, reason = "a benchmark runs over real connections")]
    pub(super) fn start(place: &Place) -> Result<Sink, Failure> {
        let bytes = Arc::new(AtomicU64::new(0));
        let should_stop = Arc::new(AtomicBool::new(false));
        let (counted, stop) = (Arc::clone(&bytes), Arc::clone(&should_stop));
        let address = place.run(move || {
            let listener = TcpListener::bind((place.address(), 0)).map_err(Failure::ran)?;
            let address = listener.local_addr().map_err(Failure::ran)?;
            listener.set_nonblocking(true).map_err(Failure::ran)?;
            std::thread::spawn(move || accept(&listener, &counted, &stop));
            Ok::<_, Failure>(address)
        })??;
        Ok(Sink { address, bytes, should_stop })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counter of received bytes.
    pub(super) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, bytes: &Arc<AtomicU64>, should_stop: &AtomicBool) {
    while !should_stop.load(Ordering::Relaxed) {
        if let Ok((connection, _)) = listener.accept() {
            let bytes = Arc::clone(bytes);
            // Accepted connections may have taken after the listener.
            let _ = connection.set_nonblocking(false);
            std::thread::spawn(move || drain(connection, &bytes));
        }
        sleep(Duration::from_millis(5));
    }
}

fn drain(mut connection: TcpStream, bytes: &AtomicU64) -> Option<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let mut length = [0; 8];
        connection.read_exact(&mut length).ok()?;
        let mut left = u64::from_be_bytes(length);
        while left > 0 {
            let most = left.min(buffer.len() as u64) as usize;
            let taken = connection.read(&mut buffer[..most]).ok().filter(|taken| *taken > 0)?;
            bytes.fetch_add(taken as u64, Ordering::Relaxed);
            left -= taken as u64;
        }
        connection.write_all(&[1]).ok()?;
    }
}

/// Growth of counters, slot by slot.
pub(super) struct Gains {
    /// The number of the first slot.
    pub(super) first: u64,
    /// By counter and slot.
    pub(super) bytes: Vec<Vec<u64>>,
    /// Delays of the readings after the start of the first slot, and after the end of each: a busy machine is late, and
    /// then a slot has some of the next.
    pub(super) late_us: Vec<u64>,
}

/// Growth of counters in each of this number of whole slots.
pub(super) fn slots(counters: &[Arc<AtomicU64>], slots: usize) -> Gains {
    let mut bytes = vec![Vec::with_capacity(slots); counters.len()];
    let first = since_epoch().as_micros() as u64 / SLOT_US + 1;
    let mut late_us = Vec::with_capacity(slots + 1);
    let mut read = |slot: u64| -> Vec<u64> {
        sleep_until(slot);
        let counts = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
        late_us.push((since_epoch().as_micros() as u64).saturating_sub(slot * SLOT_US));
        counts
    };
    let mut before = read(first);
    for slot in 0..slots as u64 {
        let now = read(first + slot + 1);
        for (gains, (now, before)) in bytes.iter_mut().zip(now.iter().zip(&before)) {
            gains.push(now - before);
        }
        before = now;
    }
    Gains { first, bytes, late_us }
}

fn sleep_until(slot: u64) {
    let start = Duration::from_micros(slot * SLOT_US);
    sleep(start.saturating_sub(since_epoch()));
}
