//! Queries and requests.

use thalweg_core::{Header, NodeId, Packet, Time, Verdict};
use thalweg_wire::aggregate::{Branch, Identity, LEVELS, Query, Request, STATIONS_MAX};
use thalweg_wire::tag::Generation;
use thalweg_wire::{Prefix, tag};

use super::Switch;
use super::groups::Station;
use super::key::Fragment;
use super::keyring::Scope;
use super::outgoing::Task;
use crate::index;
use crate::keys::Receiver;

impl Switch {
    /// Asks for what is missing here, or passes the query on.
    // spec: T-10
    pub(super) fn handle_query(
        &mut self,
        now: Time,
        prefix: Prefix,
        packet: Packet<'_>,
    ) -> Verdict<'_> {
        let Some(query) = self.read_query(prefix, &packet) else { return self.drop_malformed() };
        let Query { identity, aggregator, server, branch, level, .. } = query;
        if !self.knows_server(now, &prefix, server) {
            return Verdict::Consume;
        }
        self.stats.queries += 1;
        if let Some(group) = self.groups.index(identity.job, identity.epoch, server) {
            self.groups.at_mut(group).keep();
        }
        let (upper_places, generation) = (branch.places_above(level), prefix.generation());
        let fragment = Fragment { identity, server, level, upper_places, generation };
        if query.bypass || branch.fan_in(level) == 0 {
            return pass_on(&query, server, branch.end(), packet);
        }
        let place = self.place_of(aggregator, &fragment);
        if self.repeat_kept(now, place, &query, &fragment) {
            return Verdict::Consume;
        }
        let found = self.array.find_fragment(place, &fragment);
        let (missing, is_found) = (found.map_or(0, |slot| slot.missing()), found.is_some());
        if missing != 0 && query.bounded.is_some() {
            return self.hand_over(now, place, &query, &fragment, packet);
        }
        if missing != 0 && self.list_children(&fragment, missing) {
            if !self.may_ask(now, place) {
                self.stats.asks_held += 1;
                return Verdict::Consume;
            }
            self.stats.asked += 1;
            let request = Request {
                identity,
                aggregator,
                server,
                branch,
                level,
                wanted: missing,
                bypass: false,
                restart: false,
            };
            return self.send_requests(&request, generation, packet.header);
        }
        // A sum that is still here has no result: the answer is for all of its children, and one of them asks.
        let awaited = is_found && missing == 0;
        if awaited && !self.may_ask(now, place) {
            self.stats.asks_held += 1;
            return Verdict::Consume;
        }
        let (parent, level) = self.above(now, &fragment, branch.end());
        pass_on(&Query { awaited, ..query }, parent, level, packet)
    }

    /// Sends what there is of a sum to the server, which may finish it so, and the query on behind it. The
    /// sum stays: what is still to come fills it, and then it goes on as any other.
    fn hand_over(
        &mut self,
        now: Time,
        place: u32,
        query: &Query,
        fragment: &Fragment,
        packet: Packet<'_>,
    ) -> Verdict<'_> {
        let (parent, level) = self.above(now, fragment, query.branch.end());
        if !self.may_hand_over(now, place) {
            return pass_on(query, parent, level, packet);
        }
        if self.array.enqueue(self.touch(now, place), place) && !self.push(Task::Sum(place)) {
            self.array.dequeue(place);
            return pass_on(query, parent, level, packet);
        }
        let generation = fragment.generation;
        let task = Task::Query { query: Query { level, ..*query }, to: parent, generation };
        if !self.push(task) {
            return pass_on(query, parent, level, packet);
        }
        Verdict::Consume
    }

    /// Sends again what is here in full, and asks for what is not.
    // spec: T-10
    pub(super) fn handle_request(
        &mut self,
        now: Time,
        prefix: Prefix,
        packet: Packet<'_>,
    ) -> Verdict<'_> {
        let Some(asked) = self.read_request(prefix, &packet) else { return self.drop_malformed() };
        let Identity { job, epoch, .. } = asked.identity;
        self.stats.requests += 1;
        let generation = prefix.generation();
        let Some(group) = self.groups.find(job, epoch, asked.server) else {
            self.servers.name(asked.server);
            self.notice(now, Scope::of(&prefix), asked.server);
            return Verdict::Consume;
        };
        if asked.bypass || asked.level != group.level + 1 {
            return self.drop_malformed();
        }
        let level = group.level;
        let mut stations = [None; STATIONS_MAX];
        for (kept, station) in stations.iter_mut().zip(group.stations()) {
            *kept = is_asked(&asked, station).then_some(*station);
        }
        // The packet itself becomes the first request that is needed; seldom are there more.
        let mut first = None;
        for station in stations.into_iter().flatten() {
            let fragment = fragment_at(&asked, level, station.upper_places, generation);
            let Some(request) = self.request_below(now, &asked, &fragment, &station) else {
                continue;
            };
            if first.is_none() {
                first = Some((request, fragment));
            } else {
                self.push_requests(&request, &fragment);
            }
        }
        let Some((request, fragment)) = first else { return Verdict::Consume };
        if !self.list_children(&fragment, request.wanted) {
            return Verdict::Consume;
        }
        self.send_requests(&request, generation, packet.header)
    }

    /// Makes a packet a request to the nodes that are listed, sealed for them. Where these are workers and switches, the
    /// switches get packets of their own.
    // spec: E-13
    fn send_requests(
        &mut self,
        request: &Request,
        generation: Generation,
        header: &mut Header,
    ) -> Verdict<'_> {
        request.encode(header);
        let (has_workers, workers) = (self.listed_workers > 0, self.listed_workers);
        if has_workers {
            for at in workers..self.listed.len() {
                self.push_request(request, self.listed[at], generation, Receiver::Switch);
            }
        }
        let receiver = if has_workers { Receiver::Worker } else { Receiver::Switch };
        let Identity { job, epoch, .. } = request.identity;
        let scope = Scope { job, epoch, generation };
        if let Some(keys) = self.keyring.as_mut().and_then(|keyring| keyring.keys(scope)) {
            tag::seal(header, keys.to(receiver));
        }
        Verdict::Multicast(if has_workers { &self.listed[..workers] } else { &self.listed })
    }

    fn may_ask(&mut self, now: Time, place: u32) -> bool {
        let touched = self.touch(now, place);
        self.array.may_ask(now, place, self.config.ask_gap, touched)
    }

    /// Returns whether what there is of a sum may be sent to the server. Where tenants may be hostile, not more often than
    /// pays for it: a query is shorter than the sum, and one that is lost as often as that is asked for elsewhere.
    // spec: E-13
    fn may_hand_over(&mut self, now: Time, place: u32) -> bool {
        let touched = self.touch(now, place);
        let is_bounded = self.keyring.is_some();
        self.array.may_hand_over(now, place, self.config.ask_gap, touched, is_bounded)
    }

    fn read_query(&self, prefix: Prefix, packet: &Packet<'_>) -> Option<Query> {
        let query = Query::decode_checked(prefix, packet.header).ok()?;
        (packet.body.is_empty() && query.server != self.config.me).then_some(query)
    }

    fn read_request(&self, prefix: Prefix, packet: &Packet<'_>) -> Option<Request> {
        let request = Request::decode_checked(prefix, packet.header).ok()?;
        (packet.body.is_empty() && request.server != self.config.me).then_some(request)
    }

    fn place_of(&self, aggregator: u32, fragment: &Fragment) -> u32 {
        let Fragment { level, upper_places, .. } = *fragment;
        index::place(aggregator, level, upper_places, self.array.len())
    }

    /// Request of a station that is asked to its own children, if there is any.
    fn request_below(
        &mut self,
        now: Time,
        asked: &Request,
        fragment: &Fragment,
        station: &Station,
    ) -> Option<Request> {
        let level = fragment.level;
        let place = self.place_of(asked.aggregator, fragment);
        let missing = self.array.find_fragment(place, fragment).map(|slot| slot.missing());
        let (wanted, restart) = match missing {
            Some(0) => {
                if self.array.enqueue(self.touch(now, place), place) && !self.push(Task::Sum(place))
                {
                    self.array.dequeue(place);
                }
                return None;
            }
            Some(_) if !self.may_ask(now, place) => {
                self.stats.asks_held += 1;
                return None;
            }
            Some(missing) => (missing, false),
            None => (station.full(), true),
        };
        let branch = branch_to(asked, level, station)?;
        self.stats.asked += 1;
        Some(Request { branch, level, wanted, restart, ..*asked })
    }

    /// Remembers to send a request to each node that it names.
    fn push_requests(&mut self, request: &Request, fragment: &Fragment) {
        if self.list_children(fragment, request.wanted) {
            for at in 0..self.listed.len() {
                let is_worker = at < self.listed_workers;
                let receiver = if is_worker { Receiver::Worker } else { Receiver::Switch };
                self.push_request(request, self.listed[at], fragment.generation, receiver);
            }
        }
    }

    fn push_request(
        &mut self,
        request: &Request,
        to: NodeId,
        generation: Generation,
        receiver: Receiver,
    ) {
        self.push(Task::Request { request: *request, to, generation, receiver });
    }

    /// Lists the nodes that a bitmap names, each once, workers before switches. `false` if there are none.
    pub(super) fn list_children(&mut self, fragment: &Fragment, bitmap: u32) -> bool {
        let Switch { groups, listed, listed_workers, .. } = self;
        listed.clear();
        *listed_workers = 0;
        let Fragment { identity, server, level, upper_places, .. } = *fragment;
        let group = groups.find(identity.job, identity.epoch, server);
        let Some(group) = group.filter(|group| group.level == level) else { return false };
        let station = group.stations().iter().find(|at| at.upper_places == upper_places);
        let Some(station) = station else { return false };
        let mut list = |bitmap| {
            for child in group.named(station, bitmap) {
                if !listed.contains(&child) {
                    listed.push(child);
                }
            }
            listed.len()
        };
        *listed_workers = list(bitmap & !station.switches);
        list(bitmap & station.switches) > 0
    }
}

