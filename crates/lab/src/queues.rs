//! Eight queues in each direction of a link.
//!
//! ```text
//!   device ─ egress program ─ token bucket ─ classes 1 to 8 ─ pair ─ ingress program ─ far device
//!                  └───────────────── counts of every queue ────────────────┘
//! ```
//!
//! The program at the near end chooses the class of a packet by its code point, and the classes of a hierarchical
//! token bucket leave in the order of their numbers. The kernel's queues neither mark nor drop by what they hold. So the
//! program does: it knows how many bytes have entered each queue, and gives each packet the count as a position. The
//! program at the far end reads the position, which says how many have left. The difference is what waits. A packet
//! that is lost in between makes no error that lasts, as the next one has a later position.
// spec: M-05

use std::io;

use netlink_packet_route::tc::TcHandle;
use thalweg_core::PRIORITIES;
use thalweg_linux::htb::{self, Class};
use thalweg_linux::{
    Alu, Code, Helper, Hook, Jump, Label, Memory, Netlink, Program, Register, Size, add_clsact,
    add_filter,
};

use crate::error::LabError;
use crate::kernel::{BPF, CLASSIFIER, CLSACT, HTB};
use crate::shape::Shape;
use crate::spec::Queues;

/// Handle of the discipline below the token bucket, and its only inner class.
const HANDLE: u16 = 8;
const INNER: u16 = 0xff;
/// Programs that count run before those that lose packets.
const FILTER_PRIORITY: u16 = 1;
/// The token bucket above limits the rate. Classes must not, in bytes a second and bytes.
const UNLIMITED: (u64, u32) = (1 << 40, u32::MAX);
/// A queue out of which nothing has come for this long is thought to be empty: packets were lost after they had
/// left it, or it must wait for others. Then the kernel's own limit holds, 1,000 packets.
const FORGOTTEN_AFTER_NANOS: i32 = 500_000_000;
/// Positions are 16 bits wide, and at most a quarter of them waits.
const POSITION_BITS: u32 = 16;
/// Fewest bytes of one step of a position.
const MIN_STEP_BITS: u32 = 6;

// Fields of what is kept for a queue, eight bytes each.
const ENTERED: i16 = 0;
const LEFT: i16 = 8;
const LEFT_AT: i16 = 16;
const MARKED: i16 = 24;
const UNMARKABLE: i16 = 32;
const FULL: i16 = 40;
const PACKETS: i16 = 48;
const THRESHOLD: i16 = 56;
const QUEUE_BYTES: usize = 64;
/// Logarithm of the same.
const QUEUE_BITS: i32 = 6;

// Fields of the kernel's `struct __sk_buff`.
const SKB_PROTOCOL: i16 = 16;
const SKB_PRIORITY: i16 = 32;
const SKB_POSITION: i16 = 44;
const SKB_WIRE_LENGTH: i16 = 160;
/// Position of the type of service behind an Ethernet header.
const TYPE_OF_SERVICE: i32 = 15;
/// Ethernet and IP headers.
const HEADERS_BYTES: i32 = 34;

// Verdicts of a program.
const NEXT_PROGRAM: i32 = -1;
const DROP: i32 = 2;

/// Counters of a queue. A piece of up to 64 KB that the kernel passes on whole counts as one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets that it let in.
    pub packets: u64,
    /// Packets among these that it marked as congested.
    pub marked: u64,
    /// Packets that it dropped because they were to be marked and are not ECN-capable.
    pub dropped_unmarkable: u64,
    /// Packets that it dropped because it was full.
    pub dropped_full: u64,
}

/// The queues of one direction of a link.
#[derive(Debug)]
pub(crate) struct Direction {
    memory: Memory,
}

/// Settings of the queues of one link, in bytes.
struct Limits {
    limit: i32,
    thresholds: [u64; PRIORITIES],
    drops_unmarkable: bool,
    /// Logarithm of the bytes of one step of a position.
    step_bits: i32,
}

