//! One job at a server.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_core::{JobId, NodeId, Span, Time};
use thalweg_wire::aggregate::{Identity, Notice, Query};

use super::credit::Credit;
use super::judge::{Asker, Lacking, State};
use super::loss_budget::{LossBudget, missing_ranks};
use super::queue::{self, Queue, Task};
use super::ring::{Place, Ring};
use super::scaling::Scaling;
use super::slot::Slot;
use super::stats::{Refusal, Stats};
use super::{Config, Event, Missing, memory_bytes};
use crate::keys::Keys;
use crate::parameters::JobParameters;
use crate::setup::Setup;
use crate::tree::{Group, Top, Tree};

/// The furthest that a fragment may lie above the job watermark: a header has room for no more.
const WINDOW_MAX: u64 = 1 << 16;

/// Fragments that a server works on, from the job watermark on. The fastest worker is at most a span above the last
/// complete fragment, and that is at most a span above the slowest worker; each tree's last complete one may be the tree
/// before.
pub(super) fn window(parameters: &JobParameters, trees: u64) -> u64 {
    (2 * u64::from(parameters.span_fragments) + trees).min(WINDOW_MAX)
}

/// One job: its set-up, and what is known of its fragments.
#[derive(Debug)]
pub(super) struct Job {
    pub setup: Arc<Setup>,
    pub me: NodeId,
    /// The keys of this epoch.
    pub keys: Option<Keys>,
    /// All fragments below are complete at every worker.
    pub job_watermark: u64,
    /// Window of fragments above `job_watermark`: those beyond it are dropped.
    pub window: u64,
    /// Bytes that are reserved for the job.
    pub memory_bytes: u64,
    /// By tree; `None` where another server is the root.
    pub shards: Vec<Option<Shard>>,
    pub scaling: Scaling,
    pub loss_budget: LossBudget,
    /// Bytes that its packets have paid for.
    pub credit: Credit,
    /// True if ranks have called different operations in this epoch.
    pub has_differed: bool,
    pub stats: Stats,
}

/// State of one tree.
#[derive(Debug)]
pub(super) struct Shard {
    pub ring: Ring,
    tops: Vec<Top>,
    pub groups: Vec<Announced>,
}

/// A group, and its announcement.
#[derive(Debug)]
pub(super) struct Announced {
    pub group: Group,
    /// True if the announcement waits.
    pub is_queued: bool,
    /// When it was last put into the queue.
    at: Time,
}

/// A fragment, with what it belongs to.
pub(super) struct Site<'a> {
    pub setup: &'a Setup,
    pub keys: Option<Keys>,
    pub tree: &'a Tree,
    pub tops: &'a [Top],
    /// See [`Job::job_watermark`].
    pub job_watermark: u64,
    pub credit: &'a mut Credit,
    pub place: Place<'a>,
}

/// Clock, queue and events for a packet of a job.
pub(super) struct Context<'a> {
    pub now: Time,
    pub job: JobId,
    /// See [`Config::ask_gap`].
    pub gap: Span,
    pub queue: &'a mut Queue,
    pub events: &'a mut VecDeque<Event>,
}

impl Job {
    /// A job that begins, or a server that lost its memory.
    pub(super) fn new(config: &Config, setup: Arc<Setup>) -> Job {
        let trees = setup.trees.len() as u64;
        let window = window(&setup.parameters, trees);
        let shards = setup.trees.iter().map(|tree| {
            (tree.server() == config.me).then(|| Shard {
                ring: Ring::new(window / trees + 1, tree.workers()),
                tops: tree.tops().collect(),
                groups: tree.groups().into_iter().map(Announced::new).collect(),
            })
        });
        Job {
            me: config.me,
            keys: config.secrets.as_ref().map(|secrets| {
                let secret = secrets.of_job(setup.parameters.generation);
                Keys::derive(secret, setup.job, setup.epoch)
            }),
            job_watermark: setup.resume_from,
            window,
            shards: shards.collect(),
            scaling: Scaling::default(),
            loss_budget: LossBudget::new(&setup, window),
            memory_bytes: memory_bytes(&setup, config.me),
            credit: Credit::new(setup.trees[0].workers(), setup.parameters.packet_bytes(), window),
            has_differed: false,
            stats: Stats::default(),
            setup,
        }
    }

