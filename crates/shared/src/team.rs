//! A team and its operations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use thalweg_core::{Combine, Element, Fingerprint, OperationKind};
use thalweg_values::divide;

use crate::assemble::{self, Wait};
use crate::board::LEFT;
use crate::call::{Call, Step};
use crate::error::{Misuse, TeamError};
use crate::file::{self, DIRECTORY};
use crate::gate::Gate;
use crate::layout::Layout;
use crate::pipeline::{self, Steps};
use crate::process::Process;
use crate::steps::{Arithmetic, Barrier, Broadcast, Gather, Reduce};

/// Default number of bytes of a tensor that move at a time.
///
/// Between 128 KiB and 2 MiB the time of an all-reduce differed by less than the noise, with two and
/// with four processes on two cores. In this range the slots of a few members fit into the
/// second-level cache, and there are few enough chunks for waiting not to count.
pub const DEFAULT_CHUNK_BYTES: usize = 512 << 10;

/// Default time to wait for others: longer than members of one host differ in
/// their work, shorter than people wait before they look.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);

/// The most members that a team can have.
pub const MAX_MEMBERS: u32 = 1_024;

/// Options of a member that joins a team.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the team, the same at all of its members and at no others on this host: ASCII letters, digits,
    /// dots, hyphens and underscores.
    pub name: String,
    /// Number of members, at most [`MAX_MEMBERS`].
    pub members: u32,
    /// Number of this member, counted from 0. Values are combined in this order.
    pub me: u32,
    /// Time to wait for others in every step of an operation.
    pub patience: Duration,
    /// Time to wait for others when joining. Default: `patience`.
    pub join_patience: Option<Duration>,
    /// Bytes of a tensor that move at a time, the same at every member. The team needs three to six
    /// times as much shared memory a member.
    pub chunk_bytes: usize,
    /// Has the team fail with [`TeamError::Stopped`] if this member waits for others while the flag is set.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Config {
    /// With [`DEFAULT_PATIENCE`] and [`DEFAULT_CHUNK_BYTES`].
    pub fn new(name: impl Into<String>, members: u32, me: u32) -> Config {
        Config {
            name: name.into(),
            members,
            me,
            patience: DEFAULT_PATIENCE,
            join_patience: None,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            stop: None,
        }
    }
}

/// A member's hold on its team.
///
/// All members make the same calls in the same order, each with its own data; a call returns when
/// this member's part of it is done. A call that fails leaves its data in an undefined state (some
/// mixture of the old and the new values) and the team useless: every later call, at every member,
/// fails at once with the same error. Dropping it leaves the team, which fails if others still need
/// this member.
#[derive(Debug)]
pub struct Team {
    gate: Gate,
    /// Process that joined. A child process that inherits this is not the member.
    pid: u32,
    /// Operations begun, and chunks moved by them.
    operations: u64,
    chunks: u64,
    scratch: Vec<u8>,
    /// The operation of the application that the next calls are steps of.
    label: Option<Fingerprint>,
    failure: Option<TeamError>,
}

impl Team {
    /// Waits for all members and forms the team. The members meet in a file in `/dev/shm`, which the
    /// first one creates and the last one removes: a team that stands leaves nothing behind, however
    /// its members end.
    pub fn join(config: Config) -> Result<Team, TeamError> {
        Team::join_in(DIRECTORY.as_ref(), config)
    }

    fn join_in(directory: &Path, config: Config) -> Result<Team, TeamError> {
        let Config { name, members, me, patience, join_patience, chunk_bytes, stop } = config;
        if !file::is_name(&name) {
            return Err(TeamError::Name { name });
        }
        if me >= members || members > MAX_MEMBERS {
            return Err(TeamError::Member { me, members, most: MAX_MEMBERS });
        }
        let layout = Layout::new(members, chunk_bytes).ok_or_else(|| TeamError::TooSmall {
            directory: directory.into(),
            needed_bytes: u64::MAX,
            free_bytes: crate::sys::free_bytes(directory).unwrap_or(0),
        })?;
        let own = Process::own();
        let path = file::path(directory, &name);
        let wait = Wait { patience: join_patience.unwrap_or(patience), stop: stop.clone() };
        let board = assemble::assemble(directory, &path, layout, me, &own, &wait)?;
        let mut gate = Gate::new(board, me, own, patience);
        gate.stop = stop;
        Ok(Team {
            gate,
            pid: own.pid,
            operations: 0,
            chunks: 0,
            scratch: Vec::new(),
            label: None,
            failure: None,
        })
    }

    /// Number of members.
    pub fn members(&self) -> u32 {
        self.gate.board.layout.members
    }

    /// Number of this member.
    pub fn me(&self) -> u32 {
        self.gate.me
    }

    /// Says of which operation of the application the next calls are steps. Members whose operations differ
    /// fail, although the calls may be the same: a mean begins with a sum.
    // spec: E-11
    pub fn label(&mut self, operation: Option<Fingerprint>) {
        self.label = operation;
    }

