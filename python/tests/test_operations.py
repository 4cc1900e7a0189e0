"""Every operation, on every type, at several sizes of groups, beside Gloo in the same processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
WORLDS = [1, 2, 3, 4, 8]


def _values(rank: int, dtype: torch.dtype, count: int) -> torch.Tensor:
    """Small whole numbers: exact in every type, in any order."""
    return ((torch.arange(count) * 7 + rank * 3) % 5).to(dtype)


def _every_operation(rank: int, ranks: int) -> None:
    gloo = dist.new_group(backend="gloo")
    for dtype in FLOATS + INTEGERS:
        for count in (1, 3, 1_001):
            _all_reduces(rank, dtype, count, gloo)
            _copies(rank, ranks, dtype, count)
            _scatters(rank, ranks, dtype, count)
    _points(rank, ranks)
    _odd_tensors(rank, ranks)
    dist.barrier()


def _all_reduces(rank: int, dtype: torch.dtype, count: int, gloo) -> None:
    Op = dist.ReduceOp
    for op in (Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT):
        reduced = _values(rank, dtype, count)
        expected = reduced.to(torch.float64, copy=True)
        dist.all_reduce(reduced, op=op)
        dist.all_reduce(expected, op=op, group=gloo)
        if op != Op.PRODUCT or dtype in (torch.float32, torch.float64, torch.int64):
            assert torch.equal(reduced, expected.to(dtype)), (dtype, op, reduced[:4], expected[:4])
        at_root = _values(rank, dtype, count)
        dist.reduce(at_root, 0, op=op)
        assert torch.equal(at_root, reduced if rank == 0 else _values(rank, dtype, count))
    if dtype.is_floating_point:
        reduced = _values(rank, dtype, count)
        expected = reduced.to(torch.float64, copy=True)
        dist.all_reduce(reduced, op=Op.AVG)
        dist.all_reduce(expected, group=gloo)
        mean = (expected / dist.get_world_size()).to(dtype)
        assert torch.allclose(reduced, mean, rtol=1e-2 if dtype.itemsize == 2 else 1e-6)


def _copies(rank: int, ranks: int, dtype: torch.dtype, count: int) -> None:
    mine = [_values(r, dtype, count) for r in range(ranks)]
    given = mine[rank].clone()
    dist.broadcast(given, ranks - 1)
    assert torch.equal(given, mine[-1])
    outputs = [torch.empty_like(given) for _ in range(ranks)]
    dist.all_gather(outputs, mine[rank])
    assert all(torch.equal(out, one) for out, one in zip(outputs, mine))
    joined = torch.empty(ranks * count, dtype=dtype)
    dist.all_gather_into_tensor(joined, mine[rank])
    assert torch.equal(joined, torch.cat(mine))
    gathered = [torch.empty_like(given) for _ in range(ranks)] if rank == 0 else None
    dist.gather(mine[rank], gathered, 0)
    assert rank > 0 or all(torch.equal(out, one) for out, one in zip(gathered, mine))


def _scatters(rank: int, ranks: int, dtype: torch.dtype, count: int) -> None:
    parts = [[_values(10 * r + p, dtype, count) for p in range(ranks)] for r in range(ranks)]
    output = torch.empty(count, dtype=dtype)
    dist.scatter(output, parts[0] if rank == 0 else None, 0)
    assert torch.equal(output, parts[0][rank])
    exact = torch.float64 if dtype.is_floating_point else dtype
    expected = sum(parts[r][rank].to(exact) for r in range(ranks)).to(dtype)
    dist.reduce_scatter(output, [part.clone() for part in parts[rank]])
    assert torch.equal(output, expected)
    dist.reduce_scatter_tensor(output, torch.cat(parts[rank]))
    assert torch.equal(output, expected)
    outputs = [torch.empty(count, dtype=dtype) for _ in range(ranks)]
    dist.all_to_all(outputs, parts[rank])
    assert all(torch.equal(out, parts[r][rank]) for r, out in enumerate(outputs))
    single = torch.empty(ranks * count, dtype=dtype)
    dist.all_to_all_single(single, torch.cat(parts[rank]))
    assert torch.equal(single, torch.cat(outputs))


def _points(rank: int, ranks: int) -> None:
    """Everybody sends to the next one, and receives before that is waited for."""
    if ranks == 1:
        return
    came = torch.empty(5)
    receive = dist.irecv(came, (rank - 1) % ranks)
    send = dist.isend(torch.full((5,), float(rank)), (rank + 1) % ranks)
    total = torch.ones(3)
    dist.all_reduce(total)
    receive.wait()
    send.wait()
    assert (came == (rank - 1) % ranks).all() and (total == ranks).all()


def _odd_tensors(rank: int, ranks: int) -> None:
    turned = torch.arange(12.0).reshape(3, 4).t()
    dist.all_reduce(turned)
    assert torch.equal(turned, torch.arange(12.0).reshape(3, 4).t() * ranks)
    empty = torch.empty(0)
    dist.all_reduce(empty)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert [one["rank"] for one in objects] == list(range(ranks))
    scaled = torch.ones(4)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    assert (scaled == ranks / 2).all()


@pytest.mark.parametrize("ranks", WORLDS)
def test_every_operation(run, ranks):
    run(ranks, _every_operation)


def _extremes(rank: int, ranks: int) -> list:
    values = torch.tensor([1e-30, 1e30, -1e30, float("inf"), float("nan"), 3.0e38])
    dist.all_reduce(values)
    return values.tolist()


def test_magnitudes_and_values_that_are_no_numbers(run):
    for found in run(2, _extremes):
        assert found[0] == pytest.approx(2e-30) and found[1] == pytest.approx(2e30)
        assert found[2] == pytest.approx(-2e30) and found[3] == float("inf")
        assert found[4] != found[4] and found[5] == float("inf")


def _magnitudes(rank: int, ranks: int) -> None:
    """Sums of numbers of all sizes are as near to the truth as sums of that type can be."""
    gloo = dist.new_group(backend="gloo")
    for dtype, decades in ((torch.float32, 30), (torch.float64, 30), (torch.bfloat16, 30), (torch.float16, 3)):
        draw = torch.Generator().manual_seed(rank)
        exponents = (torch.rand(4_099, generator=draw, dtype=torch.float64) * 2 - 1) * decades
        values = (torch.randn(4_099, generator=draw).sign() * 10**exponents).to(dtype)
        exact, sizes = values.to(torch.float64, copy=True), values.double().abs()
        dist.all_reduce(exact, group=gloo)
        dist.all_reduce(sizes, group=gloo)
        info = torch.finfo(dtype)
        allowed = sizes * info.eps * ranks + info.tiny
        for op, truth in ((dist.ReduceOp.SUM, exact), (dist.ReduceOp.AVG, exact / ranks)):
            reduced = values.clone()
            dist.all_reduce(reduced, op=op)
            assert ((reduced.double() - truth).abs() <= allowed).all(), (dtype, op)
        for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            reduced, expected = values.clone(), values.clone()
            dist.all_reduce(reduced, op=op)
            dist.all_reduce(expected, op=op, group=gloo)
            assert torch.equal(reduced, expected), (dtype, op)


@pytest.mark.parametrize("share_memory", ["0", "1"])
def test_numbers_of_all_sizes(run, monkeypatch, share_memory):
    monkeypatch.setenv("THALWEG_SHARE_MEMORY", share_memory)
    monkeypatch.setenv("THALWEG_COLLECTIVE", "aggregate")
    run(4, _magnitudes)


def _groups(rank: int, ranks: int) -> None:
    """Two groups work at the same time, and many small operations are in flight."""
    groups = [dist.new_group([0, 1], backend="thalweg"), dist.new_group([1, 2], backend="thalweg")]
    works, tensors = [], []
    for step in range(200):
        for group, members in zip(groups, ([0, 1], [1, 2])):
            if rank in members:
                tensors.append((torch.full((step % 50 + 1,), float(rank)), sum(members)))
                works.append(dist.all_reduce(tensors[-1][0], group=group, async_op=True))
    for work in works:
        work.wait()
    assert all((tensor == total).all() for tensor, total in tensors)
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    assert future.wait()[0][0] == ranks


def test_groups_at_the_same_time(run):
    run(3, _groups)


def _large(rank: int, ranks: int) -> None:
    values = torch.arange(25 << 20, dtype=torch.float32) % 1_000 + rank
    expected = (torch.arange(25 << 20, dtype=torch.float32) % 1_000) * ranks + sum(range(ranks))
    dist.all_reduce(values)
    assert torch.equal(values, expected)


def test_a_hundred_megabytes(run):
    run(2, _large)


def _again(rank: int, ranks: int) -> None:
    import os

    dist.destroy_process_group()
    store = dist.FileStore(os.environ["THALWEG_TEST_STORE"], ranks)
    dist.init_process_group("thalweg", store=store, rank=rank, world_size=ranks)
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == ranks


def test_a_second_group_in_the_same_process(run, tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_TEST_STORE", str(tmp_path / "store"))
    run(2, _again)


def _through_sockets(rank: int, ranks: int) -> None:
    """Nothing is combined in memory: everything goes through the switch."""
    values = torch.arange(100_003, dtype=torch.float32) % 100 + rank
    expected = (torch.arange(100_003, dtype=torch.float32) % 100) * ranks + sum(range(ranks))
    dist.all_reduce(values)
    assert torch.equal(values, expected)


def test_sums_go_through_the_switch(run, monkeypatch):
    monkeypatch.setenv("THALWEG_SHARE_MEMORY", "0")
    monkeypatch.setenv("THALWEG_COLLECTIVE", "aggregate")
    run(4, _through_sockets)


@pytest.mark.parametrize("collective", ["auto", "ring"])
def test_sums_go_directly_between_ranks(run, monkeypatch, collective):
    monkeypatch.setenv("THALWEG_SHARE_MEMORY", "0")
    monkeypatch.setenv("THALWEG_COLLECTIVE", collective)
    run(3, _through_sockets)
