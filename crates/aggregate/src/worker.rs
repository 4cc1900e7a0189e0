//! A worker of a job: cuts tensors into fragments, sends them, and takes in the sums.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_core::{
    Dscp, FRONT_PRIORITY, LAYER_PRIORITIES, Machine, Operation, Outbox, Packet, Reports, Rng, Span,
    Time, Verdict, layer_priority,
};
use thalweg_transport::control::PacketInfos;
use thalweg_transport::{
    CheckedControl, CongestionControl, ControlStart, Controller, JobClass, PACKETS_OUT_OF_TURN,
    Paths, RtoLimits, RttEstimator, path_number,
};
use thalweg_values::Tensor;
use thalweg_wire::aggregate::Scale;
use thalweg_wire::tag::Key;
use thalweg_wire::{Prefix, peek};

use crate::reliability::{Absences, SumOptions};
use crate::setup::Setup;

mod agreed;
mod check;
mod config;
mod flight;
mod fragments;
mod operations;
mod receive;
mod round_trips;
mod send;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, LOSS_THRESHOLD_MAX, Stats};
pub use round_trips::RoundTrips;

use agreed::Agreed;
use flight::Flight;
use fragments::Fragments;
use operations::{Cut, Located, Operations};
use send::Wanted;

/// One worker of one job.
///
/// [`submit`](Worker::submit) tensors, in the same order and of the same lengths at every worker;
/// each becomes the sum of all workers' tensors, in place. [`adopt`](Worker::adopt) the set-up before
/// or after, and every later one. When [`Event::Finished`] comes, [`tensor`](Worker::tensor) has the
/// sum; [`release`](Worker::release) it afterwards. Its memory is kept until every worker has it,
/// because a server that lost it asks for it.
///
/// Everything else is the [`Machine`] contract.
#[derive(Clone, Debug)]
pub struct Worker {
    work: Work,
    /// `None` before the first set-up.
    epoch: Option<Epoch>,
    /// True if it has reported and waits for the next set-up.
    is_paused: bool,
}

/// Events for the worker's application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// All fragments of an operation are complete.
    Finished {
        /// The operation.
        operation: Operation,
        /// Number of fragments at its beginning that may be without result, and hold what this worker
        /// submitted: all others had them before this one, which lost its memory, came back. 0
        /// otherwise.
        missing_below: u64,
        /// Ranks whose contributions its sums lack. None, unless it was submitted as bounded.
        absences: Absences,
    },
}

/// State that outlives an epoch.
#[derive(Clone, Debug)]
struct Work {
    config: Config,
    /// Class of packets with values, in place of that of their layers.
    class: Option<JobClass>,
    control: CheckedControl,
    key: Option<Key>,
    operations: Operations,
    fragments: Fragments,
    /// Paths of packets with values, where there are several.
    paths: Option<Paths>,
    /// Fragments below are complete at every other worker.
    resume_from: u64,
    /// The first fragment whose values have left in no epoch.
    first_unsent: u64,
    events: VecDeque<Event>,
    stats: Stats,
    round_trips: RoundTrips,
    /// When a fragment was last completed, or could first be waited for.
    moved_at: Time,
}

/// Operation and fragment that a worker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The operation.
    pub operation: Operation,
    /// The first fragment that is not complete.
    pub sequence: u64,
    /// When something last moved.
    pub since: Time,
}

/// State that begins anew with an epoch.
#[derive(Clone, Debug)]
struct Epoch {
    setup: Arc<Setup>,
    rank: u32,
    agreed: Agreed,
    control: CongestionControl,
    /// Random numbers of the control.
    rng: Rng,
    /// States that the control gave to fragments in flight.
    infos: PacketInfos,
    /// Losses of transmissions below this number are being repaired.
    recovery_end: u64,
    /// Departure that a fragment waits for because the control paces.
    held_until: Option<Time>,
    flight: Flight,
    /// The first fragment that was neither sent nor completed.
    next: u64,
    /// Bytes that were sent and not answered, each fragment once.
    in_flight_bytes: u64,
    /// Fragments to do something about, because no answer came.
    due: VecDeque<u64>,
    /// Fragments to send because somebody asked.
    answers: VecDeque<u64>,
    /// Results to send because the server lost them.
    results: VecDeque<Wanted>,
    rtt: RttEstimator,
    /// When answers came again after a timeout.
    calm_from: Time,
    last_answer_at: Time,
    /// When the oldest fragment was last asked for without a timeout.
    probed_at: Time,
}

impl Worker {
    /// A worker that begins with the job, at fragment 0. Where set-ups begin elsewhere, because the job
    /// is older, [`Worker::resuming`] is the one to use.
    pub fn new(config: Config) -> Result<Worker, ConfigError> {
        Worker::resuming(config, Operation(0), 0)
    }

