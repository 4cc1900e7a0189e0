//! Undoes what a process changed on its host when that process hangs or is killed.
//!
//! A stopped process cannot lift the limits that it has set on connections of other programs, so a second one, its
//! guardian, watches it. The process sends signs of life over a socket; when none comes for [`SILENT_AFTER`], by a
//! clock that nobody sets, the guardian lifts all limits of the program and reports that it has. A process that goes
//! on limits again. When the socket closes and the process has not ended the guardian before, it was killed: the
//! guardian lifts the limits, restores the settings of the kernel, and ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thalweg_control::local::{Lines, write_line};

use crate::error::AgentError;
use crate::foreign;
use crate::group::{Group, Members};
use crate::{interface, originals, pieces, sys, written};

/// A process that has given no sign of life for this long hangs.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// Time between two signs of life.
const ALIVE_EVERY: Duration = Duration::from_millis(100);
/// The locks of a killed process may be held for this long after its socket has closed.
const RESTORE_WITHIN_MS: u32 = 2_000;

/// Report of the guardian that all limits were lifted.
const LIFTED: u8 = b'l';
/// Report of the guardian that it may not touch files of the program.
const DENIED: u8 = b'd';

/// Precautions so that nothing that is changed on a host stays changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Safeguards {
    /// Folder of the files that keep original values of settings. It must not outlive a boot by much: `/run`.
    pub state_dir: PathBuf,
    /// Command that runs [`guard`] in a process of its own. Without one, a process that hangs keeps its limits.
    pub guardian: Option<Vec<OsString>>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
enum ToGuardian {
    /// Original values of settings are kept in this folder. Always the first line.
    Begin { state_dir: PathBuf },
    /// Connections of these processes are limited.
    Watch { members: Members },
    /// A connection had a limit of its own before.
    Keep { inode: u64, limit: u64 },
    /// A sign of life.
    Alive,
}

/// Reports of a guardian.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Done {
    /// It lifted all limits.
    pub(crate) has_lifted: bool,
    /// It may not touch files of the program.
    pub(crate) is_denied: bool,
}

/// A guardian process. Ended when dropped: the process that drops it has undone its changes.
pub(crate) struct Guardian {
    child: Child,
    stream: UnixStream,
    alive_at: Instant,
}

impl Guardian {
    /// Starts the guardian of this process, if one is asked for.
    pub(crate) fn start(safeguards: &Safeguards) -> Result<Option<Guardian>, AgentError> {
        let Some(command) = &safeguards.guardian else { return Ok(None) };
        let start = || -> io::Result<Guardian> {
            let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let (stream, other) = UnixStream::pair()?;
            stream.set_nonblocking(true)?;
            let mut command = Command::new(program);
            command.args(arguments).stdin(OwnedFd::from(other)).stdout(Stdio::null());
            // Ctrl-C in a terminal is not for it.
            let child = command.process_group(0).spawn()?;
            let guardian = Guardian { child, stream, alive_at: clock() };
            guardian.say(&ToGuardian::Begin { state_dir: safeguards.state_dir.clone() })?;
            Ok(guardian)
        };
        start().map(Some).map_err(AgentError::system("the guardian of the host cannot be started"))
    }

    /// Names the processes whose connections will be limited.
    pub(crate) fn watch(&self, members: &Members) -> io::Result<()> {
        self.say(&ToGuardian::Watch { members: members.clone() })
    }

    /// Names the limit, in bytes a second, that a connection had before it is limited.
    pub(crate) fn keep(&self, inode: u64, limit: u64) -> io::Result<()> {
        self.say(&ToGuardian::Keep { inode, limit })
    }

