//! Laws for any messages that load tables are sent over gRPC. The fuzz target calls it, and so
//! does a test of the control crate.

use std::collections::BTreeSet;
use std::fmt::Debug;

use prost::Message;
use thalweg_control::pacing::desk::{self, RequestError};
use thalweg_control::pacing::{MESSAGE_BYTES_MAX, Malformed};
use thalweg_control::v1;
use thalweg_control::v1::update_schedule_response::Outcome;
use thalweg_core::{Check, JobId, NodeId, Rate};
use thalweg_pace::board::{FLOWS_PER_MESSAGE, Question, Route, Wrong};
use thalweg_pace::{Board, FlowId, Rank, Settings, Slot};

/// The message is an update, else a question.
pub const UPDATE: u8 = 1;
/// The message's slot is taken as one of five around the current one, and its slotting as the right one: else
/// nearly everything that is drawn would be refused for them.
pub const REPAIRED: u8 = 2;
/// The slot in which everything begins.
pub const START: u64 = 1_000_000;
/// Bytes that a host's own link carries in a slot, and bytes of the link to a whole range.
pub const CAPACITIES: [u64; 2] = [7_500_000, 30_000_000];

/// Numbers of slots that may pass before a message, as two bits of its first byte say.
const PASSED_SLOTS: [u64; 4] = [0, 1, 3, 50];
/// Nobody's flow: it only looks.
const STRANGER: FlowId = FlowId { job: JobId(u64::MAX), number: u32::MAX };
/// Answers that are larger are not read at the other end, 4 MiB, by far.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Number of hosts that are looked at.
const HOSTS_SEEN: usize = 16;
/// Number of slots without a message after which everything is forgotten.
const SILENT_SLOTS: u64 = 50;

/// Messages one behind the other, each with a byte of flags and the time that passes before it, its length in two
/// bytes, and itself. Answers whether any was taken in.
pub fn board(bytes: &[u8]) -> bool {
    let mut stage = Stage::new();
    let (mut rest, mut accepted) = (bytes, false);
    while let [flags, low, high, more @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (message, later) = more.split_at(len);
        stage.now = stage.now.after(PASSED_SLOTS[usize::from(flags >> 2 & 3)]);
        accepted |= stage.take_in(*flags, message);
        rest = later;
    }
    stage.fall_silent();
    accepted
}

struct Stage {
    board: Board,
    now: Slot,
    /// Destinations so far.
    hosts: BTreeSet<u32>,
    planned: usize,
}

impl Stage {
    fn new() -> Stage {
        let route = |to: &str, gbps, is_each| Route {
            to: to.parse().expect("a network"),
            rate: Rate::from_gbps(gbps),
            is_each,
        };
        let routes = vec![route("10.77.0.0/24", 1, true), route("10.78.0.0/16", 4, false)];
        let board = Board::new(Settings::default(), routes);
        Stage { board, now: Slot(START), hosts: BTreeSet::new(), planned: 0 }
    }

    fn take_in(&mut self, flags: u8, message: &[u8]) -> bool {
        if message.len() > MESSAGE_BYTES_MAX {
            return false;
        }
        let is_repaired = flags & REPAIRED != 0;
        let accepted = if flags & UPDATE != 0 {
            let Some(mut update) = decoded::<v1::UpdateScheduleRequest>(message) else {
                return false;
            };
            if is_repaired {
                (update.slotting, update.slot) = (Some(slotting()), self.near(update.slot));
            }
            self.update(update)
        } else {
            let Some(mut fetch) = decoded::<v1::FetchFeedbackRequest>(message) else {
                return false;
            };
            if is_repaired {
                (fetch.slotting, fetch.slot) = (Some(slotting()), self.near(fetch.slot));
            }
            self.fetch(fetch)
        };
        let stats = self.board.stats();
        assert!(stats.flows as usize <= self.planned, "a flow that nobody planned");
        assert!(stats.links as usize <= self.hosts.len(), "a link that nobody asked for");
        self.board.check();
        accepted
    }

    fn update(&mut self, update: v1::UpdateScheduleRequest) -> bool {
        // Where a flow was as well as where it goes.
        self.hosts.extend(update.plans.iter().map(|plan| plan.to));
        let hosts: Vec<u32> = self.hosts.iter().copied().take(HOSTS_SEEN).collect();
        let before_loads = self.loads(&hosts);
        let before = picture(&self.board);
        let (plans, slot, len) = (update.plans.len(), update.slot, update.plans.first().cloned());
        let result = desk::update_schedule(&mut self.board, self.now, update);
        let verdicts = match result {
            Ok(response) => response.verdicts,
            Err(problem) => {
                self.assert_due(&problem, slot);
                assert_eq!(picture(&self.board), before, "refused, and changed: {problem}");
                return false;
            }
        };
        assert!(plans <= FLOWS_PER_MESSAGE && verdicts.len() == plans);
        assert!(len.is_none_or(|plan| plan.volumes.len() == Settings::default().horizon_slots));
        self.planned += plans;
        let taken = |outcome: Outcome| outcome == Outcome::Taken;
        if !verdicts.iter().any(|verdict| taken(verdict.outcome())) {
            assert_eq!(self.loads(&hosts), before_loads, "nothing was taken, and loads changed");
        }
        self.loads(&hosts);
        true
    }

