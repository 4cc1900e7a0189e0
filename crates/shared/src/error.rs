//! Errors of a team.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::call::{Call, Step};

/// Why a team could not be formed, or has failed.
///
/// From [`Stalled`](TeamError::Stalled) on, the error is that of the whole team: every member gets
/// the same one, in the call it is in and in all later ones. Operations are counted from 0.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TeamError {
    /// The team's name cannot be a file's name.
    #[error(
        "\"{name}\" cannot name a team: use 1 to 200 ASCII letters, digits, dots, hyphens and \
         underscores"
    )]
    Name {
        /// The name as given.
        name: String,
    },
    /// The member is not one of the team's, or there are too many.
    #[error("member {me} of {members} cannot be: give at most {most} members and count from 0")]
    Member {
        /// The member as given.
        me: u32,
        /// The members as given.
        members: u32,
        /// Largest number of members.
        most: u32,
    },
    /// The system has no shared memory.
    #[error(
        "there is no directory {path}: mount a tmpfs there (mount -t tmpfs tmpfs {path})",
        path = directory.display()
    )]
    NoSharedMemory {
        /// The directory that is not there.
        directory: PathBuf,
    },
    /// The shared memory is full, or too small for this team.
    #[error(
        "the team needs {needed} of shared memory and {path} has {free} left: enlarge it (mount -o \
         remount,size=<bytes> {path}, or for a container --shm-size), remove what fills it, or \
         lower chunk_bytes",
        needed = mebibytes(*needed_bytes),
        path = directory.display(),
        free = mebibytes(*free_bytes)
    )]
    TooSmall {
        /// Directory of the memory.
        directory: PathBuf,
        /// Bytes that the team needs.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// The system refused something.
    #[error("cannot {doing} {}: {}", path.display(), io::Error::from_raw_os_error(*code))]
    System {
        /// Action that was refused.
        doing: &'static str,
        /// File of the action.
        path: PathBuf,
        /// The system's error number.
        code: i32,
    },
    /// There is a file with the team's name that the team cannot use.
    #[error(
        "{} {why}: remove it if nothing uses it, or choose another name", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        why: String,
    },
    /// Another process or thread is this member already.
    #[error("process {pid} is member {member} already: give every member its own number")]
    Taken {
        /// The member.
        member: u32,
        /// Process that is the member.
        pid: u32,
    },
    /// Not everybody came.
    #[error("{} did not join within {after:?}: look there for what went wrong", list(missing))]
    Absent {
        /// Members that did not come.
        missing: Vec<u32>,
        /// Time that they were waited for.
        after: Duration,
    },
    /// A member ended before everybody had come.
    #[error("{} ended before all had joined: look there for what went wrong", list(members))]
    Died {
        /// Members that ended.
        members: Vec<u32>,
    },
    /// Members did not come to an operation in time.
    #[error(
        "operation {operation} ({call}) timed out after {after:?}, waiting for {}: look there for what went \
         wrong, or give the team more patience",
        list(missing)
    )]
    Stalled {
        /// The operation.
        operation: u64,
        /// Call of the operation.
        call: Call,
        /// Members that did not come.
        missing: Vec<u32>,
        /// Time that they were waited for.
        after: Duration,
    },
    /// Members ended, or left the team, while others needed them.
    #[error(
        "{} ended or left the team before operation {operation} ({call}) was done: look there for \
         what went wrong",
        list(members)
    )]
    Gone {
        /// The operation.
        operation: u64,
        /// Call of the operation.
        call: Call,
        /// Members that are gone.
        members: Vec<u32>,
    },
    /// Two members called different things.
    #[error(
        "operation {operation} is {one_call} at member {one}, and {other_call} at member {other}: \
         all members must make the same calls in the same order"
    )]
    Disagreement {
        /// The operation.
        operation: u64,
        /// A member.
        one: u32,
        /// Call of the first member.
        one_call: Box<Step>,
        /// Another member.
        other: u32,
        /// Call of the other member.
        other_call: Box<Step>,
    },
    /// A member's call cannot be done, whatever the others call.
    #[error("operation {operation} at member {member} is {call}, and {why}")]
    Misused {
        /// The operation.
        operation: u64,
        /// Member that made the call.
        member: u32,
        /// Call of the member.
        call: Call,
        /// Fault of the call.
        why: Misuse,
    },
    /// A member was stopped while it waited for others.
    #[error("member {member} was stopped in operation {operation}: look there for the reason")]
    Stopped {
        /// The operation.
        operation: u64,
        /// The member.
        member: u32,
    },
    /// The memory of the team holds what no member writes.
    #[error("the team's memory was overwritten: another process has changed {what}")]
    Overwritten {
        /// Name of what was changed.
        what: &'static str,
    },
}

impl TeamError {
    /// The members at fault, where that is known.
    pub fn culprits(&self) -> Vec<u32> {
        match self {
            TeamError::Absent { missing, .. } | TeamError::Stalled { missing, .. } => {
                missing.clone()
            }
            TeamError::Died { members } | TeamError::Gone { members, .. } => members.clone(),
            TeamError::Misused { member, .. } | TeamError::Stopped { member, .. } => vec![*member],
            _ => Vec::new(),
        }
    }

    /// The operation that failed, if the team was formed.
    pub fn operation(&self) -> Option<u64> {
        match *self {
            TeamError::Stalled { operation, .. }
            | TeamError::Gone { operation, .. }
            | TeamError::Disagreement { operation, .. }
            | TeamError::Stopped { operation, .. }
            | TeamError::Misused { operation, .. } => Some(operation),
            _ => None,
        }
    }
}

/// Fault of a call by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Misuse {
    /// The data ends inside a value.
    #[error("its data is not a whole number of values")]
    PartialValue,
    /// The root is not in the team.
    #[error("the team has no such member")]
    NoSuchRoot,
    /// The room for all parts has another length than they have together.
    #[error("its room for all parts is not as long as they are together")]
    WrongRoom,
}

fn list(members: &[u32]) -> String {
    let names: Vec<String> = members.iter().map(u32::to_string).collect();
    let members = if names.len() == 1 { "member" } else { "members" };
    format!("{members} {}", names.join(", "))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use thalweg_core::OperationKind;

    use super::*;

    #[test]
    fn errors_say_who_and_what_to_change() {
        let stalled = TeamError::Stalled {
            operation: 3,
            call: Call::bare(OperationKind::Barrier),
            missing: vec![1, 4],
            after: Duration::from_millis(1_500),
        };
        assert_eq!(
            stalled.to_string(),
            "operation 3 (barrier) timed out after 1.5s, waiting for members 1, 4: look there for what went \
             wrong, or give the team more patience"
        );
        let small = TeamError::TooSmall {
            directory: "/dev/shm".into(),
            needed_bytes: 96 << 20,
            free_bytes: 64 << 20,
        };
        assert_eq!(
            small.to_string(),
            "the team needs 96.0 MiB of shared memory and /dev/shm has 64.0 MiB left: enlarge it \
             (mount -o remount,size=<bytes> /dev/shm, or for a container --shm-size), remove what \
             fills it, or lower chunk_bytes"
        );
        let absent = TeamError::Absent { missing: vec![2], after: Duration::from_secs(9) };
        assert!(absent.to_string().starts_with("member 2 did not join within 9s"));
    }
}
