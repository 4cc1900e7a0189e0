"""Operations in progress."""

from __future__ import annotations

import datetime
import threading
import time
import typing

import torch
from torch._C import _distributed_c10d

from .errors import OperationTimeoutError

if typing.TYPE_CHECKING:
    from .calls import Results

# Parts of a tensor, from one value to another, and the ranks whose values these lack.
Missing = list[tuple[int, int, list[int]]]


class Work(_distributed_c10d.Work):
    """Handle of an operation, as torch's own: wait for it, or take its future."""

    def __init__(
        self,
        operation: str,
        title: str,
        parts: int,
        result: object,
        settle: typing.Callable[[], object],
        peers: tuple[int, ...] = (),
        results: Results | None = None,
    ) -> None:
        super().__init__()
        #: Name of the operation, such as ``all_reduce``.
        self.operation = operation
        #: Operation, call and rank, for messages.
        self.title = title
        #: Other ranks that take part. Empty where all do.
        self.peers = peers
        self.began_at = time.monotonic()
        #: Completes before the work ends, for the event of the profiler. ``None`` where no profiler is active.
        self.recorded: torch.futures.Future[None] | None = None
        #: Values that the result lacks. ``None`` where that is unreported.
        self.missing: Missing | None = []
        #: Rank that sent what was received from any rank.
        self.source: int | None = None
        self._parts = parts
        self._result = result
        # Copies of the result to a device.
        self._results = results
        self._settle = settle
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        # Made when somebody asks for them.
        self._signal: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[object] | None = None

    def end_part(self, error: Exception | None) -> None:
        """One of the operations that it consists of has ended."""
        self._end_parts(1, error)

    def fail(self, error: Exception) -> None:
        """Ends it whatever is left of it."""
        self._end_parts(None, error)

    def _end_parts(self, count: int | None, error: Exception | None) -> None:
        """Ends some of its operations, all if `count` is ``None``. Several threads may."""
        with self._lock:
            if self._ended.is_set():
                return  # It has failed before.
            self._parts = 0 if count is None else self._parts - count
            self._error = self._error or error
            if self._parts > 0:
                return
            if self._error is None:
                try:
                    self._settle()
                except Exception as failure:  # its place is the caller's thread
                    self._error = failure
            # Before those that wait go on: they may stop the profiler, which frees the event that this writes to.
            if self.recorded is not None:
                self.recorded.set_result(None)
            self._ended.set()
            signal = self._signal
        # Nothing is lent any more.
        self._settle = _nothing
        if signal is not None:
            signal.set_result(None)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Waits until it has ended, for `timeout` at most, and raises its error.

        Tensors of a device have the result for what the current stream queues afterwards.
        """
        is_limited = timeout is not None and timeout.total_seconds() > 0
        seconds = timeout.total_seconds() if timeout is not None and is_limited else None
        # The main thread handles signals meanwhile: Ctrl-C ends the wait.
        if not self._ended.wait(seconds):
            age_s = time.monotonic() - self.began_at
            raise OperationTimeoutError(
                f"{self.title} timed out: wait({seconds} s) ended {age_s:.1f} s after it began; it goes on",
                ranks=self.peers,
                operation=self.operation,
                since=age_s,
            )
        if self._error is not None:
            raise self._error
        if self._results is not None:
            self._results.follow()
        return True

    def get_future(self) -> torch.futures.Future[typing.Any]:
        """Its result, later."""
        with self._lock:
            if self._future is None:
                # A future of a device runs callbacks on streams that follow the one in which its result was set.
                devices = None if self._results is None else self._results.device.future_devices()
                self._signal = torch.futures.Future(devices=devices)
                # A callback that raises becomes an error of C++. `set_exception` would hand the exception to C++ as
                # if it were the result.
                self._future = self._signal.then(lambda _: self._outcome())
                if self._ended.is_set():
                    self._signal.set_result(None)
            return self._future

    def is_ended(self) -> bool:
        """Returns true if it has ended on the host, well or not: copies to a device may be in progress."""
        return self._ended.is_set()

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set() and (self._results is None or self._results.are_done())

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """Its error."""
        return self._error

    def result(self) -> typing.Any:
        """The tensors, once it has ended."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """Waits: results are in place when it has ended."""
        self.wait()

    def source_rank(self) -> int:
        """Rank that sent what was received from any rank."""
        if self.source is None:
            raise ValueError(f"{self.title} has received nothing from any rank")
        return self.source

    _source_rank = source_rank

    def _outcome(self) -> object:
        if self._error is not None:
            raise self._error
        if self._results is not None:
            # The stream of the callback, from which the future's own event is recorded.
            self._results.follow()
        return self._result


class Works(_distributed_c10d.Work):
    """Several works that were started between ``_start_coalescing`` and ``_end_coalescing``."""

    def __init__(self, works: list[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Waits for all of them."""
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self) -> torch.futures.Future[typing.Any]:
        """Their results, later."""
        return torch.futures.collect_all([work.get_future() for work in self._works])

    def is_completed(self) -> bool:
        """Whether all have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all have ended well."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> Exception | None:
        """The first error."""
        return next(filter(None, (work.exception() for work in self._works)), None)

    def result(self) -> typing.Any:
        """All results, once they are there."""
        return [work.result() for work in self._works]

    def synchronize(self) -> None:
        """Waits for all of them."""
        self.wait()


def _nothing() -> None:
    pass
