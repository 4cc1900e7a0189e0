"""Ranks that die or stall: the others are told which one, and in time."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist

from conftest import TIMEOUT_S


def _wait_for_the_dead(rank: int, ranks: int) -> float:
    dist.all_reduce(torch.ones(10))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        for _ in range(1_000):
            dist.all_reduce(torch.ones(1_000))
            time.sleep(0.01)
    except RuntimeError as error:
        assert "rank 1" in str(error) or "ranks [1" in str(error), error
        return time.monotonic() - began
    raise AssertionError("nobody noticed")


def test_a_killed_rank_is_named_everywhere(start):
    ranks = start(3, _wait_for_the_dead)
    answers = ranks.answers(2, limit_s=4 * TIMEOUT_S)
    for rank, (is_right, answer) in answers.items():
        assert is_right, f"rank {rank}:\n{answer}"
        assert answer < TIMEOUT_S + 10


def _wait_for_the_late(rank: int, ranks: int) -> str:
    dist.all_reduce(torch.ones(10))
    if rank == 0:
        time.sleep(3)
    total = torch.ones(5)
    dist.all_reduce(total)
    assert (total == ranks).all()
    return "done"


def test_a_late_rank_is_waited_for(run):
    assert run(3, _wait_for_the_late) == ["done"] * 3


def _misuse(rank: int, ranks: int) -> str:
    try:
        dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG)
    except TypeError as error:
        return str(error)
    return "no error"


def test_what_cannot_be_done_is_said_at_once(run):
    assert all("mean of torch.int32" in text for text in run(2, _misuse))
