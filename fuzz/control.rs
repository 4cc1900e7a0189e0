//! Rules that hold for any messages at all of the control channel. The fuzz target calls it, and so does a test of the
//! control crate.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::Ipv4Addr;

use prost::Message;
use thalweg_control::inspection::{self, Read};
use thalweg_control::registry::{Action, Ending, LinkId, RegistryConfig};
use thalweg_control::token::{Pattern, Role, Token, TokenVerifier};
use thalweg_control::{Caller, Counters, Join, Registry, v1};
use thalweg_core::{JobId, NodeId, Span, Time, body_bytes_of_mtu};
use thalweg_wire::aggregate::{BodyFormats, SwitchLimits};
use thalweg_wire::tag::Secret;

/// Kinds of messages: the lower bits of the first byte.
pub const REGISTRATION: u8 = 0;
pub const FROM_RANK: u8 = 1;
pub const TO_RANK: u8 = 2;
pub const TOKEN: u8 = 3;
pub const TOPOLOGY: u8 = 4;
pub const STATISTICS: u8 = 5;
pub const HEALTH: u8 = 6;
pub const SILENCE: u8 = 7;

/// Kinds beyond them have a bit of their own.
const FURTHER: u8 = 32;
pub const REGISTERED: u8 = FURTHER;
pub const STATISTICS_REQUEST: u8 = FURTHER | 1;

/// The message is taken for one about the job that was registered last, else nearly none would be.
pub const REPAIRED: u8 = 8;
/// Time passes before the message.
pub const LATER: u8 = 16;

/// The secret of the cluster.
pub const SECRET: Secret = Secret([9; 16]);
/// When everything begins, for clocks and for tokens.
const START_S: u64 = 1_000;
/// Longest conversation that is held.
const MESSAGES_MAX: usize = 64;

/// Messages one behind the other, each with a byte of flags, its length in two bytes, and itself. Answers whether any was
/// accepted.
pub fn control(bytes: &[u8]) -> bool {
    let mut stage = Stage::new();
    let (mut rest, mut accepted) = (bytes, false);
    for _ in 0..MESSAGES_MAX {
        let [flags, low, high, more @ ..] = rest else { break };
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (message, later) = more.split_at(len);
        accepted |= stage.take_in(*flags, message);
        rest = later;
    }
    stage.end();
    accepted
}

struct Stage {
    registry: Registry,
    now: Time,
    caller: Caller,
    job: JobId,
    links: VecDeque<LinkId>,
    next_link: u64,
}

impl Stage {
    fn new() -> Stage {
        let registry = Registry::new(RegistryConfig {
            server: NodeId(0x0001_12c0),
            server_cores: 2,
            mtu_bytes: 9_000,
            switch: None,
            network: Ipv4Addr::LOCALHOST,
            secrets: SECRET.into(),
            seed: 1,
            job_memory_bytes: 64 << 20,
            memory_bytes: u64::MAX,
            budgets: Default::default(),
        });
        let jobs = Pattern::new("*").expect("a pattern");
        let token = Token { id: 1, role: Role::Operator, jobs, ranks_max: 99, expires: u64::MAX };
        let now = Time::ZERO + Span::from_s(START_S);
        let (caller, links) = (Caller::with_token(token), VecDeque::new());
        Stage { registry, now, caller, job: JobId(0), links, next_link: 0 }
    }

    fn take_in(&mut self, flags: u8, message: &[u8]) -> bool {
        if flags & LATER != 0 {
            self.now += Span::from_ms(700);
            self.registry.tick(self.now);
        }
        let is_repaired = flags & REPAIRED != 0;
        let accepted = match flags & (FURTHER | 7) {
            REGISTRATION => self.register(message),
            FROM_RANK => self.hear(message, is_repaired),
            TO_RANK => inspection::to_rank(message).inspect(assert_same).is_some(),
            TOKEN => verify(message),
            // What these have is shown as it is read.
            TOPOLOGY => repeat(message, assert_repeated::<v1::TopologyResponse>),
            STATISTICS => repeat(message, assert_repeated::<v1::StatisticsResponse>),
            HEALTH => repeat(message, assert_repeated::<v1::HealthResponse>),
            REGISTERED => inspection::registered(message).inspect(assert_same).is_some(),
            STATISTICS_REQUEST => repeat(message, |request| self.inquire(request, is_repaired)),
            _ => self.hang_up(),
        };
        self.act();
        accepted
    }

    fn register(&mut self, message: &[u8]) -> bool {
        let Some(read) = inspection::registration(message) else { return false };
        assert_same(&read);
        let Read::Registration(wanted) = read else { unreachable!("it was read as one") };
        match self.registry.register(self.now, &self.caller, wanted) {
            Ok(job) => {
                self.job = job;
                assert_same(&Read::Registered(job));
                true
            }
            Err(refusal) => {
                assert!(!refusal.to_string().is_empty());
                false
            }
        }
    }

