"""The session of a group: operations that were begun, the thread that ends them, and the end of the session."""

from __future__ import annotations

import atexit
import datetime
import logging
import os
import sys
import threading
import time
import typing
import weakref

import torch

from .. import _core
from . import errors, interrupts, staging, timeouts
from .calls import Call, Results
from .device import Event
from .staging import Queued, Stager
from .work import Work

_log = logging.getLogger("thalweg")

# Longest time until the thread of a group notices that the group is over, or a deadline.
_POLL_S = 0.2
# Longest time that leaving takes when a program ends by an exception or with operations in progress.
_HURRIED_LEAVE_S = 1.0
# The same after Ctrl-C: long enough to say goodbye.
_INTERRUPTED_LEAVE_S = 0.1
# Shortest time between two reports of the same stall, by the server.
_STALL_REPEATED_S = 1.0
# Sessions with operations in progress. These work on memory of tensors, so they must not be dropped.
_busy: set[Runner] = set()


class Runner:
    """Starts operations in the order of calls. A thread ends them as their results arrive."""

    def __init__(
        self,
        session: _core.Session,
        rank: int,
        size: int,
        timeout_s: float,
        server_of_rank_0: str | None = None,
        pinned_bytes: int = staging.PINNED_BYTES,
    ) -> None:
        self.session = session
        self.timeout_s = timeout_s
        # Address of the server, if it runs in the process of rank 0.
        self._server_of_rank_0 = server_of_rank_0
        self._rank, self._size = rank, size
        self._pid = os.getpid()
        # Operations in progress, each with its work and with what holds the memory that it uses. A work may end before
        # its operations do, by a timeout.
        self._works: dict[int, Queued] = {}
        # Operations that begin later, in the order of calls: their values, or those of one before, are on a device.
        self.pinned_bytes = pinned_bytes
        self._stager: Stager | None = None
        self._queued = 0
        self._deadlines: dict[Work, float] = {}
        # The explanation of the stall that lasts, and the time after which one that is not repeated is over.
        self._stall: timeouts.Stall | None = None
        stall_after_s = typing.cast(float, session.settings()["stall_after"])
        self._stall_over_s = 3 * max(stall_after_s, _STALL_REPEATED_S)
        self._lock = threading.Lock()
        # Notified when no operation is queued.
        self._none_queued = threading.Condition(self._lock)
        self._is_over = threading.Event()
        self._calls = 0
        self._thread = threading.Thread(
            target=_end_works, args=(weakref.ref(self), session), name="thalweg-results", daemon=True
        )
        self._thread.start()
        interrupts.process.begin()
        # A process that ends without destroying its groups would be missed by the others.
        atexit.register(_leave_at_exit, weakref.ref(self))

    def start(
        self,
        name: str,
        call: Call,
        result: object,
        *,
        detail: str = "",
        timeout: datetime.timedelta | None = None,
        peers: tuple[int, ...] = (),
    ) -> Work:
        """Begins a call, whose parts end together, or queues it where its values are on a device.

        Only the ranks `peers` take part in it, all ranks if it is empty.
        """
        self._check_process(name)
        record = _enter_record(name)
        results = None if call.device is None else Results(call.device)
        after = None if call.device is None else call.device.mark()
        with self._lock:
            self._calls += 1
            title = f"{name}{detail} (call {self._calls} of this group, rank {self._rank} of {self._size})"
            work = Work(name, title, len(call.parts), result, lambda: call.settle(results), peers, results)
            if record is not None:
                work.recorded = torch.futures.Future()
            self._begin_or_queue(work, call, results, after)
            if call.parts:
                own = timeout.total_seconds() if timeout is not None else 0.0
                self._deadlines[work] = work.began_at + (own if own > 0 else self.timeout_s)
        if not call.parts:
            work.end_part(None)
        _exit_record(record, work)
        return work

    def leave(self, limit_s: float | None = None) -> None:
        """Leaves the job when all operations have ended, or aborts it after `limit_s`. Ctrl-C aborts it as well."""
        if self._is_over.is_set() or self._is_forked():
            return
        self._end()
        try:
            if not self._await_queued(limit_s):
                self._abort("its program ended before its operations")
        except BaseException:  # Ctrl-C
            self._abort("interrupted while it left")
            raise
        try:
            if not self.session.leave(limit_s):
                _log.warning("rank %d left with operations in progress: the job is aborted", self._rank)
        except _core.SessionError as error:
            _log.debug("left a job that had failed: %s", error)
        self._thread.join(_HURRIED_LEAVE_S if limit_s is not None else None)

    # spec: E-03
    def abort(self, reason: str) -> None:
        """Ends the job at once. Operations in progress fail, here and at the other ranks."""
        if self._is_forked():
            return
        self._end()
        self._abort(reason)

    def _abort(self, reason: str) -> None:
        self.session.abort(reason)
        # These would fail when the device has done its work, which may be never.
        for work in self._stager.works() if self._stager is not None else ():
            work.fail(errors.AbortedError(f"{work.title}: {reason}", operation=work.operation))

    def _end(self) -> None:
        if not self._is_over.is_set():
            self._is_over.set()
            interrupts.process.end()

    def _end_interrupted(self) -> None:
        """Aborts the job if Ctrl-C came while the main thread waits for it in C++."""
        if interrupts.process.is_unhandled() and not self._is_over.is_set() and not self.is_idle():
            self._end()
            self._abort("interrupted (Ctrl-C)")

    def is_idle(self) -> bool:
        """Whether no operation is in progress."""
        with self._lock:
            return not self._works and not self._queued

    def _begin_or_queue(self, work: Work, call: Call, results: Results | None, after: Event | None) -> None:
        if results is None and not self._queued:
            for one in call.parts:
                self._begin(Queued(work, one, call))
            return
        parts = [Queued(work, part, call) for part in call.parts]
        for part in parts:
            part.results, part.after = results, after
        if self._is_over.is_set():
            raise errors.ClosedError(f"{work.title}: the group was left", operation=work.operation)
        if self._stager is None:
            self._stager = Stager(self.pinned_bytes)
            given = (weakref.ref(self), self._stager)
            threading.Thread(target=_begin_staged, args=given, name="thalweg-staging", daemon=True).start()
        self._queued += len(parts)
        _busy.add(self)
        self._stager.add(parts)

    def _begin(self, part: Queued) -> None:
        try:
            number = part.part.begin()
        except _core.SessionError as error:
            failure = errors.of_core(error, part.work.operation, self._server_of_rank_0)
            raise failure from failure.__cause__
        self._works[number] = part
        _busy.add(self)

    def _begin_queued(self, part: Queued, stager: Stager) -> None:
        """Begins a part that the stager hands out, unless its work has failed meanwhile."""
        error = part.error
        with self._lock:
            is_begun = error is None and not part.work.is_ended()
            if is_begun:
                try:
                    self._begin(part)
                except Exception as failure:  # its place is the caller's thread
                    is_begun, error = False, failure
            self._queued -= 1
            if not self._queued:
                self._none_queued.notify_all()
            self._discard_if_idle()
            if not is_begun:
                self._deadlines.pop(part.work, None)
        if is_begun:
            return
        stager.release(part)
        if error is not None:
            self._fail_queued(part, error)

    def _fail_queued(self, part: Queued, error: Exception) -> None:
        if part.results is not None and not isinstance(error, errors.ThalwegError):
            # The other ranks begin all pieces, and would wait in vain.
            self.session.abort(f"{part.work.title}: its tensors cannot be copied: {error}")
        part.work.fail(error)

    def _await_queued(self, limit_s: float | None) -> bool:
        """Waits until all operations have begun. Returns false if that took longer than `limit_s`."""
        with self._lock:
            return self._none_queued.wait_for(lambda: not self._queued, limit_s)

    def _discard_if_idle(self) -> None:
        if not self._works and not self._queued:
            _busy.discard(self)

    # spec: E-02
    def _check_process(self, name: str) -> None:
        if self._is_forked():
            raise errors.ClosedError(
                f"{name}: this process was forked from rank {self._rank}, whose groups stay with it: start processes "
                "that use groups with the method spawn, and let each join by itself",
                operation=name,
            )

    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _on_end(self, number: int, failure: _core._Failure | None, *rest: typing.Any) -> None:
        missing, source = rest
        with self._lock:
            part = self._works.pop(number)
            self._discard_if_idle()
        work = part.work
        # What waited has gone on, or its failure has an explanation of its own.
        self._stall = None
        error = None
        if failure is not None:
            age_s = time.monotonic() - work.began_at
            title = f"{work.title}, begun {age_s:.1f} s ago"
            error = errors.of_failure(
                failure,
                operation=work.operation,
                title=title,
                age_s=age_s,
                server_of_rank_0=self._server_of_rank_0,
            )
        # What one of its parts does not report is unreported for the whole.
        work.missing = None if work.missing is None or missing is None else work.missing + missing
        work.source = source
        if part.results is not None:
            error = self._bring_results(part, error)
        work.end_part(error)
        if work.is_ended():
            with self._lock:
                self._deadlines.pop(work, None)

    def _bring_results(self, part: Queued, error: Exception | None) -> Exception | None:
        """Queues the copies of a part's results to its device, and returns the error of the part."""
        after = None
        try:
            # The tensors of a work that has failed are the program's again.
            if error is None and not part.work.is_ended():
                after = part.bring_results()
        except Exception as failure:  # its place is the caller's thread
            error = failure
        if self._stager is not None:
            self._stager.release(part, after)
        return error

    # spec: E-02
    def _end_late(self) -> None:
        """Fails operations whose time is over, and the job with them: the other ranks would wait in vain."""
        now = time.monotonic()
        with self._lock:
            late = [work for work, deadline in self._deadlines.items() if deadline <= now]
        for work in late:
            age_s = now - work.began_at
            stall = self._stall_now(now)
            ranks = work.peers or (stall.ranks if stall else ())
            text = timeouts.text(work.title, age_s, ranks)
            if stall is not None and not work.peers:
                text = f"{text}: {stall.text}"
            self.session.abort(text)
            with self._lock:
                self._deadlines.pop(work, None)
            work.fail(errors.OperationTimeoutError(text, ranks=ranks, operation=work.operation, since=age_s))

    def _stall_now(self, now: float) -> timeouts.Stall | None:
        """The stall, unless it is over: one that lasts is reported again and again."""
        stall = self._stall
        return stall if stall is not None and now - stall.noticed_at < self._stall_over_s else None

    def _give_up(self, error: Exception) -> None:
        # The operations go on, and with them what holds their memory.
        with self._lock:
            works = {part.work for part in self._works.values()}
            works.update(self._stager.works() if self._stager is not None else ())
            self._deadlines = {}
        for work in works:
            text = f"{work.title}: its result cannot be handed out: {error}"
            work.fail(errors.ThalwegError(text, operation=work.operation))

    def _log_notes(self) -> None:
        for is_warning, note, ranks in self.session.take_notes():
            _log.log(logging.WARNING if is_warning else logging.INFO, "%s", note)
            self._stall = timeouts.Stall.of(note, ranks, time.monotonic()) or self._stall


