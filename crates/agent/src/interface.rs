//! Classes of jobs at the interface of a host, for programs whose packets know nothing of classes.
//!
//! ```text
//!   program in its control group ─ kernel program sets the class ─┐
//!                                                                 ├─ token bucket with a leaf for each job ─ device
//!   everybody else ───────────────────────────────────────────────┘  (rate: its plan, limit: the line)
//! ```
//!
//! A job has its plan whatever others do, and what others leave of the link. Traffic of no job has a guaranteed share as
//! well, as large as that of a job that sends. Packets of a job keep their order, since a job has one leaf.
//!
//! The interface's own queues are written to a file before they are replaced, and restored in the end. A lock on the file shows that
//! its process lives; who starts after a killed one finds a file without a lock, restores the interface and removes it.
// spec: C-16, E-14

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thalweg_control::local::{Lines, write_line};
use thalweg_core::Rate;
use thalweg_linux::htb::{self, Class};
use thalweg_linux::{Discipline, Handle, Netlink};
use tracing::warn;

use crate::events::TARGET;
use crate::setting::Scope;

/// Handle of the discipline, and its classes: the whole, and traffic of no job.
const MAJOR: u16 = 0x1f17;
const WHOLE: u16 = 1;
const OTHERS: u16 = 2;
/// The first leaf of a job.
const FIRST_LEAF: u16 = 16;
/// Most leaves.
const LEAVES_MAX: u16 = 1_024;
/// The least urgent class.
const LAST_PRIORITY: u8 = 7;
/// Time in which a class that was idle may send without spacing.
const BURST_PER_S: u64 = 1_000;
/// The longest piece that the kernel passes on at once.
const PIECE_BYTES: u32 = 64 << 10;
/// Name of a file, before the number of its network namespace.
const PREFIX: &str = "interface-";

/// Share of a job at the interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Leaf {
    /// Number of the leaf.
    pub number: u16,
    /// Bits a second that it has whatever others do.
    pub bps: u64,
    /// Place in the order of those who want more, 0 to 7, the lowest first.
    pub priority: u8,
    /// True if the job has something to send.
    pub is_busy: bool,
}

impl Leaf {
    /// Value that marks packets of the leaf.
    pub fn mark(number: u16) -> u32 {
        u32::from(MAJOR) << 16 | u32::from(FIRST_LEAF + number)
    }

    /// Returns whether there can be a leaf of this number.
    pub fn is_valid(number: u16) -> bool {
        number < LEAVES_MAX
    }
}