impl Direction {
    /// Makes queues for what leaves through `near`, which arrives through `far`. `near` has the token bucket.
    pub(crate) fn apply(
        queues: &Queues,
        (shape, piece_bytes): (&Shape, u32),
        (near, near_index): (&mut Netlink, u32),
        (far, far_index): (&mut Netlink, u32),
    ) -> Result<Direction, LabError> {
        add_classes(queues, (shape, piece_bytes), near, near_index)
            .map_err(|error| HTB.refused(error))?;
        let limits = Limits::new(queues, shape);
        let load = || {
            let memory = Memory::new(QUEUE_BYTES * PRIORITIES, "queues")?;
            memory.write(&limits.initial())?;
            let enter = Program::load(&enter(&limits, &memory), Hook::Device, "enter_queue")?;
            let leave = Program::load(&leave(&memory), Hook::Device, "leave_queue")?;
            Ok((memory, enter, leave))
        };
        let (memory, enter, leave) = load().map_err(|error: io::Error| BPF.refused(error))?;
        let ends = [
            (near, near_index, TcHandle::MIN_EGRESS, &enter, "enter_queue"),
            (far, far_index, TcHandle::MIN_INGRESS, &leave, "leave_queue"),
        ];
        for (netlink, index, hook, program, name) in ends {
            add_clsact(netlink, index).map_err(|error| CLSACT.refused(error))?;
            let order = (FILTER_PRIORITY, libc::ETH_P_ALL as u16);
            add_filter(netlink, index, hook, order, (program, name))
                .map_err(|error| CLASSIFIER.refused(error))?;
        }
        Ok(Direction { memory })
    }

    /// Counters of the queues, the most urgent first.
    pub(crate) fn counters(&self) -> io::Result<[QueueCounters; PRIORITIES]> {
        let bytes = self.memory.read()?;
        let mut counters = [QueueCounters::default(); PRIORITIES];
        for (counters, queue) in counters.iter_mut().zip(bytes.chunks_exact(QUEUE_BYTES)) {
            let field = |at: i16| {
                let word = queue[at as usize..].first_chunk().expect("a queue has eight fields");
                u64::from_ne_bytes(*word)
            };
            *counters = QueueCounters {
                packets: field(PACKETS),
                marked: field(MARKED),
                dropped_unmarkable: field(UNMARKABLE),
                dropped_full: field(FULL),
            };
        }
        Ok(counters)
    }
}

/// Makes a class for each queue below the token bucket.
///
/// The kernel serves classes within their guaranteed rate first, in the order of their priorities, and then those that
/// borrow. So all queues but the last have a rate that they never exhaust. The last one comes before them for its share,
/// and borrows the rest, which is what they leave.
fn add_classes(
    queues: &Queues,
    (shape, piece_bytes): (&Shape, u32),
    netlink: &mut Netlink,
    index: u32,
) -> io::Result<()> {
    let handle = |minor| TcHandle { major: HANDLE, minor };
    let last = PRIORITIES as u16;
    htb::add(netlink, index, Shape::BELOW, HANDLE, last)?;
    let (rate, burst) = UNLIMITED;
    let inner = Class { rate, ceil: rate, burst, quantum: piece_bytes, priority: 0 };
    htb::set_class(netlink, index, handle(0), handle(INNER), &inner)?;
    for number in 1..last {
        let class = Class { priority: number as u8, ..inner };
        htb::set_class(netlink, index, handle(INNER), handle(number), &class)?;
    }
    // The kernel wants a rate, be it a byte a second.
    let share = ((shape.bytes_per_s as f64 * queues.last_share) as u64).max(1);
    let class = Class { rate: share, burst: piece_bytes, ..inner };
    htb::set_class(netlink, index, handle(INNER), handle(last), &class)
}

