//! Answering: `thalweg doctor --answer`.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use thalweg_console::{Failure, files, interrupt};
use thalweg_net::{Arrival, Endpoint, EndpointConfig, Message, Readiness, mtu_of};
use zerocopy::IntoBytes;

use crate::client::wall_ns;
use crate::message::{HEADER_BYTES, Header, Kind};

/// Most runs that are counted at a time; a new one takes the place of that which was silent for longest.
const RUNS_MAX: usize = 64;
/// Questions with this number are not counted: they ask for what was.
pub const REPORT: u32 = u32::MAX;
const BUFFER_BYTES: usize = 65_536;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The line of an answering process that is ready.
#[derive(Serialize)]
struct Ready {
    schema: &'static str,
    role: &'static str,
    address: SocketAddr,
    /// It serves none.
    metrics: Option<SocketAddr>,
}

/// Answers until Ctrl-C.
pub fn run(bind: SocketAddr, is_json: bool) -> Result<(), Failure> {
    if bind.ip().is_unspecified() {
        return Err(Failure::usage(format!(
            "{bind} is the address of no interface: give one that peers reach, such as 10.0.0.2:{}",
            bind.port()
        )));
    }
    let open = |bind| {
        Endpoint::open(&EndpointConfig { bind, ..EndpointConfig::default() })
            .map_err(Failure::usage)
    };
    let mtu_bytes = mtu_of(bind.ip());
    let (main, session) = (open(bind)?, open(SocketAddr::new(bind.ip(), 0))?);
    let address = main.local_address();
    let session_port = session.local_address().port();
    let ready = Ready { schema: "thalweg.ready/1", role: "doctor", address, metrics: None };
    let line = match is_json {
        true => serde_json::to_string(&ready).map_err(Failure::ran)?,
        false => format!("answering at {address} until Ctrl-C"),
    };
    files::print(&format!("{line}\n"))?;
    let answerer = |endpoint| Answerer { endpoint, mtu_bytes, session_port, runs: Vec::new() };
    let (mut main, mut session) = (answerer(main), answerer(session));
    let ended = thread::scope(|scope| {
        let session = scope.spawn(move || session.serve());
        main.serve().and(session.join().unwrap_or(Ok(())))
    });
    ended.map_err(Failure::ran)
}

/// Packets received of a run.
struct Run {
    from: SocketAddr,
    id: u64,
    packets: u64,
    bytes: u64,
    is_coalesced: bool,
    first: Instant,
    last: Instant,
}

struct Answerer {
    endpoint: Endpoint,
    mtu_bytes: u16,
    session_port: u16,
    runs: Vec<Run>,
}

impl Answerer {
    fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        while !interrupt::is_asked() {
            self.endpoint.wait(Readiness::Readable, LOOK_EVERY)?;
            let mut arrivals = [Arrival::default()];
            while !interrupt::is_asked() {
                let room = &mut [IoSliceMut::new(&mut buffer)];
                match self.endpoint.receive(room, &mut arrivals) {
                    Ok(_) => self.handle(&buffer, &arrivals[0]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // What an answer met; it is for others to wonder about.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "rates are measured by a clock")]
    fn handle(&mut self, buffer: &[u8], arrival: &Arrival) {
        let Some(from) = arrival.from else { return };
        let now = Instant::now();
        let mut earlier = None;
        for (index, datagram) in arrival.datagrams(buffer).enumerate() {
            let Some((header, kind)) = Header::parse(datagram) else { continue };
            if kind == Kind::Answer {
                continue;
            }
            let at = self.run(from, header.run.get(), now);
            let run = &mut self.runs[at];
            if header.sequence.get() != REPORT {
                run.packets += 1;
                // The time of the first arrival is not known, so that its bytes do not count.
                let is_first = *earlier.get_or_insert(run.packets == 1);
                run.bytes += if is_first { 0 } else { datagram.len() as u64 };
                run.is_coalesced |= index > 0;
                run.last = now;
            }
            if kind == Kind::Question {
                let answer = self.answer(at, header);
                self.send(from, answer, datagram.len());
            }
        }
    }

    /// Place of the run, which is made if it is new.
    fn run(&mut self, from: SocketAddr, id: u64, now: Instant) -> usize {
        let known = self.runs.iter().position(|run| run.id == id && run.from == from);
        if let Some(at) = known {
            return at;
        }
        let run =
            Run { from, id, packets: 0, bytes: 0, is_coalesced: false, first: now, last: now };
        if self.runs.len() < RUNS_MAX {
            self.runs.push(run);
            return self.runs.len() - 1;
        }
        let oldest = (0..RUNS_MAX).min_by_key(|at| self.runs[*at].last).unwrap_or_default();
        self.runs[oldest] = run;
        oldest
    }

    fn answer(&self, at: usize, question: Header) -> Header {
        let run = &self.runs[at];
        let lasted = run.last.duration_since(run.first).as_nanos();
        let mut answer = question.into_answer();
        answer.is_coalesced = run.is_coalesced.into();
        answer.mtu_bytes = self.mtu_bytes.into();
        answer.packets = run.packets.into();
        answer.bytes = run.bytes.into();
        answer.lasted_ns = u64::try_from(lasted).unwrap_or(u64::MAX).into();
        answer.wall_ns = wall_ns().into();
        answer.session_port = self.session_port.into();
        answer
    }

    /// Sends an answer that is as long as its question.
    fn send(&self, to: SocketAddr, answer: Header, bytes: usize) {
        let padding = vec![0; bytes.saturating_sub(HEADER_BYTES)];
        let parts = [IoSlice::new(answer.as_bytes()), IoSlice::new(&padding)];
        let message = Message { to, tos: 0, segment_bytes: None, parts: 0..2 };
        // An unsent answer is a lost one: the asker counts them.
        let _ = self.endpoint.send(0, &parts, &[message]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_strangers_take_bounded_memory() {
        let endpoint = Endpoint::open(&EndpointConfig::default()).expect("a socket");
        let mut answerer =
            Answerer { endpoint, mtu_bytes: 1_500, session_port: 1, runs: Vec::new() };
        let mut buffer = vec![0; BUFFER_BYTES];
        for id in 0..1_000 {
            let header = Header::new(Kind::Count, id, 0, 0);
            buffer[..HEADER_BYTES].copy_from_slice(header.as_bytes());
            let from = Some(SocketAddr::from(([127, 0, 0, 1], 9)));
            let arrival = Arrival { from, bytes: HEADER_BYTES, ..Arrival::default() };
            answerer.handle(&buffer, &arrival);
        }
        assert_eq!(answerer.runs.len(), RUNS_MAX);
        assert!(answerer.runs.iter().any(|run| run.id == 999 && run.packets == 1));
    }
}
