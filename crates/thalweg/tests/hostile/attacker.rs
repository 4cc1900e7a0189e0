//! Packets that nobody asked for.

use thalweg_aggregate::Setup;
use thalweg_core::{JobId, NodeId, Rng};
use thalweg_wire::aggregate::{
    Announcement, Branch, Gradient, Identity, Notice, Numbers, Parameter, Query, Request, Scale,
    StationBytes,
};
use thalweg_wire::prefix::{MAGIC, OLDEST_VERSION, VERSION};
use thalweg_wire::tag::{self, Key};
use zerocopy::IntoBytes;

use crate::hand::{AGGREGATORS, Owned, SERVER, SWITCH, node};

/// Number of packets of the honest job that it remembers.
const OVERHEARD_MAX: usize = 512;

/// Offsets in a header: of the epoch, the job, and what follows the tag.
const EPOCH_AT: usize = 4;
const JOB_AT: usize = 8;
const REST_AT: usize = 24;

/// Attacks that it tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trick {
    /// Bytes that mean nothing, sometimes behind a good prefix.
    Noise,
    /// An honest packet with a few bits of its header changed.
    Mutated,
    /// An honest packet with a body of another length.
    Cut,
    /// An honest packet once more, there or elsewhere.
    Replayed,
    /// A proper packet of its own job, about anything.
    Own,
    /// Nonsense of its own job, properly sealed.
    OwnNonsense,
    /// A proper packet in the name of the honest job, sealed with its own key.
    Disguised,
    /// An honest packet in the name of its own job.
    Borrowed,
}

impl Trick {
    pub const ALL: [Trick; 8] = [
        Trick::Noise,
        Trick::Mutated,
        Trick::Cut,
        Trick::Replayed,
        Trick::Own,
        Trick::OwnNonsense,
        Trick::Disguised,
        Trick::Borrowed,
    ];
}

/// A job in one of its epochs.
#[derive(Clone, Copy)]
pub struct Job {
    pub id: JobId,
    pub epoch: u32,
}

impl From<&Setup> for Job {
    fn from(setup: &Setup) -> Job {
        Job { id: setup.job, epoch: setup.epoch }
    }
}

/// A tenant with a job and a key of its own, who has seen packets of another one.
pub struct Attacker {
    rng: Rng,
    own: Job,
    key: Key,
    victim: Job,
    server: NodeId,
    switch: NodeId,
    /// Place in the tree of its job, if it has one.
    place: Option<Branch>,
    overheard: Vec<Owned>,
    next_overheard: usize,
}

impl Attacker {
    pub fn new(seed: u64, own: Job, key: Key, victim: Job) -> Attacker {
        let rng = Rng::new(seed).stream("attacker");
        let (server, switch, overheard) = (SERVER, SWITCH, Vec::new());
        let (place, next_overheard) = (None, 0);
        Attacker { rng, own, key, victim, server, switch, place, overheard, next_overheard }
    }

    /// The same against these daemons, instead of those of tests without a network, with a place in the tree of its job.
    pub fn against(self, server: NodeId, switch: NodeId, place: Branch) -> Attacker {
        Attacker { server, switch, place: Some(place), ..self }
    }

    /// Takes the job of an honest packet for its victim from now on, and remembers the packet.
    pub fn follow(&mut self, packet: &Owned) {
        let [id, epoch] = [&packet.header[JOB_AT..][..8], &packet.header[EPOCH_AT..][..4]];
        let id = JobId(u64::from_le_bytes(id.try_into().expect("eight bytes")));
        let epoch = u32::from_le_bytes(epoch.try_into().expect("four bytes"));
        self.victim = Job { id, epoch };
        self.overhear(packet);
    }

    /// Remembers an honest packet, in place of an old one.
    pub fn overhear(&mut self, packet: &Owned) {
        if self.overheard.len() < OVERHEARD_MAX {
            return self.overheard.push(packet.clone());
        }
        self.overheard[self.next_overheard] = packet.clone();
        self.next_overheard = (self.next_overheard + 1) % OVERHEARD_MAX;
    }