    /// A worker that lost its memory, or came later: its next operation is this one, and that one's
    /// first fragment has this number.
    // spec: A-41
    pub fn resuming(
        config: Config,
        operation: Operation,
        first_sequence: u64,
    ) -> Result<Worker, ConfigError> {
        config.check()?;
        Ok(Worker {
            work: Work {
                control: config.control.with_shared_phase(config.shared_phase).checked()?,
                config,
                class: None,
                key: None,
                operations: Operations::new(operation, first_sequence, config.importance),
                fragments: Fragments::new(first_sequence),
                paths: None,
                resume_from: 0,
                first_unsent: first_sequence,
                events: VecDeque::new(),
                stats: Stats::default(),
                round_trips: RoundTrips::default(),
                moved_at: Time::ZERO,
            },
            epoch: None,
            is_paused: false,
        })
    }

    /// Has all packets with values travel in a class from now on, whatever their layers. Where that is more urgent than the
    /// class before, they overtake what is in flight, which is not lost: only time shows whether it is. Out of turn little
    /// is in flight, it may wait for long, and its round trips say nothing.
    // spec: C-16
    pub fn set_class(&mut self, class: JobClass) {
        let before = self.work.class.replace(class);
        let urgency = |class: JobClass| class.dscp().priority();
        let rises = before.is_some_and(|before| urgency(class) < urgency(before));
        if let Some(epoch) = self.epoch.as_mut().filter(|_| rises) {
            epoch.flight.forget_order();
        }
    }

    /// Seals with this key from now on, and takes in only what was sealed with it. A key belongs to an
    /// epoch: set it together with the set-up.
    pub fn set_key(&mut self, key: Option<Key>) {
        self.work.key = key;
    }

    /// Takes the place of `rank` in a set-up: the first, or one of a later epoch. What is not complete
    /// is sent again. What all other ranks have, counts as complete without result.
    ///
    /// `false`, and nothing changes, if the set-up is not of a later epoch of the same job, cuts
    /// tensors otherwise than the last one, has no place for `rank`, or, as the first one, begins below
    /// the worker's first fragment.
    // spec: A-41
    pub fn adopt(&mut self, now: Time, setup: Arc<Setup>, rank: u32) -> bool {
        let follows = |last: &Epoch| last.setup.job == setup.job && last.setup.epoch < setup.epoch;
        // Nobody begins above what others still lack.
        let begins = setup.resume_from >= self.watermark();
        let is_sound = is_sound(&setup, rank) && self.epoch.as_ref().map_or(begins, follows);
        let cut = Cut::of(&setup.parameters);
        if !is_sound || !self.work.operations.cut(cut, setup.trees[0].workers()) {
            return false;
        }
        self.work.fragments.begin_anew();
        self.work.choose_paths(&setup, rank);
        self.work.moved_at = now;
        self.work.resume_from = self.work.resume_from.max(setup.resume_from);
        self.work.skip_missing();
        let mut epoch = Epoch::new(&self.work, setup, rank, now);
        epoch.skip_complete(&self.work);
        self.epoch = Some(epoch);
        self.is_paused = false;
        true
    }

    /// Begins the next operation, which is exact.
    pub fn submit(&mut self, now: Time, tensor: Tensor) -> Operation {
        self.submit_with(now, tensor, SumOptions::default())
    }

    /// Begins the next operation. All workers submit it in the same options.
    pub fn submit_with(
        &mut self,
        now: Time,
        tensor: Tensor,
        options: impl Into<SumOptions>,
    ) -> Operation {
        let is_empty = tensor.is_empty();
        if self.waits_for().is_none() {
            self.work.moved_at = now;
        }
        let operation = self.work.operations.submit(tensor, options.into());
        if is_empty {
            let absences = Absences::default();
            self.work.events.push_back(Event::Finished { operation, missing_below: 0, absences });
        }
        self.work.skip_missing();
        if let Some(epoch) = &mut self.epoch {
            epoch.skip_complete(&self.work);
        }
        operation
    }

    /// Operation and fragment that it waits for, if any.
    // spec: T-07
    pub fn waits_for(&self) -> Option<Waiting> {
        let (sequence, since) = (self.watermark(), self.work.moved_at);
        let operation = self.work.operations.first_unfinished()?;
        Some(Waiting { operation, sequence, since })
    }

    /// All fragments below are complete here.
    pub fn watermark(&self) -> u64 {
        self.work.fragments.watermark()
    }

    /// The watermark to report to the registrar. From now on nothing is taken in and nothing sent,
    /// until the next set-up: what is reported must stay true, since a worker that lost its memory begins at
    /// the least of all reports.
    // spec: A-41
    pub fn pause(&mut self) -> u64 {
        self.is_paused = true;
        self.watermark()
    }