    fn hear(&mut self, message: &[u8], is_repaired: bool) -> bool {
        let Some(read) = inspection::from_rank(message) else { return false };
        assert_same(&read);
        match read {
            Read::Join(join) => {
                let job = if is_repaired { self.job } else { join.job };
                let link = LinkId(self.next_link);
                self.next_link += 1;
                let join = Join { job, ..join };
                let attended = self.registry.attend(self.now, link, &self.caller, join);
                if attended.is_ok() {
                    self.links.push_back(link);
                }
                attended.is_ok()
            }
            Read::FromRank(tree, message) => {
                if let Some(link) = self.links.back() {
                    self.registry.hear(self.now, *link, tree, message);
                }
                true
            }
            _ => unreachable!("a rank says nothing else"),
        }
    }

    /// Asks for the statistics of a job: nothing is listed but that job, and all of them if none is named.
    fn inquire(&self, request: &v1::StatisticsRequest, is_repaired: bool) {
        assert_repeated(request);
        let named = request.job.map(JobId);
        let only = if is_repaired { named.map(|_| self.job) } else { named };
        let view = self.registry.view(self.now);
        let answer = view.statistics(&self.caller, only, &Counters::default());
        assert_repeated(&answer);
        let most = view.statistics_bytes(&self.caller, only, &Counters::default());
        assert!(answer.encoded_len() <= most, "memory is taken before it is made");
        assert!(only.is_none_or(|only| answer.jobs.iter().all(|job| job.job == only.0)));
        assert!(only.is_some() || answer.jobs.len() == self.registry.jobs());
    }

    fn hang_up(&mut self) -> bool {
        let Some(link) = self.links.pop_front() else { return false };
        self.registry.hang_up(self.now, link, Ending::Closed);
        true
    }

    /// Does what the registry wants: messages to ranks are read by them as they were meant.
    fn act(&mut self) {
        while let Some(action) = self.registry.poll() {
            match action {
                Action::Tell { tree, message, .. } => {
                    assert_same(&Read::ToRank(tree, message));
                }
                Action::Close { link } => self.links.retain(|open| *open != link),
                Action::Probe { switch } => {
                    let formats = BodyFormats::FLOAT_AND_FIXED;
                    let limits = SwitchLimits {
                        aggregators: 64,
                        fragment_values: 64,
                        formats,
                        cores: 2,
                        mtu_bytes: 0,
                    };
                    self.registry.switch_answered(self.now, switch, limits);
                }
                Action::ProbePath { path, mtu_bytes } => {
                    let body_bytes = body_bytes_of_mtu(mtu_bytes).into();
                    self.registry.path_answered(self.now, path, body_bytes);
                }
                _ => {}
            }
        }
    }

    /// When everybody is gone nothing is left but what waits for its time.
    fn end(&mut self) {
        let view = self.registry.view(self.now);
        let statistics = view.statistics(&self.caller, None, &Counters::default());
        let topology = view.topology(&self.caller);
        assert_eq!(statistics.jobs.len(), self.registry.jobs());
        assert_eq!(topology.jobs.len(), self.registry.jobs());
        assert_repeated(&statistics);
        assert_repeated(&topology);
        assert!(topology.encoded_len() <= view.topology_bytes(&self.caller));
        while self.hang_up() {}
        self.act();
        // No deadline of a job is longer than a day.
        self.now += Span::from_s(24 * 3_600 + 60);
        self.registry.tick(self.now);
        self.act();
        assert_eq!(self.registry.jobs(), 0, "a job without ranks is forgotten or fails");
    }
}

/// A message that was read means the same after it was written and read again, except that times are in whole milliseconds then.
fn assert_same(read: &Read) {
    let written = read.write();
    let again = match read {
        Read::Registration(_) => inspection::registration(&written),
        Read::Registered(_) => inspection::registered(&written),
        Read::Join(_) | Read::FromRank(..) => inspection::from_rank(&written),
        Read::ToRank(..) => inspection::to_rank(&written),
    };
    assert_eq!(again.map(|again| again.write()), Some(written));
}

/// Reads a message that has no other form, and checks it. Answers whether it could be read.
fn repeat<T: Message + Default>(message: &[u8], check: impl Fn(&T)) -> bool {
    T::decode(message).inspect(check).is_ok()
}

/// A message that was read is the same after it was written and read again.
fn assert_repeated<T: Message + Default + PartialEq + Debug>(read: &T) {
    assert_eq!(T::decode(&*read.encode_to_vec()).as_ref(), Ok(read));
}

/// A token that is accepted says what was signed, and no other text opens the same.
fn verify(message: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(message) else { return false };
    let verified = TokenVerifier::new(&[SECRET]).verify(text, START_S);
    if let Ok(token) = &verified {
        assert_eq!(token.sign(&SECRET), text);
        assert!(token.expires > START_S);
    }
    // What it claims can be shown without harm.
    let claimed = Token::read(text);
    claimed.is_ok_and(|token| !token.jobs.as_str().contains(char::is_control))
}
