"""Tensors of a device: the order of operations, streams, pinned memory and failures, on a device without hardware."""

from __future__ import annotations

import datetime
import time
import typing

import pytest
import torch
import torch.distributed as dist
from fake_device import FakeDevice, FakeSession

import thalweg.torch
from thalweg.torch import device as devices
from thalweg.torch.operations import Operations
from thalweg.torch.runner import Runner

# Pieces of 16 values of float32.
PIECE_BYTES = 64
# The shortest block of the pool.
BLOCK_BYTES = 64 << 10


class Bench:
    """One rank with a fake device and a fake session."""

    def __init__(self, monkeypatch, pinned_blocks: int = 4, ranks: int = 2) -> None:
        self.device, self.session = FakeDevice(), FakeSession()
        monkeypatch.setattr(devices, "device_of", self.device.device_of)
        self.runner = Runner(self.session, 0, ranks, 60.0, pinned_bytes=pinned_blocks * BLOCK_BYTES)
        # Operations of up to 256 values are cut to multiples of one value.
        self.operations = Operations(0, ranks, self.runner, PIECE_BYTES)

    def on_host(self) -> Bench:
        self.device.is_enabled = False
        return self

    def on_device(self) -> Bench:
        self.device.is_enabled = True
        return self

    def begun(self, count: int) -> list[str]:
        """Waits until a number of operations have begun, and a moment longer for one more."""
        _until(lambda: len(self.session.begun) >= count)
        time.sleep(0.05)
        return [name for name, _ in self.session.begun]

    def staged(self, copies: int) -> None:
        """Waits until copies to the host are queued, and does them."""
        _until(lambda: len(self.device.out.work) >= copies)
        self.device.current.run()
        self.device.out.run()


def _until(is_so: typing.Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < ends_at, "it does not happen"
        time.sleep(0.001)


@pytest.fixture
def bench(monkeypatch):
    made = Bench(monkeypatch)
    yield made
    made.runner._is_over.set()


def test_operations_begin_in_the_order_of_calls(bench):
    first, last = torch.ones(8), torch.ones(4)
    bench.operations.allreduce([first])
    bench.on_host().operations.barrier()
    bench.on_device().operations.allreduce([last])
    time.sleep(0.05)
    assert bench.session.begun == [], "the values of the first are not there"
    bench.staged(3)
    assert bench.begun(2)[:2] == ["all_reduce", "barrier"]
    _until(lambda: len(bench.device.out.work) > 0 or len(bench.session.begun) == 3)
    bench.device.out.run()
    assert bench.begun(3) == ["all_reduce", "barrier", "all_reduce"]
    assert [length for _, (_, length) in bench.session.begun] == [32, 0, 16]


def test_a_call_of_the_host_begins_at_once_if_nothing_is_queued(bench):
    bench.on_host().operations.allreduce([torch.ones(4)])
    assert [name for name, _ in bench.session.begun] == ["all_reduce"], "in the thread of the caller"
    tensor = torch.ones(4)
    work = bench.on_device().operations.allreduce([tensor])
    bench.staged(3)
    bench.begun(2)
    bench.on_host().operations.barrier()
    assert [name for name, _ in bench.session.begun] == ["all_reduce", "all_reduce", "barrier"]
    assert not work.is_completed()


def test_tensors_of_several_types_keep_their_own(bench):
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.int64), torch.ones(2, dtype=torch.bfloat16)]
    bench.on_host().operations.allreduce_coalesced(tensors)
    bench.on_device().operations.allreduce_coalesced(tensors)
    bench.staged(9)
    bench.begun(6)
    assert bench.session.elements == ["f32", "i64", "bf16"] * 2
    assert [length for _, (_, length) in bench.session.begun] == [8, 24, 4] * 2


def test_an_operation_starts_after_the_work_of_the_current_stream(bench):
    tensor = torch.zeros(4)
    bench.device.current.work.append(lambda: tensor.fill_(3.0))
    bench.operations.allreduce([tensor])
    _until(lambda: len(bench.device.out.work) == 3)
    bench.device.out.run()
    time.sleep(0.05)
    assert bench.session.begun == [], "the copy waits for the current stream"
    bench.staged(2)
    assert bench.begun(1) == ["all_reduce"] and bench.session.values(0) == [3.0] * 4


def test_results_come_by_streams_and_the_current_one_follows(bench):
    tensor = torch.full((40,), 2.0)
    work = bench.operations.allreduce([tensor])
    bench.staged(9)
    # Pieces of 16, 16 and 8 values, which end in another order.
    assert bench.begun(3) == ["all_reduce"] * 3
    for number in (2, 0, 1):
        assert not work.is_ended()
        bench.session.end(number)
        _until(lambda: bench.runner._works.get(number) is None)
    assert work.wait(datetime.timedelta(seconds=20))
    assert not work.is_completed() and tensor.tolist() == [2.0] * 40, "the device has not copied it yet"
    bench.device.current.work.append(lambda: tensor.add_(1.0))
    bench.device.current.run()
    assert tensor.tolist() == [2.0] * 40, "the current stream waits for the result"
    bench.device.back.run()
    bench.device.current.run()
    assert tensor.tolist() == [5.0] * 40 and work.is_completed() and work.is_success()


