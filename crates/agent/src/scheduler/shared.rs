//! Flows of a job between two hosts, which several processes of the job may have a part of.

use thalweg_control::local::Unrelated;

use super::Client;

/// A flow of a job to another host: the flow of all processes of the job on this host that send there.
#[derive(Debug, Default)]
pub(super) struct SharedFlow {
    members: Vec<Member>,
    /// Bytes that processes had sent which have no part in it any more.
    gone: Counts,
}

/// The part of a process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) client: Client,
    /// The number by which the process knows the flow.
    pub(super) number: u32,
    counts: Counts,
}

/// Counters of a flow, from its announcement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) ready: u64,
    pub(super) sent: u64,
    pub(super) unrelated: Unrelated,
}

impl Counts {
    fn add(self, other: Counts) -> Counts {
        let Unrelated { ready, sent } = other.unrelated;
        Counts {
            ready: self.ready.saturating_add(other.ready),
            sent: self.sent.saturating_add(other.sent),
            unrelated: Unrelated {
                ready: self.unrelated.ready.saturating_add(ready),
                sent: self.unrelated.sent.saturating_add(sent),
            },
        }
    }

    /// Counters of a process that sends no more.
    fn ended(self) -> Counts {
        let Counts { sent, unrelated, .. } = self;
        let unrelated = Unrelated { ready: unrelated.sent, sent: unrelated.sent };
        Counts { ready: sent, sent, unrelated }
    }
}

impl SharedFlow {
    /// Adds a process. Returns false if it has a part already.
    pub(super) fn add(&mut self, client: Client, number: u32) -> bool {
        let is_new = self.members.iter().all(|member| member.client != client);
        if is_new {
            self.members.push(Member { client, number, counts: Counts::default() });
        }
        is_new
    }

    /// Removes a process. Returns false if nobody is left.
    pub(super) fn remove(&mut self, client: Client) -> bool {
        if let Some(at) = self.members.iter().position(|member| member.client == client) {
            self.gone = self.gone.add(self.members.remove(at).counts.ended());
        }
        !self.members.is_empty()
    }

    /// The process that announced it first.
    pub(super) fn first(&self) -> Option<Client> {
        self.members.first().map(|member| member.client)
    }

    /// Takes in counters of a process. Returns those of all, or `None` if they went back.
    // spec: C-18
    pub(super) fn report(&mut self, client: Client, counts: Counts) -> Option<Counts> {
        let member = self.members.iter_mut().find(|member| member.client == client)?;
        if counts.sent < member.counts.sent {
            return None;
        }
        member.counts = counts;
        Some(self.total())
    }

    /// Counters of all its processes.
    pub(super) fn total(&self) -> Counts {
        self.members.iter().fold(self.gone, |total, member| total.add(member.counts))
    }

    /// Divides a rate and a volume among the processes by what each has left to send, or equally where nobody has
    /// anything.
    // spec: C-18
    pub(super) fn divide(&self, whole: u64) -> impl Iterator<Item = (&Member, u64)> {
        let backlog = |member: &Member| member.counts.ready.saturating_sub(member.counts.sent);
        let total: u128 = self.members.iter().map(|member| u128::from(backlog(member))).sum();
        let members = self.members.len() as u128;
        let part = move |member: &Member| match total {
            0 => u128::from(whole) / members,
            _ => u128::from(whole) * u128::from(backlog(member)) / total,
        };
        // A part is at most the whole.
        self.members.iter().map(move |member| (member, part(member) as u64))
    }

    /// All its processes.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ready: u64, sent: u64) -> Counts {
        Counts { ready, sent, unrelated: Unrelated::default() }
    }

    // spec: C-18 machine
    #[test]
    fn counters_of_processes_add_up_and_never_go_back() {
        let mut flow = SharedFlow::default();
        assert!(flow.add(Client(1), 0) && flow.add(Client(2), 5));
        assert!(!flow.add(Client(2), 6), "a process has one part");
        assert_eq!(flow.report(Client(1), counts(100, 40)), Some(counts(100, 40)));
        assert_eq!(flow.report(Client(2), counts(300, 0)), Some(counts(400, 40)));
        assert_eq!(flow.report(Client(1), counts(100, 39)), None);
        assert!(flow.remove(Client(1)));
        assert_eq!(flow.total(), counts(340, 40), "what it had sent stays counted");
        assert!(!flow.remove(Client(2)));
    }

    // spec: C-18 machine
    #[test]
    fn what_is_granted_is_divided_by_what_is_left() {
        let mut flow = SharedFlow::default();
        flow.add(Client(1), 0);
        flow.add(Client(2), 0);
        let parts = |flow: &SharedFlow| flow.divide(900).map(|(_, part)| part).collect::<Vec<_>>();
        assert_eq!(parts(&flow), [450, 450]);
        flow.report(Client(1), counts(100, 0));
        flow.report(Client(2), counts(250, 50));
        assert_eq!(parts(&flow), [300, 600]);
        flow.report(Client(2), counts(250, 250));
        assert_eq!(parts(&flow), [900, 0]);
    }
}
