//! Replays flows over TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use thalweg_console::Failure;
use thalweg_core::Bytes;
use thalweg_lab::Lab;
use thalweg_prioritize::Bounds;
use thalweg_prioritize::observer::Service;
use thalweg_tagging::Tags;

use super::workload::{FIRST_PORT, Planned, Workload};
use crate::tools::{now, percentile, sleep};

/// Flows that have not ended this long after the last one began are given up.
const DRAIN: Duration = Duration::from_secs(40);
const CHUNK_BYTES: usize = 64 * 1024;
/// Threads have little on their stacks.
const STACK_BYTES: usize = 128 * 1024;

/// Flows and the network to replay them in.
pub(super) struct Replay<'a> {
    pub(super) lab: &'a Lab,
    pub(super) workload: &'a Workload,
    pub(super) control: &'a str,
    /// Programs at egress that are given precise sizes, one a host, or none.
    pub(super) tags: Vec<Tags>,
    pub(super) warm_up: Duration,
}

/// A flow that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) bytes: Bytes,
    pub(super) took: Duration,
}

/// Results of a replay.
pub(super) struct Outcome {
    /// Flows that are measured.
    pub(super) flows: Vec<Ended>,
    /// Flows that failed or did not end in time.
    pub(super) unfinished: usize,
    /// Lateness of starts, 99th percentile, in microseconds.
    pub(super) late_us: f64,
}

/// One end of a flow.
struct Sending {
    flow: Planned,
    to: SocketAddr,
    control: Vec<u8>,
    tags: Option<Arc<Mutex<Tags>>>,
}

/// A flow that has ended, or failed.
struct Report {
    flow: Planned,
    late: Duration,
    took: io::Result<Duration>,
}

impl Replay<'_> {
    pub(super) fn run(self) -> Result<Outcome, Failure> {
        for host in self.lab.hosts() {
            let listen = || listen(host.address(), self.workload.ports);
            host.run(listen)?.map_err(Failure::ran)?;
        }
        let (reports, ended) = channel();
        let begin = now() + Duration::from_millis(200);
        let tags: Vec<_> = self.tags.into_iter().map(|tags| Arc::new(Mutex::new(tags))).collect();
        for (number, host) in self.lab.hosts().iter().enumerate() {
            let own = self.workload.flows.iter().filter(|flow| flow.src == number);
            let sending = own.map(|flow| Sending {
                flow: *flow,
                to: SocketAddr::from((self.lab.host(flow.dst as u32).address(), flow.port)),
                control: self.control.as_bytes().to_vec(),
                tags: tags.get(number).cloned(),
            });
            let (sending, reports): (Vec<_>, _) = (sending.collect(), reports.clone());
            // The thread and those that it starts are at the host.
            host.run(|| spawn(move || start_all(sending, begin, &reports)))?
                .map_err(Failure::ran)?;
        }
        drop(reports);
        let last = self.workload.flows.last().map_or(Duration::ZERO, start_of);
        let deadline = begin + last + DRAIN;
        let (mut flows, mut late, mut reported) = (Vec::new(), Vec::new(), 0);
        let is_measured = |flow: &Planned| start_of(flow) >= self.warm_up;
        while let Ok(report) = ended.recv_timeout(deadline.saturating_duration_since(now())) {
            late.push(report.late.as_secs_f64() * 1e6);
            if let (true, Ok(took)) = (is_measured(&report.flow), report.took) {
                reported += 1;
                flows.push(Ended { bytes: report.flow.bytes, took });
            }
        }
        let measured = self.workload.flows.iter().filter(|flow| is_measured(flow)).count();
        Ok(Outcome { flows, unfinished: measured - reported, late_us: percentile(&late, 99.0) })
    }
}

fn start_of(flow: &Planned) -> Duration {
    Duration::from_nanos(flow.start.as_ps() / 1_000)
}

/// Starts flows when they are due, each on a thread of its own.
fn start_all(sending: Vec<Sending>, begin: Instant, reports: &Sender<Report>) {
    for one in sending {
        let due = begin + start_of(&one.flow);
        sleep(due.saturating_duration_since(now()));
        let (flow, reports) = (one.flow, reports.clone());
        let send = move || {
            let started = now();
            let took = one.send().map(|()| started.elapsed());
            let late = started.saturating_duration_since(due);
            // The receiver is gone when the replay is over.
            let _ = reports.send(Report { flow, late, took });
        };
        if spawn(send).is_err() {
            return;
        }
    }
}

impl Sending {
    /// Sends all of it, and waits until all of it has come.
    fn send(&self) -> io::Result<()> {
        let mut stream = connect(self.to)?;
        SockRef::from(&stream).set_tcp_congestion(&self.control)?;
        stream.set_read_timeout(Some(DRAIN * 2))?;
        let chunk = [7; CHUNK_BYTES];
        let mut left = self.flow.bytes.as_u64() as usize;
        if let Some(tags) = &self.tags {
            // The first packet takes the bounds that are next, and leaves within the call.
            let tags = tags.lock().unwrap_or_else(PoisonError::into_inner);
            let service = Service::of(self.to.ip(), stream.local_addr()?.port(), self.to.port());
            let bounds = Bounds { lower: self.flow.bytes, upper: self.flow.bytes };
            tags.set_next(&service, Some(bounds))?;
            stream.set_nodelay(true)?;
            left -= stream.write(&chunk[..left.min(1_000)])?;
            stream.set_nodelay(false)?;
        }
        while left > 0 {
            left -= stream.write(&chunk[..left.min(CHUNK_BYTES)])?;
        }
        stream.shutdown(Shutdown::Write)?;
        stream.read_exact(&mut [0])
    }
}

/// Listens on all ports, and reads what comes, until the process ends.
fn listen(address: Ipv4Addr, ports: u16) -> io::Result<()> {
    for port in FIRST_PORT..FIRST_PORT + ports {
        let listener = bind(SocketAddr::from((address, port)))?;
        spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A flow that nobody reads does not end, and is counted as such.
                let _ = spawn(move || drop(receive(stream)));
            }
        })?;
    }
    Ok(())
}

fn receive(mut stream: TcpStream) -> io::Result<()> {
    let mut bytes = [0; CHUNK_BYTES];
    while stream.read(&mut bytes)? > 0 {}
    stream.write_all(&[1])
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(2 * STACK_BYTES).spawn(body).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark uses real sockets")]
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect(to)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark uses real sockets")]
fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(at)
}
