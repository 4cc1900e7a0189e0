"""Waits at the store through which the ranks of a group meet.

A store keeps values and knows nothing of processes. So every rank counts a heartbeat there while it joins. Rank 0
watches the heartbeats of all others, and these watch that of rank 0: one request a rank and heartbeat. A heartbeat that
has stopped is logged, and its rank is looked at (:mod:`thalweg.torch.links`): it may be stopped, and is dead only if
its connection or its kernel says so. The first rank that fails publishes its error, and all raise the same.
"""

from __future__ import annotations

import collections.abc
import contextlib
import json
import logging
import os
import socket
import threading
import time
import typing

import torch.distributed as dist
from torch._C import _distributed_c10d

from . import errors
from .links import TRY_S, Attempts, Contact, Links

_log = logging.getLogger("thalweg")

# Time between two requests for a value. Ctrl-C is handled in between.
_POLL_S = 0.1
# Longest time between two heartbeats.
_BEAT_S = 0.5
_FAILED = "failed"


class Limits(typing.NamedTuple):
    """Times of joining, in seconds."""

    join_s: float
    failure_after_s: float
    stall_after_s: float


class Waiting:
    """A store whose waits end by Ctrl-C, by the failure of a rank, and by a deadline, with an error that names ranks.

    Used as a context: heartbeats begin and end with it, and an exception that leaves it reaches the other ranks.
    """

    def __init__(
        self, store: typing.Any, rank: int, ranks: int, limits: Limits, addresses: list[str], bind: str | None = None
    ) -> None:
        self._store = store
        self._rank, self._ranks = rank, ranks
        self._limits = limits
        self._addresses = addresses
        self._ends_at = time.monotonic() + limits.join_s
        self._beat_s = min(_BEAT_S, limits.failure_after_s / 4)
        self._watched = range(1, ranks) if rank == 0 else range(1)
        # Heartbeats of the ranks that are watched, and when each was first seen.
        self._seen: dict[int, tuple[int, float]] = {}
        self._stalled: set[int] = set()
        self._watched_at = 0.0
        self._links = Links(rank, bind, limits.failure_after_s, backlog=ranks + 16)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="thalweg-join", daemon=True)

    def __enter__(self) -> Waiting:
        with self._typed_failures():
            # A group that is made again may get the store of its predecessor.
            generation = self._store.add(f"thalweg/joined/{self._rank}", 1)
            self._store = _distributed_c10d.PrefixStore(f"thalweg/{generation}", self._store)
        self.set(_contact_key(self._rank), self._links.contact(self._addresses))
        with self._typed_failures():
            self._store.add(_beat_key(self._rank), 1)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_over.set()
        if error is not None:
            # Where the store has failed, it reaches nobody.
            with contextlib.suppress(dist.DistError):
                self._publish(self._failure_of(error))
        self._links.refuse()
        # A store that does not answer must not hold up what comes next.
        self._thread.join(_POLL_S)
        self._links.close()

    def set(self, key: str, value: object) -> None:
        """Publishes a value as JSON."""
        with self._typed_failures():
            self._store.set(key, json.dumps(value))

    def get(self, key: str, rank: int) -> typing.Any:
        """Waits for the value that a rank publishes."""
        with self._typed_failures():
            # A request for a value that is not there would wait, and Ctrl-C with it.
            while not self._store.check([key]):
                self.pause(rank)
            return json.loads(self._store.get(key))

    def reach(self, rank: int) -> list[str]:
        """Connects to a rank, and returns the addresses at which it answered."""
        with self._typed_failures():
            attempts = self._links.connect(self.get(_contact_key(rank), rank))
            self._await_answers(rank, attempts)
            answered = attempts.answered()
            self._links.adopt(rank, attempts)
            return answered

    def pause(self, rank: int) -> None:
        """Waits a moment for something of a rank. Fails if a rank has failed, or the time is over."""
        if self._store.check([_FAILED]):
            raise errors.of_json(json.loads(self._store.get(_FAILED)))
        self._watch()
        if self.left_s() <= 0:
            raise self._publish(self._late(rank))
        time.sleep(min(_POLL_S, self.left_s()))

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(self._ends_at - time.monotonic(), 0.0)

    def _await_answers(self, rank: int, attempts: Attempts) -> None:
        """Waits until all addresses have answered or had time for it. A process that is stopped has no time."""
        had_s = 0.0
        while not attempts.are_decided() and had_s < TRY_S:
            began = time.monotonic()
            self.pause(rank)
            if self._silent_s(rank, began) < 2 * self._beat_s + _POLL_S:
                had_s += time.monotonic() - began

    def _publish(self, error: errors.ThalwegError) -> errors.ThalwegError:
        """Publishes an error, and returns the one that was published first."""
        first = self._store.compare_set(_FAILED, "", json.dumps(errors.to_json(error)))
        return errors.of_json(json.loads(first))

    def _beat(self) -> None:
        beat_at = time.monotonic()
        while not self._is_over.is_set():
            self._links.accept(self._beat_s)
            if time.monotonic() - beat_at < self._beat_s:
                continue
            beat_at = time.monotonic()
            try:
                self._store.add(_beat_key(self._rank), 1)
            except dist.DistError:
                return  # The thread that waits notices it as well, and raises the error.

    # spec: E-01
    def _watch(self) -> None:
        """Fails if there is evidence that a rank died."""
        dead = self._links.lost()
        now = time.monotonic()
        if now - self._watched_at >= self._beat_s:
            self._watched_at = now
            dead |= self._look_at_silent(now)
        if dead:
            lines = (f"rank {rank} ({self._host(rank)}) died while ranks joined: {dead[rank]}" for rank in sorted(dead))
            raise self._publish(errors.PeerError("; ".join(lines), ranks=dead, operation="join"))

    def _look_at_silent(self, now: float) -> dict[int, str]:
        """Reads the heartbeats, logs those that have stopped, and looks for evidence that their ranks died."""
        dead = {}
        for rank in self._watched:
            beats = self._beats(rank)
            if beats > 0 and self._seen.get(rank, (0, 0.0))[0] != beats:
                self._seen[rank] = (beats, now)
                self._stalled.discard(rank)
            silent_s = self._silent_s(rank, now)
            if silent_s >= self._limits.stall_after_s and rank not in self._stalled:
                self._stalled.add(rank)
                host = self._host(rank)
                _log.warning("rank %d (%s) does not progress while ranks join, for %.1f s", rank, host, silent_s)
            # Within the time after which a rank that died has to fail the others.
            if silent_s >= self._limits.failure_after_s / 2:
                evidence = self._links.probe(rank, self._contact(rank))
                if evidence is not None:
                    dead[rank] = f"{evidence}, and its heartbeat stopped {silent_s:.1f} s ago"
        return dead

    def _silent_s(self, rank: int, now: float) -> float:
        """Seconds since the last heartbeat of a rank that is watched. Zero before the first."""
        return now - self._seen[rank][1] if rank in self._seen else 0.0

    def _beats(self, rank: int) -> int:
        """Number of heartbeats of a rank. Zero if it has not begun to join."""
        return int(self._store.add(_beat_key(rank), 0))

    def _contact(self, rank: int) -> Contact:
        return typing.cast(Contact, json.loads(self._store.get(_contact_key(rank))))

    def _host(self, rank: int) -> str:
        return self._contact(rank)["host"]

    def _late(self, awaited: int) -> errors.ThalwegError:
        """The error of a deadline. A rank that waits for another one is not at fault, and neither is that one."""
        missing = [rank for rank in range(self._ranks) if self._beats(rank) == 0] or [awaited]
        limit_s = self._limits.join_s
        whom = f"rank{'' if len(missing) == 1 else 's'} {', '.join(map(str, missing))}"
        verb = "has" if len(missing) == 1 else "have"
        text = f"joining timed out: {whom} {verb} not joined within {limit_s:g} s"
        return errors.OperationTimeoutError(text, ranks=missing, operation="join", since=limit_s)

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
            kind = errors.PeerError if is_of_rank_0 else errors.NetworkError
            raise kind(text, ranks=[0] if is_of_rank_0 else [], operation="join") from error


def _beat_key(rank: int) -> str:
    return f"beat/{rank}"


def _contact_key(rank: int) -> str:
    return f"contact/{rank}"