/// The fragment that a request is about, at a station.
fn fragment_at(
    request: &Request,
    level: u8,
    upper_places: [u8; LEVELS],
    generation: Generation,
) -> Fragment {
    let Request { identity, server, .. } = *request;
    Fragment { identity, server, level, upper_places, generation }
}

/// Sends a query on.
fn pass_on<'a>(query: &Query, to: NodeId, level: u8, packet: Packet<'_>) -> Verdict<'a> {
    Query { level, ..*query }.encode(packet.header);
    packet.meta.dst = to;
    Verdict::Forward
}

/// True if a request names a station: its place at the asking level is wanted, and the places above
/// are its own.
fn is_asked(asked: &Request, station: &Station) -> bool {
    let place = station.upper_places.get(usize::from(asked.level)).copied().unwrap_or(0);
    let above = |places| index::upper_places(places, asked.level);
    asked.wanted >> place & 1 == 1 && above(station.upper_places) == above(asked.branch.places())
}

/// The way to a station, from the request that reached it.
fn branch_to(asked: &Request, level: u8, station: &Station) -> Option<Branch> {
    let mut fan_ins = asked.branch.fan_ins();
    let own = usize::from(level).min(LEVELS - 1);
    fan_ins[..own].fill(0);
    fan_ins[own] = station.fan_in();
    Branch::new(fan_ins, station.upper_places).ok()
}
