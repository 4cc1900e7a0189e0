"""Gradients that may lack something, and everything else exact."""

from __future__ import annotations

import typing

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOSS = 0.1
# A ring divides its bound by its hops, and a piece of it has eight packets where the MTU is that of loopback.
LOSS_OF_HOSTS = 0.8
VALUES = 352 * 200


def _group():
    return dist.distributed_c10d._get_default_group()


def _reduce(rank: int, ranks: int, op: str, loss: float = LOSS) -> list[tuple[typing.Any, list]]:
    results = []
    for _ in range(6):
        values = torch.full((VALUES,), float(2**rank))
        work = _group().all_reduce_bounded(values, loss, (0, 2), getattr(dist.ReduceOp, op))
        work.wait()
        # As an array: tensors go through memory that ends with their process.
        results.append((values.numpy(), work.missing))
    return results


def _expected(missing: list, op: str) -> torch.Tensor:
    """Means of the ranks that are in each value, or these times all ranks."""
    expected = torch.full((VALUES,), 7 / 3)
    for start, end, ranks in missing:
        present = [rank for rank in range(3) if rank not in ranks]
        expected[start:end] = sum(2.0**rank for rank in present) / max(len(present), 1)
    return expected * (3 if op == "SUM" else 1)


# spec: T-02 sockets
@pytest.mark.parametrize("op", ["AVG", "SUM"])
def test_what_is_missing_is_reported_and_the_mean_is_that_of_the_rest(run, daemons_losing, op):
    daemons_losing(0.05)
    answers = run(3, _reduce, op)
    lacking = 0
    for step, (values, missing) in enumerate(answers[0]):
        for other in answers[1:]:
            assert (other[step][0] == values).all() and other[step][1] == missing
        assert torch.allclose(torch.from_numpy(values), _expected(missing, op))
        for rank in range(3):
            missed = sum(end - start for start, end, ranks in missing if rank in ranks)
            assert missed <= LOSS * VALUES
        lacking += bool(missing)
    assert lacking, "with 5% lost, some result comes without somebody"


def _train(rank: int, ranks: int, loss: float, shards: bool) -> tuple[list[float], list[float], bool]:
    import thalweg.torch

    torch.manual_seed(0)
    state = thalweg.torch.BoundedLossState(max_missing=loss)
    model = nn.Sequential(nn.Linear(20, 2_000), nn.Tanh(), nn.Linear(2_000, 200), nn.Tanh(), nn.Linear(200, 1))
    if shards:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model[2])
        model = fully_shard(model)
        thalweg.torch.fsdp_hook(model, state)
    else:
        model = DistributedDataParallel(model, bucket_cap_mb=1)
        model.register_comm_hook(state, thalweg.torch.bounded_loss_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    draw = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(15):
        given = torch.randn(32, 20, generator=draw)
        optimizer.zero_grad()
        error = (model(given) - given.sum(1, keepdim=True).tanh()).square().mean()
        error.backward()
        optimizer.step()
        losses.append(error.item())
    is_same = True
    if not shards:
        flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        first = flat.clone()
        dist.broadcast(first, 0)
        is_same = torch.equal(first, flat)
    return losses, [state.share_missing(other) for other in range(ranks)], is_same


@pytest.mark.parametrize("shards", [False, True])
def test_a_model_learns_although_gradients_are_missing(run, daemons_losing, shards):
    daemons_losing(0.03)
    answers = run(3, _train, LOSS, shards)
    for losses, shares, is_same in answers:
        assert is_same, "replicas keep the same bits"
        assert losses[-1] < losses[0]
        assert all(share <= LOSS for share in shares)
        assert shares == answers[0][1], "all ranks get the same report"
    assert any(share > 0 for share in answers[0][1]), "with 3% lost, something is missing"


# spec: T-08 sockets
@pytest.mark.parametrize("shards", [False, True])
def test_without_a_bound_nothing_is_missing(run, daemons_losing, shards):
    daemons_losing(0.03)
    for _, shares, is_same in run(3, _train, 0.0, shards):
        assert is_same and shares == [0.0] * 3


# spec: T-11 sockets
@pytest.mark.parametrize("op", ["AVG", "SUM"])
@pytest.mark.parametrize("collective", ["server", "ring"])
def test_servers_and_rings_tell_what_is_missing(run, monkeypatch, collective, op):
    monkeypatch.setenv("THALWEG_SHARE_MEMORY", "0")
    monkeypatch.setenv("THALWEG_COLLECTIVE", collective)
    answers = run(3, _reduce, op, LOSS_OF_HOSTS)
    lacking = 0
    for step, (values, missing) in enumerate(answers[0]):
        for other in answers[1:]:
            assert (other[step][0] == values).all() and other[step][1] == missing
        assert torch.allclose(torch.from_numpy(values), _expected(missing, op))
        lacking += bool(missing)
    assert lacking, "what may be missing is not waited for"


# spec: T-11 sockets
@pytest.mark.parametrize("shards", [False, True])
def test_hooks_need_no_switch(run, monkeypatch, shards):
    monkeypatch.setenv("THALWEG_SHARE_MEMORY", "0")
    monkeypatch.setenv("THALWEG_COLLECTIVE", "ring")
    for _, shares, is_same in run(3, _train, LOSS, shards):
        assert is_same and all(share <= LOSS for share in shares), shares


def _mistakes(rank: int, ranks: int) -> list[str]:
    import thalweg.torch

    gloo = dist.new_group(backend="gloo")
    calls = [
        lambda: thalweg.torch.BoundedLossState(max_missing=1.0),
        lambda: thalweg.torch.fsdp_hook(nn.Linear(2, 2)),
        lambda: _group().all_reduce_bounded(torch.ones(3, dtype=torch.int32), LOSS),
        lambda: _group().all_reduce_bounded(torch.ones(3), LOSS, op=dist.ReduceOp.MAX),
        lambda: _group().reduce_scatter_bounded(torch.ones(2), torch.ones(5), LOSS),
        lambda: thalweg.torch.thalweg_group(gloo),
    ]
    texts = []
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as raised:
            call()
        texts.append(str(raised.value))
    return texts


def test_mistakes_are_named(run):
    for texts in run(2, _mistakes):
        hints = ["less than 1", "fully_shard", "only floats", "only sums", "2 ranks", '"thalweg" only']
        assert all(hint in text for hint, text in zip(hints, texts)), texts
