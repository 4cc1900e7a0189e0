"""Operations that are under way."""

from __future__ import annotations

import datetime
import threading
import time
import typing

import torch
import torch.distributed as dist


class Work(dist._Work):
    """What a collective returns: wait for it, or take its future."""

    def __init__(self, name: str, parts: int, result: typing.Any, settle: typing.Callable[[], None]):
        super().__init__()
        self.name = name
        self.begun_at = time.monotonic()
        self._parts = parts
        self._result = result
        self._settle = settle
        self._error: Exception | None = None
        # What the result lacks: from which value to which, and whose. None where that is unreported.
        self.missing: list[tuple[int, int, list[int]]] | None = []
        self._ended = threading.Event()
        self._future: torch.futures.Future = torch.futures.Future()

    def end_part(self, error: Exception | None) -> None:
        """One of the operations that it consists of has ended."""
        self._parts -= 1
        self._error = self._error or error
        if self._parts > 0:
            return
        if self._error is None:
            try:
                self._settle()
            except Exception as failure:  # the caller is to see it, not this thread
                self._error = failure
        self._ended.set()
        if self._error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._error)

    def fail(self, error: Exception) -> None:
        """None of what is left of it will end."""
        self._parts = 1
        self.end_part(error)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Until it has ended, or for as long as `timeout`; raises what went wrong."""
        seconds = None if timeout is None or timeout.total_seconds() <= 0 else timeout.total_seconds()
        if not self._ended.wait(seconds):
            waited = time.monotonic() - self.begun_at
            raise dist.DistError(f"{self.name} has not ended, {waited:.1f} s after it began")
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> torch.futures.Future:
        """Its result, later."""
        return self._future

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> Exception | None:
        """What went wrong."""
        return self._error

    def result(self) -> typing.Any:
        """The tensors, once it has ended."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """Results are in place when it has ended."""
        self.wait()