    /// The same job in a new epoch: results stay, unfinished sums go. Scale and aggregators begin
    /// anew for all workers, since some may have lost their memory.
    // spec: A-41
    pub(super) fn renew(self, config: &Config, setup: Arc<Setup>) -> Job {
        let mut job = Job::new(config, setup);
        // What was paid for, or was not, stays so: an epoch begins whenever a rank asks for one.
        (job.stats, job.credit) = (self.stats, self.credit);
        job.loss_budget = self.loss_budget.renew();
        job.loss_budget.forget_below(job.job_watermark);
        let slots = self.shards.into_iter().flatten().flat_map(|shard| shard.ring.into_slots());
        for slot in slots.filter(|slot| slot.state == State::Done) {
            job.inherit(slot);
        }
        job
    }

    fn inherit(&mut self, old: Slot) {
        if let Ok(shard) = self.shard(old.sequence)
            && let Some(site) = self.site(shard, old.sequence)
        {
            *site.place.slot = Slot {
                state: State::Done,
                sequence: old.sequence,
                operation: old.operation,
                numbers: old.numbers,
                body_bytes: old.body_bytes,
                body: old.body,
                absent: old.absent,
                dscp: old.dscp,
                is_inherited: true,
                ..Slot::default()
            };
        }
    }

    /// Tells all switches of its trees where they stand.
    pub(super) fn announce(&mut self, context: &mut Context<'_>) {
        self.announce_to(|_| true, context);
    }

    /// Tells a switch that does not know.
    pub(super) fn handle_notice(&mut self, notice: &Notice, context: &mut Context<'_>) {
        self.stats.notices += 1;
        if notice.epoch != self.setup.epoch {
            return self.stats.refuse(Refusal::Stale);
        }
        let (now, gap) = (context.now, context.gap);
        let is_due =
            |known: &Announced| known.group.switch == notice.switch && now.since(known.at) >= gap;
        self.announce_to(is_due, context);
    }

    fn announce_to(&mut self, is_due: impl Fn(&Announced) -> bool, context: &mut Context<'_>) {
        let shards = self.shards.iter_mut().enumerate();
        for (at, shard) in shards.filter_map(|(at, shard)| Some((at, shard.as_mut()?))) {
            for (group, known) in shard.groups.iter_mut().enumerate() {
                if !known.is_queued && is_due(known) {
                    (known.is_queued, known.at) = (true, context.now);
                    // Trees and their groups are fewer than workers and servers, which have 32 bits.
                    let task = Task::Announce(at as u32, group as u32);
                    context.queue.push_small(context.job, task);
                }
            }
        }
    }

    /// Answers a worker that misses a result: with it, or by asking those that owe something.
    // spec: T-10
    pub(super) fn handle_query(
        &mut self,
        query: &Query,
        wire_bytes: u32,
        context: &mut Context<'_>,
    ) {
        self.stats.queries += 1;
        // spec: E-13
        if query.identity.epoch == self.setup.epoch {
            self.credit.earn(wire_bytes);
        }
        self.hear_watermark(query);
        if let Err(why) = self.look_into(query, context) {
            self.stats.refuse(why);
        }
    }

    fn look_into(&mut self, query: &Query, context: &mut Context<'_>) -> Result<(), Refusal> {
        let shard = self.locate(&query.identity, query.server)?;
        let last_answered_at = query
            .last_received()
            .and_then(|last_received| self.pending(last_received)?.place.slot.first_answered_at());
        let sequence = query.identity.sequence;
        let site = self.site(shard, sequence).ok_or(Refusal::Foreign)?;
        let slot = site.place.slot;
        let worker = site.tree.worker_at(&query.branch).ok_or(Refusal::Foreign)?;
        // Where its switch waits for the result as well, all below the switch do.
        let index = site.tree.position(worker);
        let top = site.tops.iter().find(|top| query.awaited && top.below().contains(&index));
        let lacking = top.map_or(Lacking::Worker(worker), |top| Lacking::Switch(top.at));
        if slot.differs(&query.identity) {
            return Err(self.differ(sequence, context));
        }
        slot.meet(&query.identity, query.aggregator);
        if slot.state == State::Done {
            if !slot.has_crossed(last_answered_at) {
                slot.answer(Asker::Query(lacking), context);
            }
            return Ok(());
        }
        if let Some(bounded) = query.bounded
            && self.leave_out(shard, query, bounded, context)
        {
            return Ok(());
        }
        if let Some(site) = self.site(shard, sequence) {
            site.place.slot.ask(query.bypass, context);
        }
        Ok(())
    }

