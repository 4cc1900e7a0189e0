"""Ranks that call different operations: all of them get an error that names both sides, and in time."""

from __future__ import annotations

import time
import typing

import pytest
import torch
import torch.distributed as dist
from conftest import TIMEOUT_S

RANKS = 3
# The rank that differs. The others are rank 0, a root in most cases, and rank 2.
ODD = 1
LOSS = 0.1
VALUES = 12

# A call in the usual way, or as the rank that differs makes it.
Call = typing.Callable[[typing.Any, bool], object]
# The call; what it is called in the error; what the rank that differs calls.
Case = tuple[Call, str, str]


def _half() -> typing.Any:
    return dist._make_nccl_premul_sum(0.5)


def _all_reduce(group: typing.Any, op: typing.Any, dtype: torch.dtype = torch.float32) -> None:
    dist.all_reduce(torch.ones(VALUES, dtype=dtype), op=op, group=group)


def _reduce_scatter(group: typing.Any, op: typing.Any) -> None:
    dist.reduce_scatter_tensor(torch.empty(VALUES), torch.ones(RANKS * VALUES), op=op, group=group)


def _bounded(group: typing.Any, loss: float, op: typing.Any) -> None:
    group.all_reduce_bounded(torch.ones(VALUES), loss, op=op).wait()


