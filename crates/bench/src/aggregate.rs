//! Speed of summing in a switch.

use std::collections::BTreeMap;
use std::hint::black_box;

use serde_json::json;
use thalweg_aggregate::switch::{Config, Switch};
use thalweg_console::{Failure, files};
use thalweg_core::{Body, Ecn, Header, JobId, Machine, Meta, NodeId, Packet, Span, Time};
use thalweg_wire::aggregate::{
    Announcement, Branch, Gradient, Identity, Numbers, Parameter, Scale,
};
use thalweg_wire::tag::{self, Key, Secret, Secrets};

use super::AggregateArguments;
use crate::tools::{now, round};

/// Values of a packet: what a programmable switch, a power of two, and a full frame take.
const SIZES: [u16; 3] = [62, 256, 352];
const WORKERS: u8 = 8;
const AGGREGATORS: u32 = 512;
/// Number of fragments that every worker sends before the next worker does. Wide enough that a sum has left
/// the nearest cache when it is needed again.
const WINDOW_FRAGMENTS: u32 = 64;
/// Buffers that packets arrive in, as a driver has them.
const BUFFERS: usize = 64;

const SWITCH: NodeId = NodeId(1);
const SERVER: NodeId = NodeId(2);
const JOB: JobId = JobId(7);
const SECRET: Secret = Secret([3; 16]);

/// Times of a packet of one size, the least of all rounds.
#[derive(Clone, Copy)]
struct Times {
    step_ns: f64,
    sealed_step_ns: f64,
    sealed_bodies_step_ns: f64,
    body_tag_ns: f64,
    copy_ns: f64,
}

pub(super) fn aggregate(arguments: &AggregateArguments) -> Result<(), Failure> {
    let mut plain = SIZES.map(|values| Track::new(values, Seals::None));
    let mut sealed = SIZES.map(|values| Track::new(values, Seals::Headers));
    let mut covered = SIZES.map(|values| Track::new(values, Seals::Bodies));
    let never = f64::INFINITY;
    let never = Times {
        step_ns: never,
        sealed_step_ns: never,
        sealed_bodies_step_ns: never,
        body_tag_ns: never,
        copy_ns: never,
    };
    let mut times = [never; SIZES.len()];
    // One kind of work after the other: in turns, each finds the caches full of what the others have left there.
    for _ in 0..arguments.rounds {
        for (track, times) in plain.iter_mut().zip(&mut times) {
            times.step_ns = track.steps_ns().min(times.step_ns);
            times.copy_ns = track.copies_ns().min(times.copy_ns);
        }
    }
    for _ in 0..arguments.rounds {
        for (track, times) in sealed.iter_mut().zip(&mut times) {
            times.sealed_step_ns = track.steps_ns().min(times.sealed_step_ns);
        }
    }
    for _ in 0..arguments.rounds {
        for (track, times) in covered.iter_mut().zip(&mut times) {
            times.sealed_bodies_step_ns = track.steps_ns().min(times.sealed_bodies_step_ns);
        }
    }
    for _ in 0..arguments.rounds {
        for (track, times) in plain.iter_mut().zip(&mut times) {
            times.body_tag_ns = track.body_tags_ns().min(times.body_tag_ns);
        }
    }
    plain.iter().chain(&sealed).chain(&covered).try_for_each(Track::check)?;
    print(arguments, &times)
}

fn print(arguments: &AggregateArguments, times: &[Times; 3]) -> Result<(), Failure> {
    let by_size = |figure: fn(&Times) -> f64| -> BTreeMap<String, f64> {
        let tenths = times.iter().map(|times| round(figure(times), 1));
        SIZES.into_iter().map(|size| size.to_string()).zip(tenths).collect()
    };
    if arguments.json {
        let result = json!({
            "schema": "thalweg.bench-aggregate/1",
            "ns_per_packet": by_size(|times| times.step_ns),
            "sealed_ns_per_packet": by_size(|times| times.sealed_step_ns),
            "sealed_bodies_ns_per_packet": by_size(|times| times.sealed_bodies_step_ns),
            "body_tag_ns": by_size(|times| times.body_tag_ns),
            "copy_ns": by_size(|times| times.copy_ns),
            "rounds": arguments.rounds,
        });
        return files::print(&format!("{result}\n"));
    }
    let mut text = String::from(
        "values  step of a switch  with sealed headers  with sealed bodies  tag over a body  copying as much\n",
    );
    for (size, times) in SIZES.into_iter().zip(times) {
        let Times { step_ns, sealed_step_ns, sealed_bodies_step_ns, body_tag_ns, copy_ns } = times;
        text += &format!(
            "{size:>6}  {step_ns:>13.1} ns  {sealed_step_ns:>16.1} ns  {sealed_bodies_step_ns:>15.1} ns  {body_tag_ns:>12.1} ns  \
             {copy_ns:>12.1} ns\n"
        );
    }
    files::print(&text)
}

