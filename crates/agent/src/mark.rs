//! Marks of the packets of a program, by which the interface of its host knows them.
//!
//! A small program in the kernel runs for every packet that processes of a control group send. It reads the mark from memory
//! that it shares with this process, and sets the priority of the packet. The kernel takes it off when this process ends.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use thalweg_linux::{Attached, Code, Hook, Jump, Memory, Program, Register, Size};

/// The field `priority` of the kernel's `struct __sk_buff`.
const SKB_PRIORITY: i16 = 32;
/// Verdict of the program: the packet passes.
const PASS: i32 = 1;
const MARK_BYTES: usize = 8;

/// Marks packets of a control group while it lives.
#[derive(Debug)]
pub(crate) struct Marker {
    memory: Memory,
    _attached: Attached,
}

impl Marker {
    /// Returns whether this process may load such a program.
    pub(crate) fn is_permitted() -> bool {
        let load = || {
            Program::load(
                &code(&Memory::new(MARK_BYTES, "mark")?),
                Hook::GroupSends,
                "mark_packets",
            )
        };
        load().is_ok()
    }

    /// Attaches a program that leaves packets as they are, until there is a mark.
    pub(crate) fn attach(group: &Path) -> io::Result<Marker> {
        let memory = Memory::new(MARK_BYTES, "mark")?;
        memory.write(&[0; MARK_BYTES])?;
        let program = Program::load(&code(&memory), Hook::GroupSends, "mark_packets")?;
        let attached = program.attach_to_group(File::open(group)?.as_fd())?;
        Ok(Marker { memory, _attached: attached })
    }

    /// Sets the mark; 0 for none.
    pub(crate) fn set(&self, mark: u32) -> io::Result<()> {
        self.memory.write(&u64::from(mark).to_ne_bytes())
    }
}

fn code(memory: &Memory) -> Code {
    use Register::{R1, R6, R9};
    let mut code = Code::new();
    let end = code.label();
    code.set(R6, R1);
    code.address(R9, memory);
    code.load(Size::Double, R1, R9, 0);
    code.go_if(Jump::Equal, R1, 0, end);
    code.store(Size::Word, R6, SKB_PRIORITY, R1);
    code.place(end);
    code.exit_with(PASS);
    code
}
