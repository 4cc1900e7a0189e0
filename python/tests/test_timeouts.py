"""Timeouts of groups and of single operations, longer and shorter than the group's, and the ranks that they name."""

from __future__ import annotations

import datetime
import os
import queue
import signal
import time
import typing
import weakref

import pytest
import torch
import torch.distributed as dist

from thalweg.torch import OperationTimeoutError, Options
from thalweg.torch.calls import Call
from thalweg.torch.runner import Runner, _leave_at_exit
from thalweg.torch.timeouts import Stall, awaited

SHORT_S, LATE_S, LONG = 1.0, 2.5, datetime.timedelta(seconds=60)


def _group(operation_timeout_s: float) -> typing.Any:
    return dist.new_group(backend="thalweg", pg_options=Options(operation_timeout=operation_timeout_s))


# spec: E-02 sockets
def _longer(rank: int, ranks: int) -> None:
    options = dist.BarrierOptions()
    options.timeout = LONG
    one, monitored, changed = (_group(SHORT_S) for _ in range(3))
    changed.set_timeout(LONG)
    assert changed.settings()["operation_timeout"] == LONG.total_seconds()
    calls = (
        lambda: one.barrier(options).wait(),
        lambda: monitored.monitored_barrier(LONG),
        lambda: dist.all_reduce(torch.ones(10), group=changed),
    )
    for call in calls:
        dist.barrier()
        if rank == 1:
            time.sleep(LATE_S)
        call()


def test_timeouts_longer_than_the_groups_are_kept(run):
    run(2, _longer)


# spec: E-02, E-07 sockets
def _named(rank: int, ranks: int) -> None:
    group, other = _group(4.0), _group(4.0)
    if rank == 0:
        # In shared memory, as the ranks are on one host.
        with pytest.raises(OperationTimeoutError, match="timed out after .*waiting for rank 1") as raised:
            dist.all_reduce(torch.ones(10), group=group)
        assert raised.value.ranks == (1,), raised.value
        with pytest.raises(OperationTimeoutError, match="timed out") as raised:
            dist.recv(torch.ones(3), 1, group=other)
        assert raised.value.ranks == (1,), raised.value
    dist.barrier()
    # The late rank gets the same, and not that rank 0 is at fault.
    with pytest.raises(OperationTimeoutError, match="timed out") as raised:
        dist.all_reduce(torch.ones(10), group=group)
    assert raised.value.ranks == (1,), raised.value


def test_a_timeout_names_the_ranks_that_are_waited_for_at_every_rank(run):
    run(2, _named)


STALL = "operation 3 stalls for 2.5 s: rank 0 (10.0.0.1:5) waits for rank 2 (10.0.0.3:5)"


def test_ranks_are_read_from_explanations():
    # The text describes some of them.
    assert Stall.of(STALL, [7, 3, 2, 4, 5, 6], 0.0).ranks == (2, 3, 4, 5, 6, 7)
    assert Stall.of("the server does not answer: rank 1 (a:1) waits for rank 2 (b:1)", [2], 0.0) is None
    assert awaited("aborted by rank 0: barrier timed out after 1.0 s, waiting for ranks 1, 12: more") == (1, 12)
    assert awaited("aborted by rank 0: barrier timed out after 1.0 s") == ()
    assert awaited("aborted by rank 0: the program called abort") is None


class _FakeSession:
    """A session whose operations end when the test says so."""

    def __init__(self) -> None:
        self.ends: queue.Queue[typing.Any] = queue.Queue()
        self.notes: list[tuple[bool, str, list[int]]] = []
        self.begun = 0

    def settings(self) -> dict[str, object]:
        return {"stall_after": 1.0}

    def next(self, timeout_s: float) -> object:
        try:
            return self.ends.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def take_notes(self) -> list[tuple[bool, str, list[int]]]:
        notes, self.notes = self.notes, []
        return notes

    def begin(self) -> int:
        self.begun += 1
        return self.begun

    def abort(self, reason: str) -> None:
        self.reason = reason


def _timed_out(session: _FakeSession, runner: Runner) -> OperationTimeoutError:
    call = Call(None, 0)
    call.add(session.begin, [])
    work = runner.start("barrier", call, None, timeout=datetime.timedelta(seconds=0.5))
    with pytest.raises(OperationTimeoutError) as raised:
        work.wait()
    session.ends.put((session.begun, None, [], None))
    return raised.value


def test_a_timeout_names_the_stall_that_lasts_and_none_that_is_over():
    session = _FakeSession()
    runner = Runner(session, 0, 3, 60.0)
    session.notes = [(True, STALL, [2]), (True, "the server does not answer: connection refused", [])]
    error = _timed_out(session, runner)
    assert error.ranks == (2,) and STALL in str(error) and session.reason == str(error)
    # The operation has ended, and its stall with it.
    while not runner.is_idle():
        time.sleep(0.01)
    error = _timed_out(session, runner)
    assert error.ranks == () and "stalls" not in str(error)
    session.notes = [(True, "the server does not answer: connection refused", [])]
    assert "server" not in str(_timed_out(session, runner))
    runner._is_over.set()


# spec: E-02 sockets
def test_a_forked_process_that_ends_takes_no_lock_of_its_parent():
    runner = Runner(_FakeSession(), 0, 1, 60.0)
    # Another thread of the parent may hold it at the time of the fork.
    with runner._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            _leave_at_exit(weakref.ref(runner))
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "it waits"
    runner._is_over.set()
