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
import torch.distributed as dist

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
    while not store.check([f"meeting/thalweg/host/{rank}"]):
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
        assert f"rank {victim} (" in one["text"] and "heartbeat stopped" in one["text"], one
        assert f"process {ranks[victim].process.pid}" in one["text"], one
        assert "[W" not in one["log"], "torch logs every request that timed out"
    if victim > 0:
        assert found[0]["text"] == found[1]["text"]
    assert took_s < FAILURE_AFTER_S + 2 + SLACK_S, took_s


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
    while not begin.store.check(["meeting/thalweg/offer"]):
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    _until_joining(begin.store, 1)
    ranks[1].process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert ranks[1].ended()["class"] in ("KeyboardInterrupt", "UnreachableError")
    assert time.monotonic() - began < 2 + SLACK_S