    pub fn packet(&mut self, trick: Trick) -> Owned {
        match trick {
            Trick::Noise => self.noise(),
            Trick::Mutated => self.mutated(),
            Trick::Cut => self.cut(),
            Trick::Replayed => self.replayed(),
            Trick::Own => self.proper(self.own),
            Trick::OwnNonsense => self.nonsense(),
            Trick::Disguised => self.proper(self.victim),
            Trick::Borrowed => self.borrowed(),
        }
    }

    fn target(&mut self) -> NodeId {
        match self.rng.below(4) {
            0 => self.server,
            1 => node(self.rng.below(3) as u32),
            _ => self.switch,
        }
    }

    fn remembered(&mut self) -> Owned {
        if self.overheard.is_empty() {
            return self.noise();
        }
        let at = self.rng.below(self.overheard.len() as u64) as usize;
        self.overheard[at].clone()
    }

    fn noise(&mut self) -> Owned {
        let mut packet = Owned::to(self.target());
        self.fill(&mut packet.header);
        if self.rng.chance(0.7) {
            packet.header[..2].copy_from_slice(&MAGIC);
            packet.header[2] = VERSION | OLDEST_VERSION << 4;
            packet.header[3] = 15 + self.rng.below(10) as u8;
        }
        if self.rng.chance(0.5) {
            packet.header[JOB_AT..][..8].copy_from_slice(&self.victim.id.0.to_le_bytes());
            packet.header[EPOCH_AT..][..4].copy_from_slice(&self.victim.epoch.to_le_bytes());
        }
        packet.body = vec![0xa5; self.rng.below(200) as usize];
        packet
    }

    fn mutated(&mut self) -> Owned {
        let mut packet = self.remembered();
        for _ in 0..1 + self.rng.below(4) {
            let bit = self.rng.below(8 * packet.header.len() as u64) as usize;
            packet.header[bit / 8] ^= 1 << (bit % 8);
        }
        packet
    }

    fn cut(&mut self) -> Owned {
        let mut packet = self.remembered();
        let length = packet.body.len();
        let mut other = self.rng.below(2 * length as u64 + 8) as usize;
        if other == length {
            other += 1;
        }
        packet.body.resize(other, 0x5a);
        packet
    }

    fn replayed(&mut self) -> Owned {
        let mut packet = self.remembered();
        if self.rng.chance(0.2) {
            packet.meta.dst = self.target();
        }
        packet
    }

    fn nonsense(&mut self) -> Owned {
        let mut packet = self.noise();
        packet.header[..2].copy_from_slice(&MAGIC);
        packet.header[2] = VERSION | OLDEST_VERSION << 4;
        packet.header[3] = 16 + self.rng.below(8) as u8;
        if self.rng.chance(0.5) {
            // Most of a header is zero, and most rules are about what has to be.
            packet.header[REST_AT..].fill(0);
            for _ in 0..self.rng.below(8) {
                let at = REST_AT + self.rng.below(40) as usize;
                packet.header[at] = self.rng.bits() as u8;
            }
        }
        self.claim(&mut packet, self.own);
        packet
    }

    fn borrowed(&mut self) -> Owned {
        let mut packet = self.remembered();
        self.claim(&mut packet, self.own);
        packet
    }

