//! All outgoing tensors of an endpoint: who sends next, who asks, whose answer is overdue.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::FixedState;
use slab::Slab;
use thalweg_core::{Body, BodySize, NodeId, Outbox, Purpose, Rng, Time, Timers};
use thalweg_transport::CheckedControl;
use thalweg_transport::messages::Ready;
use thalweg_wire::deliver::{Ack, Control, Verb};

use crate::answers::address;
use crate::budget::LossBound;
use crate::call::{Completion, Failed, Failure, Name, PostError, SendCall};
use crate::config::Config;
use crate::peer::{Held, Peer};
use crate::sender::{Next, Sender, wire_name};
use crate::stats::Stats;

/// Outgoing tensors in places that are used again.
pub(crate) struct Outgoing {
    senders: Slab<Sender>,
    /// The place of each tensor. Never iterated.
    names: HashMap<Name, u32, FixedState>,
    control: CheckedControl,
    peers: Vec<Peer>,
    /// The place of each peer.
    nodes: BTreeMap<NodeId, u32>,
    /// Peers that may be sent to, by rank, and by turn among equals.
    ready: Ready<(u32, u64)>,
    /// When peers whose control does not allow the next packet yet are looked at again.
    releases: Timers,
    /// Tensors with a question to ask.
    asking: VecDeque<u32>,
    timers: Timers,
    /// Counts posts and turns.
    count: u64,
    rng: Rng,
}

impl Outgoing {
    pub fn new(config: &Config, control: CheckedControl, rng: Rng) -> Outgoing {
        Outgoing {
            control,
            senders: Slab::new(),
            names: HashMap::with_hasher(FixedState::with_seed(config.credentials.job.0)),
            peers: Vec::new(),
            nodes: BTreeMap::new(),
            ready: Ready::default(),
            releases: Timers::default(),
            asking: VecDeque::new(),
            timers: Timers::default(),
            count: 0,
            rng,
        }
    }

    pub fn post(&mut self, config: &Config, now: Time, call: SendCall) -> Result<(), PostError> {
        let name = call.name;
        if self.names.contains_key(&name) {
            return Err(PostError::Used(name));
        }
        let peer = self.peer(config, name.peer);
        let mut sender = Sender::new(config, now, call, peer)?;
        sender.posted = self.count;
        self.count += 1;
        let sends = sender.begin(config);
        let slot = self.senders.insert(sender) as u32;
        self.names.insert(name, slot);
        self.follow(config, now, slot, Next::Ask);
        if sends {
            self.follow(config, now, slot, Next::Send);
        }
        Ok(())
    }

    /// Number of tensors that are being sent.
    pub fn live(&self) -> usize {
        self.names.len()
    }

    pub fn has_backlog(&self) -> bool {
        !self.asking.is_empty() || !self.ready.is_empty()
    }

    pub fn next_timeout(&self) -> Time {
        self.timers.next().min(self.releases.next())
    }

    /// Asks one question. `None` without a question, or without room.
    pub fn ask(
        &mut self,
        config: &Config,
        now: Time,
        outbox: &mut dyn Outbox,
        stats: &mut Stats,
    ) -> Option<()> {
        loop {
            let slot = *self.asking.front()?;
            let Some(sender) = self.senders.get_mut(slot as usize).filter(|own| own.is_asking)
            else {
                // It has ended, and its place may have the next one.
                self.asking.pop_front();
                continue;
            };
            if outbox.room() == 0 {
                return None;
            }
            self.asking.pop_front();
            sender.is_asking = false;
            let peer = &mut self.peers[sender.peer as usize];
            let wait = peer.timeout(config);
            let Some(verb) = sender.question(config, now, wait) else { continue };
            // Whether it leaves or not: what is not answered is asked again.
            self.timers.arm(slot, sender.deadline);
            let control = Control { name: wire_name(config, sender.name), verb };
            let note = sender.note().filter(|_| matches!(verb, Verb::Offer { .. }));
            let size = note.map_or(BodySize::Length(0), |note| BodySize::Bytes(note.len() as u32));
            let mut packet = outbox.lend(size, Purpose::Control)?;
            if let (Some(note), Body::Bytes(body)) = (note, &mut packet.body) {
                body.copy_from_slice(&note);
            }
            let entropy = peer.paths.next_alone();
            address(config, &mut packet, sender.name.peer, entropy, |header| {
                control.encode(header);
            });
            stats.questions += 1;
            stats.probes += u64::from(matches!(verb, Verb::Probe { .. }));
            return Some(());
        }
    }

