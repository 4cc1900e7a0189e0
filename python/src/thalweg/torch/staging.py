"""Pinned memory for tensors of a device, and the order in which staged operations begin.

An operation on tensors of a device begins when copies have brought what it reads to the host. Meanwhile a program calls
further operations. All of them begin in the order of calls, those of the host as well: ranks number operations by
counting them.
"""

from __future__ import annotations

import collections
import threading
import typing

import torch

from .calls import Call, Part, Results
from .device import Copy, Device, Event
from .work import Work

#: Bytes of a piece, where no setting has another number.
PIECE_BYTES = 4 << 20
#: Bytes of pinned memory of a group, where no setting has another number: pieces in flight in both directions. A piece
#: of a gather or scatter has the parts of all ranks: with four ranks 32 MiB, with more 64 MiB.
PINNED_BYTES = 512 << 20

# Blocks are at least so long, and their lengths are powers of two: few lengths are used again and again.
_SHORTEST_BLOCK = 64 << 10


class Pool:
    """Blocks of pinned memory, of a bounded number of bytes in total.

    A block that is released may still be the source of a copy to the device, and is used again after that. A block that
    is longer than the bound is given out when no other is in use. Blocks that are taken without a bound do not count.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._free: list[torch.Tensor] = []
        # Blocks whose copies may be in progress, in the order of release.
        self._copying: collections.deque[tuple[torch.Tensor, Event]] = collections.deque()
        self._used_bytes = 0
        self._lock = threading.Lock()

    def take(self, device: Device, length: int, is_bounded: bool = True) -> torch.Tensor | None:
        """A block of at least this length. ``None`` if there is no memory left for it now."""
        length = max(1 << max(length - 1, 0).bit_length(), _SHORTEST_BLOCK)
        with self._lock:
            self._reclaim()
            held = self._used_bytes + sum(len(block) for block, _ in self._copying)
            if is_bounded and held and held + length > self._limit_bytes:
                return None
            found = next((block for block in self._free if len(block) == length), None)
            if found is None:
                self._trim(self._limit_bytes - held - length)
            else:
                self._free = [block for block in self._free if block is not found]
        block = device.pinned(length) if found is None else found
        if is_bounded:
            with self._lock:
                self._used_bytes += length
        return block

    def release(self, block: torch.Tensor, after: Event | None, is_bounded: bool = True) -> None:
        """Takes a block back, which may be used again after an event."""
        with self._lock:
            if is_bounded:
                self._used_bytes -= len(block)
                assert self._used_bytes >= 0, "a block is released once"
            if after is not None:
                self._copying.append((block, after))
            else:
                self._put(block)

    def copying(self) -> Event | None:
        """The event after which the next block is free again."""
        with self._lock:
            return self._copying[0][1] if self._copying else None

    def _reclaim(self) -> None:
        while self._copying and self._copying[0][1].is_done():
            self._put(self._copying.popleft()[0])

    def _put(self, block: torch.Tensor) -> None:
        self._free.append(block)
        self._trim(self._limit_bytes - self._used_bytes)

    def _trim(self, limit_bytes: int) -> None:
        """Frees blocks, those that were released first, until the free ones have at most this number of bytes."""
        while self._free and sum(map(len, self._free)) > limit_bytes:
            self._free.pop(0)


class Queued:
    """A part of a call, from the call to the end of its operation."""

    #: Copies of the results, and the event after which the tensors have their values. ``None`` on the host.
    results: Results | None = None
    after: Event | None = None
    block: torch.Tensor | None = None
    #: Event after which the values are on the host.
    staged: Event | None = None
    error: Exception | None = None

    # Operations of the host set nothing else: they are short.
    def __init__(self, work: Work, part: Part, call: Call) -> None:
        self.work = work
        self.part = part
        #: Keeps the memory of all its parts.
        self.call = call

    def bring_results(self) -> Event | None:
        """Queues the copies of the results to the device, when the operation has ended."""
        assert self.results is not None
        if self.part.on_host is not None:
            self.part.on_host()
        return self.results.bring([copy for one in self.part.staged() for copy in one.copies_back()])


class Stager:
    """Parts that have not begun, in the order of calls. One thread takes them (:meth:`next`) and starts them.

    Copies of several parts are in progress at once, as far as the pool has memory for them.
    """

    def __init__(self, pinned_bytes: int) -> None:
        self._pool = Pool(pinned_bytes)
        self._changed = threading.Condition()
        # Number of calls and of blocks that were released.
        self._changes = 0
        # Parts without memory, then parts whose copies are queued.
        self._waiting: collections.deque[Queued] = collections.deque()
        self._staged: collections.deque[Queued] = collections.deque()

    def add(self, parts: list[Queued]) -> None:
        """Adds the parts of a call."""
        with self._changed:
            self._waiting.extend(parts)
            self._changes += 1
            self._changed.notify()

    def release(self, part: Queued, after: Event | None = None) -> None:
        """Takes back the memory of a part that has ended, or does not begin. It is used again after an event."""
        block, part.block = part.block, None
        if block is not None:
            self._pool.release(block, after, part.call.is_bounded)
            with self._changed:
                self._changes += 1
                self._changed.notify()

    def works(self) -> list[Work]:
        """Works with parts that have not begun."""
        with self._changed:
            return list({part.work: None for part in (*self._staged, *self._waiting)})

    def next(self, timeout_s: float) -> Queued | None:
        """Waits for the next part whose values are on the host, or that has an error. ``None`` if it is late.

        The time limits a wait for calls and for memory. A wait for the device lasts as long as the device.
        """
        changes = self._changes
        self._stage()
        if self._staged:
            self._await(self._staged[0])
            with self._changed:
                return self._staged.popleft()
        copying = self._pool.copying() if self._waiting else None
        if copying is not None:
            copying.wait()
            return None
        with self._changed:
            if self._changes == changes:
                self._changed.wait(timeout_s)
        return None

    def _stage(self) -> None:
        """Gives memory to parts, in order, and queues their copies."""
        while self._waiting:
            part = self._waiting[0]
            try:
                if not self._place(part):
                    return
            except Exception as error:  # its place is the caller's thread
                part.error = error
            with self._changed:
                self._staged.append(self._waiting.popleft())

    def _place(self, part: Queued) -> bool:
        staged = part.part.staged()
        if part.results is None or part.work.is_ended():
            return True
        device = part.results.device
        part.block = self._pool.take(device, sum(one.room for one in staged), part.call.is_bounded)
        if part.block is None:
            return False
        offset, copies = 0, list[Copy]()
        for one in staged:
            one.place(part.block, offset)
            offset += one.room
            copies += one.copies_out()
        if copies:
            part.staged = device.copy_out(copies, typing.cast(Event, part.after))
        return True

    def _await(self, part: Queued) -> None:
        if part.staged is None or part.error is not None:
            return
        try:
            part.staged.wait()
        except Exception as error:
            part.error = error
