//! Detection of processes that have ended.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process, identified by its number and its start, since later ones may have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// In ticks since the system was started.
    pub(crate) started: u64,
    /// The namespace that the number belongs to; zero where that is not known.
    pub(crate) namespace: u64,
}

impl Process {
    /// The calling process.
    pub(crate) fn own() -> Process {
        let pid = std::process::id();
        let found = stat(pid).ok().and_then(|stat| parse(&stat));
        // A `/proc` of another namespace knows this process by another number.
        let is_own =
            fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&pid.to_string()));
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
        match found {
            Some((_, started)) if is_own => Process { pid, started, namespace },
            _ => Process { pid, started: 0, namespace: 0 },
        }
    }

    /// True if it has certainly ended, as `own` sees it. False for a process in another namespace of process numbers,
    /// where nothing is known.
    pub(crate) fn has_ended(&self, own: &Process) -> bool {
        if self.namespace == 0 || self.namespace != own.namespace {
            return false;
        }
        match stat(self.pid) {
            Ok(stat) => parse(&stat).is_some_and(|(state, started)| {
                matches!(state, 'Z' | 'X') || started != self.started
            }),
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
            }
        }
    }
}

fn stat(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/stat"))
}

/// The state and the start, the 3rd and the 22nd field. The 2nd, the name, may hold anything, but
/// ends at the last parenthesis.
fn parse(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_name_cannot_shift_the_fields() {
        let stat = "7 (a) Z 9) S 1 7 7 0 -1 4194304 5 0 0 0 3 2 0 0 20 0 1 0 8765 1 1\n";
        assert_eq!(parse(stat), Some(('S', 8_765)));
        assert_eq!(parse("7 (a) S 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_lives_until_it_ends_or_is_a_zombie() {
        let own = Process::own();
        assert!(own.started > 0 && !own.has_ended(&own));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (_, started) = parse(&stat(child.id()).unwrap()).unwrap();
        let process = Process { pid: child.id(), started, ..own };
        assert!(!process.has_ended(&own));
        assert!(Process { started: started + 1, ..process }.has_ended(&own), "its number only");
        assert!(!Process { namespace: 1, started: 0, ..process }.has_ended(&own), "who knows");
        child.kill().unwrap();
        while stat(child.id()).is_ok_and(|stat| parse(&stat).unwrap().0 != 'Z') {
            std::thread::yield_now();
        }
        assert!(process.has_ended(&own), "a zombie");
        child.wait().unwrap();
        assert!(process.has_ended(&own));
    }
}