    /// A header of any kind that keeps all rules, about some fragment near those of the honest job.
    fn proper(&mut self, claimed: Job) -> Owned {
        let Job { id: job, epoch } = claimed;
        let mut packet = Owned::to(self.target());
        let (sequence, operation) = (self.sequence(), self.rng.below(3) as u32);
        let identity = Identity { job, epoch, sequence, attempt: 0, operation };
        let values = 1 + self.rng.below(40) as u16;
        let header = &mut packet.header;
        let kind = self.rng.below(6);
        match kind {
            0 => self.gradient(identity).encode(header),
            1 => self.parameter(identity).encode(header),
            2 => self.query(identity).encode(header),
            3 => self.request(identity).encode(header),
            4 => Notice { job, epoch, switch: self.target() }.encode(header),
            _ => {
                // Trees of as many servers as there are: each is another one to remember.
                let server = NodeId(self.rng.below(5_000) as u32);
                let (parent, level) = (self.target(), self.rng.below(4) as u8);
                let stations = 1;
                let switches = [0; 4];
                Announcement { job, epoch, server, parent, level, stations, switches }
                    .encode(header);
                let children: Vec<NodeId> =
                    (0..1 + self.rng.below(4)).map(|_| self.target()).collect();
                packet.body = StationBytes::new([0; 4], &children).as_bytes().to_vec();
            }
        }
        // Contributions and results have values.
        if packet.body.is_empty() && self.rng.chance(if kind < 2 { 0.9 } else { 0.1 }) {
            packet.body = vec![0x3f; 4 * usize::from(values)];
        }
        self.claim(&mut packet, claimed);
        packet
    }

    fn sequence(&mut self) -> u64 {
        if self.rng.chance(0.1) { self.rng.bits() } else { self.rng.below(5_000) }
    }

    fn branch(&mut self) -> Branch {
        if let Some(place) = self.place
            && self.rng.chance(0.7)
        {
            return place;
        }
        let fan_in = 1 + self.rng.below(32);
        let place = self.rng.below(fan_in);
        Branch::new([fan_in as u8, 0, 0, 0], [place as u8, 0, 0, 0])
            .expect("a place below the fan-in")
    }

    fn numbers(&mut self) -> Numbers {
        let scale = Scale::new(1e6).expect("a scale");
        if self.rng.chance(0.5) { Numbers::Float } else { Numbers::Fixed(scale) }
    }

    fn gradient(&mut self, identity: Identity) -> Gradient {
        let (aggregator, numbers, branch) = (self.aggregator(), self.numbers(), self.branch());
        Gradient {
            watermark_distance: self.rng.below(100) as u16,
            congested: self.rng.chance(0.5),
            overflow: self.rng.chance(0.1),
            collision: self.rng.chance(0.1),
            resend: self.rng.chance(0.2),
            repair: self.rng.chance(0.1),
            result: self.rng.chance(0.1),
            ..Gradient::fresh(identity, aggregator, numbers, self.server, branch)
        }
    }

    fn parameter(&mut self, identity: Identity) -> Parameter {
        let (aggregator, numbers) = (self.aggregator(), self.numbers());
        Parameter {
            next_aggregator: Some(3),
            next_distance: self.rng.below(100) as u16,
            job_watermark_distance: self.rng.below(100) as u16,
            congested: self.rng.chance(0.5),
            repeat: self.rng.chance(0.1),
            ..Parameter::sum(identity, aggregator, numbers, self.server, 1)
        }
    }

    fn query(&mut self, identity: Identity) -> Query {
        let (aggregator, branch) = (self.aggregator(), self.branch());
        Query {
            watermark_distance: self.rng.below(100) as u16,
            received_distance: self.rng.below(100) as i32 - 50,
            bypass: self.rng.chance(0.3),
            awaited: self.rng.chance(0.3),
            ..Query::new(identity, aggregator, self.server, branch)
        }
    }

    fn request(&mut self, identity: Identity) -> Request {
        Request {
            identity,
            aggregator: self.aggregator(),
            server: self.server,
            branch: self.branch(),
            level: 0,
            wanted: self.rng.bits() as u32,
            bypass: self.rng.chance(0.3),
            restart: self.rng.chance(0.3),
        }
    }

    fn aggregator(&mut self) -> u32 {
        self.rng.below(u64::from(AGGREGATORS)) as u32
    }

    /// Speaks for a job, with its own key.
    fn claim(&self, packet: &mut Owned, job: Job) {
        let header = &mut packet.header;
        header[JOB_AT..][..8].copy_from_slice(&job.id.0.to_le_bytes());
        header[EPOCH_AT..][..4].copy_from_slice(&job.epoch.to_le_bytes());
        tag::seal_sized(header, packet.body.len(), &self.key);
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.rng.bits().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}
