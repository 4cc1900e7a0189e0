//! The system calls that no safe interface offers. Everything `unsafe` of this crate is here.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::code::Code;

// Commands of the system call `bpf`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_REMOVE: libc::c_int = 3;
const PROGRAM_LOAD: libc::c_int = 5;
const PROGRAM_TEST: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;
const ENABLE_STATS: libc::c_int = 32;

/// Events that a program is run for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Packets at a device.
    Device,
    /// Packets that sockets of a control group send.
    GroupSends,
}

impl Hook {
    /// Kind of the program, and the place where it will be attached, in the kernel's numbers.
    fn numbers(self) -> (u32, u32) {
        const SCHED_CLS: u32 = 3;
        const CGROUP_SKB: u32 = 8;
        const CGROUP_INET_EGRESS: u32 = 1;
        match self {
            Hook::Device => (SCHED_CLS, 0),
            Hook::GroupSends => (CGROUP_SKB, CGROUP_INET_EGRESS),
        }
    }
}

/// A program that the kernel has checked and compiled.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
    hook: Hook,
}

/// The attachment of a program. The kernel takes the program off when this is dropped, or the process ends.
#[derive(Debug)]
pub struct Attached {
    #[expect(dead_code, reason = "it is open, which is all it is for")]
    file: OwnedFd,
}

/// Bytes that programs and this process share.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
    bytes: usize,
}

/// Values by key that programs and this process share.
#[derive(Debug)]
pub struct Map {
    file: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

/// Behaviour of a map that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// A new key is refused.
    Refuse,
    /// A new key replaces one that was not used for long.
    Replace,
}

impl Program {
    /// Has the kernel check and compile it. The name is for people: at most 15 letters, digits, dots and underscores.
    pub fn load(code: &Code, hook: Hook, name: &str) -> io::Result<Program> {
        /// The part of `union bpf_attr` that loading uses.
        #[repr(C)]
        struct Load {
            kind: u32,
            instruction_count: u32,
            instructions: u64,
            license: u64,
            log_level: u32,
            log_bytes: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
            name: [u8; 16],
            interface: u32,
            attach_kind: u32,
        }
        let instructions = code.resolve();
        let (kind, attach_kind) = hook.numbers();
        let load = Load {
            kind,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: padded(name),
            interface: 0,
            attach_kind,
        };
        // SAFETY: the kernel reads the structure, as many instructions of 8 bytes as it states, and a string that ends
        // with zero. All of them outlive the call.
        unsafe { open(PROGRAM_LOAD, &load) }.map(|file| Program { file, hook })
    }

    /// Attaches it to a control group.
    pub fn attach_to_group(&self, group: BorrowedFd<'_>) -> io::Result<Attached> {
        let (_, attach_kind) = self.hook.numbers();
        self.attach(group.as_raw_fd() as u32, attach_kind)
    }

    /// Attaches it to what a device of the calling thread's namespace sends, before all filters of queue disciplines.
    pub fn attach_to_sends(&self, index: u32) -> io::Result<Attached> {
        const TCX_EGRESS: u32 = 47;
        self.attach(index, TCX_EGRESS)
    }

    fn attach(&self, target: u32, attach_kind: u32) -> io::Result<Attached> {
        /// The part of `union bpf_attr` that links use.
        #[repr(C)]
        struct Link {
            program: u32,
            target: u32,
            attach_kind: u32,
            flags: u32,
        }
        let program = self.file.as_raw_fd() as u32;
        let link = Link { program, target, attach_kind, flags: 0 };
        // SAFETY: the kernel reads the structure, which outlives the call.
        unsafe { open(LINK_CREATE, &link) }.map(|file| Attached { file })
    }

    /// Number of its runs, and the nanoseconds that they took, while somebody [measures](measure_programs).
    pub fn runs(&self) -> io::Result<(u64, u64)> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.file.as_raw_fd()))?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
        };
        Ok((field("run_cnt"), field("run_time_ns")))
    }

    /// Runs it for one packet that begins with its Ethernet header, and returns its verdict and the packet after it.
    pub fn test(&self, packet: &[u8]) -> io::Result<(i32, Vec<u8>)> {
        /// The part of `union bpf_attr` that tests use.
        #[repr(C)]
        struct Test {
            program: u32,
            verdict: u32,
            bytes_in: u32,
            bytes_out: u32,
            data_in: u64,
            data_out: u64,
            repeat: u32,
            nanos: u32,
        }
        const ROOM_BYTES: usize = 256;
        let bytes_in = u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut after = vec![0; packet.len() + ROOM_BYTES];
        let mut test = Test {
            program: self.file.as_raw_fd() as u32,
            verdict: 0,
            bytes_in,
            bytes_out: after.len() as u32,
            data_in: packet.as_ptr() as u64,
            data_out: after.as_mut_ptr() as u64,
            repeat: 1,
            nanos: 0,
        };
        // SAFETY: the kernel reads the packet, writes at most as many bytes as the vector has, and writes into the
        // structure, which is borrowed mutably. All of them outlive the call.
        unsafe { call(PROGRAM_TEST, (&raw mut test).cast_const()) }?;
        after.truncate(test.bytes_out as usize);
        Ok((test.verdict as i32, after))
    }
}

