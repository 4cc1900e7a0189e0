//! Processes that belong to a program.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde::{Deserialize, Serialize};

use crate::foreign;

/// A program and what it has started. The kernel's list, if there is one, is removed when this is dropped.
pub(super) struct Group(Members);

/// Source of the numbers of a program's processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Members {
    /// The kernel keeps the list: nobody gets away. Of a first process that was not let in, the family counts.
    Listed {
        /// A folder of the kernel's.
        list: PathBuf,
        /// The first process.
        first: u32,
    },
    /// Found from parent to child: one whose parent has ended is missed.
    Family(u32),
}

/// Enters the group, then becomes the program, so that nothing is started before.
const ENTER: &str = "{ echo $$ > \"$0/cgroup.procs\"; } 2>&-; exec \"$@\"";

impl Group {
    /// Starts a command in a group of its own, and says why it has no list if it has none.
    pub(super) fn start(command: &[OsString]) -> io::Result<(Child, Group, Option<String>)> {
        match make_list() {
            Ok(list) => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(ENTER).arg(&list).args(command);
                // Removed if nothing starts.
                let mut group = Group(Members::Listed { list, first: 0 });
                let child = shell.spawn()?;
                if let Members::Listed { first, .. } = &mut group.0 {
                    *first = child.id();
                }
                Ok((child, group, None))
            }
            Err(reason) => {
                let (program, arguments) =
                    command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                let child = Command::new(program).args(arguments).spawn()?;
                let group = Group(Members::Family(child.id()));
                Ok((child, group, Some(reason)))
            }
        }
    }

    /// The group of a process that was killed, to be removed when this is dropped.
    pub(super) fn adopt(members: Members) -> Group {
        Group(members)
    }

    /// The kernel's folder of the group, if it has one.
    pub(super) fn folder(&self) -> Option<&Path> {
        match &self.0 {
            Members::Listed { list, .. } => Some(list),
            Members::Family(_) => None,
        }
    }

    /// The processes of the group.
    pub(super) fn members(&self) -> &Members {
        &self.0
    }
}

impl Members {
    /// Numbers of the processes.
    pub(super) fn numbers(&self) -> Vec<u32> {
        match self {
            Members::Listed { list, first } => match listed(list) {
                nobody if nobody.is_empty() => foreign::family(*first),
                members => members,
            },
            Members::Family(first) => foreign::family(*first),
        }
    }

    /// Numbers of the processes in the kernel's list, if there is one.
    pub(super) fn listed(&self) -> Vec<u32> {
        match self {
            Members::Listed { list, .. } => listed(list),
            Members::Family(_) => Vec::new(),
        }
    }

    /// Number of the first process.
    pub(super) fn first(&self) -> u32 {
        match self {
            Members::Listed { first, .. } | Members::Family(first) => *first,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Members::Listed { list, .. } = &self.0 else { return };
        // What still runs goes back to where it came from; then the list can go.
        if let Some(parent) = list.parent() {
            for number in listed(list) {
                let _ = fs::write(parent.join("cgroup.procs"), number.to_string());
            }
        }
        let _ = fs::remove_dir(list);
    }
}

fn listed(list: &Path) -> Vec<u32> {
    let text = fs::read_to_string(list.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A new list beside this process, or the reason why it cannot be made.
fn make_list() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let root = root_of(&read("/proc/self/mounts")?).ok_or("control groups (v2) are not mounted")?;
    let groups = read("/proc/self/cgroup")?;
    let parent = root.join(own_of(&groups).ok_or("this process is in no group of v2")?);
    let list = parent.join(format!("thalweg-{}", std::process::id()));
    fs::create_dir(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    Ok(list)
}

fn root_of(mounts: &str) -> Option<PathBuf> {
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mounts.find(|words| words.get(2) == Some(&"cgroup2"))?;
    mount.get(1).map(PathBuf::from)
}

/// Relative to the root.
fn own_of(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(root_of(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(root_of("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n"), None);
        assert_eq!(own_of("5:cpu:/\n0::/user.slice/a\n"), Some("user.slice/a"));
        assert_eq!(own_of("0::/\n"), Some(""));
        assert_eq!(own_of("5:cpu:/\n"), None);
    }

    #[test]
    fn a_program_and_its_children_are_members_until_they_end() {
        let words = ["sh", "-c", "sleep 30 & wait"].map(OsString::from);
        let (mut child, group, reason) = Group::start(&words).unwrap();
        if let Some(reason) = &reason {
            eprintln!("by parents only: {reason}");
        }
        let appears = (0..500).any(|_| {
            #[expect(clippy::disallowed_methods, reason = "processes start in real time")]
            std::thread::sleep(std::time::Duration::from_millis(10));
            group.members().numbers().len() == 2
        });
        let members = group.members().numbers();
        for member in &members {
            let _ = Command::new("kill").args(["-9", &member.to_string()]).status();
        }
        child.wait().unwrap();
        assert!(appears && members.contains(&child.id()), "{members:?}");
        if let Members::Listed { list, .. } = &group.0 {
            let list = list.clone();
            // The kernel takes a moment to forget the dead.
            let is_empty = (0..500).any(|_| {
                #[expect(clippy::disallowed_methods, reason = "processes end in real time")]
                std::thread::sleep(std::time::Duration::from_millis(10));
                listed(&list).is_empty()
            });
            drop(group);
            assert!(is_empty && !list.exists());
        }
    }
}
