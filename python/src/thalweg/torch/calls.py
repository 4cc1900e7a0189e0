"""Calls of a program, and the operations of the compiled part that each of them consists of."""

from __future__ import annotations

import collections.abc
import typing

import torch

from .device import Copy, Device, Event
from .memory import Lent, Memory, Staged

# Starts an operation of the compiled part and returns its number.
Begin = typing.Callable[[], int]

# Pieces have a multiple of this number of values, except the last.
_VALUES_MULTIPLE = 256
# A piece of several rows, the parts of all ranks and the own one, has up to 16 times the memory of a piece of one
# row: what one rank sends to another is a part of a row, and short messages are slow.
_LONGEST_PIECE = 16


class Part:
    """One operation of a call: how it begins, the memory that it works on, and what the host does with its result."""

    __slots__ = ("begin", "memory", "on_host")

    def __init__(
        self, begin: Begin, memory: collections.abc.Sequence[Memory], on_host: typing.Callable[[], object] | None = None
    ) -> None:
        self.begin = begin
        self.memory = memory
        self.on_host = on_host

    def staged(self) -> list[Staged]:
        """Tensors that need pinned memory before it begins."""
        return [one for one in self.memory if isinstance(one, Staged)]


class Operand(typing.NamedTuple):
    """A tensor of a call, or several of equal lengths that lie one behind the other in the memory of an operation."""

    tensors: list[torch.Tensor]
    #: True if the operation reads it, and if it writes it.
    reads: bool = True
    writes: bool = True
    #: Number of equal rows that a single tensor is divided into before it is cut.
    rows: int = 1


class Results:
    """Copies of results to a device that a work has queued. A stream that uses the results runs after them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._last: Event | None = None

    def bring(self, copies: list[Copy]) -> Event | None:
        """Queues copies, and returns the event at their end. They are done in order."""
        if copies:
            self._last = self.device.copy_back(copies)
            return self._last
        return None

    def follow(self) -> None:
        """Lets the current stream run on after them."""
        if self._last is not None:
            self.device.follow(self._last)

    def are_done(self) -> bool:
        """Returns true if the device has done them."""
        return self._last is None or self._last.is_done()


class Call:
    """The parts of a call. Tensors of a device are cut into pieces, and every piece is an operation of its own.

    Ranks cut alike: pieces depend on the number of values, their type and a length that all ranks share.
    """

    def __init__(self, device: Device | None, piece_bytes: int, *, is_bounded: bool = True) -> None:
        self.device = device
        #: True if its pinned memory counts against the bound. That of messages does not: their other rank may send or
        #: receive after an operation of all ranks, which this rank calls later.
        self.is_bounded = is_bounded
        self._piece_bytes = piece_bytes
        self.parts: list[Part] = []
        # Copies at its end, from and to memory of the device, or of the host if there is no device.
        self._finish: list[Copy] = []
        self._kept: list[torch.Tensor] = []

    def whole(self, tensor: torch.Tensor, *, reads: bool = True, writes: bool = True) -> Memory:
        """Memory of a tensor that is not cut."""
        if self.device is None:
            return Lent(tensor, reads, writes)
        rows = tensor.shape[0] if tensor.dim() else 0
        return Staged([self._flat(tensor, reads, writes)], rows, reads=reads, writes=writes)

    def cut(self, *operands: Operand) -> collections.abc.Iterable[list[Memory]]:
        """Memory of operands, piece by piece. They have one tensor each if they are on the host, and stay whole."""
        if self.device is None:
            return ([Lent(one.tensors[0], one.reads, one.writes) for one in operands],)
        return self._pieces(operands)

    def _pieces(self, operands: collections.abc.Sequence[Operand]) -> collections.abc.Iterator[list[Memory]]:
        rows = [self._rows(operand) for operand in operands]
        first = rows[0][0]
        count = sum(len(of_one) for of_one in rows)
        values = max(self._bytes_of(count) // (count * first.element_size()), 1)
        values = values // _VALUES_MULTIPLE * _VALUES_MULTIPLE or values
        for start in range(0, max(first.numel(), 1), values):
            yield [
                Staged([row[start : start + values] for row in of_one], 0, reads=one.reads, writes=one.writes)
                for one, of_one in zip(operands, rows)
            ]

    def _bytes_of(self, rows: int) -> int:
        """Memory of a piece of this number of rows. Blocks of the pool have few lengths, and no room is left over."""
        return self._piece_bytes * min(1 << (rows - 1).bit_length(), _LONGEST_PIECE)

    def add(
        self, begin: Begin, memory: collections.abc.Sequence[Memory], on_host: typing.Callable[[], object] | None = None
    ) -> None:
        """Adds an operation. Parts begin in this order. `on_host` changes the result before it is brought back."""
        self.parts.append(Part(begin, memory, on_host))

    def finish_with(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copies a part of the result to its place when all parts have ended."""
        self._keep(source, target)
        self._finish.append((source, target))

    def settle(self, results: Results | None) -> None:
        """All parts have ended: brings results of the host to their places, and does the copies at the end."""
        if results is not None:
            results.bring(self._finish)
            return
        for part in self.parts:
            if part.on_host is not None:
                part.on_host()
            for one in part.memory:
                one.settle()
        for source, target in self._finish:
            target.detach().copy_(source.detach())

    def _rows(self, operand: Operand) -> list[torch.Tensor]:
        flat = [self._flat(tensor, operand.reads, operand.writes) for tensor in operand.tensors]
        return flat if operand.rows == 1 else list(flat[0].view(operand.rows, -1))

    def _flat(self, tensor: torch.Tensor, reads: bool, writes: bool) -> torch.Tensor:
        """A tensor of the device as a row of values, which is a copy if its values are not contiguous."""
        given = tensor.detach()
        if given.is_contiguous():
            self._keep(given)
            return given.view(-1)
        copy = given.contiguous() if reads else torch.empty(given.shape, dtype=given.dtype, device=given.device)
        self._keep(copy)
        if writes:
            self.finish_with(copy, given)
        return copy.view(-1)

    def _keep(self, *tensors: torch.Tensor) -> None:
        if self.device is not None:
            for tensor in tensors:
                self._kept.append(tensor)
                self.device.keep(tensor)