    /// All fragments below are complete at every worker.
    pub fn job_watermark(&self) -> u64 {
        self.work.operations.job_watermark()
    }

    /// The result of an operation once it is finished, as long as it is held.
    pub fn tensor(&self, operation: Operation) -> Option<&Tensor> {
        self.work.operations.tensor(operation)
    }

    /// The result of a finished operation, handed out: it is [released](Worker::release) as well, and
    /// what other workers may lack of it is copied.
    pub fn take(&mut self, operation: Operation) -> Option<Tensor> {
        self.work.operations.take(operation)
    }

    /// The application is done with an operation. Its memory is dropped when every worker has it.
    pub fn release(&mut self, operation: Operation) {
        self.work.operations.release(operation);
    }

    /// Most bytes in flight; 0 before the first set-up.
    pub fn window_bytes(&self) -> u64 {
        self.epoch.as_ref().map_or(0, |epoch| epoch.window_bytes(&self.work))
    }

    /// Steps of fixed point to 1 with which fragments are sent now. `None` before the first set-up, and where
    /// bodies hold floats.
    // spec: A-36, T-09
    pub fn scale(&self) -> Option<Scale> {
        self.epoch.as_ref().and_then(|epoch| epoch.agreed.scale())
    }

    /// Counters of the worker.
    pub fn stats(&self) -> Stats {
        let left_paths = self.work.paths.as_ref().map_or(0, |paths| paths.left() as u64);
        Stats { left_paths, ..self.work.stats }
    }

    /// Round-trip times of fragments that were sent once, over all epochs.
    pub fn round_trips(&self) -> &RoundTrips {
        &self.work.round_trips
    }
}

impl Worker {
    /// Takes in a packet whose prefix the caller has [read](peek).
    pub fn handle_checked(&mut self, now: Time, prefix: Prefix, packet: &Packet<'_>) {
        match &mut self.epoch {
            Some(epoch) if !self.is_paused => epoch.take_in(&mut self.work, now, prefix, packet),
            _ => self.work.stats.ignored += 1,
        }
    }
}

impl Machine for Worker {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        match peek(packet.header) {
            Ok(prefix) => self.handle_checked(now, prefix, &packet),
            Err(_) => self.work.stats.ignored += 1,
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(epoch) = self.epoch.as_mut().filter(|_| !self.is_paused) {
            epoch.expire(&mut self.work, now);
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        if let Some(epoch) = self.epoch.as_mut().filter(|_| !self.is_paused) {
            epoch.transmit(&mut self.work, now, outbox);
        }
    }

    fn has_backlog(&self) -> bool {
        let epoch = self.epoch.as_ref().filter(|_| !self.is_paused);
        epoch.is_some_and(|epoch| epoch.has_backlog(&self.work))
    }

    fn poll_timeout(&self) -> Time {
        let epoch = self.epoch.as_ref().filter(|_| !self.is_paused);
        epoch.map_or(Time::NEVER, |epoch| epoch.next_timeout(&self.work))
    }
}

impl Reports for Worker {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.work.events.pop_front()
    }
}

impl Work {
    /// Completes without result what every other worker has.
    fn skip_missing(&mut self) {
        let end = self.resume_from.min(self.operations.end());
        for sequence in self.fragments.watermark()..end {
            if !self.fragments.is_complete(sequence)
                && let Some(at) = self.operations.locate(sequence)
            {
                self.events.extend(self.operations.complete(at, false));
            }
        }
        self.fragments.complete_below(end);
        self.operations.settle(end);
    }

    /// Priority of a fragment's packets.
    #[inline]
    fn dscp(&self, at: Located) -> Dscp {
        let tag = self.config.tag.dscp;
        if let Some(class) = self.class {
            return class.dscp();
        }
        match self.operations.layer(at) {
            Some((layer, layers)) => {
                let priority = layer_priority(layer, layers, FRONT_PRIORITY, LAYER_PRIORITIES);
                Dscp::of_priority(priority).in_class(tag.class())
            }
            None => tag,
        }
    }

    /// Prepares the choice of paths, where there are several. Every worker has an order of its own.
    // spec: M-21
    fn choose_paths(&mut self, setup: &Setup, rank: u32) {
        if self.config.paths.count > 1 && self.paths.is_none() {
            let rng = Rng::new(setup.job.0).substream("paths", u64::from(rank));
            self.paths = Some(Paths::new(self.config.paths, rng));
        }
    }

    /// Path of the next packet with values that leave for the first time. With one path, all packets of a job stay in order.
    // spec: M-21
    #[inline]
    fn next_path(&mut self, setup: &Setup) -> u16 {
        self.paths.as_mut().map_or(setup.job.0 as u16, Paths::next_batched)
    }