/// Part of the packets that seals cover.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seals {
    /// Packets have none.
    None,
    /// Headers, and lengths of bodies.
    Headers,
    /// Headers and bodies.
    Bodies,
}

/// A switch and the packets of one size that go through it.
struct Track {
    switch: Switch,
    values: u16,
    /// Packets that arrive in one round.
    arrivals: Vec<Arrival>,
    buffers: Vec<Vec<u8>>,
    /// As large as all aggregators.
    copies: Vec<u8>,
    next_sequence: u64,
    now: Time,
    rounds: u64,
    seals: Seals,
}

/// A packet of which the body is in one of the buffers.
struct Arrival {
    meta: Meta,
    header: Header,
    buffer: usize,
    /// The aggregator, for gradients.
    place: Option<u32>,
}

impl Track {
    fn new(values: u16, seals: Seals) -> Track {
        let secrets = (seals != Seals::None).then(|| Secrets::from(SECRET));
        let config = Config { aggregators: AGGREGATORS, secrets, ..Config::new(SWITCH) };
        let bytes = usize::from(values) * 4;
        let mut track = Track {
            switch: Switch::new(config).expect("the settings are right"),
            values,
            arrivals: Vec::new(),
            buffers: vec![vec![1; bytes]; BUFFERS],
            copies: vec![1; bytes * AGGREGATORS as usize],
            next_sequence: 0,
            now: Time::ZERO,
            rounds: 0,
            seals,
        };
        track.announce();
        track
    }

    /// Tells the switch who is above and below it.
    fn announce(&mut self) {
        let announcement = Announcement {
            job: JOB,
            epoch: 1,
            server: SERVER,
            parent: SERVER,
            level: 0,
            stations: 1,
            switches: [0; 4],
        };
        let mut body = vec![0; Announcement::body_bytes(1)];
        body[4] = WORKERS;
        for worker in 0..WORKERS {
            body[8 + 4 * usize::from(worker)] = 10 + worker;
        }
        let mut header = announcement.to_header();
        self.seal(&mut header, &body, Key::stations);
        let mut meta = Meta { dst: SWITCH, ..Meta::default() };
        let body = Body::Bytes(&mut body);
        let packet = Packet { meta: &mut meta, header: &mut header, body };
        self.switch.handle_packet(self.now, packet);
    }

    /// The time of a step, spread over the gradients of a round.
    fn steps_ns(&mut self) -> f64 {
        self.prepare();
        let Track { switch, arrivals, buffers, now, .. } = self;
        timed(|| {
            for Arrival { meta, header, buffer, .. } in arrivals {
                let body = Body::Bytes(&mut buffers[*buffer]);
                black_box(switch.handle_packet(*now, Packet { meta, header, body }));
            }
        })
    }

    /// The time of copying a body, over the same gradients.
    fn copies_ns(&mut self) -> f64 {
        let bytes = usize::from(self.values) * 4;
        let Track { arrivals, buffers, copies, .. } = self;
        timed(|| {
            for Arrival { buffer, place, .. } in arrivals {
                if let Some(place) = place {
                    let from = *place as usize * bytes;
                    let copy = &mut copies[from..from + bytes];
                    copy.copy_from_slice(black_box(&buffers[*buffer]));
                    black_box(copy);
                }
            }
        })
    }