    /// Gives a sign of life, and returns what the guardian has done. To be called every few milliseconds.
    pub(crate) fn beat(&mut self) -> io::Result<Done> {
        if self.alive_at.elapsed() >= ALIVE_EVERY {
            self.alive_at = clock();
            match self.say(&ToGuardian::Alive) {
                // A guardian that is stopped itself does no harm.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
        }
        let mut done = Done::default();
        let mut bytes = [0; 16];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    done.has_lifted |= bytes[..count].contains(&LIFTED);
                    done.is_denied |= bytes[..count].contains(&DENIED);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(done),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn say(&self, message: &ToGuardian) -> io::Result<()> {
        // A line is far shorter than what a socket takes in one piece: all of it is written, or nothing.
        write_line(&self.stream, message)
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Killed before its input ends, so that it does nothing.
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
    }
}

/// Runs a guardian until the process that it watches has ended. Standard input is the socket of that process.
// spec: E-14
pub fn guard() -> Result<(), AgentError> {
    // Signals are for the process that it watches: the guardian ends with it.
    sys::ignore_end_signals();
    let input = io::stdin().as_fd().try_clone_to_owned();
    let stream = input.map(UnixStream::from).map_err(AgentError::system("no standard input"))?;
    let lines = stream.try_clone().map_err(AgentError::system("no second file for a socket"))?;
    let (sender, messages) = channel();
    let read = move || {
        let mut lines = Lines::new(lines);
        while let Ok(Some(message)) = lines.next_line() {
            if sender.send(message).is_err() {
                return;
            }
        }
    };
    let reader = thread::Builder::new().name("thalweg-guardian".into()).spawn(read);
    reader.map_err(AgentError::system("cannot start a thread"))?;
    watch(&messages, SILENT_AFTER, &mut Watched::default(), &mut &stream);
    Ok(())
}

/// Actions of a guardian whose process hangs or ends.
trait Undo {
    /// Takes in a message. Returns whether it may do what it has to.
    fn hear(&mut self, message: ToGuardian) -> bool;
    /// Lifts all limits. Returns whether there were programs to look at.
    fn lift(&mut self) -> bool;
    /// Restores everything else. The process was killed.
    fn restore(&mut self);
}

fn watch(
    messages: &Receiver<ToGuardian>,
    silent_after: Duration,
    undo: &mut impl Undo,
    reports: &mut impl Write,
) {
    loop {
        let is_reported = match messages.recv_timeout(silent_after) {
            Ok(message) => match undo.hear(message) {
                true => Ok(()),
                false => reports.write_all(&[DENIED]),
            },
            Err(RecvTimeoutError::Timeout) if undo.lift() => reports.write_all(&[LIFTED]),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                undo.lift();
                undo.restore();
                return;
            }
        };
        // A process that has just ended reads no reports; the end of the messages comes next.
        drop(is_reported);
    }
}

/// Changes that a process has made on its host.
#[derive(Default)]
struct Watched {
    state_dir: Option<PathBuf>,
    members: Option<Members>,
    /// Limits that connections had before, by the kernel's number of the socket.
    originals: BTreeMap<u64, u64>,
}

impl Undo for Watched {
    fn hear(&mut self, message: ToGuardian) -> bool {
        match message {
            ToGuardian::Begin { state_dir } => self.state_dir = Some(state_dir),
            ToGuardian::Watch { members } => {
                let is_permitted = foreign::is_permitted(members.first());
                self.members = Some(members);
                return is_permitted;
            }
            ToGuardian::Keep { inode, limit } => drop(self.originals.insert(inode, limit)),
            ToGuardian::Alive => {}
        }
        true
    }

    fn lift(&mut self) -> bool {
        let Some(members) = &self.members else { return false };
        let state_dir = self.state_dir.as_deref();
        let written = state_dir.and_then(|state_dir| written::read(state_dir, members.first()));
        originals::lift(members.numbers(), &self.originals, written.as_ref());
        true
    }

    #[expect(clippy::disallowed_methods, reason = "a killed process ends in real time")]
    fn restore(&mut self) {
        drop(self.members.take().map(Group::adopt));
        let Some(state_dir) = self.state_dir.as_deref() else { return };
        let setting = pieces::setting(state_dir).ok();
        let is_left = |restored: io::Result<bool>| matches!(restored, Ok(false));
        for _ in 0..RESTORE_WITHIN_MS {
            let of_setting = setting.as_ref().is_some_and(|setting| is_left(setting.restore()));
            // Those of other programs that live are left as well.
            let of_limits = is_left(originals::restore(state_dir));
            let of_interface = is_left(interface::restore_left_over(state_dir));
            if !of_setting && !of_limits && !of_interface {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "signs of life are given in real time")]
fn clock() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Counted {
        messages: u32,
        lifted: u32,
        restored: u32,
    }

    impl Undo for Counted {
        fn hear(&mut self, _: ToGuardian) -> bool {
            self.messages += 1;
            self.messages != 2
        }

        fn lift(&mut self) -> bool {
            self.lifted += 1;
            true
        }

        fn restore(&mut self) {
            self.restored += 1;
        }
    }

    // spec: E-14 machine
    #[test]
    #[expect(clippy::disallowed_methods, reason = "silence is real time")]
    fn limits_are_lifted_while_a_process_is_silent_and_when_it_was_killed() {
        let (sender, messages) = channel();
        let speaker = thread::spawn(move || {
            for _ in 0..10 {
                sender.send(ToGuardian::Alive).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(Duration::from_millis(700));
            for _ in 0..10 {
                sender.send(ToGuardian::Alive).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
        });
        let (mut counted, mut reports) = (Counted::default(), Vec::new());
        watch(&messages, Duration::from_millis(300), &mut counted, &mut reports);
        speaker.join().unwrap();
        assert_eq!((counted.messages, counted.restored), (20, 1));
        // Twice in the silence, more often where this thread was late, and once at the end.
        assert!((2..=4).contains(&counted.lifted), "{}", counted.lifted);
        assert_eq!(reports.len() as u32, counted.lifted, "one more was denied, none at the end");
        assert_eq!(reports[0], DENIED);
    }
}