    /// Sends one data packet. `None` if none may leave, or there is no room.
    #[inline]
    pub fn send(
        &mut self,
        config: &Config,
        now: Time,
        outbox: &mut dyn Outbox,
        stats: &mut Stats,
    ) -> Option<()> {
        self.release(config, now);
        loop {
            let (_, place) = self.ready.first()?;
            let peer = &mut self.peers[place as usize];
            let Some((_, slot)) = peer.waiting.first() else {
                self.unready(place);
                continue;
            };
            let sender = &mut self.senders[slot as usize];
            let is_last = sender.send(config, now, slot, peer, outbox, stats)?;
            if is_last {
                peer.waiting.put(slot, &mut sender.waiting, None);
                self.timers.arm(slot, sender.deadline);
            } else if sender.has_just_begun(config) {
                let rank = (sender.rank(config), sender.posted);
                peer.waiting.put(slot, &mut sender.waiting, Some(rank));
            }
            self.unready(place);
            self.enqueue(config, now, place);
            return Some(());
        }
    }

    /// An answer of a receiver. Returns false for one that no honest receiver gives.
    pub fn on_answer(
        &mut self,
        config: &Config,
        now: Time,
        name: Name,
        verb: Verb,
        body: &[u8],
        done: &mut VecDeque<Completion>,
    ) -> bool {
        let Some(&slot) = self.names.get(&name) else { return true };
        let sender = &mut self.senders[slot as usize];
        let peer = &mut self.peers[sender.peer as usize];
        let wait = peer.timeout(config);
        let next = match verb {
            Verb::Accept { loss } => {
                let Some(loss) = LossBound::from_millionths(loss) else { return false };
                sender.on_accept(now, wait, loss)
            }
            // There will be a word about it, so that asking again is no more than a precaution.
            Verb::Hold => sender.on_hold(config, now, wait.max(config.waits.initial)),
            Verb::Bitmap { first, count } => {
                let window = first..first + count;
                let next = sender.on_bitmap(now, wait, window, body, &mut peer.paths);
                let Some(next) = next else { return false };
                next
            }
            Verb::Stop => {
                done.push_back(Completion::Sent(sender.finish(now)));
                let place = sender.peer;
                self.peers[place as usize].on_stop(now, slot);
                self.remove(slot);
                self.release_window(config, now, place);
                return true;
            }
            Verb::Refuse(refusal) => {
                done.push_back(failed(name, Failure::Refused(refusal)));
                self.remove(slot);
                return true;
            }
            Verb::Offer { .. } | Verb::Probe { .. } => return false,
        };
        self.follow(config, now, slot, next);
        true
    }

    /// An echo. Returns whether it is of a tensor that is still being sent.
    pub fn on_echo(&mut self, config: &Config, now: Time, name: Name, ack: &Ack) -> bool {
        let Some(&slot) = self.names.get(&name) else { return false };
        let sender = &mut self.senders[slot as usize];
        let place = sender.peer;
        self.peers[place as usize].on_echo(config, now, slot, ack);
        let next = sender.on_echo(now, ack);
        self.follow(config, now, slot, next);
        self.release_window(config, now, place);
        true
    }