    /// The time of a tag that covers the body, over the same gradients. A switch needs one to verify a packet, and another one
    /// to send it on.
    fn body_tags_ns(&mut self) -> f64 {
        let key = Key::derive(&SECRET, JOB, 1);
        let Track { arrivals, buffers, .. } = self;
        timed(|| {
            for Arrival { header, buffer, .. } in
                arrivals.iter_mut().filter(|it| it.place.is_some())
            {
                tag::seal_with_body(header, black_box(&buffers[*buffer]), &key);
                black_box(header);
            }
        })
    }

    /// The packets of the next round. Values are small again, so that no sum leaves the range.
    fn prepare(&mut self) {
        self.rounds += 1;
        self.now += Span::from_us(100);
        self.arrivals.clear();
        for value in self.buffers.iter_mut().flat_map(|buffer| buffer.as_chunks_mut().0) {
            *value = 1_i32.to_le_bytes();
        }
        for window in (0..AGGREGATORS).step_by(WINDOW_FRAGMENTS as usize) {
            let fragments = window..window + WINDOW_FRAGMENTS;
            // The last contribution carries the sum away in its buffer, where the result and the next window find it.
            let value = i32::from(WORKERS).pow(window / WINDOW_FRAGMENTS);
            let body = self.body(value);
            for worker in 0..WORKERS {
                fragments.clone().for_each(|fragment| self.push_gradient(fragment, worker, &body));
            }
            let body = self.body(value * i32::from(WORKERS));
            fragments.for_each(|fragment| self.push_parameter(fragment, &body));
        }
        self.next_sequence += u64::from(AGGREGATORS);
    }

    /// A body whose values are all the same.
    fn body(&self, value: i32) -> Vec<u8> {
        value.to_le_bytes().repeat(usize::from(self.values))
    }

    fn push_gradient(&mut self, fragment: u32, worker: u8, body: &[u8]) {
        let branch = Branch::new([WORKERS, 0, 0, 0], [worker, 0, 0, 0]).expect("a place below 8");
        let identity = self.identity(fragment);
        let gradient = Gradient::fresh(identity, fragment, numbers(), SERVER, branch);
        self.push(gradient.to_header(), Some(fragment), body);
    }

    fn push_parameter(&mut self, fragment: u32, body: &[u8]) {
        let parameter = Parameter::sum(self.identity(fragment), fragment, numbers(), SERVER, 4);
        self.push(parameter.to_header(), None, body);
    }

    fn push(&mut self, mut header: Header, place: Option<u32>, body: &[u8]) {
        self.seal(&mut header, body, if place.is_some() { Key::derive } else { Key::stations });
        let meta = Meta { dst: SWITCH, ecn: Ecn::Capable, ..Meta::default() };
        let buffer = self.arrivals.len() % BUFFERS;
        self.arrivals.push(Arrival { meta, header, buffer, place });
    }

    fn seal(&self, header: &mut Header, body: &[u8], derive: fn(&Secret, JobId, u32) -> Key) {
        let key = derive(&SECRET, JOB, 1);
        match self.seals {
            Seals::None => {}
            Seals::Headers => tag::seal_sized(header, body.len(), &key),
            Seals::Bodies => tag::seal_with_body(header, body, &key),
        }
    }

    fn identity(&self, fragment: u32) -> Identity {
        let sequence = self.next_sequence + u64::from(fragment);
        Identity { job: JOB, epoch: 1, sequence, attempt: 0, operation: 1 }
    }

    /// Checks that the run measured what it should.
    fn check(&self) -> Result<(), Failure> {
        let stats = self.switch.stats();
        let sums = self.rounds * u64::from(AGGREGATORS);
        let done = (stats.completed, stats.freed_by_parameter, stats.overflowed);
        if done == (sums, sums, 0) && stats.added == sums * u64::from(WORKERS - 1) {
            return Ok(());
        }
        Err(Failure::Ran(format!("of {sums} sums not all were completed and freed: {stats:?}")))
    }
}

fn numbers() -> Numbers {
    Numbers::Fixed(Scale::new(1e8).expect("a positive number"))
}

/// Nanoseconds that a round takes for each of its gradients.
fn timed(round: impl FnOnce()) -> f64 {
    let start = now();
    round();
    let gradients = f64::from(AGGREGATORS) * f64::from(WORKERS);
    start.elapsed().as_secs_f64() * 1e9 / gradients
}
