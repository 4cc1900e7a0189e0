"""Waits that end early: by Ctrl-C, abort, a timeout, an exception or the end of the process."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import typing

import pytest
import torch
import torch.distributed as dist
from conftest import Daemons, free_port
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch
from thalweg.torch import AbortedError, OperationTimeoutError, Options, ThalwegError

SCRIPT = pathlib.Path(__file__).with_name("ending_script.py")
# How long a wait may take after the signal on a busy machine.
SOON_S = 5


@contextlib.contextmanager
def _raises_soon(kind: type[BaseException], after_s: float = 0.0) -> typing.Iterator[typing.Any]:
    began = time.monotonic()
    with pytest.raises(kind) as raised:
        yield raised
    took_s = time.monotonic() - began
    assert took_s < after_s + SOON_S, f"after {took_s:.1f} s: {raised.value}"


@contextlib.contextmanager
def _interrupted() -> typing.Iterator[None]:
    """Ctrl-C, half a second from now."""
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with _raises_soon(KeyboardInterrupt, 0.5):
        yield
    timer.join()


def _group(timeout_s: float = 60, **given: typing.Any) -> typing.Any:
    timeout = datetime.timedelta(seconds=timeout_s)
    return dist.new_group(backend="thalweg", timeout=timeout, pg_options=Options(**given) if given else None)


def _operations(group: typing.Any) -> dict[str, typing.Callable[[], object]]:
    return {
        "all_reduce": lambda: dist.all_reduce(torch.ones(10), group=group),
        "barrier": lambda: dist.barrier(group=group),
        "recv": lambda: dist.recv(torch.ones(3), 1, group=group),
        "send": lambda: dist.send(torch.ones(3_000_000), 1, group=group),
        "broadcast": lambda: dist.broadcast(torch.ones(3_000_000), 0, group=group),
    }


# spec: E-02 sockets
def _interrupts(rank: int, ranks: int) -> None:
    for name in _operations(None):
        group = _group()
        if rank == 0:
            with _interrupted():
                _operations(group)[name]()
            group.abort()
        else:
            time.sleep(1)
            with _raises_soon(AbortedError) as raised:
                while True:
                    dist.all_reduce(torch.ones(10), group=group)
            assert raised.value.ranks == (0,), raised.value
            # The first is the operation that the abort ended, here.
            assert raised.value.operation == "all_reduce" and raised.value.since is not None
    group = _group()
    if rank == 0:
        # Leaving waits for what was begun.
        dist.all_reduce(torch.ones(10), group=group, async_op=True)
        with _interrupted():
            group.shutdown()
    dist.barrier()


def test_ctrl_c_ends_every_wait_and_abort_reaches_the_others(run):
    run(2, _interrupts)


# spec: E-02 sockets
def _joins(rank: int, ranks: int) -> None:
    if rank == 0:
        for given in ({}, {"server": os.environ["TEST_SERVER"], "token": "test"}):
            with _interrupted():
                thalweg_join(given, 60)
            with _raises_soon(OperationTimeoutError, 2.0) as raised:
                thalweg_join(given, 2)
            assert raised.value.ranks == (1,), raised.value
            assert "timed out" in str(raised.value) and raised.value.operation == "join"
    dist.barrier()
    with pytest.raises(ValueError, match="numeric"):
        thalweg_join({"numeric": "octal", "server": os.environ["TEST_SERVER"]}, 2, ranks=1)


def thalweg_join(given: dict[str, typing.Any], timeout_s: float, ranks: int = 2) -> None:
    """Joins a group as rank 0. Rank 1 never comes."""
    from thalweg.torch.meeting import Rendezvous, meet

    settings = thalweg.torch.Settings.load(Options(**given))
    meet(Rendezvous(dist.HashStore(), 0, ranks, "alone", timeout_s), settings)


def test_joining_has_a_deadline_and_ends_by_ctrl_c(run, monkeypatch):
    daemons = Daemons(pytest.MonkeyPatch(), sets_environment=False)
    monkeypatch.setenv("TEST_SERVER", daemons.server.address)
    run(2, _joins)
    daemons.stop()


# spec: E-02 sockets
def _timeouts(rank: int, ranks: int) -> None:
    group = _group()
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
        with _raises_soon(OperationTimeoutError, 0.5) as raised:
            work.wait(datetime.timedelta(seconds=0.5))
        assert "timed out" in str(raised.value) and raised.value.operation == "all_reduce"
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.all_reduce(torch.ones(10), group=group)
    # The timeout of one operation.
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=1)
    if rank == 0:
        with _raises_soon(OperationTimeoutError, 1) as raised:
            group.allreduce([torch.ones(10)], options).wait()
        assert "timed out" in str(raised.value), raised.value
    dist.barrier()
    # The timeout of a group.
    group = _group(timeout_s=3)
    dist.barrier(group=group)
    if rank == 0:
        with _raises_soon(OperationTimeoutError, 3) as raised:
            dist.all_reduce(torch.ones(10), group=group)
        assert "timed out" in str(raised.value) and raised.value.ranks == (1,), raised.value
    dist.barrier()
    # A barrier that names those who do not come.
    group = _group()
    if rank == 0:
        with _raises_soon(OperationTimeoutError, 1) as raised:
            group.monitored_barrier(datetime.timedelta(seconds=1), wait_all_ranks=True)
        assert raised.value.ranks == (1,) and "timed out after 1.0 s, waiting for rank 1" in str(raised.value)
    dist.barrier()
    with pytest.raises(thalweg.torch.DisagreementError, match="calls"):
        dist.all_reduce(torch.ones(3 + rank), group=_group())


def test_timeouts_of_groups_and_operations_are_kept(run):
    run(2, _timeouts)


# spec: E-07 sockets
def _dead(rank: int, ranks: int) -> None:
    group = _group(failure_after=1)
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    for _ in range(2):  # the second step builds the buckets anew
        model(torch.ones(2, 4)).sum().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    # Torch raises the error of a bucket from C++, as a RuntimeError with its text.
    with _raises_soon(RuntimeError, 3) as raised:
        model(torch.ones(2, 4)).sum().backward()
    assert "PeerError" in str(raised.value) and "rank 1" in str(raised.value), raised.value
    with _raises_soon(ThalwegError) as raised:
        dist.all_reduce(torch.ones(4), group=group)
    assert raised.value.ranks == (1,), raised.value
    os._exit(0)


def test_a_dead_rank_is_an_error_of_the_backward_pass(start):
    ranks = start(2, _dead)
    ranks.processes[0].join(60)
    assert ranks.processes[0].exitcode == 0


COMMANDED = pathlib.Path(__file__).with_name("commanded_script.py")


class _Commanded:
    """One of two ranks, which obeys lines."""

    def __init__(self, rank: int, port: int, **environment: str) -> None:
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", **environment}
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        self.process = subprocess.Popen(
            [sys.executable, COMMANDED],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def say(self, line: str) -> None:
        print(line, file=self.process.stdin, flush=True)

    def expect(self, start: str) -> str:
        for line in self.process.stdout:
            if line.startswith(f"@{start}"):
                return line.strip()
            assert start.startswith("error") or not line.startswith("@error"), line
        raise AssertionError(f"the process ended without {start}")

    def gone_after_s(self) -> float:
        """Interrupts it, and returns when it was gone."""
        self.process.send_signal(signal.SIGINT)
        began = time.monotonic()
        self.process.wait(60)
        return time.monotonic() - began


@contextlib.contextmanager
def _commanded(ranks: int, **environment: str) -> typing.Iterator[list[_Commanded]]:
    port = free_port()
    begun = [_Commanded(rank, port, **environment) for rank in range(ranks)]
    try:
        yield begun
    finally:
        for one in begun:
            one.process.kill()
            one.process.wait()


# spec: E-02 sockets
@pytest.mark.parametrize("wait", ["join", "all_reduce", "barrier", "send", "recv"])
def test_a_process_is_gone_soon_after_ctrl_c(wait):
    with _commanded(1 if wait == "join" else 2) as ranks:
        if wait == "join":
            ranks[0].expect("joining")
        else:
            for rank in ranks:
                rank.expect("joined")
            ranks[0].say(wait)
        time.sleep(1)
        assert ranks[0].process.poll() is None, "it waits"
        took_s = ranks[0].gone_after_s()
        print(f"{wait}: the process was gone {took_s:.2f} s after Ctrl-C")
        assert took_s < 2 + SOON_S, f"gone after {took_s:.1f} s"
        if wait != "join":
            ranks[1].say("barrier")
            assert "aborted by rank 0" in ranks[1].expect("error [0]")


# spec: E-02 sockets
def test_ctrl_c_ends_a_backward_pass_behind_a_rank_that_is_stopped():
    with _commanded(2) as ranks:
        for rank in ranks:
            rank.expect("joined")
            rank.say("sum 1000 1000000")
        # The second step builds the buckets anew.
        ranks[0].expect("sum 3")
        ranks[1].process.send_signal(signal.SIGSTOP)
        time.sleep(1)
        took_s = ranks[0].gone_after_s()
        print(f"backward: the process was gone {took_s:.2f} s after Ctrl-C")
        assert took_s < 2 + SOON_S, f"gone after {took_s:.1f} s"
        assert ranks[0].process.returncode != 0
        ranks[1].process.send_signal(signal.SIGCONT)
        # Torch raises the error of a bucket from C++, as a RuntimeError with its text.
        assert "AbortedError" in (text := ranks[1].expect("error")) and "aborted by rank 0: interrupted" in text


def test_the_main_thread_that_handles_ctrl_c_is_left_alone_and_so_are_other_listeners():
    from thalweg.torch.interrupts import Interrupts

    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    before = signal.set_wakeup_fd(sender.fileno())
    interrupts = Interrupts()
    interrupts.begin()
    try:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        interrupts.is_unhandled()
        time.sleep(0.6)
        assert not interrupts.is_unhandled(), "this thread has taken steps since"
        assert receiver.recv(8) == bytes([signal.SIGINT])
        interrupts.end()
        assert signal.set_wakeup_fd(before) == sender.fileno(), "it is restored"
    finally:
        signal.set_wakeup_fd(before)


# spec: E-02, E-03 sockets
@pytest.mark.parametrize("wait", ["all_reduce", "barrier", "send", "recv"])
def test_abort_from_another_thread_ends_the_wait(wait):
    with _commanded(2) as ranks:
        for rank in ranks:
            rank.expect("joined")
        ranks[0].say("abort 0.5")
        ranks[0].expect("done")
        began = time.monotonic()
        ranks[0].say(wait)
        assert "aborted by rank 0" in ranks[0].expect("error [0]")
        took_s = time.monotonic() - began
        print(f"{wait}: the wait ended {took_s - 0.5:.2f} s after abort")
        assert took_s < 0.5 + 2 + SOON_S


# spec: E-01 sockets
def test_a_child_that_outlives_its_rank_does_not_hide_the_death():
    with _commanded(2, THALWEG_FAILURE_AFTER="2") as ranks:
        for rank in ranks:
            rank.expect("joined")
        # Rank 0 has the server: its death is that of both.
        ranks[1].say("fork 60")
        ranks[1].expect("done")
        began = time.monotonic()
        ranks[1].process.kill()
        ranks[0].say("barrier")
        assert "rank 1 (" in ranks[0].expect("error [1]")
        assert time.monotonic() - began < 4 + SOON_S


# spec: E-01 sockets
def test_a_child_that_outlives_the_server_does_not_hide_its_death():
    with _commanded(2, THALWEG_FAILURE_AFTER="2") as ranks:
        for rank in ranks:
            rank.expect("joined")
        ranks[0].say("fork 60")
        ranks[0].expect("done")
        began = time.monotonic()
        ranks[0].process.kill()
        ranks[1].say("barrier")
        found = ranks[1].expect("error [0]")
        assert "rank 0, which runs the server at 127.0.0.1:" in found and "does not answer" in found, found
        assert time.monotonic() - began < 4 + SOON_S


def _script(rank: int, port: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
    environment["MASTER_ADDR"] = "127.0.0.1"
    return subprocess.Popen(
        [sys.executable, SCRIPT], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# spec: E-02 sockets
# spec: E-03 sockets
def test_a_forked_process_leaves_the_group_alone_and_a_failing_program_ends_at_once():
    port = free_port()
    ranks = [_script(rank, port) for rank in range(2)]
    try:
        first, first_errors = ranks[0].communicate(timeout=120)
        ended_at = time.monotonic()
        second, second_errors = ranks[1].communicate(timeout=120)
    finally:
        for one in ranks:
            one.kill()
    assert "child: ClosedError" in second and "child ended with 3" in second, (second, second_errors)
    assert "sum after the fork: 2.0" in first and "sum after the fork: 2.0" in second
    assert "RuntimeError: on purpose" in first_errors, first_errors
    raised_at = float(first.split("raised at ")[1].split()[0])
    assert ended_at - raised_at < 1 + SOON_S, "leaving takes a second at most"
    assert "AbortedError of ranks (0,)" in second, (second, second_errors)
    assert ranks[1].returncode == 0
