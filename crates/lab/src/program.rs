//! A program in a lab, with output that tells who wrote it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::LabError;
use crate::place::Place;
use crate::sys;

/// Longer lines are cut, so that a program that never ends its line does not fill the memory.
const LINE_BYTES: u64 = 64 * 1024;
/// Longest time that the output of an ended program may be held open by processes that got away from it.
const LAST_OUTPUT_MS: u32 = 1_000;

/// A running program, and what it starts: they are one process group, and end together. Dropping it
/// ends them at once.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Exit status, once it has been polled.
    ended: Option<ExitStatus>,
    readers: Vec<JoinHandle<()>>,
    /// Why output was lost.
    lost: Lost,
    /// Taken away before the group's number can be somebody else's.
    guard: Option<Guard>,
}

/// Ends a process group, and whatever else is in its network, when this process is gone, even by `SIGKILL`: a shell that
/// waits for the end of its input, which only this process holds open. The kernel itself would end the program, but
/// not what it has started.
#[derive(Debug)]
struct Guard(Child);

/// The first reason why output could not be written.
type Lost = Arc<OnceLock<String>>;

/// Script of a guard. Its output is the network, which it holds open so that the kernel's number stays that one's.
const GUARD: &str = "\
read -r leader || exit
read -r _
kill -s KILL -- -$leader
network=$(readlink /proc/$$/fd/1)
case $network in net:*) ;; *) exit ;; esac
for process in /proc/[0-9]*; do
    [ \"$(readlink \"$process/ns/net\")\" = \"$network\" ] && kill -s KILL \"${process#/proc/}\"
done";

impl Program {
    /// Starts a command at a place. Every line that it writes to standard output or standard error
    /// goes to the same stream of this process, with the prefix before it. Its input is empty.
    ///
    /// The program dies when the calling **thread** ends, whatever the reason.
    pub fn start(place: &Place, mut command: Command, prefix: &str) -> Result<Program, LabError> {
        place.enter(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C in a terminal is for us, and we tell everybody.
        command.process_group(0);
        // Without a shell the program still dies with us. It is there first: we may be killed at any moment.
        let guard = Guard::over(place, &mut command).ok();
        let mut child = command.spawn().map_err(|source| LabError::Start {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        let (mut readers, lost) = (Vec::new(), Lost::default());
        if let Some(output) = child.stdout.take() {
            let (prefix, lost) = (prefix.to_owned(), Arc::clone(&lost));
            let copy = move || copy_lines(output, &prefix, io::stdout(), &lost);
            readers.push(thread::spawn(copy));
        }
        if let Some(output) = child.stderr.take() {
            let (prefix, lost) = (prefix.to_owned(), Arc::clone(&lost));
            let copy = move || copy_lines(output, &prefix, io::stderr(), &lost);
            readers.push(thread::spawn(copy));
        }
        Ok(Program { child, ended: None, readers, lost, guard })
    }

    /// Exit status, or `None` while it runs. When it has ended, so has everything it started, and
    /// all its output is written.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() && sys::has_ended(self.child.id())? {
            self.end()?;
        }
        Ok(self.ended)
    }

    /// The first reason why output of the program could not be written, if some was lost. A reader that has stopped
    /// does not count.
    pub fn lost_output(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Asks it and what it has started to end, with `SIGTERM`.
    pub fn terminate(&self) {
        if self.ended.is_none() {
            sys::signal_group(self.child.id(), libc::SIGTERM);
        }
    }

    /// Ends it and what it has started, with `SIGKILL`.
    pub fn kill(&self) {
        if self.ended.is_none() {
            sys::signal_group(self.child.id(), libc::SIGKILL);
        }
    }

    /// Ends what is left of the group, then waits: until then no other group can take its number.
    #[expect(clippy::disallowed_methods, reason = "the rest of the output takes real time")]
    fn end(&mut self) -> io::Result<()> {
        self.guard = None;
        self.kill();
        self.ended = Some(self.child.wait()?);
        for _ in 0..LAST_OUTPUT_MS {
            if self.readers.iter().all(JoinHandle::is_finished) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Guard {
    /// A guard over the group that a command will lead. The command itself says which that is: after it has
    /// started we might not live long enough to do so.
    fn over(place: &Place, command: &mut Command) -> io::Result<Guard> {
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARD]).stdin(Stdio::piped()).stdout(place.namespace.try_clone()?);
        shell.stderr(Stdio::null());
        // Ctrl-C in a terminal is not for it.
        let guard = shell.process_group(0).spawn().map(Guard)?;
        let input = guard.0.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        sys::tell_before_start(command, input.as_fd().try_clone_to_owned()?);
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its input ends, so that it does nothing.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // There is nobody to tell of a failure, and a killed process is gone anyway.
            let _ = self.end();
        }
    }
}

fn copy_lines(source: impl Read, prefix: &str, mut sink: impl Write, lost: &OnceLock<String>) {
    let mut source = BufReader::new(source);
    loop {
        // One write for the whole line, so that lines of different programs do not mix.
        let mut line = prefix.as_bytes().to_vec();
        match source.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // The reader of our output may have stopped. The program must not notice.
        match sink.write_all(&line).and_then(|()| sink.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                lost.get_or_init(|| error.to_string());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(source: &str) -> String {
        let mut sink = Vec::new();
        copy_lines(source.as_bytes(), "[3] ", &mut sink, &OnceLock::new());
        String::from_utf8(sink).expect("UTF-8")
    }

    #[test]
    fn every_line_has_the_prefix() {
        assert_eq!(copied("a\n\nb"), "[3] a\n[3] \n[3] b\n");
        assert_eq!(copied(""), "");
    }

    #[test]
    fn unwritable_output_is_noted_unless_nobody_reads() {
        struct Broken(io::ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for (kind, is_lost) in
            [(io::ErrorKind::StorageFull, true), (io::ErrorKind::BrokenPipe, false)]
        {
            let lost = OnceLock::new();
            copy_lines(&b"a\nb\n"[..], "", Broken(kind), &lost);
            assert_eq!(lost.get().is_some(), is_lost, "{kind:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let copied = copied(&"x".repeat(100_000));
        let lengths: Vec<usize> = copied.lines().map(str::len).collect();
        assert_eq!(lengths, [65_540, 34_468]);
    }
}