    /// Reports that ranks have called different operations, unless it was reported. From now on nobody is left
    /// out of a sum: the rank that differs would be.
    // spec: E-11
    pub(super) fn differ(&mut self, sequence: u64, context: &mut Context<'_>) -> Refusal {
        if !std::mem::replace(&mut self.has_differed, true) {
            context.events.push_back(Event::Differs { job: context.job, sequence });
        }
        Refusal::Differs
    }

    /// Tree of a fragment, if the server works on the fragment now.
    pub(super) fn locate(&self, identity: &Identity, server: NodeId) -> Result<usize, Refusal> {
        if identity.epoch != self.setup.epoch {
            return Err(Refusal::Stale);
        }
        if server != self.me {
            return Err(Refusal::Foreign);
        }
        self.shard(identity.sequence)
    }

    /// The same, where epoch and server are right.
    fn shard(&self, sequence: u64) -> Result<usize, Refusal> {
        match sequence.checked_sub(self.job_watermark) {
            None => Err(Refusal::Stale),
            Some(ahead) if ahead >= self.window => Err(Refusal::Beyond),
            Some(_) => Ok(self.setup.shard(sequence)),
        }
    }

    /// All about a fragment of a tree. `None` if another server is the root.
    pub(super) fn site(&mut self, shard: usize, sequence: u64) -> Option<Site<'_>> {
        let Shard { ring, tops, .. } = self.shards[shard].as_mut()?;
        let index = sequence / self.setup.trees.len() as u64;
        let (setup, tree) = (&*self.setup, &*self.setup.trees[shard]);
        let (keys, job_watermark) = (self.keys, self.job_watermark);
        let (credit, place) = (&mut self.credit, ring.at(index));
        Some(Site { setup, keys, tree, tops, job_watermark, credit, place })
    }

    /// All about a fragment that a task is about. `None` if it is over.
    pub(super) fn pending(&mut self, sequence: u64) -> Option<Site<'_>> {
        let shard = self.shard(sequence).ok()?;
        self.site(shard, sequence)
    }

    /// Returns whether a task may have something to send.
    pub(super) fn is_pending(&self, task: Task) -> bool {
        match task {
            Task::Tell(sequence) | Task::Answer(sequence) | Task::Ask(sequence) => {
                self.shard(sequence).is_ok()
            }
            Task::Announce(..) => true,
        }
    }

    /// Most tasks of the job in either queue. Half of them may be over: those are dropped when the queue is full.
    // spec: E-12
    pub(super) fn tasks_max(&self) -> usize {
        let groups: usize = self.shards.iter().flatten().map(|shard| shard.groups.len()).sum();
        2 * (queue::FRAGMENT_TASKS * self.window as usize + groups)
    }

    /// Ranks whose contributions are missing of a fragment.
    // spec: T-07
    pub(super) fn missing(&mut self, sequence: u64) -> Missing {
        let Some(Site { tree, place, .. }) = self.pending(sequence) else {
            return Missing::Unknown;
        };
        if place.slot.state == State::Done {
            return Missing::Nothing;
        }
        let mut ranks = missing_ranks(tree, place.positions);
        ranks.sort_unstable();
        Missing::Ranks(ranks)
    }

    /// Forgets the fragments below the job watermark.
    pub(super) fn advance(&mut self, job_watermark: u64) {
        if job_watermark <= self.job_watermark {
            return;
        }
        let trees = self.setup.trees.len() as u64;
        for (at, shard) in (0..).zip(&mut self.shards) {
            let Some(shard) = shard else { continue };
            let first = |from: u64| from.saturating_sub(at).div_ceil(trees);
            // Once round the ring clears all of it, however large the job watermark of a packet is.
            let begin = first(job_watermark).saturating_sub(shard.ring.len() as u64);
            let cleared = first(self.job_watermark).max(begin)..first(job_watermark);
            cleared.for_each(|index| shard.ring.clear(index));
        }
        self.job_watermark = job_watermark;
        self.loss_budget.forget_below(job_watermark);
    }
}

impl Announced {
    fn new(group: Group) -> Announced {
        Announced { group, is_queued: false, at: Time::ZERO }
    }
}
