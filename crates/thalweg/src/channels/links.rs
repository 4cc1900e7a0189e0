//! All links of a process as one machine, without I/O.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use thalweg_core::{Check, JobId, Machine, Outbox, Packet, Reports, Time, Verdict};
use thalweg_wire::peek;

use super::RequestMemory;
use super::link::{Link, LinkEvent};

/// The links, by the job that their packets carry.
#[derive(Default)]
pub(super) struct Links {
    links: BTreeMap<JobId, Link>,
    events: VecDeque<(JobId, LinkEvent)>,
    /// The link that was the last to send. Others are asked first.
    last: JobId,
}

impl Links {
    pub fn open(&mut self, job: JobId, link: Link) {
        self.links.insert(job, link);
    }

    pub fn begin(&mut self, now: Time, job: JobId, request: usize, memory: RequestMemory) {
        if let Some(link) = self.links.get_mut(&job) {
            link.begin(now, request, memory);
        }
    }

    /// The receiver of a link has this number of messages.
    pub fn settle(&mut self, job: JobId, received: u64) {
        let events = &mut self.events;
        if let Some(link) = self.links.get_mut(&job) {
            link.settle(received, &mut |event| events.push_back((job, event)));
        }
    }

    /// Gives up all messages of a link.
    pub fn fail(&mut self, job: JobId) {
        if let Some(link) = self.links.get_mut(&job) {
            link.fail();
        }
    }

    /// Closes a link. Returns the number of messages that it has received.
    pub fn close(&mut self, job: JobId) -> u64 {
        self.links.remove(&job).map_or(0, |link| link.received())
    }
}

impl Machine for Links {
    fn handle_packet(&mut self, now: Time, packet: Packet<'_>) -> Verdict<'_> {
        let Ok(prefix) = peek(packet.header) else { return Verdict::Consume };
        let events = &mut self.events;
        if let Some(link) = self.links.get_mut(&prefix.job) {
            link.handle_packet(now, prefix, &packet);
            link.take_events(now, &mut |event| events.push_back((prefix.job, event)));
        }
        Verdict::Consume
    }

    fn handle_timeout(&mut self, now: Time) {
        let events = &mut self.events;
        for (job, link) in &mut self.links {
            if link.poll_timeout() <= now {
                link.handle_timeout(now);
                link.take_events(now, &mut |event| events.push_back((*job, event)));
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, outbox: &mut dyn Outbox) {
        let last = self.last;
        let after = (Bound::Excluded(last), Bound::Unbounded);
        for range in [after, (Bound::Unbounded, Bound::Included(last))] {
            for (job, link) in self.links.range_mut(range) {
                if outbox.room() == 0 {
                    return;
                }
                if link.has_backlog() {
                    link.poll_transmit(now, outbox);
                    self.last = *job;
                }
            }
        }
    }

    fn has_backlog(&self) -> bool {
        self.links.values().any(Link::has_backlog)
    }

    fn poll_timeout(&self) -> Time {
        self.links.values().map(Link::poll_timeout).min().unwrap_or(Time::NEVER)
    }
}

impl Reports for Links {
    type Event = (JobId, LinkEvent);

    fn poll_event(&mut self) -> Option<(JobId, LinkEvent)> {
        self.events.pop_front()
    }
}

impl Check for Links {
    fn check(&self) {
        self.links.values().for_each(Link::check);
    }
}