/// The classes at an interface. Restores what was there when dropped.
pub(crate) struct Interface {
    netlink: Netlink,
    plan: Plan,
    saved: Saved,
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

/// Parameters of all classes, by the minor number of their handles.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Plan {
    /// Bytes a second of the link.
    line: u64,
    /// Bytes a second that the whole passes at most. More than the line where another discipline limits it.
    ceil: u64,
    classes: BTreeMap<u16, Class>,
}

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Saved {
    scope: Scope,
    name: String,
    parent: u32,
    /// The discipline that was there, if somebody had put it there.
    original: Option<SavedDiscipline>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct SavedDiscipline {
    kind: String,
    options: Vec<u8>,
}

impl Plan {
    fn new(line: Rate, limits_line: bool) -> Plan {
        let line = line.as_bps() / 8;
        let ceil = if limits_line { line } else { line.saturating_mul(4) };
        let mut plan = Plan { line, ceil, classes: BTreeMap::new() };
        let whole = plan.class(ceil, 0);
        plan.classes.insert(WHOLE, whole);
        plan.update(&[]);
        plan
    }

    fn class(&self, rate: u64, priority: u8) -> Class {
        let burst = u32::try_from(self.line / BURST_PER_S).unwrap_or(u32::MAX).max(2 * PIECE_BYTES);
        Class { rate: rate.max(1), ceil: self.ceil, burst, quantum: PIECE_BYTES, priority }
    }

    /// Takes in what jobs may do. Returns the classes that change.
    // spec: C-12, C-16
    fn update(&mut self, leaves: &[Leaf]) -> Vec<(u16, Class)> {
        let busy = leaves.iter().filter(|leaf| leaf.is_busy).count() as u64;
        let others = self.line / (busy + 1);
        // Together they have no more than the line: what is guaranteed is kept.
        let left = u128::from(self.line - others);
        let wanted: u128 = leaves.iter().map(|leaf| u128::from(leaf.bps / 8)).sum();
        let fitted = |leaf: &Leaf| {
            let rate = u128::from(leaf.bps / 8);
            let rate = if wanted > left { rate * left / wanted } else { rate };
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let own = leaves
            .iter()
            .map(|leaf| (FIRST_LEAF + leaf.number, self.class(fitted(leaf), leaf.priority)));
        let own = own.chain([(OTHERS, self.class(others, LAST_PRIORITY))]).collect::<Vec<_>>();
        let classes = &mut self.classes;
        own.into_iter()
            .filter(|(minor, class)| classes.insert(*minor, *class) != Some(*class))
            .collect()
    }
}

impl Interface {
    /// Puts classes at the interface with that address, below what limits its rate.
    pub(crate) fn take(address: Ipv4Addr, line: Rate, state_dir: &Path) -> io::Result<Interface> {
        let no_interface = || io::Error::other(format!("no interface has the address {address}"));
        let name = thalweg_net::interface_name(address.into()).ok_or_else(no_interface)?;
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(&name)?;
        let (parent, original) = place(&Discipline::all(&mut netlink, index)?)?;
        let scope = Scope::current()?;
        let saved = Saved { scope, name, parent: parent.into(), original };
        let (path, file) = saved.write(state_dir)?;
        let plan = Plan::new(line, parent == Handle::ROOT);
        let mut interface = Interface { netlink, plan, saved, path, _file: file };
        interface.build(index, parent)?;
        Ok(interface)
    }

    fn build(&mut self, index: u32, parent: Handle) -> io::Result<()> {
        let netlink = &mut self.netlink;
        htb::replace(netlink, index, parent, MAJOR, OTHERS)?;
        let handle = |minor| Handle { major: MAJOR, minor };
        let classes = self.plan.classes.clone();
        for (minor, class) in classes {
            let above = if minor == WHOLE { handle(0) } else { handle(WHOLE) };
            htb::set_class(netlink, index, above, handle(minor), &class)?;
        }
        Ok(())
    }

    /// Takes in what jobs may do.
    pub(crate) fn set(&mut self, leaves: &[Leaf]) -> io::Result<()> {
        let changed = self.plan.update(leaves);
        let index = if changed.is_empty() { 0 } else { self.netlink.index_of(&self.saved.name)? };
        let handle = |minor| Handle { major: MAJOR, minor };
        for (minor, class) in changed {
            htb::set_class(&mut self.netlink, index, handle(WHOLE), handle(minor), &class)?;
        }
        Ok(())
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // The file stays where this fails, for the next agent.
        if self.saved.restore(&mut self.netlink).is_ok() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The place for classes, and what is there.
fn place(all: &[Discipline]) -> io::Result<(Handle, Option<SavedDiscipline>)> {
    let at = |parent: Handle| all.iter().find(|discipline| discipline.parent == parent);
    let Some(root) = at(Handle::ROOT) else { return Ok((Handle::ROOT, None)) };
    let taken = |kind: &str| {
        let text = format!("the interface has a queue discipline of its own ({kind})");
        Err(io::Error::other(text))
    };
    match root.kind.as_str() {
        // The kernel makes it again by itself.
        _ if root.handle.major == 0 => Ok((Handle::ROOT, None)),
        "tbf" => {
            let below = Handle { major: root.handle.major, minor: 1 };
            let inner = at(below).filter(|inner| ["bfifo", "pfifo"].contains(&inner.kind.as_str()));
            match inner {
                Some(Discipline { kind, options, .. }) => {
                    let (kind, options) = (kind.clone(), options.clone());
                    Ok((below, Some(SavedDiscipline { kind, options })))
                }
                None => taken(at(below).map_or("tbf", |inner| &inner.kind)),
            }
        }
        kind => taken(kind),
    }
}

impl Saved {
    /// Writes it, after restoring what a killed process has left.
    fn write(&self, state_dir: &Path) -> io::Result<(PathBuf, File)> {
        DirBuilder::new().recursive(true).mode(0o755).create(state_dir)?;
        let number = self.scope.network.chars().filter(char::is_ascii_digit).collect::<String>();
        let path = state_dir.join(format!("{PREFIX}{number}-{}.json", self.name));
        let new_path = path.with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&new_path)?;
        file.lock()?;
        write_line(&file, self)?;
        if File::open(&path)
            .is_ok_and(|before| matches!(before.try_lock_shared(), Err(TryLockError::WouldBlock)))
        {
            let text = format!("another agent has classes at {}", self.name);
            return Err(io::Error::other(text));
        }
        // Nobody finds it before it is locked.
        fs::rename(&new_path, &path)?;
        Ok((path, file))
    }

    /// Restores what was there, if our classes still are.
    fn restore(&self, netlink: &mut Netlink) -> io::Result<()> {
        let index = match netlink.index_of(&self.name) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            index => index?,
        };
        let parent = Handle::from(self.parent);
        let all = Discipline::all(netlink, index)?;
        let is_own = |it: &Discipline| it.parent == parent && it.handle.major == MAJOR;
        if !all.iter().any(is_own) {
            return Ok(());
        }
        match &self.original {
            None => Discipline::remove(netlink, index, parent),
            Some(SavedDiscipline { kind, options }) => {
                let handle = Handle { major: 0, minor: 0 };
                let (kind, options) = (kind.clone(), options.clone());
                Discipline { handle, parent, kind, options }.restore(netlink, index)
            }
        }
    }
}

/// Restores the interfaces of this network namespace whose process was killed. Returns whether none is left: the lock of a
/// process that is ending may still be held.
pub(crate) fn restore_left_over(state_dir: &Path) -> io::Result<bool> {
    let scope = Scope::current()?;
    let entries = match fs::read_dir(state_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries?,
    };
    let mut is_done = true;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !(name.starts_with(PREFIX) && name.ends_with(".json")) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_err() {
            is_done = false;
            continue;
        }
        let saved: Option<Saved> = Lines::new(&file).next_line().ok().flatten();
        match saved {
            // That of another boot means nothing, and that of another namespace is left to who is there.
            Some(saved) if saved.scope.boot == scope.boot => {
                if saved.scope == scope {
                    saved.restore(&mut Netlink::open()?)?;
                    fs::remove_file(&path)?;
                }
            }
            _ => fs::remove_file(&path)?,
        }
    }
    Ok(is_done)
}

/// Does the same before something is changed. A warning reports why that is impossible.
pub(crate) fn restore_at_start(state_dir: &Path) {
    if let Err(error) = restore_left_over(state_dir) {
        warn!(
            target: TARGET, event = "unrestored",
            "queues of an interface that an agent left behind cannot be restored ({error})"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(number: u16, mbps: u64, priority: u8) -> Leaf {
        Leaf { number, bps: mbps * 1_000_000, priority, is_busy: mbps > 0 }
    }

    /// Guaranteed rates in Mbps of others and of the first two leaves.
    fn rates(plan: &Plan) -> [u64; 3] {
        let rate = |minor: u16| plan.classes.get(&minor).map_or(0, |class| class.rate / 125_000);
        [OTHERS, FIRST_LEAF, FIRST_LEAF + 1].map(rate)
    }

    // spec: C-12, C-16 machine
    #[test]
    fn guarantees_fit_the_line_and_others_have_the_share_of_a_job() {
        let mut plan = Plan::new(Rate::from_gbps(1), true);
        assert_eq!(rates(&plan), [1_000, 0, 0]);
        plan.update(&[leaf(0, 400, 3), leaf(1, 0, 7)]);
        assert_eq!(rates(&plan), [500, 400, 0], "both fit");
        plan.update(&[leaf(0, 900, 3), leaf(1, 0, 7)]);
        assert_eq!(rates(&plan), [500, 500, 0]);
        let changed = plan.update(&[leaf(0, 900, 3), leaf(1, 300, 2)]);
        assert_eq!(rates(&plan), [333, 500, 166], "two jobs, and everybody else");
        assert_eq!(changed.len(), 2, "the first leaf stays as it is");
        assert!(plan.update(&[leaf(0, 900, 3), leaf(1, 300, 2)]).is_empty(), "nothing changes");
        let classes: Vec<_> = plan.classes.values().map(|class| class.ceil).collect();
        assert!(classes.iter().all(|ceil| *ceil == 125_000_000), "all may borrow the rest");
        assert_eq!(plan.classes[&(FIRST_LEAF + 1)].priority, 2);
        assert_eq!(plan.classes[&OTHERS].priority, LAST_PRIORITY);
    }

    fn discipline(kind: &str, handle: u16, parent: Handle) -> Discipline {
        let handle = Handle { major: handle, minor: 0 };
        Discipline { handle, parent, kind: kind.into(), options: vec![1, 2] }
    }

    // spec: E-14 machine
    #[test]
    fn classes_replace_what_can_be_restored_and_nothing_else() {
        let below = Handle { major: 1, minor: 1 };
        let default = [discipline("mq", 0, Handle::ROOT), discipline("fq_codel", 0, below)];
        assert_eq!(place(&default).unwrap(), (Handle::ROOT, None));
        assert_eq!(place(&[]).unwrap(), (Handle::ROOT, None));
        let limited = [discipline("tbf", 1, Handle::ROOT), discipline("bfifo", 0, below)];
        let saved = SavedDiscipline { kind: "bfifo".into(), options: vec![1, 2] };
        assert_eq!(place(&limited).unwrap(), (below, Some(saved)));
        for taken in [
            vec![discipline("fq", 0x8001, Handle::ROOT)],
            vec![discipline("tbf", 1, Handle::ROOT), discipline("htb", 8, below)],
        ] {
            let error = place(&taken).unwrap_err().to_string();
            assert!(error.contains("of its own"), "{error}");
        }
    }

    #[test]
    fn marks_are_handles_of_leaves() {
        assert_eq!(Leaf::mark(3), 0x1f17_0013);
        assert!(Leaf::is_valid(1_023) && !Leaf::is_valid(1_024));
    }
}
