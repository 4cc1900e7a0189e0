"""Ranks that die or stall: the others get an error that names them, in time."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from conftest import TIMEOUT_S

import thalweg
from thalweg.torch import errors


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


def test_a_killed_rank_is_named_everywhere(start, monkeypatch):
    monkeypatch.setenv("THALWEG_FAILURE_AFTER", "2")
    ranks = start(3, _wait_for_the_dead)
    answers = ranks.answers(2, limit_s=4 * TIMEOUT_S)
    for rank, (is_right, answer) in answers.items():
        assert is_right, f"rank {rank}:\n{answer}"
        assert answer < 15, "failure_after + 2 s, on a busy machine"


def test_a_server_that_dies_with_rank_0_is_the_fault_of_rank_0():
    failure = ("network", "no connection to the server at 10.0.0.1:7 for 2.0 s: refused", [], None, (111, "refused"))
    error = errors.of_failure(failure, operation="barrier", server_of_rank_0="10.0.0.1:7")
    assert type(error) is errors.PeerError and error.ranks == (0,)
    assert "rank 0, which runs the server at 10.0.0.1:7, does not answer" in str(error)
    error = errors.of_failure(failure, operation="barrier")
    assert type(error) is errors.NetworkError and error.ranks == ()


# spec: E-07 sockets
@pytest.mark.parametrize(
    "kind", ["peer", "timeout", "aborted", "disagreement", "network", "closed", "system", "internal"]
)
def test_every_error_has_its_kind_and_its_source(kind):
    error = errors.of_failure((kind, "text", [1], None, (13, "Permission denied")), operation="barrier")
    assert isinstance(error, errors.ThalwegError) and (error.kind, error.ranks) == (kind, (1,))
    assert isinstance(error.__cause__, PermissionError) and error.__cause__.errno == 13
    assert (type(error) is errors.ThalwegError) == (kind in ("system", "internal"))
    again = errors.of_json(errors.to_json(error))
    assert (type(again), again.kind) == (type(error), kind)


# spec: E-07 sockets
def test_a_server_that_refuses_a_rank_in_the_middle_is_no_error_of_the_call():
    failure = ("config", "the server refuses the token", [], None, None)
    error = errors.of_failure(failure, operation="all_reduce")
    assert type(error) is errors.ThalwegError and error.kind == "config"
    assert type(errors.of_failure(failure, operation="join")) is ValueError
    call = ("call", "the lengths differ", [], None, None)
    assert type(errors.of_failure(call, operation="all_reduce")) is ValueError


# spec: E-07 sockets
def test_daemons_that_cannot_start_raise_typed_errors():
    with pytest.raises(ValueError, match="token"):
        thalweg.Server("127.0.0.1:0", bytes(16), token="")
    # Nobody has this address: it is for documentation.
    with pytest.raises(thalweg.SessionError) as raised:
        thalweg.Switch("192.0.2.1:0", bytes(16))
    assert raised.value.kind == "system" and isinstance(raised.value.__cause__, OSError)
    with pytest.raises(ValueError, match="bind"):
        thalweg.Switch("nowhere", bytes(16))


def _wait_for_the_stopped(rank: int, ranks: int) -> float:
    dist.all_reduce(torch.ones(10))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(1_000))
    except RuntimeError as error:
        assert "rank 1" in str(error), error
        return time.monotonic() - began
    raise AssertionError("nobody noticed")


def test_a_stopped_rank_is_named_when_the_timeout_is_over(start, monkeypatch):
    monkeypatch.setenv("TEST_TIMEOUT_S", "5")
    monkeypatch.setenv("THALWEG_JOIN_TIMEOUT", "60")
    answers = start(3, _wait_for_the_stopped).answers(2)
    for rank, (is_right, answer) in answers.items():
        assert is_right, f"rank {rank}:\n{answer}"
        assert answer < 30


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


def test_impossible_calls_fail_at_once(run):
    assert all("mean of torch.int32" in text for text in run(2, _misuse))


def _sum_often(rank: int, ranks: int, sums: int) -> str:
    for step in range(sums):
        values = torch.arange(20_000, dtype=torch.float32) % 100 + rank + step
        dist.all_reduce(values)
        expected = (torch.arange(20_000, dtype=torch.float32) % 100 + step) * ranks
        assert torch.equal(values, expected + sum(range(ranks))), f"sum {step} is wrong"
    return "done"


def test_one_packet_in_a_hundred_is_lost(run, daemons_losing):
    daemons = daemons_losing(0.01)
    assert run(3, _sum_often, 50) == ["done"] * 3
    assert daemons.switch.counts()[1] > 0


def test_a_switch_that_dies_and_comes_back(start, daemons_losing):
    daemons = daemons_losing(0.0)
    ranks = start(3, _sum_often, 2_000)
    while daemons.switch.counts()[1] < 2_000:
        assert any(process.is_alive() for process in ranks.processes), ranks.answers()
        time.sleep(0.05)
    daemons.switch.stop()
    time.sleep(1)
    daemons.switch = thalweg.Switch(daemons.address, daemons.secret)
    answers = ranks.answers()
    assert answers == {rank: (True, "done") for rank in range(3)}
    assert daemons.switch.counts()[1] > 0, "the new one has summed"


def _lose_the_hand_out(rank: int, ranks: int) -> str:
    group = dist.distributed_c10d._get_default_group()
    dist.barrier()

    def broken(*end: object) -> None:
        raise RuntimeError("broken on purpose")

    group._runner._on_end = broken
    try:
        dist.all_reduce(torch.ones(10))
    except RuntimeError as error:
        return str(error)
    return "nothing"


def test_results_without_a_receiver_are_an_error(start):
    answers = start(2, _lose_the_hand_out).answers(limit_s=TIMEOUT_S)
    for _, text in answers.values():
        assert "broken on purpose" in str(text), text