    pub fn handle_timeout(
        &mut self,
        config: &Config,
        now: Time,
        stats: &mut Stats,
        done: &mut VecDeque<Completion>,
    ) {
        self.release(config, now);
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(sender) = self.senders.get_mut(slot as usize) else { continue };
            if sender.deadline > now {
                self.timers.arm(slot, sender.deadline);
                continue;
            }
            stats.unanswered += u64::from(sender.has_asked());
            if sender.is_unanswered() {
                self.peers[sender.peer as usize].on_silence(now);
            }
            let next = sender.on_deadline(config, now);
            if next == Next::Fail {
                done.push_back(failed(sender.name, Failure::Silent));
                self.remove(slot);
            } else {
                self.follow(config, now, slot, next);
            }
        }
    }

    /// Returns the path of an answer to a node, where it is known which paths to it lose more than the others.
    // spec: M-21
    pub fn answer_path(&mut self, config: &Config, node: NodeId) -> Option<u16> {
        let place = *self.nodes.get(&node).filter(|_| config.path_settings().counts_losses())?;
        Some(self.peers[place as usize].paths.next_alone())
    }

    /// Returns the number of paths that are hardly used, over all peers.
    pub fn left_paths(&self) -> u64 {
        self.peers.iter().map(|peer| peer.paths.left() as u64).sum()
    }

    /// Gives up a tensor. Returns whether it was there.
    pub fn cancel(&mut self, name: Name) -> bool {
        let slot = self.names.get(&name).copied();
        slot.is_some_and(|slot| {
            self.remove(slot);
            true
        })
    }

    /// Does what a sender wants.
    fn follow(&mut self, config: &Config, now: Time, slot: u32, next: Next) {
        let sender = &mut self.senders[slot as usize];
        match next {
            Next::Wait | Next::Fail => self.timers.arm(slot, sender.deadline),
            Next::Ask if sender.is_asking => {}
            Next::Ask => {
                sender.is_asking = true;
                self.asking.push_back(slot);
            }
            Next::Send => {
                // What is sent again keeps its place: others wait for it longest.
                // spec: M-03
                let (place, rank) = (sender.peer, (sender.rank(config), sender.posted));
                self.peers[place as usize].waiting.put(slot, &mut sender.waiting, Some(rank));
                self.enqueue(config, now, place);
            }
        }
    }

    /// Lets a peer that has something waiting take its place among the others.
    fn enqueue(&mut self, config: &Config, now: Time, place: u32) {
        let peer = &mut self.peers[place as usize];
        // A tensor that was begun leaves first, and has the urgency of those that wait behind it.
        let mut rank = None;
        for ((place, _), slot) in peer.waiting.iter() {
            let urgency = self.senders[slot as usize].urgency();
            rank = Some(rank.map_or(urgency, |rank: u32| rank.min(urgency)));
            if place > 0 {
                break;
            }
        }
        let Some(rank) = rank else { return };
        match peer.queued {
            _ if peer.held.is_some() => {}
            Some((known, turn)) => {
                self.ready.put(place, &mut peer.queued, Some((known.min(rank), turn)));
            }
            None => match peer.holds(config, now) {
                Some((held, until)) => {
                    peer.held = Some(held);
                    self.releases.arm(place, until);
                }
                None => {
                    self.ready.put(place, &mut peer.queued, Some((rank, self.count)));
                    self.count += 1;
                }
            },
        }
    }

    fn unready(&mut self, place: u32) {
        self.ready.put(place, &mut self.peers[place as usize].queued, None);
    }

    /// Peers whose time has come may be sent to.
    fn release(&mut self, config: &Config, now: Time) {
        while let Some(place) = self.releases.pop_due(now) {
            let Outgoing { peers, senders, timers, .. } = self;
            let peer = &mut peers[place as usize];
            peer.held = None;
            if peer.expire(config, now) {
                for (_, slot) in peer.waiting.iter() {
                    let sender = &mut senders[slot as usize];
                    sender.limit_silence(config, now);
                    timers.arm(slot, sender.deadline);
                }
            }
            self.enqueue(config, now, place);
        }
    }

    /// A peer whose window was full may be sent to if there is room in it now.
    fn release_window(&mut self, config: &Config, now: Time, place: u32) {
        let peer = &mut self.peers[place as usize];
        if peer.held == Some(Held::Window) && peer.has_room(config) {
            peer.held = None;
            self.enqueue(config, now, place);
        }
    }

    fn remove(&mut self, slot: u32) {
        let mut sender = self.senders.remove(slot as usize);
        self.names.remove(&sender.name);
        let peer = &mut self.peers[sender.peer as usize];
        peer.on_end(slot);
        peer.waiting.put(slot, &mut sender.waiting, None);
    }

    fn peer(&mut self, config: &Config, node: NodeId) -> u32 {
        let Outgoing { nodes, peers, control, rng, .. } = self;
        *nodes.entry(node).or_insert_with(|| {
            peers.push(Peer::new(config, control, node, rng));
            peers.len() as u32 - 1
        })
    }
}

impl Outgoing {
    /// Looks at every tensor and peer. Panics where a place or a name is counted twice or not at all, and where
    /// a tensor or a peer would wait for ever.
    // spec: T-12
    pub fn check(&self) {
        for (slot, sender) in &self.senders {
            self.check_sender(slot as u32, sender);
        }
        assert_eq!(self.senders.len(), self.names.len(), "every tensor has a name");
        let sending = self.senders.iter().filter(|(_, sender)| sender.is_sending()).count();
        let waiting: usize = self.peers.iter().map(|peer| peer.waiting.iter().count()).sum();
        assert_eq!(waiting, sending, "a tensor that waits to send is sending");
        self.check_peers();
    }

    fn check_sender(&self, slot: u32, sender: &Sender) {
        sender.check();
        assert_eq!(self.names.get(&sender.name), Some(&slot), "a tensor is known by its name");
        let is_queued = !sender.is_asking || self.asking.contains(&slot);
        assert!(is_queued, "a sender with a question has its turn");
        let waiting = &self.peers[sender.peer as usize].waiting;
        let is_waiting =
            waiting.iter().any(|entry| Some(entry) == sender.waiting.map(|own| (own, slot)));
        assert_eq!(is_waiting, sender.is_sending(), "a sender with segments has its turn");
        let is_timed = self.timers.armed(slot) <= sender.deadline;
        assert!(is_timed, "a sender with a deadline has a timer");
    }

    fn check_peers(&self) {
        for (place, peer) in (0..).zip(&self.peers) {
            peer.check();
            let is_waiting = peer.queued.is_some() || peer.held.is_some();
            assert!(is_waiting || peer.waiting.is_empty(), "a peer with tensors has its turn");
            let is_timed = self.releases.armed(place) != Time::NEVER;
            assert!(is_timed || peer.held.is_none(), "a peer that is held has a time");
        }
        let queued = (0..).zip(&self.peers);
        let mut queued: Vec<_> =
            queued.filter_map(|(place, peer)| Some((peer.queued?, place))).collect();
        queued.sort_unstable();
        assert!(self.ready.iter().eq(queued), "peers that are ready are in the queue, once each");
    }
}

/// The end of a tensor that could not be sent.
fn failed(name: Name, failure: Failure) -> Completion {
    Completion::Failed(Failed { name, failure, buffer: None })
}
