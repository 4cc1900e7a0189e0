"""Runs a function on several ranks, each a process of its own."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import traceback
import typing

import pytest

torch = pytest.importorskip("torch", reason="the backend needs torch: pip install torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import thalweg  # noqa: E402

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of the groups. Processes that all import torch at once need long to meet.
TIMEOUT_S = 60


def free_port() -> int:
    """A TCP port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _rank(rank: int, ranks: int, port: int, body: typing.Callable, arguments: tuple, queue) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    try:
        import thalweg.torch  # noqa: F401

        timeout = datetime.timedelta(seconds=int(os.environ.get("TEST_TIMEOUT_S", TIMEOUT_S)))
        dist.init_process_group("thalweg", rank=rank, world_size=ranks, timeout=timeout)
        answer = body(rank, ranks, *arguments)
        dist.destroy_process_group()
        queue.put((rank, True, answer))
    except BaseException:
        queue.put((rank, False, traceback.format_exc()))
        raise


class Ranks:
    """Processes that run one function."""

    def __init__(self, ranks: int, body: typing.Callable, arguments: tuple) -> None:
        context = mp.get_context("spawn")
        self.queue = context.Queue()
        port = free_port()
        self.processes = [
            context.Process(target=_rank, args=(r, ranks, port, body, arguments, self.queue))
            for r in range(ranks)
        ]
        for process in self.processes:
            process.start()

    def answers(self, count: int | None = None, limit_s: float = 120) -> dict[int, tuple[bool, object]]:
        """Answers of `count` ranks, all of them by default."""
        found = {}
        for _ in range(len(self.processes) if count is None else count):
            rank, is_right, answer = self.queue.get(timeout=limit_s)
            found[rank] = (is_right, answer)
        return found

    def end(self) -> None:
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()


@pytest.fixture
def start():
    """``start(ranks, body, *arguments)`` begins a run and returns its :class:`Ranks`."""
    begun = []

    def begin(ranks: int, body: typing.Callable, *arguments: object) -> Ranks:
        begun.append(Ranks(ranks, body, arguments))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


@pytest.fixture
def run(start):
    """``run(ranks, body, *arguments)`` returns what the ranks returned, and fails if one has failed."""

    def go(ranks: int, body: typing.Callable, *arguments: object) -> list[object]:
        answers = start(ranks, body, *arguments).answers()
        wrong = [f"rank {r}:\n{text}" for r, (is_right, text) in answers.items() if not is_right]
        assert not wrong, "\n".join(wrong)
        return [answers[r][1] for r in range(ranks)]

    return go


class Daemons:
    """A switch and a server, whose addresses ranks find in their environment."""

    def __init__(self, monkeypatch, loss: float = 0.0, sets_environment: bool = True) -> None:
        self.secret = os.urandom(16)
        self.switch = thalweg.Switch("127.0.0.1:0", self.secret, loss=loss)
        self.address = self.switch.address
        self.server = thalweg.Server("127.0.0.1:0", self.secret, "test", self.address)
        if not sets_environment:
            return
        monkeypatch.setenv("THALWEG_SERVER", self.server.address)
        monkeypatch.setenv("THALWEG_SWITCH", self.address)
        monkeypatch.setenv("THALWEG_TOKEN", "test")
        monkeypatch.setenv("THALWEG_SHARE_MEMORY", "0")

    def stop(self) -> None:
        self.server.stop()
        self.switch.stop()


@pytest.fixture
def daemons_losing(monkeypatch):
    """``daemons_losing(share)`` starts :class:`Daemons` whose switch loses a share of all packets."""
    begun = []

    def begin(loss: float) -> Daemons:
        begun.append(Daemons(monkeypatch, loss))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()
