"""Waits at the store through which the ranks of a group meet.

A store keeps values and knows nothing of processes. So every rank counts a heartbeat there while it joins. Rank 0
watches the heartbeats of all others, and these watch that of rank 0: one request a rank and heartbeat. The first rank
that fails publishes its error, and all raise the same.
"""

from __future__ import annotations

import collections.abc
import contextlib
import json
import os
import socket
import threading
import time
import typing

import torch.distributed as dist

from . import errors

# Time between two requests for a value. Ctrl-C is handled in between.
_POLL_S = 0.1
# Longest time between two heartbeats.
_BEAT_S = 0.5
_FAILED = "thalweg/failed"


class Waiting:
    """A store whose waits end by Ctrl-C, by the failure of a rank, and by a deadline, with an error that names ranks.

    Used as a context: heartbeats begin and end with it, and an exception that leaves it reaches the other ranks.
    """

    def __init__(
        self, store: typing.Any, rank: int, ranks: int, limit_s: float, failure_after_s: float
    ) -> None:
        self._store = store
        self._rank, self._ranks = rank, ranks
        self._limit_s, self._failure_after_s = limit_s, failure_after_s
        self._ends_at = time.monotonic() + limit_s
        self._beat_s = min(_BEAT_S, failure_after_s / 4)
        self._watched = range(1, ranks) if rank == 0 else range(1)
        # Heartbeats of the ranks that are watched, and when each was first seen.
        self._seen: dict[int, tuple[int, float]] = {}
        self._watched_at = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="thalweg-join", daemon=True)

    def __enter__(self) -> Waiting:
        self.set(_host_key(self._rank), f"{socket.gethostname()}, process {os.getpid()}")
        with self._typed_failures():
            self._store.add(_beat_key(self._rank), 1)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_over.set()
        # A store that does not answer must not hold up what comes next.
        self._thread.join(_POLL_S)
        if error is not None:
            # Where the store has failed, it reaches nobody.
            with contextlib.suppress(dist.DistError):
                self._publish(self._failure_of(error))

    def set(self, key: str, value: object) -> None:
        """Publishes a value as JSON."""
        with self._typed_failures():
            self._store.set(key, json.dumps(value))

    def get(self, key: str, rank: int) -> typing.Any:
        """Waits for the value that a rank publishes."""
        with self._typed_failures():
            # A request for a value that is not there would wait, and Ctrl-C with it.
            while not self._store.check([key]):
                if self._store.check([_FAILED]):
                    raise errors.of_json(json.loads(self._store.get(_FAILED)))
                self._watch()
                left_s = self._ends_at - time.monotonic()
                if left_s <= 0:
                    raise self._publish(self._late(rank))
                time.sleep(min(_POLL_S, left_s))
            return json.loads(self._store.get(key))

    def _publish(self, error: errors.ThalwegError) -> errors.ThalwegError:
        """Publishes an error, and returns the one that was published first."""
        first = self._store.compare_set(_FAILED, "", json.dumps(errors.to_json(error)))
        return errors.of_json(json.loads(first))

    def _beat(self) -> None:
        while not self._is_over.wait(self._beat_s):
            try:
                self._store.add(_beat_key(self._rank), 1)
            except dist.DistError:
                return  # The thread that waits notices it as well, and raises the error.

    # spec: E-01
    def _watch(self) -> None:
        """Fails if the heartbeat of a rank has stopped."""
        now = time.monotonic()
        if now - self._watched_at < self._beat_s:
            return
        self._watched_at = now
        for rank in self._watched:
            beats = self._beats(rank)
            if beats > 0 and self._seen.get(rank, (0, 0.0))[0] != beats:
                self._seen[rank] = (beats, now)
        silent_s = {rank: now - at for rank, (_, at) in self._seen.items()}
        dead = {rank: since for rank, since in silent_s.items() if since >= self._failure_after_s}
        if dead:
            lines = (
                f"rank {rank} ({self._host(rank)}) died while ranks joined: its heartbeat stopped {since:.1f} s ago"
                for rank, since in sorted(dead.items())
            )
            text, since = "; ".join(lines), max(dead.values())
            raise self._publish(errors.PeerError(text, ranks=dead, operation="join", since=since))

    def _beats(self, rank: int) -> int:
        """Number of heartbeats of a rank. Zero if it has not begun to join."""
        return int(self._store.add(_beat_key(rank), 0))

    def _host(self, rank: int) -> str:
        return str(json.loads(self._store.get(_host_key(rank))))

    def _late(self, awaited: int) -> errors.ThalwegError:
        """The error of a deadline. A rank that waits for another one is not at fault, and neither is that one."""
        missing = [rank for rank in range(self._ranks) if self._beats(rank) == 0] or [awaited]
        whom = f"rank{'' if len(missing) == 1 else 's'} {', '.join(map(str, missing))}"
        verb = "has" if len(missing) == 1 else "have"
        text = f"joining timed out: {whom} {verb} not joined within {self._limit_s:g} s"
        return errors.OperationTimeoutError(text, ranks=missing, operation="join", since=self._limit_s)

    def _failure_of(self, error: BaseException) -> errors.ThalwegError:
        """The error that other ranks raise because of one of this rank."""
        if isinstance(error, errors.ThalwegError):
            return error
        if isinstance(error, Exception):
            text = f"rank {self._rank} ({socket.gethostname()}) cannot join: {error}"
            return errors.PeerError(text, ranks=[self._rank], operation="join")
        text = f"aborted by rank {self._rank}: interrupted while it joined"
        return errors.AbortedError(text, ranks=[self._rank], operation="join")

    @contextlib.contextmanager
    def _typed_failures(self) -> collections.abc.Iterator[None]:
        try:
            yield
        except errors.ThalwegError:
            raise
        except dist.DistError as error:
            # The first group of a program that torchrun did not start has its store in the process of rank 0.
            is_of_rank_0 = not dist.is_initialized() and "TORCHELASTIC_RUN_ID" not in os.environ
            whose = " of rank 0" if is_of_rank_0 else ""
            text = f"the store{whose}, through which ranks join, does not answer: {error}"
            kind = errors.PeerError if is_of_rank_0 else errors.ThalwegError
            raise kind(text, ranks=[0] if is_of_rank_0 else [], operation="join") from None


def _beat_key(rank: int) -> str:
    return f"thalweg/beat/{rank}"


def _host_key(rank: int) -> str:
    return f"thalweg/host/{rank}"