def _end_works(runner: weakref.ref[Runner], session: _core.Session) -> None:
    """The thread of a session. It does not keep the runner alive."""
    while True:
        end = session.next(_POLL_S)
        alive = runner()
        if alive is None:
            return
        alive._log_notes()
        if end is None and alive._is_over.is_set() and alive.is_idle():
            return
        try:
            if end is not None:
                alive._on_end(*end)
            alive._end_interrupted()
            alive._end_late()
        except Exception as error:  # without this thread no operation would ever end
            alive._give_up(error)
            raise
        del alive


def _begin_staged(runner: weakref.ref[Runner], stager: Stager) -> None:
    """The thread that begins queued operations. It does not keep the runner alive."""
    while True:
        part = stager.next(_POLL_S)
        alive = runner()
        if alive is None:
            return
        if part is not None:
            alive._begin_queued(part, stager)
        elif alive._is_over.is_set() and not alive._queued:
            return
        del alive, part


# spec: E-02
def _leave_at_exit(runner: weakref.ref[Runner]) -> None:
    alive = runner()
    # A forked process has a copy of the lock, which another thread of its parent may have held.
    if alive is None or alive._is_forked():
        return
    error = getattr(sys, "last_value", None)
    if isinstance(error, KeyboardInterrupt):
        alive.leave(_INTERRUPTED_LEAVE_S)
    else:
        is_hurried = error is not None or not alive.is_idle()
        alive.leave(_HURRIED_LEAVE_S if is_hurried else None)


def _enter_record(name: str) -> torch.autograd.profiler.record_function | None:
    """Begins an event of the profiler, if one is active."""
    if not torch._C._autograd._profiler_enabled():
        return None
    record = torch.autograd.profiler.record_function(f"thalweg:{name}")
    record.__enter__()
    return record


def _exit_record(record: torch.autograd.profiler.record_function | None, work: Work) -> None:
    """Ends the event when the operation ends."""
    if record is not None and work.recorded is not None:
        record._call_end_callbacks_on_future(work.recorded)
        record.__exit__(None, None, None)