impl AsRawFd for Program {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The part of `union bpf_attr` that reading and writing use.
#[repr(C)]
struct Access {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Makes a map of one of the kernel's kinds.
fn create(
    kind: u32,
    (key_bytes, value_bytes): (usize, usize),
    entries: u32,
    name: &str,
) -> io::Result<OwnedFd> {
    /// The part of `union bpf_attr` that making uses.
    #[repr(C)]
    struct Create {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
        inner: u32,
        numa_node: u32,
        name: [u8; 16],
    }
    let short = |bytes: usize| u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let (key_bytes, value_bytes, name) = (short(key_bytes)?, short(value_bytes)?, padded(name));
    let (flags, inner, numa_node) = (0, 0, 0);
    let create = Create { kind, key_bytes, value_bytes, entries, flags, inner, numa_node, name };
    // SAFETY: the kernel reads the structure, which outlives the call.
    unsafe { open(MAP_CREATE, &create) }
}

impl Memory {
    /// Zeros.
    pub fn new(bytes: usize, name: &str) -> io::Result<Memory> {
        const ARRAY: u32 = 2;
        create(ARRAY, (4, bytes), 1, name).map(|file| Memory { file, bytes })
    }

    /// Reads all of it.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        // The kernel copies in units of eight bytes.
        let mut bytes = vec![0; self.bytes.next_multiple_of(8)];
        let key = 0_u32;
        let access = self.access(&key, bytes.as_mut_ptr() as u64);
        // SAFETY: the kernel reads the structure and the key, and writes as many bytes as a value has, rounded up to
        // eight, into a vector of that length. All of them outlive the call.
        unsafe { call(MAP_LOOKUP, &access) }?;
        bytes.truncate(self.bytes);
        Ok(bytes)
    }

    /// Replaces all of it. Panics if it has another length.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(bytes.len(), self.bytes, "all of it is replaced");
        let mut padded = bytes.to_vec();
        padded.resize(self.bytes.next_multiple_of(8), 0);
        let key = 0_u32;
        let access = self.access(&key, padded.as_ptr() as u64);
        // SAFETY: the kernel reads the structure, the key, and as many bytes as a value has, rounded up to eight. All
        // of them outlive the call.
        unsafe { call(MAP_UPDATE, &access) }.map(drop)
    }

    fn access(&self, key: &u32, value: u64) -> Access {
        let map = self.file.as_raw_fd() as u32;
        Access { map, padding: 0, key: key as *const u32 as u64, value, flags: 0 }
    }
}

impl AsRawFd for Memory {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Map {
    /// An empty map. Sizes are in bytes; entries are the most that it holds.
    pub fn new(
        when_full: WhenFull,
        (key_bytes, value_bytes): (usize, usize),
        entries: u32,
        name: &str,
    ) -> io::Result<Map> {
        const HASH: u32 = 1;
        const LRU_HASH: u32 = 9;
        let kind = match when_full {
            WhenFull::Refuse => HASH,
            WhenFull::Replace => LRU_HASH,
        };
        let file = create(kind, (key_bytes, value_bytes), entries, name)?;
        Ok(Map { file, key_bytes, value_bytes })
    }

    /// The value of a key, if there is one. Panics if the key has another length.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        // The kernel copies in units of eight bytes.
        let mut value = vec![0; self.value_bytes.next_multiple_of(8)];
        let access = self.access(key, value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads the structure and a key of the right length, and writes as many bytes as a value has
        // into a vector that is at least as long. All of them outlive the call.
        match unsafe { call(MAP_LOOKUP, &access) } {
            Ok(_) => {
                value.truncate(self.value_bytes);
                Ok(Some(value))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of a key. Panics if either has another length.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes, "values have one length");
        let access = self.access(key, value.as_ptr() as u64);
        // SAFETY: the kernel reads the structure, and a key and a value of the right lengths. All of them outlive the
        // call.
        unsafe { call(MAP_UPDATE, &access) }.map(drop)
    }

    /// Removes a key, and returns whether it was there. Panics if the key has another length.
    pub fn remove(&self, key: &[u8]) -> io::Result<bool> {
        let access = self.access(key, 0);
        // SAFETY: the kernel reads the structure and a key of the right length, which outlive the call.
        match unsafe { call(MAP_REMOVE, &access) } {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn access(&self, key: &[u8], value: u64) -> Access {
        assert_eq!(key.len(), self.key_bytes, "keys have one length");
        let map = self.file.as_raw_fd() as u32;
        Access { map, padding: 0, key: key.as_ptr() as u64, value, flags: 0 }
    }
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The kernel's number of an interface in the namespace of the calling thread. `None` if there is no such interface.
pub fn interface_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the call reads a string with an end, which outlives it.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

/// Lets the kernel measure the time of all programs until the result is dropped.
pub fn measure_programs() -> io::Result<OwnedFd> {
    /// The part of `union bpf_attr` that measuring uses: the kind of measurement.
    #[repr(C)]
    struct Enable {
        kind: u32,
    }
    const RUN_TIME: u32 = 0;
    // SAFETY: the kernel reads the structure, which outlives the call.
    unsafe { open(ENABLE_STATS, &Enable { kind: RUN_TIME }) }
}

fn padded(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    let bytes = name.len().min(15);
    padded[..bytes].copy_from_slice(&name.as_bytes()[..bytes]);
    padded
}

/// Makes a system call that opens a file.
///
/// # Safety
///
/// As for [`call`], with a command that returns a file that nobody else has.
unsafe fn open<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller keeps the conditions.
    let file = unsafe { call(command, attributes) }?;
    // SAFETY: the kernel has just opened it, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Makes the system call `bpf`.
///
/// # Safety
///
/// `T` must be the beginning of `union bpf_attr` as the command has it, without padding, and what it points to must be
/// as long as the command wants, and be writable where the command writes; so must the structure itself.
unsafe fn call<T>(command: libc::c_int, attributes: *const T) -> io::Result<libc::c_int> {
    // SAFETY: the structure has the stated size and outlives the call; the caller keeps the rest.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}
