//! Programs for the kernel, put together from instructions.

use std::os::fd::AsRawFd;

use crate::sys::{Map, Memory};

/// A register. `R0` has results, `R1` to `R5` arguments, which every call destroys; `R6` to `R9` last. `R10` is the
/// end of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the numbers are the names")]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Width of an access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Size {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

/// Arithmetic on 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Alu {
    /// Addition.
    Add = 0x00,
    /// Subtraction.
    Sub = 0x10,
    /// Multiplication.
    Mul = 0x20,
    /// Bits of either.
    Or = 0x40,
    /// Bits of both.
    And = 0x50,
    /// Shift towards higher bits.
    Left = 0x60,
    /// Shift towards lower bits.
    Right = 0x70,
    /// Copy.
    Move = 0xb0,
}

/// Conditions of jumps, which compare 64 bits without sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Jump {
    /// Equal.
    Equal = 0x10,
    /// Greater.
    Above = 0x20,
    /// Greater or equal.
    AtLeast = 0x30,
    /// Not equal.
    NotEqual = 0x50,
    /// Less.
    Below = 0xa0,
    /// Less or equal.
    AtMost = 0xb0,
}

/// Functions of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Helper {
    /// Finds the value of a key in a map.
    MapFind = 1,
    /// Sets the value of a key in a map.
    MapSet = 2,
    /// Removes a key from a map.
    MapRemove = 3,
    /// Nanoseconds since the boot.
    Nanos = 5,
    /// A random number of 32 bits.
    Random = 7,
    /// Writes bytes of a packet.
    StoreBytes = 9,
    /// Corrects the checksum of an IPv4 header for a value that has changed.
    CorrectHeaderSum = 10,
    /// Copies bytes of a packet.
    LoadBytes = 26,
    /// Makes the first bytes of a packet readable and the packet's own.
    PullData = 39,
    /// The socket itself, if it is more than a record of a connection that has closed.
    FullSocket = 95,
    /// State of TCP of a socket.
    TcpSocket = 96,
    /// Marks an ECN-capable packet as congested.
    MarkCongested = 97,
}