    fn fetch(&mut self, fetch: v1::FetchFeedbackRequest) -> bool {
        let before = picture(&self.board);
        let (questions, slot) = (fetch.questions.clone(), fetch.slot);
        let answers = match desk::fetch_feedback(&mut self.board, self.now, fetch) {
            Ok(response) => {
                assert!(response.encoded_len() < ANSWER_BYTES_MAX);
                response.answers
            }
            Err(problem) => {
                self.assert_due(&problem, slot);
                assert_eq!(picture(&self.board), before, "refused, and changed: {problem}");
                return false;
            }
        };
        assert!(questions.len() <= FLOWS_PER_MESSAGE && answers.len() == questions.len());
        for (question, answer) in questions.iter().zip(&answers) {
            self.hosts.insert(question.to);
            let asked =
                |of: &v1::FlowProgress| of.flow.is_some_and(|it| question.others.contains(&it));
            assert!(answer.progress.iter().all(asked), "nobody asked for that");
            let Some(feedback) = &answer.feedback else { continue };
            assert!(CAPACITIES.contains(&feedback.narrowest));
            for volumes in [&feedback.load, &feedback.free] {
                assert_eq!(volumes.len(), Settings::default().horizon_slots);
                assert!(volumes.iter().all(|&volume| volume <= feedback.narrowest));
            }
        }
        true
    }

    /// A message is refused for the slot that it names only where that is not near.
    fn assert_due(&self, problem: &RequestError, slot: u64) {
        let is_near = slot.abs_diff(self.now.0) <= 1;
        match problem {
            RequestError::Wrong(Wrong::Old { .. }) => assert!(!is_near && slot < self.now.0),
            RequestError::Wrong(Wrong::Early { .. }) => assert!(!is_near && slot > self.now.0),
            RequestError::Malformed(Malformed::Slotting { .. } | Malformed::Missing(_)) => {}
            RequestError::Malformed(Malformed::Slots { .. } | Malformed::Rank(_)) => {}
            RequestError::Malformed(Malformed::Answers { .. }) => panic!("no answer was given"),
            RequestError::Wrong(_) => assert!(is_near),
        }
    }

    /// Loads that a stranger sees along the path to hosts. No link is ever promised more than it has.
    fn loads(&mut self, hosts: &[u32]) -> Vec<Option<Vec<u64>>> {
        let question = |to: &u32| Question {
            flow: STRANGER,
            rank: Rank::LAST,
            to: NodeId(*to),
            others: Vec::new(),
        };
        let questions: Vec<Question> = hosts.iter().map(question).collect();
        let answers = self.board.fetch(self.now, self.now, &questions).expect("a plain question");
        let load = |feedback: thalweg_pace::Feedback| {
            let volumes = feedback.load.volumes().to_vec();
            assert!(volumes.iter().all(|&volume| volume <= feedback.narrowest), "{volumes:?}");
            volumes
        };
        answers.into_iter().map(|answer| answer.feedback.map(load)).collect()
    }

    /// One of the five slots around the current one.
    fn near(&self, slot: u64) -> u64 {
        self.now.0 - 2 + slot % 5
    }

    fn fall_silent(&mut self) {
        self.now = self.now.after(SILENT_SLOTS);
        self.board.fetch(self.now, self.now, &[]).expect("it asks for nothing");
        let left = picture(&self.board);
        assert!(left.contains("flows: {}, agents: {}"), "not everything is forgotten: {left}");
        assert!(!left.contains("FlowId"), "a flow is not forgotten: {left}");
    }
}

fn slotting() -> v1::Slotting {
    v1::Slotting { slot_us: 60_000, horizon_slots: 10 }
}

/// Decodes bytes; the message stays the same when it is written and read again.
fn decoded<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    assert_eq!(M::decode(&message.encode_to_vec()[..]).ok().as_ref(), Some(&message));
    Some(message)
}

/// Everything that a board knows, but for the count of what it refused.
fn picture(board: &Board) -> String {
    let rejected = format!("rejected: {}", board.stats().rejected);
    format!("{board:?}").replacen(&rejected, "", 1)
}