    /// Everybody's data becomes the combination of all, value by value, in the order of members: the
    /// same bits at every member.
    pub fn all_reduce(
        &mut self,
        element: Element,
        how: Combine,
        data: &mut [u8],
    ) -> Result<(), TeamError> {
        self.all_reduce_divided(element, how, 1, data)
    }

    /// The same as [`Team::all_reduce`], and every value is divided by a number: what makes a mean of a sum.
    pub fn all_reduce_divided(
        &mut self,
        element: Element,
        how: Combine,
        divisor: u32,
        data: &mut [u8],
    ) -> Result<(), TeamError> {
        let call = Call::reduction(None, element, how, data.len());
        let is_whole = data.len().is_multiple_of(element.bytes());
        self.require(is_whole, call, Misuse::PartialValue)?;
        self.reduce(call, Arithmetic { element, how, divisor }, None, data)
    }

    /// The root's data becomes the combination of all, as in [`Team::all_reduce`]; that of the others
    /// stays as it is.
    pub fn reduce_to(
        &mut self,
        root: u32,
        element: Element,
        how: Combine,
        data: &mut [u8],
    ) -> Result<(), TeamError> {
        let call = Call::reduction(Some(root), element, how, data.len());
        self.require(root < self.members(), call, Misuse::NoSuchRoot)?;
        let is_whole = data.len().is_multiple_of(element.bytes());
        self.require(is_whole, call, Misuse::PartialValue)?;
        self.reduce(call, Arithmetic { element, how, divisor: 1 }, Some(root), data)
    }

    /// Everybody's data becomes the root's.
    pub fn broadcast(&mut self, root: u32, data: &mut [u8]) -> Result<(), TeamError> {
        let call = Call::copy(OperationKind::Broadcast, Some(root), data.len());
        self.require(root < self.members(), call, Misuse::NoSuchRoot)?;
        self.run(call, |_, _| Broadcast { data, root })
    }

    /// `all` becomes what all members gave as `mine`, one after the other, in their order.
    pub fn all_gather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), TeamError> {
        let call = Call::copy(OperationKind::AllGather, None, mine.len());
        let fits = mine.len().checked_mul(self.members() as usize) == Some(all.len());
        self.require(fits, call, Misuse::WrongRoom)?;
        self.run(call, |_, _| Gather { mine, all })
    }

    /// Returns when every member has called it.
    pub fn barrier(&mut self) -> Result<(), TeamError> {
        self.run(Call::bare(OperationKind::Barrier), |_, _| Barrier)
    }

    fn reduce(
        &mut self,
        call: Call,
        arithmetic: Arithmetic,
        root: Option<u32>,
        data: &mut [u8],
    ) -> Result<(), TeamError> {
        // One value alone is its own combination.
        if self.members() == 1 {
            if arithmetic.divisor > 1 {
                divide(arithmetic.element, data, arithmetic.divisor);
            }
            return Ok(());
        }
        let me = self.me();
        self.run(call, |chunk_bytes, scratch| {
            Reduce::new(data, arithmetic, (me, root), chunk_bytes, scratch)
        })
    }

    fn run<'a, S: Steps>(
        &'a mut self,
        call: Call,
        steps: impl FnOnce(usize, &'a mut Vec<u8>) -> S,
    ) -> Result<(), TeamError> {
        if let Some(failure) = self.failure.clone().or_else(|| self.gate.board.verdict()) {
            self.failure = Some(failure.clone());
            return Err(failure);
        }
        let operation = self.operations;
        self.operations += 1;
        let mut steps = steps(self.gate.board.layout.chunk_bytes, &mut self.scratch);
        let step = Step { call, operation: self.label };
        let result = pipeline::run(&mut self.gate, operation, step, self.chunks, &mut steps);
        // A member that did not need the failed one must not go on as if all were well.
        let result = result.and_then(|chunks| self.gate.check().map(|()| chunks));
        match result {
            Ok(chunks) => self.chunks = chunks,
            Err(ref failure) => self.failure = Some(failure.clone()),
        }
        result.map(|_| ())
    }

    /// Fails the team if a call cannot be done: the others would wait for it in vain.
    fn require(&mut self, holds: bool, call: Call, why: Misuse) -> Result<(), TeamError> {
        if holds {
            return Ok(());
        }
        let (operation, member) = (self.operations, self.me());
        let error = TeamError::Misused { operation, member, call, why };
        let failure = match self.failure.take() {
            Some(earlier) => earlier,
            None => self.gate.board.condemn(error),
        };
        self.failure = Some(failure.clone());
        Err(failure)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if std::process::id() == self.pid {
            self.gate.board.membership(self.me()).store(LEFT, SeqCst);
            self.gate.board.bell().ring();
        }
    }
}
