"""Ranks that join through the store: one that dies, or that the others cannot reach, fails all of them at once."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing

import pytest
import torch
import torch.distributed as dist

from thalweg.torch import reach

SCRIPT = pathlib.Path(__file__).with_name("joining_script.py")
FAILURE_AFTER_S = 2
# Time that a busy machine may add.
SLACK_S = 8
TIMEOUT = datetime.timedelta(minutes=10)


class _Rank:
    """A process that joins, and prints how that ended."""

    def __init__(self, store: dist.TCPStore, rank: int, ranks: int, **environment: str) -> None:
        given = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "STORE_PORT": str(store.port)}
        given["THALWEG_FAILURE_AFTER"] = str(FAILURE_AFTER_S)
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT],
            env={**os.environ, **given, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> dict[str, typing.Any]:
        """The error with which joining ended, and the C++ log of torch."""
        output, errors = self.process.communicate(timeout=60)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        assert lines, (output, errors)
        return {**json.loads(lines[-1]), "log": errors}


@pytest.fixture
def begin():
    """``begin(ranks, of)`` starts some ranks of a group, whose store is in this process."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
    begun: list[_Rank] = []

    def go(ranks: typing.Iterable[int], of: int, **environment: str) -> list[_Rank]:
        new = [_Rank(store, rank, of, **environment) for rank in ranks]
        begun.extend(new)
        return new

    go.store = store
    yield go
    for one in begun:
        one.process.kill()
        one.process.wait()


def _until_joining(store: dist.TCPStore, rank: int) -> None:
    ends_at = time.monotonic() + 60
    while not store.check([f"meeting/thalweg/1/contact/{rank}"]):
        assert time.monotonic() < ends_at, f"rank {rank} does not start"
        time.sleep(0.05)


# spec: E-01 sockets
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_while_it_joins_fails_the_others(begin, victim):
    # Rank 3 never comes, so that all others wait.
    ranks = begin(range(3), 4)
    for rank in range(3):
        _until_joining(begin.store, rank)
    time.sleep(1)
    ranks[victim].process.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    found = [rank.ended() for at, rank in enumerate(ranks) if at != victim]
    took_s = time.monotonic() - killed_at
    for one in found:
        assert (one["class"], one["ranks"]) == ("PeerError", [victim]), one
        assert f"rank {victim} (" in one["text"] and "closed without a goodbye" in one["text"], one
        assert f"process {ranks[victim].process.pid}" in one["text"], one
        assert "[W" not in one["log"], "torch logs every request that timed out"
    if victim > 0:
        assert found[0]["text"] == found[1]["text"]
    assert took_s < FAILURE_AFTER_S + 2 + SLACK_S, took_s


# spec: E-01 sockets
@pytest.mark.parametrize("early", [0, 1])
def test_a_rank_that_died_before_another_came_fails_it(begin, early):
    # No connection to it was ever made: its kernel refuses one.
    [victim] = begin([early], 2)
    _until_joining(begin.store, early)
    time.sleep(1)
    victim.process.kill()
    victim.process.wait()
    [other] = begin([1 - early], 2)
    _until_joining(begin.store, 1 - early)
    began = time.monotonic()
    found = other.ended()
    assert (found["class"], found["ranks"]) == ("PeerError", [early]), found
    assert "refuses connections" in found["text"], found
    assert time.monotonic() - began < FAILURE_AFTER_S + 2 + SLACK_S


# spec: E-01 sockets
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_rank_that_is_stopped_while_it_joins_is_waited_for(begin, stopped):
    ranks = begin(range(2), 3, THALWEG_STALL_AFTER="1")
    for rank in range(2):
        _until_joining(begin.store, rank)
    time.sleep(1)
    ranks[stopped].process.send_signal(signal.SIGSTOP)
    # Rank 0 watches heartbeats until the last rank comes, and that one may start within the time of a stall.
    time.sleep(3)
    ranks += begin([2], 3, THALWEG_STALL_AFTER="1")
    _until_joining(begin.store, 2)
    # Twice the time after which a dead one has failed the others.
    time.sleep(2 * FAILURE_AFTER_S + 1)
    assert all(rank.process.poll() is None for rank in ranks)
    ranks[stopped].process.send_signal(signal.SIGCONT)
    found = [rank.ended() for rank in ranks]
    assert [one["class"] for one in found] == ["none"] * 3, found
    if stopped != 0:
        assert f"rank {stopped} (" in found[0]["log"] and "does not progress" in found[0]["log"], found[0]["log"]