def test_a_future_follows_the_result_as_well(bench):
    tensor = torch.full((4,), 2.0)
    future = bench.operations.allreduce([tensor]).get_future()
    bench.staged(3)
    bench.begun(1)
    bench.session.end(0)
    assert future.wait()[0] is tensor
    assert len(bench.device.current.work) == 1, "the stream of the callback waits for the copy"


def test_pinned_memory_is_bounded_and_used_again(bench):
    tensor = torch.arange(16.0 * 10)
    work = bench.operations.allreduce([tensor])
    bench.staged(12)
    # Ten pieces, and memory for four.
    bench.begun(4)
    assert len(bench.session.begun) == 4
    for number in range(10):
        assert len(bench.session.begun) <= number + 4
        bench.session.end(number)
        # A block is used again after the copy from it, and not before.
        begun = len(bench.session.begun)
        _until(lambda: len(bench.device.back.work) > 0)
        time.sleep(0.02)
        assert len(bench.device.out.work) == 0 and len(bench.session.begun) == begun
        bench.device.back.run()
        if number < 6:
            _until(lambda: len(bench.device.out.work) == 3)
            bench.device.out.run()
            _until(lambda: len(bench.session.begun) == begun + 1)
    work.wait()
    bench.device.current.run()
    assert tensor.tolist() == [2.0 * value for value in range(160)]
    assert bench.device.pinned_bytes == [BLOCK_BYTES] * 4


@pytest.mark.parametrize(
    "ranks, lengths",
    [(2, [84, 76]), (3, [64, 64, 32]), (4, [100, 60]), (8, [112, 48]), (15, [64, 64, 32]), (20, [48, 48, 48, 16])],
)
def test_pieces_of_several_rows_are_longer_up_to_a_bound(monkeypatch, ranks, lengths):
    bench = Bench(monkeypatch, pinned_blocks=8, ranks=ranks)
    # Forty values of every rank. A piece of one row has 64 bytes, of three or four 256, and at most 1,024.
    part, whole = torch.ones(40), torch.ones(40 * ranks)
    bench.operations.all_gather_single(whole, part)
    bench.operations.reduce_scatter_single(part, whole)

    def have_begun() -> bool:
        bench.device.current.run()
        bench.device.out.run()
        return len(bench.session.begun) >= 2 * len(lengths)

    _until(have_begun)
    assert bench.session.parts == [[length] * ranks for length in 2 * lengths]
    bench.runner._is_over.set()


def test_messages_that_wait_take_no_memory_from_operations_of_all_ranks(bench):
    for tag in range(6):
        bench.operations.recv([torch.zeros(4)], 1, tag)
    bench.operations.allreduce([torch.ones(4)])
    bench.staged(3)
    assert bench.begun(7) == ["receive"] * 6 + ["all_reduce"]


