//! Queries and requests.

use thalweg_core::{NodeId, Packet, Time, Verdict};
use thalweg_wire::Prefix;
use thalweg_wire::aggregate::{Branch, Identity, LEVELS, Query, Request, STATIONS_MAX};

use super::Switch;
use super::groups::Station;
use super::key::Fragment;
use super::outgoing::Task;
use crate::index;

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
        self.stats.queries += 1;
        let Query { identity, aggregator, server, branch, level, .. } = query;
        let upper_places = branch.places_above(level);
        let fragment = Fragment { identity, server, level, upper_places };
        if query.bypass || branch.fan_in(level) == 0 {
            return pass_on(&query, server, branch.end(), packet);
        }
        let place = self.place_of(aggregator, &fragment);
        let missing = self.array.find_fragment(place, &fragment).map_or(0, |slot| slot.missing());
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
                afresh: false,
            };
            request.encode(packet.header);
            return Verdict::Multicast(&self.listed);
        }
        let (parent, level) = self.above(now, &fragment, branch.end());
        pass_on(&query, parent, level, packet)
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
        if !self.may_ask(now, place) {
            return pass_on(query, parent, level, packet);
        }
        if self.array.enqueue(self.touch(now, place), place) && !self.push(Task::Sum(place)) {
            self.array.dequeue(place);
            return pass_on(query, parent, level, packet);
        }
        if !self.push(Task::Query { query: Query { level, ..*query }, to: parent }) {
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
        let Some(group) = self.groups.find(job, epoch, asked.server) else {
            self.notice(now, job, epoch, asked.server);
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
            let Some(request) = self.request_below(now, &asked, level, &station) else { continue };
            if first.is_none() {
                first = Some((request, station));
            } else {
                self.push_requests(&request, &station);
            }
        }
        let Some((request, station)) = first else { return Verdict::Consume };
        let fragment = fragment_at(&request, level, station.upper_places);
        if !self.list_children(&fragment, request.wanted) {
            return Verdict::Consume;
        }
        request.encode(packet.header);
        Verdict::Multicast(&self.listed)
    }

    fn may_ask(&mut self, now: Time, place: u32) -> bool {
        let touched = self.touch(now, place);
        self.array.may_ask(now, place, self.config.ask_gap, touched)
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

    /// What a station that is asked asks its own children, if anything.
    fn request_below(
        &mut self,
        now: Time,
        asked: &Request,
        level: u8,
        station: &Station,
    ) -> Option<Request> {
        let fragment = fragment_at(asked, level, station.upper_places);
        let place = self.place_of(asked.aggregator, &fragment);
        let missing = self.array.find_fragment(place, &fragment).map(|slot| slot.missing());
        let (wanted, afresh) = match missing {
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
        Some(Request { branch, level, wanted, afresh, ..*asked })
    }

    /// Remembers to send a request to each node that it names.
    fn push_requests(&mut self, request: &Request, station: &Station) {
        let fragment = fragment_at(request, request.level, station.upper_places);
        if self.list_children(&fragment, request.wanted) {
            for at in 0..self.listed.len() {
                let to = self.listed[at];
                self.push(Task::Request { request: *request, to });
            }
        }
    }

    /// Lists the nodes that a bitmap names, each once. `false` if there are none.
    fn list_children(&mut self, fragment: &Fragment, bitmap: u32) -> bool {
        self.listed.clear();
        let Fragment { identity, server, level, upper_places } = *fragment;
        let group = self.groups.find(identity.job, identity.epoch, server);
        if let Some(group) = group.filter(|group| group.level == level) {
            let at = group.stations().iter().find(|at| at.upper_places == upper_places);
            for child in at.into_iter().flat_map(|station| group.named(station, bitmap)) {
                if !self.listed.contains(&child) {
                    self.listed.push(child);
                }
            }
        }
        !self.listed.is_empty()
    }
}

/// The fragment that a request is about, at a station.
fn fragment_at(request: &Request, level: u8, upper_places: [u8; LEVELS]) -> Fragment {
    Fragment { identity: request.identity, server: request.server, level, upper_places }
}

/// Sends a query on.
fn pass_on<'a>(query: &Query, to: NodeId, level: u8, packet: Packet<'_>) -> Verdict<'a> {
    Query { level, ..*query }.encode(packet.header);
    packet.meta.dst = to;
    Verdict::Forward
}

/// Whether a request names a station: its place at the asking level is wanted, and the places above
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