/// Second operand of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// The value of a register.
    Of(Register),
    /// A number.
    Number(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Operand {
        Operand::Of(register)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Operand {
        Operand::Number(number)
    }
}

/// A place in a program that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(usize);

/// Instructions of a program.
#[derive(Clone, Default, Debug)]
pub struct Code {
    instructions: Vec<[u8; 8]>,
    /// Positions of jumps, and where they lead to.
    jumps: Vec<(usize, Label)>,
    /// Positions of labels.
    labels: Vec<Option<usize>>,
}

impl Code {
    /// An empty program.
    pub fn new() -> Code {
        Code::default()
    }

    /// Makes a label, to be placed later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label before the next instruction. Panics if it was placed.
    pub fn place(&mut self, label: Label) {
        let place = self.labels[label.0].replace(self.instructions.len());
        assert!(place.is_none(), "a label has one place");
    }

    /// Calculates; the result is in `to`.
    pub fn alu(&mut self, alu: Alu, to: Register, by: impl Into<Operand>) {
        const ALU_64: u8 = 0x07;
        let (source, from, number) = parts(by.into());
        self.push(ALU_64 | alu as u8 | source, to, from, 0, number);
    }

    /// Copies a number or a register.
    pub fn set(&mut self, to: Register, by: impl Into<Operand>) {
        self.alu(Alu::Move, to, by);
    }

    /// Reads from memory.
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(0x61 | size as u8, to, from, offset, 0);
    }

    /// Writes to memory.
    pub fn store(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(0x63 | size as u8, to, from, offset, 0);
    }

    /// Adds to eight bytes of memory at once; `by` has the old value after it.
    pub fn fetch_add(&mut self, to: Register, offset: i16, by: Register) {
        const FETCH: i32 = 0x01;
        self.push(0xc3 | Size::Double as u8, to, by, offset, FETCH);
    }

    /// Reads a byte of the packet into `R0`, counted from its link header, and ends the program with 0 where there is
    /// no such byte. `R6` must be the program's argument; destroys `R1` to `R5`.
    pub fn packet_byte(&mut self, offset: i32) {
        self.push(0x20 | Size::Byte as u8, Register::R0, Register::R0, 0, offset);
    }

    /// Sets a register to the address of memory.
    pub fn address(&mut self, to: Register, memory: &Memory) {
        const LOAD_64: u8 = 0x18;
        const VALUE: Register = Register::R2;
        self.push(LOAD_64, to, VALUE, 0, memory.as_raw_fd());
        self.push(0, Register::R0, Register::R0, 0, 0);
    }

    /// Sets a register to a map, as an argument of a call.
    pub fn map(&mut self, to: Register, map: &Map) {
        const LOAD_64: u8 = 0x18;
        const MAP: Register = Register::R1;
        self.push(LOAD_64, to, MAP, 0, map.as_raw_fd());
        self.push(0, Register::R0, Register::R0, 0, 0);
    }

    /// Changes a number from network order, or into it; the bits above are cleared. A byte stays as it is.
    pub fn network_order(&mut self, register: Register, size: Size) {
        const TO_BIG_ENDIAN: u8 = 0xdc;
        let bits = match size {
            Size::Byte => return,
            Size::Half => 16,
            Size::Word => 32,
            Size::Double => 64,
        };
        self.push(TO_BIG_ENDIAN, register, Register::R0, 0, bits);
    }

    /// Calls a function of the kernel.
    pub fn call(&mut self, helper: Helper) {
        self.push(0x85, Register::R0, Register::R0, 0, helper as i32);
    }

    /// Continues elsewhere.
    pub fn go(&mut self, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x05, Register::R0, Register::R0, 0, 0);
    }

    /// Continues elsewhere if a register compares with something in a certain way.
    pub fn go_if(&mut self, jump: Jump, what: Register, with: impl Into<Operand>, to: Label) {
        const JUMP_64: u8 = 0x05;
        let (source, from, number) = parts(with.into());
        self.jumps.push((self.instructions.len(), to));
        self.push(JUMP_64 | jump as u8 | source, what, from, 0, number);
    }

    /// Ends the program with the value of `R0`.
    pub fn exit(&mut self) {
        self.push(0x95, Register::R0, Register::R0, 0, 0);
    }

    /// Ends the program with a value.
    pub fn exit_with(&mut self, value: i32) {
        self.set(Register::R0, value);
        self.exit();
    }

    /// The instructions, with every jump resolved. Panics if a label has no place.
    pub(crate) fn resolve(&self) -> Vec<[u8; 8]> {
        let mut instructions = self.instructions.clone();
        for &(at, label) in &self.jumps {
            let place = self.labels[label.0].expect("a label that is jumped to has a place");
            let distance = place as i64 - at as i64 - 1;
            let distance = i16::try_from(distance).expect("programs are short");
            instructions[at][2..4].copy_from_slice(&distance.to_ne_bytes());
        }
        instructions
    }

    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, number: i32) {
        let (to, from) = (to as u8, from as u8);
        // The kernel reads the two as bit fields.
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        let [a, b] = offset.to_ne_bytes();
        let [c, d, e, f] = number.to_ne_bytes();
        self.instructions.push([code, registers, a, b, c, d, e, f]);
    }
}

/// The bit of the operation code that says which kind of operand it is, and both kinds.
fn parts(operand: Operand) -> (u8, Register, i32) {
    match operand {
        Operand::Of(register) => (0x08, register, 0),
        Operand::Number(number) => (0x00, Register::R0, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{R0, R1, R2, R6};

    #[test]
    #[cfg(target_endian = "little")]
    fn instructions_are_those_of_the_kernel() {
        let mut code = Code::new();
        let end = code.label();
        code.set(R6, R1);
        code.load(Size::Word, R2, R6, 16);
        code.go_if(Jump::NotEqual, R2, 8, end);
        code.packet_byte(15);
        code.alu(Alu::Right, R0, 5);
        code.fetch_add(R6, -8, R2);
        code.store(Size::Word, R6, 44, R0);
        code.call(Helper::Nanos);
        code.network_order(R2, Size::Half);
        code.place(end);
        code.exit_with(-1);
        let expected = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0x61, 0x62, 16, 0, 0, 0, 0, 0],
            [0x55, 0x02, 6, 0, 8, 0, 0, 0],
            [0x30, 0x00, 0, 0, 15, 0, 0, 0],
            [0x77, 0x00, 0, 0, 5, 0, 0, 0],
            [0xdb, 0x26, 0xf8, 0xff, 1, 0, 0, 0],
            [0x63, 0x06, 44, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 5, 0, 0, 0],
            [0xdc, 0x02, 0, 0, 16, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(code.resolve(), expected);
    }

    #[test]
    #[should_panic(expected = "has a place")]
    fn a_label_without_a_place_is_a_mistake() {
        let mut code = Code::new();
        let nowhere = code.label();
        code.go(nowhere);
        code.resolve();
    }
}