def test_a_block_longer_than_the_bound_is_given_out_alone(bench):
    bench.operations.allreduce([torch.ones(4)])
    work = bench.operations.all_reduce_bounded(torch.ones(5 * BLOCK_BYTES // 4), 0.0)
    bench.staged(3)
    assert bench.begun(1) == ["all_reduce"], "it waits until the other has ended"
    bench.session.end(0)
    _until(lambda: len(bench.device.back.work) > 0)
    bench.device.back.run()
    bench.staged(3)
    assert bench.begun(2) == ["all_reduce"] * 2 and bench.session.begun[1][1][1] == 5 * BLOCK_BYTES
    bench.session.end(1, factor=1.0)
    assert work.wait(datetime.timedelta(seconds=20))


def test_a_piece_that_fails_fails_the_work_and_brings_nothing_back(bench):
    tensor = torch.ones(32)
    work = bench.operations.allreduce([tensor])
    bench.staged(6)
    bench.begun(2)
    bench.session.end(0, failure=("peer", "rank 1 died", [1], None, None))
    bench.session.end(1)
    with pytest.raises(thalweg.torch.PeerError, match=r"all_reduce \(call 1 .*rank 1 died"):
        work.wait(datetime.timedelta(seconds=20))
    _until(bench.runner.is_idle)
    bench.device.back.run()
    assert tensor.tolist()[:16] == [1.0] * 16


def test_a_copy_that_fails_fails_the_job(bench):
    bench.device.fails = RuntimeError("CUDA error: out of memory")
    work = bench.operations.allreduce([torch.ones(40)])
    with pytest.raises(RuntimeError, match="out of memory"):
        work.wait(datetime.timedelta(seconds=20))
    assert "all_reduce (call 1" in bench.session.reason and "out of memory" in bench.session.reason
    _until(bench.runner.is_idle)
    assert bench.session.begun == []


def test_abort_ends_operations_whose_device_does_not(bench):
    works = [bench.operations.allreduce([torch.ones(4)]), bench.on_host().operations.barrier()]
    _until(lambda: len(bench.device.out.work) == 3)
    bench.runner.abort("the program called abort")
    for work in works:
        with pytest.raises(thalweg.torch.AbortedError, match="the program called abort"):
            work.wait(datetime.timedelta(seconds=20))
    # They do not begin when the device goes on.
    bench.staged(3)
    _until(bench.runner.is_idle)
    assert bench.session.begun == []
    with pytest.raises(thalweg.torch.ClosedError):
        bench.on_device().operations.allreduce([torch.ones(4)])


def test_a_device_that_does_not_go_on_times_out(bench):
    opts = dist.AllreduceOptions()
    opts.timeout = datetime.timedelta(seconds=0.3)
    work = bench.operations.allreduce([torch.ones(4)], opts)
    with pytest.raises(thalweg.torch.OperationTimeoutError, match="all_reduce .* timed out after"):
        work.wait()
    assert "timed out" in bench.session.reason
    bench.staged(3)
    _until(bench.runner.is_idle)
    assert bench.session.begun == []


def test_leaving_waits_for_operations_that_have_not_begun(bench):
    work = bench.operations.allreduce([torch.ones(4)])
    began = time.monotonic()
    bench.runner.leave(0.3)
    assert 0.25 < time.monotonic() - began < 5
    with pytest.raises(thalweg.torch.AbortedError, match="its program ended"):
        work.wait()


VALUES = (0, 1, 3, 255, 1_000, 5_003)
TYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8)


def _given(values: int, kind: torch.dtype, rank: int, is_turned: bool = False) -> torch.Tensor:
    given = ((torch.arange(values) + rank) % 7).to(kind)
    # Every other column of a matrix is not contiguous.
    return torch.stack([given, given], dim=1)[:, 0] if is_turned else given


def _all_calls(rank: int, ranks: int, values: int, kind: torch.dtype, is_turned: bool) -> list[typing.Any]:
    """Calls every operation, without a wait in between. Returns works, tensors, and what the works write."""

    def own(length: int = values) -> torch.Tensor:
        return _given(length, kind, rank, is_turned)

    def places(count: int) -> list[torch.Tensor]:
        return [torch.zeros_like(own()) for _ in range(count)]

    total, most, root, sent = own(), own(), own(), own()
    gathered, whole, part = places(ranks), torch.zeros(values * ranks, dtype=kind), places(1)[0]
    mean, turned, to_one, part_of_list = own(), torch.zeros(values * ranks, dtype=kind), places(1)[0], places(1)[0]
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    came = places(1)[0]
    works = [
        dist.all_reduce(total, async_op=True),
        dist.all_reduce(most, dist.ReduceOp.MAX, async_op=True),
        dist.reduce(root, 1, async_op=True),
        dist.broadcast(sent, 2, async_op=True),
        dist.all_gather(gathered, own(), async_op=True),
        dist.all_gather_into_tensor(whole, own().contiguous(), async_op=True),
        dist.reduce_scatter_tensor(part, own(values * ranks).contiguous(), async_op=True),
        dist.reduce_scatter(part_of_list, [own() for _ in range(ranks)], async_op=True),
        dist.all_to_all_single(turned, own(values * ranks).contiguous(), async_op=True),
        dist.scatter(to_one, [own() for _ in range(ranks)] if rank == 0 else None, 0, async_op=True),
        dist.isend(own(), after),
        dist.irecv(came, before),
    ]
    if kind.is_floating_point:
        works.append(dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=True))
    return [works, [total, most, root, sent, *gathered, whole, part, part_of_list, turned, to_one, came, mean]]


def _staged_as_on_the_host(rank: int, ranks: int, pinned_bytes: int) -> int:
    device = FakeDevice()
    devices.device_of = device.device_of
    device.run_at_random(rank)
    group = thalweg.torch.thalweg_group()
    assert group.settings()["gpu_piece_bytes"] == 2_000, "rank 0 has chosen it"
    assert group.settings()["gpu_pinned_bytes"] == pinned_bytes
    for values in VALUES:
        for kind in TYPES:
            is_turned = kind == torch.float32 and values % 2 == 1
            device.is_enabled = True
            works, found = _all_calls(rank, ranks, values, kind, is_turned)
            # A call of the host in the middle, and others before the staged ones have ended.
            device.is_enabled = False
            on_host = _all_calls(rank, ranks, values, kind, is_turned)
            for work in (*on_host[0], *works):
                work.wait()
            device.synchronize()
            for at, (one, other) in enumerate(zip(found, on_host[1])):
                assert torch.equal(one, other), (values, kind, at, one, other)
    return len(device.pinned_bytes)


def test_every_operation_has_the_result_of_the_host(run, monkeypatch):
    monkeypatch.setenv("THALWEG_GPU_PIECE_BYTES", "2000")
    monkeypatch.setenv("THALWEG_GPU_PINNED_BYTES", str(3 * BLOCK_BYTES))
    allocated = run(3, _staged_as_on_the_host, 3 * BLOCK_BYTES)
    assert all(0 < count < 300 for count in allocated), "blocks are used again"
