//! A rank's end of the control channel.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use thalweg_aggregate::Setup;
use thalweg_core::{NodeId, Span};
use thalweg_wire::tag::Key;
use thiserror::Error;
use tokio::runtime;
use tokio::sync::mpsc;

use self::call::Call;
use crate::access::{Access, AccessError};
use crate::message::{Diagnosis, Failure, FromRank, RankTicket, Welcome};
use crate::settings::Settings;

mod call;
mod further;
pub(crate) mod rounds;

/// The rank that attends, its job, and the service.
#[derive(Clone, Debug)]
pub struct AttendConfig {
    /// The service.
    pub access: Access,
    /// The name of the job.
    pub name: String,
    /// Number of ranks of the job.
    pub workers: u32,
    /// Number of this rank.
    pub rank: u32,
    /// Address of the first sending thread.
    pub node: NodeId,
    /// Addresses of further sending threads: the rank can use as many and one, at most [`TREES_MAX`](crate::TREES_MAX).
    // spec: F-04
    pub more_nodes: Vec<NodeId>,
    /// Tells this process from every other that ever was this rank: random.
    pub life: u64,
    /// Ranks that say the same can share memory.
    pub host: String,
    /// The switch of the rack, if there is one.
    pub switch: Option<NodeId>,
    /// MTU of its interface. `None` for a rank that answers no probes.
    pub mtu_bytes: Option<u16>,
    /// Ticket of the process that had the rank, for one that takes its place. `None` in a new job.
    pub ticket: Option<RankTicket>,
    /// Settings that are the same at all ranks. The service is looked for during `join_timeout` at first, and during
    /// `failure_after` whenever it is lost, while the job gathers as well.
    pub settings: Settings,
}

/// Why nobody attends.
#[derive(Debug, Error)]
pub enum AttendError {
    /// The service cannot even be tried.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The system gives no thread.
    #[error("the system does not give a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Event of a rank's control channel. Reports, probes, set-ups and retirements are about one tree of the job.
#[derive(Clone, PartialEq, Debug)]
pub enum ControlEvent {
    /// The rank belongs to this process. Comes again after a reconnection.
    Joined {
        /// Ticket for a process that takes its place.
        ticket: RankTicket,
    },
    /// All ranks are there. Comes again after a reconnection, and when somebody came back as another
    /// process: the latest counts.
    Welcome(Arc<Welcome>),
    /// Not all ranks are there.
    Waiting {
        /// The first of those that are not.
        missing: Arc<[u32]>,
    },
    /// A leader probes its paths to these nodes and to the other leaders, and sends [`FromRank::Paths`] before it answers
    /// the report of the round. May come again for the same round.
    // spec: F-01
    ProbePaths {
        /// The round.
        round: u32,
        /// The largest MTU to try.
        mtu_bytes: u16,
        /// The nodes.
        nodes: Vec<NodeId>,
    },
    /// The MTU that all paths of the job carry. Comes before the set-up that it belongs to.
    PathMtu {
        /// The MTU.
        mtu_bytes: u16,
    },
    /// A leader shall pause its worker and send [`FromRank::Answer`]. May come again for the same
    /// round: the same answer is due.
    Report {
        /// The round.
        round: u32,
        /// The leader's index among the leaders.
        seat: u32,
    },
    /// A leader adopts a set-up: once, and only the outcome of the latest round that it answered in.
    Adopt {
        /// The set-up.
        setup: Arc<Setup>,
        /// The leader's index among the leaders: the rank in the set-up's trees.
        seat: u32,
        /// The key of the set-up's epoch.
        key: Key,
    },
    /// A leader has no part in the set-ups before this round any more.
    Retire {
        /// The round.
        round: u32,
    },
    /// Why the job stalls. It goes on.
    Diagnosis(Arc<Diagnosis>),
    /// The server has contributions to different operations: the rank reports its latest ones at once.
    ReportOperations,
    /// A rank has left.
    Left {
        /// The rank.
        rank: u32,
        /// Number of operations that it has called: no later one can end.
        operations: u64,
    },
    /// The job is over, everywhere for the same reason. Nothing comes after it.
    Failed(Arc<Failure>),
    /// The service is out of reach; it is looked for. Comes every second until that ends.
    Disconnected {
        /// For how long.
        since: Span,
        /// Why.
        text: String,
    },
    /// The service was out of reach for too long, or refuses this rank. Nothing comes after it.
    GaveUp {
        /// Why.
        text: String,
        /// True if it refuses the rank.
        is_refused: bool,
    },
}

/// The watermarks of the trees of a job, as far as they are known.
pub(crate) type Watermarks = BTreeMap<u32, u64>;

/// One rank's attendance of a job, for all of its sending threads.
///
/// Events come from a thread of its own, in order, each with the tree that it is about, which is the first one where it is
/// about the job; the function that takes them must not block. The
/// connection is looked for again whenever it breaks. A rank that drops it without
/// [`leave`](Attendance::leave) is missed by the others, as if the process had died.
#[derive(Debug)]
pub struct Attendance {
    commands: mpsc::UnboundedSender<(u32, FromRank)>,
    watermarks: Arc<Mutex<Watermarks>>,
    thread: Option<JoinHandle<()>>,
}

impl Attendance {
    /// Attends in a thread of its own. Returns at once.
    pub fn start(
        config: AttendConfig,
        events: impl FnMut(u32, ControlEvent) + Send + 'static,
    ) -> Result<Attendance, AttendError> {
        let door = config.access.door()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (commands, commands_in) = mpsc::unbounded_channel();
        let watermarks = Arc::<Mutex<Watermarks>>::default();
        let remembered = Arc::clone(&watermarks);
        let body = move || {
            let call = Call::new(config, door, commands_in, remembered, Box::new(events));
            runtime.block_on(call.run());
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("thalweg-attend".into()).spawn(body)?;
        Ok(Attendance { commands, watermarks, thread: Some(thread) })
    }

    /// Says something about the job, or about its first tree, without waiting. While the service is out of reach the last
    /// progress and a failure are kept; the rest is lost, because the service asks again.
    pub fn send(&self, message: FromRank) {
        self.send_of(0, message);
    }

    /// The same about a tree.
    // spec: F-04
    pub fn send_of(&self, tree: u32, message: FromRank) {
        // Nobody is there to receive it after the end.
        let _ = self.commands.send((tree, message.shortened()));
    }

    /// Keeps what to tell a service that lost its memory: all fragments of a tree below are complete here. To be
    /// called once a set-up is adopted, and as the watermark grows.
    pub fn set_watermark(&self, tree: u32, watermark: u64) {
        let mut watermarks = self.watermarks.lock().unwrap_or_else(PoisonError::into_inner);
        watermarks.insert(tree, watermark);
    }

    /// Leaves for good, after this number of operations.
    pub fn leave(mut self, operations: u64) -> Departure {
        self.send(FromRank::Leave { operations });
        Departure { thread: self.thread.take() }
    }
}

/// A rank that is about to leave.
#[derive(Debug)]
#[must_use = "a process that ends before the service knows of it seems to have died"]
pub struct Departure {
    thread: Option<JoinHandle<()>>,
}

impl Departure {
    /// Returns when the service knows, or half a second after the rank has left.
    pub fn wait(self) {
        if let Some(thread) = self.thread {
            // It has reported the reason if it panicked.
            let _ = thread.join();
        }
    }
}
