//! Sums of which every value is known.
#![expect(unsafe_code, reason = "buffers are given and read by their addresses")]

use std::time::{Duration, Instant};

use thalweg::{bf16, f16};

use crate::plugin::{BF16, Coll, Common, F16, F32, Object, SUCCESS};
use crate::world::Rank;

/// Bytes before and behind the memory of a request, which nobody may touch.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0x5c;

/// A communicator of the harness.
pub struct Comm<'a> {
    pub coll: &'a Coll,
    pub comm: Object,
    pub rank: usize,
    pub ranks: usize,
}

/// An all-reduce under way.
pub struct Sum {
    from: Buffer,
    to: Buffer,
    number: usize,
    count: usize,
    /// Values before the tail, which may hold anything.
    real: usize,
    data_type: i32,
    pub request: Object,
}

/// Listens, gathers handles, connects, and closes what listens, in NCCL's order.
pub fn connect<'a>(coll: &'a Coll, rank: &Rank) -> Comm<'a> {
    let (handle, listening) = coll.listen();
    let handles = rank.gather(&handle);
    let (status, comm) = coll.connect(&handles, rank.rank, listening);
    assert_eq!(status, SUCCESS, "rank {} connects", rank.rank);
    coll.close_listen(listening);
    Comm { coll, comm, rank: rank.rank, ranks: rank.ranks }
}

impl Comm<'_> {
    /// Begins the sum with this number, of which the last quarter is behind the end of the tensor. `None` if the library
    /// refuses it for now.
    pub fn begin(&self, number: usize, count: usize, data_type: i32) -> Option<Sum> {
        match self.try_begin(number, count, data_type) {
            (SUCCESS, sum) => (!sum.request.is_null()).then_some(sum),
            (status, _) => panic!("status {status}"),
        }
    }

    /// The same, with the status.
    pub fn try_begin(&self, number: usize, count: usize, data_type: i32) -> (i32, Sum) {
        let real = count - count / 4;
        let size = if data_type == F32 { 4 } else { 2 };
        let (mut from, to) = (Buffer::new(count * size), Buffer::new(count * size));
        for (index, bytes) in from.bytes_mut().chunks_exact_mut(size).enumerate() {
            let value = value(self.rank, number, index);
            let kind = (index + self.rank) % 4;
            match data_type {
                F32 => {
                    let tail = [f32::NAN, f32::INFINITY, f32::MIN, f32::from_bits(index as u32)];
                    bytes.copy_from_slice(
                        &if index < real { value } else { tail[kind] }.to_le_bytes(),
                    );
                }
                F16 => {
                    let tail =
                        [f16::NAN, f16::NEG_INFINITY, f16::MAX, f16::from_bits(index as u16)];
                    let value = f16::from_f32(value);
                    bytes.copy_from_slice(
                        &if index < real { value } else { tail[kind] }.to_le_bytes(),
                    );
                }
                _ => {
                    let tail =
                        [bf16::NAN, bf16::INFINITY, bf16::MIN, bf16::from_bits(index as u16)];
                    let value = bf16::from_f32(value);
                    bytes.copy_from_slice(
                        &if index < real { value } else { tail[kind] }.to_le_bytes(),
                    );
                }
            }
        }
        let (status, request) =
            self.coll.all_reduce(self.comm, (from.address(), to.address()), count, data_type);
        (status, Sum { from, to, number, count, real, data_type, request })
    }

    /// Waits for a sum and checks it.
    pub fn end(&self, sum: Sum) {
        let bytes = self.wait(&sum).expect("it ends");
        assert_eq!(bytes, sum.from.length, "the size of the request");
        self.check(&sum);
    }

    /// Waits for a request to end. Returns its size, or the status of its failure.
    pub fn wait(&self, sum: &Sum) -> Result<usize, i32> {
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            match self.coll.test(sum.request) {
                (SUCCESS, Some(bytes)) => return Ok(bytes),
                (SUCCESS, None) => {
                    assert!(Instant::now() < limit, "sum {} has not ended", sum.number);
                    std::thread::sleep(Duration::from_micros(100));
                }
                (status, _) => return Err(status),
            }
        }
    }

    fn check(&self, sum: &Sum) {
        let size = sum.from.length / sum.count.max(1);
        for (index, bytes) in sum.to.bytes().chunks_exact(size).take(sum.real).enumerate() {
            let expected: f32 = (0..self.ranks).map(|rank| value(rank, sum.number, index)).sum();
            let found = match sum.data_type {
                F32 => f32::from_le_bytes(bytes.try_into().unwrap()),
                F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
                _ => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
            };
            assert_eq!(found, expected, "value {index} of sum {}", sum.number);
        }
        sum.to.check_guards();
        sum.from.check_guards();
    }

    pub fn close(self) {
        self.coll.close_coll(self.comm);
    }
}

/// Sums of several lengths and all types, with as many in flight as there may be.
pub fn sum_everything(comm: &Comm<'_>, rounds: usize) {
    let lengths = [1, 3, 7, 355, 1_000, 16_381, 65_536, 131_077];
    let mut running = std::collections::VecDeque::new();
    for number in 0..rounds {
        let data_type = [F32, F16, BF16][number % 3];
        let count = lengths[number % lengths.len()];
        let sum = loop {
            if let Some(sum) = comm.begin(number, count, data_type) {
                break sum;
            }
            // NCCL tests its requests and calls again.
            assert_eq!(running.len(), 32, "refused with fewer in flight");
            comm.end(running.pop_front().expect("some are in flight"));
        };
        running.push_back(sum);
    }
    assert_eq!(running.len(), rounds.min(32), "as many as there may be were in flight");
    // The order of tests is NCCL's to choose.
    while let Some(sum) = running.pop_back() {
        comm.end(sum);
    }
}

/// A value whose sums are exact in all types.
fn value(rank: usize, number: usize, index: usize) -> f32 {
    ((index * 7 + rank * 13 + number * 3) % 60) as f32
}

/// Memory between guards, aligned as NCCL's is.
struct Buffer {
    memory: Vec<u64>,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Buffer {
        let word = u64::from_ne_bytes([GUARD_BYTE; 8]);
        Buffer { memory: vec![word; (length + 2 * GUARD).div_ceil(8)], length }
    }

    fn address(&self) -> *mut u8 {
        // SAFETY: within the memory.
        unsafe { self.memory.as_ptr().cast::<u8>().add(GUARD) }.cast_mut()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: within the memory, which nobody writes: the request has ended.
        unsafe { std::slice::from_raw_parts(self.address(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: within the memory, before the request begins.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.length) }
    }

    fn check_guards(&self) {
        // SAFETY: all of the memory.
        let all = unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().cast::<u8>(), self.memory.len() * 8)
        };
        let guards = all[..GUARD].iter().chain(&all[GUARD + self.length..]);
        assert!(guards.copied().all(|byte| byte == GUARD_BYTE), "memory beside a request changed");
    }
}
