"""Calls that programs of torch make beside the collectives, with the results of Gloo on the same inputs."""

from __future__ import annotations

import datetime
import json
import typing

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch

RANKS = 3
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def _both(call: typing.Callable[[typing.Any], typing.Any], gloo: typing.Any) -> None:
    """The same call with both backends has the same result."""
    found, expected = call(None), call(gloo)
    assert _equal(found, expected), (call.__name__, found, expected)


def _equal(one: typing.Any, other: typing.Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.to_dense(), other.to_dense())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def _batch(group: typing.Any) -> list[torch.Tensor]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    came = [torch.zeros(4), torch.zeros(2, dtype=torch.int64)]
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    operations = [
        dist.P2POp(dist.irecv, came[0], before, group),
        dist.P2POp(dist.irecv, came[1], before, group),
        dist.P2POp(dist.isend, torch.full((4,), float(rank)), after, group),
        dist.P2POp(dist.isend, torch.tensor([rank, 7]), after, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return came


def _coalesced(group: typing.Any) -> list[torch.Tensor]:
    tensors = [torch.full((3,), float(dist.get_rank() + at)) for at in range(4)]
    with dist._coalescing_manager(group=group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    return tensors


def _coalesced_by_device() -> None:
    """Only NCCL has it: each operation in the block is the backend's own, and one work stands for all."""
    given, root = torch.full((2,), float(dist.get_rank())), torch.full((2,), float(dist.get_rank()))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(given, 1)
        dist.reduce(root, 2)
    manager.wait()
    assert given.tolist() == [1.0] * 2
    assert root.tolist() == [3.0 if dist.get_rank() == 2 else float(dist.get_rank())] * 2


def _any_source(group: typing.Any) -> list[list[float]]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = []
    if rank == 0:
        for _ in range(2 * (ranks - 1)):
            came = torch.zeros(3)
            source = dist.recv(came, group=group, tag=5)
            found.append([float(source), *came.tolist()])
    else:
        for step in range(2):
            dist.send(torch.tensor([float(rank), float(step), 1.0]), 0, group=group, tag=5)
    dist.barrier(group=group)
    for other in range(1, ranks):
        steps = [step for source, _, step, _ in found if source == other]
        assert rank > 0 or steps == [0.0, 1.0], "in the order of the sender"
    assert all(source == sender for source, sender, _, _ in found)
    return sorted(found)


def _sparse(group: typing.Any) -> torch.Tensor:
    rank = dist.get_rank()
    # Rank r has r + 1 rows of two values, some of them where others have one.
    indices = torch.arange(rank + 1).unsqueeze(0) * 2
    values = torch.arange(2.0 * (rank + 1)).view(-1, 2) + rank
    tensor = torch.sparse_coo_tensor(indices, values, (8, 2))
    dist.all_reduce(tensor, group=group)
    return tensor.coalesce()


def _objects(group: typing.Any) -> list[object]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gathered: list[object] = [None] * ranks
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank}, group=group)
    sent = [{"root": 1}, [1, 2, 3]] if rank == 1 else [None, None]
    dist.broadcast_object_list(sent, 1, group=group)
    part: list[object] = [None]
    dist.scatter_object_list(part, [f"for {r}" for r in range(ranks)] if rank == 0 else None, 0, group=group)
    at_root: list[object] | None = [None] * ranks if rank == 2 else None
    dist.gather_object(rank, at_root, 2, group=group)
    return [gathered, sent, part, at_root]


def _join(group: typing.Any) -> list[torch.Tensor]:
    """Rank r has r + 2 batches; those that have none left follow the others."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(dist.get_rank())
    with Join([model]):
        for _ in range(dist.get_rank() + 2):
            optimizer.zero_grad()
            model(torch.randn(8, 4, generator=draw)).square().mean().backward()
            optimizer.step()
    # Sums of floats in another order may differ in the last bit.
    return [(parameter.detach() * 1e4).round() for parameter in model.parameters()]


def _mesh() -> None:
    mesh = dist.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("all",))
    group = mesh.get_group("all")
    assert dist.get_backend(group) == "thalweg"
    ones = torch.ones(2)
    dist.all_reduce(ones, group=group)
    assert ones.tolist() == [RANKS] * 2
    pair = dist.new_group([0, 2], backend="thalweg")
    if dist.get_rank() in (0, 2):
        total = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(total, group=pair)
        assert total.item() == 2.0


def _functional() -> None:
    from torch.distributed import _functional_collectives as functional

    total = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
    assert functional.wait_tensor(total).tolist() == [RANKS] * 3


def _profiled() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(1_000))
        dist.barrier()
        works = [dist.broadcast(torch.ones(10), 0, async_op=True) for _ in range(3)]
        for work in works:
            work.wait()
    events = [event.name for event in profile.events()]
    counts = [events.count(f"thalweg:{name}") for name in ("all_reduce", "barrier", "broadcast")]
    assert counts == [1, 1, 3], sorted(set(events))
    # A profiler frees its events when it stops: an operation that has ended must not end one later.
    for _ in range(20):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            works = [dist.broadcast(torch.ones(10), 0, async_op=True) for _ in range(20)]
            assert all(work.wait() and work.recorded.done() for work in works)


def _monitored() -> None:
    group = thalweg.torch.thalweg_group()
    group.monitored_barrier(datetime.timedelta(seconds=30), wait_all_ranks=True)
    if TORCH >= (2, 15):
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))


def _refused_mixture() -> None:
    """Before torch 2.15 Python cannot make a backend of one device."""
    group = dist.new_group(backend="cpu:gloo,cuda:thalweg")
    with pytest.raises(ValueError, match="cpu:gloo would have no effect.*new_group"):
        dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def _mixed(gloo: typing.Any) -> None:
    """Groups with a backend for each device. Only tensors in main memory are tried."""
    ranks = dist.get_world_size()
    other = dist.new_group(backend="cpu:gloo,cuda:thalweg")
    ones = torch.ones(3)
    dist.all_reduce(ones, group=other)
    assert ones.tolist() == [ranks] * 3
    assert thalweg.torch.thalweg_group(other).settings()["ranks"] == ranks
    mixed = dist.new_group(backend="cpu:thalweg,cuda:gloo")
    assert type(mixed) is dist.ProcessGroup
    assert mixed._get_backend(torch.device("cpu")).name() == "thalweg"
    for call in (_batch, _coalesced, _sparse, _objects, _join, _moved):
        found, expected = call(mixed), call(gloo)
        assert _equal(found, expected), (call.__name__, found, expected)
    half = thalweg.torch.thalweg_group(mixed).all_reduce_bounded(torch.full((3,), 2.0), 0.1)
    assert half.wait() and half.result().tolist() == [2.0] * 3
    with pytest.raises(thalweg.torch.OperationTimeoutError, match="timed out"):
        if dist.get_rank() > 0:
            dist.barrier()
            # Rank 0 has come to this barrier: it may end well before the end of the job is known here.
            mixed.barrier(_barrier(0.2)).wait()
        mixed.barrier(_barrier(0.2)).wait()
    if dist.get_rank() == 0:
        dist.barrier()
    for group in (other, mixed):
        dist.destroy_process_group(group)


def _barrier(timeout_s: float) -> typing.Any:
    options = dist.BarrierOptions()
    options.timeout = datetime.timedelta(seconds=timeout_s)
    return options


def _moved(group: typing.Any) -> list[torch.Tensor]:
    """Every collective that moves or reduces something else than a sum."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = torch.arange(ranks, dtype=torch.float32) + 10 * rank
    found = [torch.zeros(ranks) for _ in range(ranks)]
    dist.all_gather(found, own, group=group)
    whole, part, turned = torch.zeros(ranks * ranks), torch.zeros(1), torch.zeros(ranks)
    dist.all_gather_into_tensor(whole, own, group=group)
    dist.reduce_scatter_tensor(part, own.clone(), group=group)
    dist.all_to_all_single(turned, own, group=group)
    most, from_one = own.clone(), own.clone()
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    dist.broadcast(from_one, 1, group=group)
    works = [dist.all_reduce(own.clone(), group=group, async_op=True) for _ in range(2)]
    totals = [work.get_future().wait()[0] for work in works if work is not None]
    return [*found, whole, part, turned, most, from_one, *totals]


def _recorded() -> list[str]:
    """Names of the operations that the flight recorder of torch has."""
    from torch._C import _distributed_c10d

    dump = json.loads(_distributed_c10d._dump_fr_trace_json(backend="thalweg"))
    return [entry["profiling_name"] for entry in dump["entries"]]


def _recorder() -> None:
    before = len(_recorded())
    dist.all_reduce(torch.ones(3))
    work = dist.broadcast(torch.ones(3), 0, async_op=True)
    # The work of the package and not torch's holder of it, which never knows whether it has ended.
    assert isinstance(work, thalweg.torch.Work)
    assert work.wait() and work.is_completed()
    dist.barrier()
    assert _recorded()[before:] == ["thalweg:all_reduce", "thalweg:broadcast", "thalweg:barrier"]


def _calls(rank: int, ranks: int) -> None:
    torch.manual_seed(rank)
    gloo = dist.new_group(backend="gloo")
    for call in (_batch, _coalesced, _any_source, _sparse, _objects, _join):
        _both(call, gloo)
    _coalesced_by_device()
    _mesh()
    _functional()
    _profiled()
    _monitored()
    if TORCH < (2, 15):
        _refused_mixture()
    else:
        _recorder()
        _mixed(gloo)


def test_calls_have_the_results_of_gloo(run):
    run(RANKS, _calls)