impl Limits {
    fn new(queues: &Queues, shape: &Shape) -> Limits {
        let limit = queues.limit_bytes.unwrap_or(shape.queue_bytes).min(Queues::MAX_BYTES);
        let thresholds = queues.thresholds_bytes.map_or_else(
            // The most urgent queue drops and marks first.
            || std::array::from_fn(|queue| u64::from(limit) * (queue as u64 + 1) / 16),
            |thresholds| thresholds.map(u64::from),
        );
        let limit_bits = u32::BITS - limit.leading_zeros();
        let step_bits = limit_bits.saturating_sub(POSITION_BITS - 2).max(MIN_STEP_BITS);
        Limits {
            limit: limit as i32,
            thresholds,
            drops_unmarkable: queues.drops_unmarkable,
            step_bits: step_bits as i32,
        }
    }

    /// State of the queues before the first packet.
    fn initial(&self) -> Vec<u8> {
        let mut bytes = vec![0; QUEUE_BYTES * PRIORITIES];
        for (queue, threshold) in bytes.chunks_exact_mut(QUEUE_BYTES).zip(self.thresholds) {
            queue[THRESHOLD as usize..].copy_from_slice(&threshold.to_ne_bytes());
        }
        bytes
    }
}

/// Begins a program: `R6` is its argument, `R9` what is kept for the queues, `R7` the packet's queue, from 0, and `R8`
/// its ECN bits. What is not IPv4, such as address resolution, has the first queue and is never marked.
fn begin(memory: &Memory) -> Code {
    use Register::{R0, R1, R2, R6, R7, R8, R9};
    let mut code = Code::new();
    let (other, found) = (code.label(), code.label());
    code.set(R6, R1);
    code.address(R9, memory);
    code.load(Size::Word, R2, R6, SKB_PROTOCOL);
    code.go_if(Jump::NotEqual, R2, i32::from((libc::ETH_P_IP as u16).to_be()), other);
    code.packet_byte(TYPE_OF_SERVICE);
    code.set(R8, R0);
    code.alu(Alu::And, R8, 0x03);
    // A class selector is the upper three bits: see `Dscp::priority`.
    code.alu(Alu::Right, R0, 5);
    code.set(R7, PRIORITIES as i32 - 1);
    code.alu(Alu::Sub, R7, R0);
    code.alu(Alu::And, R7, PRIORITIES as i32 - 1);
    code.go(found);
    code.place(other);
    code.set(R7, 0);
    code.set(R8, 1);
    code.place(found);
    code
}

/// The program at the near end.
fn enter(limits: &Limits, memory: &Memory) -> Code {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R9, R10};
    let mut code = begin(memory);
    let [chosen, waiting, crowded, admitted] = std::array::from_fn(|_| code.label());
    // What has a class of another discipline keeps it: the kernel's own priorities are small numbers.
    code.load(Size::Word, R1, R6, SKB_PRIORITY);
    code.go_if(Jump::AtLeast, R1, 1 << 16, chosen);
    code.set(R1, R7);
    code.alu(Alu::Add, R1, (i32::from(HANDLE) << 16) + 1);
    code.store(Size::Word, R6, SKB_PRIORITY, R1);
    code.place(chosen);
    code.alu(Alu::Left, R7, QUEUE_BITS);
    code.alu(Alu::Add, R9, R7);
    code.load(Size::Word, R7, R6, SKB_WIRE_LENGTH);

    // Bytes that wait.
    code.load(Size::Double, R1, R9, ENTERED);
    code.alu(Alu::Right, R1, limits.step_bits);
    code.load(Size::Double, R3, R9, LEFT);
    code.alu(Alu::Sub, R1, R3);
    code.alu(Alu::And, R1, (1 << POSITION_BITS) - 1);
    code.alu(Alu::Left, R1, limits.step_bits);
    code.go_if(Jump::NotEqual, R1, 0, waiting);
    code.call(Helper::Nanos);
    code.store(Size::Double, R9, LEFT_AT, R0);
    code.set(R1, 0);
    code.place(waiting);
    code.set(R2, R1);
    code.alu(Alu::Add, R2, R7);
    code.store(Size::Double, R10, -8, R2);
    code.go_if(Jump::Above, R2, limits.limit, crowded);
    code.load(Size::Double, R4, R9, THRESHOLD);
    code.go_if(Jump::AtMost, R1, R4, admitted);
    code.place(crowded);
    crowd(&mut code, limits, admitted);

    code.place(admitted);
    code.set(R1, R7);
    code.fetch_add(R9, ENTERED, R1);
    code.alu(Alu::Add, R1, R7);
    code.alu(Alu::Right, R1, limits.step_bits);
    code.store(Size::Word, R6, SKB_POSITION, R1);
    count(&mut code, PACKETS);
    code.exit_with(NEXT_PROGRAM);
    code
}