    /// Path of a packet that is in no batch.
    // spec: M-21
    fn path_alone(&mut self, setup: &Setup) -> u16 {
        self.paths.as_mut().map_or(setup.job.0 as u16, Paths::next_alone)
    }

    /// The values of a fragment, as they left first, have arrived or are lost.
    // spec: M-21
    #[inline]
    fn note_fate(&mut self, sequence: u64, is_lost: bool) {
        if let Some(paths) = &mut self.paths
            && let Some(fragment) = self.fragments.sent_mut(sequence)
            && !std::mem::replace(&mut fragment.is_fate_known, true)
        {
            paths.on_single_fate(path_number(fragment.path), is_lost);
        }
    }

    /// Least wait for an answer while it is not the turn of the job.
    fn patience(&self) -> Option<Span> {
        match self.class {
            Some(JobClass::OutOfTurn { patience, .. }) => Some(patience),
            _ => None,
        }
    }

    /// A fragment has its sum.
    fn complete(&mut self, now: Time, at: Located) {
        self.moved_at = now;
        self.events.extend(self.operations.complete(at, true));
        self.fragments.complete(at.sequence);
    }
}

impl Epoch {
    fn new(work: &Work, setup: Arc<Setup>, rank: u32, now: Time) -> Epoch {
        Epoch {
            rank,
            agreed: Agreed::new(&setup),
            control: work.control.start(&control_start(&setup)),
            rng: Rng::new(setup.job.0).substream("worker", u64::from(rank)),
            infos: PacketInfos::default(),
            recovery_end: 0,
            held_until: None,
            flight: Flight::new(setup.trees.len(), work.config.overtaken_by()),
            next: work.fragments.watermark(),
            in_flight_bytes: 0,
            due: VecDeque::new(),
            answers: VecDeque::new(),
            results: VecDeque::new(),
            rtt: RttEstimator::new(rto_limits(&work.config)),
            calm_from: now,
            last_answer_at: now,
            probed_at: now,
            setup,
        }
    }

    /// Moves on to the next fragment that has to be sent.
    #[inline]
    fn skip_complete(&mut self, work: &Work) {
        self.next = self.next.max(work.fragments.watermark());
        while work.fragments.is_complete(self.next) {
            self.next += 1;
        }
    }

    /// Time that a fragment may be unanswered.
    fn timeout(&self, work: &Work) -> Span {
        let expected = self.rtt.expected().unwrap_or(Span::ZERO);
        let timeout = self.rtt.timeout(rto_limits(&work.config)).max(expected);
        work.patience().map_or(timeout, |patience| timeout.max(patience))
    }

    /// Bytes that may be in flight.
    // spec: C-16
    #[inline]
    fn window_bytes(&self, work: &Work) -> u64 {
        let window = self.control.window().as_u64();
        let packet_bytes = u64::from(self.setup.parameters.packet_bytes());
        let most = || packet_bytes * u64::from(PACKETS_OUT_OF_TURN);
        work.patience().map_or(window, |_| window.min(most()))
    }

    fn next_timeout(&self, work: &Work) -> Time {
        let held_until = self.held_until.unwrap_or(Time::NEVER);
        let oldest = self.flight.oldest_sent_at(&work.fragments);
        oldest.map_or(held_until, |sent_at| {
            let timeout = sent_at.max(self.calm_from) + self.timeout(work);
            timeout.min(self.next_probe(work, sent_at)).min(held_until)
        })
    }
}

impl Epoch {
    /// When to ask for the oldest fragment that is awaited, which left at this time.
    fn next_probe(&self, work: &Work, sent_at: Time) -> Time {
        let Some(after) = work.config.probe_after else { return Time::NEVER };
        let quiet_since = sent_at.max(self.last_answer_at).max(self.probed_at);
        quiet_since + after.max(self.rtt.smoothed() * 2)
    }
}

/// Window of controls that begin with a number of packets: about the bandwidth-delay product of 100 Gbps.
const INITIAL_WINDOW_BYTES: u32 = 60_000;

fn control_start(setup: &Setup) -> ControlStart {
    let packet_bytes = setup.parameters.packet_bytes();
    ControlStart { packet_bytes, initial_packets: (INITIAL_WINDOW_BYTES / packet_bytes).max(2) }
}

/// Limits of the timeout of a fragment. A round trip contains the wait for the latest worker, which may itself wait for the
/// timeout of a lost packet: without a limit, timeouts lengthen round trips, and those the timeouts of all workers.
// spec: A-33
fn rto_limits(config: &Config) -> RtoLimits {
    RtoLimits { initial: config.timeout_after, min: config.timeout_after, max: config.timeout_max }
}

/// True if a set-up has what a worker counts on.
fn is_sound(setup: &Setup, rank: u32) -> bool {
    !setup.trees.is_empty() && setup.trees.iter().all(|tree| rank < tree.workers())
}