# spec: E-01 sockets
def test_a_stopped_rank_that_is_killed_fails_the_others(begin):
    ranks = begin(range(2), 3)
    for rank in range(2):
        _until_joining(begin.store, rank)
    ranks[1].process.send_signal(signal.SIGSTOP)
    time.sleep(2 * FAILURE_AFTER_S + 1)
    assert ranks[0].process.poll() is None
    ranks[1].process.kill()
    killed_at = time.monotonic()
    found = ranks[0].ended()
    assert (found["class"], found["ranks"]) == ("PeerError", [1]), found
    assert time.monotonic() - killed_at < FAILURE_AFTER_S + 2 + SLACK_S


# spec: E-02 sockets
def test_a_rank_that_does_not_join_is_named_by_all_that_wait(begin):
    for rank in begin(range(2), 3, THALWEG_JOIN_TIMEOUT="5"):
        found = rank.ended()
        assert (found["class"], found["ranks"]) == ("OperationTimeoutError", [2]), found
        assert "timed out: rank 2 has not joined within 5 s" in found["text"], found


# spec: E-02, E-07 sockets
def test_all_ranks_raise_the_same_error_where_rank_0_is_unreachable(begin):
    # A documentation address, which is nobody's.
    ranks = begin([0], 3, TEST_ADDRESSES="192.0.2.1") + begin([1, 2], 3)
    found = [rank.ended() for rank in ranks]
    assert {one["class"] for one in found} == {"UnreachableError"}, found
    assert {tuple(one["ranks"]) for one in found} == {(1, 2)} and len({one["text"] for one in found}) == 1
    assert "no address of rank 0 (192.0.2.1) is reached by all ranks" in found[0]["text"]


# spec: E-02 sockets
def test_ctrl_c_at_one_rank_ends_the_wait_of_all(begin):
    ranks = begin([0, 1], 3)
    for rank in range(2):
        _until_joining(begin.store, rank)
    time.sleep(1)
    ranks[0].process.send_signal(signal.SIGINT)
    assert ranks[0].ended()["class"] == "KeyboardInterrupt"
    found = ranks[1].ended()
    assert (found["class"], found["ranks"]) == ("AbortedError", [0]), found


# spec: E-02 sockets
def test_ctrl_c_does_not_wait_for_addresses_that_do_not_answer(begin):
    # Many addresses that no packet comes back from.
    ranks = begin([0], 2, TEST_ADDRESSES=",".join(f"192.0.2.{at}" for at in range(1, 40)))
    ranks += begin([1], 2)
    ends_at = time.monotonic() + 60
    while not begin.store.check(["meeting/thalweg/1/contact/0"]):
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    _until_joining(begin.store, 1)
    ranks[1].process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert ranks[1].ended()["class"] in ("KeyboardInterrupt", "UnreachableError")
    assert time.monotonic() - began < 2 + SLACK_S


def _elsewhere(rank: int, ranks: int) -> None:
    """Sub-groups that reach rank 0 at another address than the default group, as those of one host do."""
    reach.own_addresses = lambda: ["127.0.0.2"]
    alone = dist.new_group([0], backend="thalweg")
    pair = dist.new_group([0, 1], backend="thalweg")
    # Longer than a server may be away.
    time.sleep(3)
    groups = {None: 3, pair: 2} if rank < 2 else {None: 3}
    for group, count in {**groups, **({alone: 1} if rank == 0 else {})}.items():
        total = torch.ones(10)
        dist.all_reduce(total, group=group)
        assert (total == count).all()


# spec: E-01 sockets
def test_a_group_that_reaches_rank_0_elsewhere_leaves_older_groups_their_server(run, monkeypatch):
    monkeypatch.setenv("THALWEG_FAILURE_AFTER", "1")
    run(3, _elsewhere)


def _again(rank: int, ranks: int, port: int) -> None:
    """Groups one after the other, whose store outlives them, as that of torchrun does."""
    dist.destroy_process_group()
    for turn in range(3):
        store = dist.TCPStore("127.0.0.1", port, timeout=TIMEOUT)
        dist.init_process_group("thalweg", store=store, rank=rank, world_size=ranks)
        total = torch.full((10,), 1.0 + turn)
        dist.all_reduce(total)
        assert (total == ranks * (1.0 + turn)).all()
        if turn < 2:
            # A rank may still read what another one has left behind.
            time.sleep(0.3 * rank)
            dist.destroy_process_group()


# spec: E-10 sockets
def test_a_group_is_made_again_through_the_same_store(run):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
    run(2, _again, store.port)