/// Decides about a packet whose queue is full or above its threshold; the stack has how full the packet would make it.
fn crowd(code: &mut Code, limits: &Limits, admitted: Label) {
    use Register::{R0, R1, R2, R3, R6, R8, R9, R10};
    let [certain, room, markable] = std::array::from_fn(|_| code.label());
    code.call(Helper::Nanos);
    code.load(Size::Double, R3, R9, LEFT_AT);
    code.set(R1, R0);
    code.alu(Alu::Sub, R1, R3);
    code.go_if(Jump::Below, R1, FORGOTTEN_AFTER_NANOS, certain);
    code.store(Size::Double, R9, LEFT_AT, R0);
    code.load(Size::Double, R1, R9, ENTERED);
    code.alu(Alu::Right, R1, limits.step_bits);
    code.alu(Alu::And, R1, (1 << POSITION_BITS) - 1);
    code.store(Size::Double, R9, LEFT, R1);
    code.go(admitted);

    code.place(certain);
    code.load(Size::Double, R2, R10, -8);
    code.go_if(Jump::AtMost, R2, limits.limit, room);
    count(code, FULL);
    code.exit_with(DROP);

    code.place(room);
    code.go_if(Jump::NotEqual, R8, 0, markable);
    if limits.drops_unmarkable {
        count(code, UNMARKABLE);
        code.exit_with(DROP);
    } else {
        code.go(admitted);
    }
    code.place(markable);
    // Copies of a packet, as of one that goes to several ports, share their bytes until this.
    code.set(R1, R6);
    code.set(R2, HEADERS_BYTES);
    code.call(Helper::PullData);
    code.set(R1, R6);
    code.call(Helper::MarkCongested);
    code.go_if(Jump::Equal, R0, 0, admitted);
    count(code, MARKED);
}

/// The program at the far end.
fn leave(memory: &Memory) -> Code {
    use Register::{R0, R1, R6, R7, R9};
    let mut code = begin(memory);
    code.alu(Alu::Left, R7, QUEUE_BITS);
    code.alu(Alu::Add, R9, R7);
    code.load(Size::Word, R1, R6, SKB_POSITION);
    code.store(Size::Double, R9, LEFT, R1);
    code.call(Helper::Nanos);
    code.store(Size::Double, R9, LEFT_AT, R0);
    code.exit_with(NEXT_PROGRAM);
    code
}

/// Counts a packet. Destroys `R1`.
fn count(code: &mut Code, field: i16) {
    code.set(Register::R1, 1);
    code.fetch_add(Register::R9, field, Register::R1);
}

#[cfg(test)]
mod tests {
    use thalweg_core::Rate;

    use super::*;

    fn limits(queues: &Queues, rate: Rate) -> Limits {
        Limits::new(queues, &Shape::new(rate, 1, true))
    }

    #[test]
    fn thresholds_rise_with_the_number_of_the_queue() {
        let limits = limits(&Queues::default(), Rate::from_mbps(100));
        assert_eq!(limits.limit, 131_072);
        assert_eq!((limits.thresholds[0], limits.thresholds[7]), (8_192, 65_536));
        assert!(limits.thresholds.is_sorted());
    }

    #[test]
    fn at_most_a_quarter_of_all_positions_waits() {
        for rate in [Rate::from_mbps(1), Rate::from_gbps(10), Rate::from_gbps(400)] {
            let limits = limits(&Queues::default(), rate);
            assert!(limits.limit >> limits.step_bits < 1 << (POSITION_BITS - 2), "{rate}");
        }
    }
}