def _bounded_part(group: typing.Any, loss: float, dtype: torch.dtype = torch.float32) -> None:
    output, given = torch.empty(VALUES // RANKS, dtype=dtype), torch.ones(VALUES, dtype=dtype)
    group.reduce_scatter_bounded(output, given, loss).wait()


def _sums(loss: float) -> dict[str, Case]:
    op = dist.ReduceOp
    bound = "exact" if loss == 0 else "at most 10% lost"
    return {
        "sum and mean": (
            lambda group, is_odd: _all_reduce(group, op.AVG if is_odd else op.SUM),
            "all_reduce (sum) of 12 values of f32, exact",
            "all_reduce (mean) of 12 values of f32, exact",
        ),
        "sum and mean with a bound": (
            lambda group, is_odd: _bounded(group, loss, op.AVG if is_odd else op.SUM),
            f"all_reduce (sum) of 12 values of f32, {bound}",
            f"all_reduce (mean) of 12 values of f32, {bound}",
        ),
        "all of it and parts of it": (
            lambda group, is_odd: (
                _bounded_part(group, loss) if is_odd else _bounded(group, loss, op.AVG)
            ),
            f"all_reduce (mean) of 12 values of f32, {bound}",
            "reduce_scatter (mean) of 12 values of f32 in parts",
        ),
        "sum and sum with a factor": (
            lambda group, is_odd: _all_reduce(group, _half() if is_odd else op.SUM),
            "all_reduce (sum) of 12",
            "all_reduce (premul_sum) of 12",
        ),
        "sum and sum with a factor, bounded": (
            lambda group, is_odd: _bounded(group, loss, _half() if is_odd else op.SUM),
            "all_reduce (sum) of 12",
            "all_reduce (premul_sum) of 12",
        ),
        "types of a sum": (
            lambda group, is_odd: _all_reduce(
                group, op.SUM, torch.int32 if is_odd else torch.float32
            ),
            "of 12 values of f32",
            "of 12 values of i32",
        ),
    }


def _sums_between_ranks() -> dict[str, Case]:
    op = dist.ReduceOp

    def doubles(group: typing.Any, is_odd: bool) -> None:
        if is_odd:
            return _bounded_part(group, 0.0, torch.float64)
        return _all_reduce(group, op.AVG, torch.float64)

    return {
        "all of it and parts of it, doubles": (
            doubles,
            "all_reduce (mean) of 12 values of f64",
            "reduce_scatter (mean) of 12 values of f64 in parts",
        ),
        "reduce with a factor": (
            lambda group, is_odd: dist.reduce(
                torch.ones(VALUES), 0, op=_half() if is_odd else op.SUM, group=group
            ),
            "reduce (sum) with root 0",
            "reduce (premul_sum) with root 0",
        ),
        "reduce-scatter with a factor": (
            lambda group, is_odd: _reduce_scatter(group, _half() if is_odd else op.SUM),
            "reduce_scatter (sum) of 36",
            "reduce_scatter (premul_sum) of 36",
        ),
        "reduce-scatter of sum and mean": (
            lambda group, is_odd: _reduce_scatter(group, op.AVG if is_odd else op.SUM),
            "reduce_scatter (sum) of 36",
            "reduce_scatter (mean) of 36",
        ),
    }


def _broadcast(group: typing.Any, values: int, dtype: torch.dtype, root: int) -> None:
    dist.broadcast(torch.ones(values, dtype=dtype), root, group=group)


def _all_gather(group: typing.Any, values: int, dtype: torch.dtype = torch.float32) -> None:
    outputs = [torch.empty(values, dtype=dtype) for _ in range(RANKS)]
    dist.all_gather(outputs, torch.ones(values, dtype=dtype), group=group)


def _all_gather_longer(group: typing.Any, is_odd: bool) -> None:
    """The rank that differs expects what the others do, and gives more."""
    outputs = [torch.empty(4) for _ in range(RANKS)]
    dist.all_gather(outputs, torch.ones(5 if is_odd else 4), group=group)


def _all_gather_single(group: typing.Any, values: int) -> None:
    dist.all_gather_into_tensor(torch.empty(RANKS * values), torch.ones(values), group=group)


def _gather(group: typing.Any, values: int, dtype: torch.dtype, root: int) -> None:
    is_root = dist.get_rank() == root
    outputs = [torch.empty(values, dtype=dtype) for _ in range(RANKS)] if is_root else None
    dist.gather(torch.ones(values, dtype=dtype), outputs, root, group=group)


def _scatter(group: typing.Any, values: int, dtype: torch.dtype, root: int) -> None:
    is_root = dist.get_rank() == root
    parts = [torch.ones(values, dtype=dtype) for _ in range(RANKS)] if is_root else None
    dist.scatter(torch.empty(values, dtype=dtype), parts, root, group=group)


def _all_to_all(group: typing.Any, values: int, dtype: torch.dtype = torch.float32) -> None:
    parts = [torch.ones(values, dtype=dtype) for _ in range(RANKS)]
    dist.all_to_all([torch.empty_like(part) for part in parts], parts, group=group)


def _splits(group: typing.Any, is_odd: bool) -> None:
    """Rank 1 has a value more for rank 0 than that expects."""
    given = [3, 2, 2] if is_odd else [2, 2, 2]
    output, parts = torch.empty(6), torch.ones(sum(given))
    dist.all_to_all_single(output, parts, [2, 2, 2], given, group=group)


def _transfer(group: typing.Any, values: int, dtype: torch.dtype) -> None:
    """From rank 0 to the one that differs. A short transfer may have left before anybody compares it."""
    tensor, rank = torch.ones(values, dtype=dtype), dist.get_rank()
    if rank == 0:
        dist.send(tensor, ODD, group=group)
    elif rank == ODD:
        dist.recv(tensor, 0, group=group)
        raise AssertionError("it was received")
    dist.barrier(group=group)


def _moves() -> dict[str, Case]:
    f32, i32 = torch.float32, torch.int32

    def typed(call: typing.Callable, *rest: object) -> Call:
        return lambda group, is_odd: call(group, 4, i32 if is_odd else f32, *rest)

    def long(call: typing.Callable, *rest: object) -> Call:
        return lambda group, is_odd: call(group, 5 if is_odd else 4, *rest)

    def rooted(call: typing.Callable) -> Call:
        return lambda group, is_odd: call(group, 4, f32, 2 if is_odd else 0)

    cases: dict[str, Case] = {}
    for name, call in (("broadcast", _broadcast), ("gather", _gather), ("scatter", _scatter)):
        cases[f"{name}, root"] = (rooted(call), f"{name} with root 0", f"{name} with root 2")
        # Once the root differs, and once another rank.
        for root in (0, ODD):
            of = f"{name} with root {root} of"
            typed_call, long_call = typed(call, root), long(call, f32, root)
            cases[f"{name}, type, root {root}"] = (typed_call, "f32", "i32")
            cases[f"{name}, length, root {root}"] = (long_call, f"{of} 4 values", f"{of} 5 values")
    for name, call in (("all_gather", _all_gather), ("all_to_all", _all_to_all)):
        of = f"{name} of"
        cases[f"{name}, type"] = (typed(call), "4 values of f32 per", "4 values of i32 per")
        cases[f"{name}, length"] = (long(call), f"{of} 4 values", f"{of} 5 values")
    single, longer = long(_all_gather_single), "all_gather of 13 values of f32 in parts"
    cases["all_gather_into_tensor"] = (single, "4 values of f32 per", "5 values of f32 per")
    cases["all_gather, one part"] = (_all_gather_longer, "all_gather of 4 values", longer)
    cases["all_to_all_single"] = (_splits, "all_to_all of 2 values", "all_to_all of 3 values")
    transfer = "send or receive of"
    cases["send, length"] = (long(_transfer, f32), f"{transfer} 4 values", f"{transfer} 5 values")
    cases["send, type"] = (typed(_transfer), "4 values of f32", "4 values of i32")
    return cases


# Cases in which only rank 0 and the one that differs can know of it before they have a result.
OF_TWO = ["all_to_all_single"]

# Made by every rank for itself: calls cannot be sent to a process.
CASES = {
    "sums": lambda: _sums(0.0),
    "bounded sums": lambda: _sums(LOSS),
    "sums between ranks": _sums_between_ranks,
    "moves": _moves,
}


def _differ(rank: int, ranks: int, cases: str) -> dict[str, tuple[str, float]]:
    ends = {}
    for name, (call, _, _) in CASES[cases]().items():
        # A job that failed has ended: each case has its own.
        group = dist.new_group(backend="thalweg")
        # Of the default group: one of the new group could meet the failure of ranks that are further.
        dist.barrier()
        began = time.monotonic()
        try:
            call(group, rank == ODD)
            text = "it has a result"
        except RuntimeError as error:
            text = str(error)
        ends[name] = (text, time.monotonic() - began)
    return ends


def _assert_all_name_both(answers: list, cases: str) -> None:
    for name, (_, usual, odd) in CASES[cases]().items():
        for rank, ends in enumerate(answers):
            text, took_s = ends[name]
            if name in OF_TWO and rank not in (0, ODD):
                continue
            scene = f"{name}, rank {rank}: {text}"
            sides = {side.split(" calls ")[0][-1]: side for side in text.split("; ")}
            assert odd in sides.get(str(ODD), ""), scene
            assert any(usual in side for of, side in sides.items() if of != str(ODD)), scene
            assert took_s < TIMEOUT_S / 2, f"{scene}: after {took_s:.1f} s"


PATHS = [
    # Memory, collective.
    ("1", "auto"),
    ("0", "auto"),
    ("0", "ring"),
    ("0", "aggregate"),
]


# spec: E-11 sockets
@pytest.mark.parametrize("memory, collective", PATHS)
def test_sums_that_differ_are_not_mixed(run, monkeypatch, memory, collective):
    monkeypatch.setenv("THALWEG_SHARE_MEMORY", memory)
    monkeypatch.setenv("THALWEG_COLLECTIVE", collective)
    cases = "bounded sums" if collective == "aggregate" else "sums"
    _assert_all_name_both(run(RANKS, _differ, cases), cases)


# spec: E-11 sockets
@pytest.mark.parametrize("cases", ["sums between ranks", "moves"])
def test_calls_between_ranks_that_differ_give_nothing(run, cases):
    _assert_all_name_both(run(RANKS, _differ, cases), cases)


def _unequal(rank: int, ranks: int) -> None:
    """Lengths may differ from rank to rank where all that have to know them do."""
    mine = [torch.full((r + 1,), float(r)) for r in range(ranks)]
    outputs = [torch.empty(r + 1) for r in range(ranks)]
    dist.all_gather(outputs, mine[rank])
    assert all(torch.equal(out, one) for out, one in zip(outputs, mine))
    gathered = [torch.empty(r + 1) for r in range(ranks)] if rank == 0 else None
    dist.gather(mine[rank], gathered, 0)
    assert rank > 0 or all(torch.equal(out, one) for out, one in zip(gathered, mine))
    part = torch.empty(rank + 1)
    dist.scatter(part, mine if rank == 0 else None, 0)
    assert torch.equal(part, mine[rank])
    # Rank r has r + s values for rank s.
    counts = [rank + other for other in range(ranks)]
    output = torch.empty(sum(counts))
    dist.all_to_all_single(output, torch.full((sum(counts),), float(rank)), counts, counts)
    assert output.tolist() == [float(r) for r in range(ranks) for _ in range(counts[r])]


def test_lengths_of_each_rank_are_its_own(run):
    run(RANKS, _unequal)


def _long_parts(rank: int, ranks: int) -> None:
    values = torch.arange(ranks * 100_000, dtype=torch.float64)
    output = torch.empty(100_000, dtype=torch.float64)
    group = dist.distributed_c10d._get_default_group()
    group.reduce_scatter_bounded(output, values.clone(), 0.0).wait()
    assert torch.equal(output, values.chunk(ranks)[rank])


def test_parts_of_doubles_are_those_of_the_rank(run):
    run(2, _long_parts)


def _own_parts(rank: int, ranks: int) -> list[str]:
    short, long = torch.empty(1), [torch.ones(2) for _ in range(ranks)]
    calls = [
        lambda: dist.reduce_scatter(short, long),
        lambda: dist.all_to_all([torch.empty(1) for _ in range(ranks)], long),
        lambda: dist.gather(short, long, rank),
        lambda: dist.scatter(short, long, rank),
    ]
    texts = []
    for call in calls:
        with pytest.raises(ValueError) as raised:
            call()
        texts.append(str(raised.value))
    return texts


def test_an_own_part_that_does_not_fit_is_refused_at_once(run):
    for texts in run(2, _own_parts):
        assert all("own part" in text for text in texts), texts
