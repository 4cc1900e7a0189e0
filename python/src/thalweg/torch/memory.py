"""Tensors as memory that the compiled part works on."""

from __future__ import annotations

import torch

from .device import Copy

_ELEMENTS = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "u8",
}
# Tensors in a block of staged memory begin at multiples of this number of bytes.
_ALIGNMENT = 64


def moved_element_of(tensor: torch.Tensor) -> str | None:
    """The name of its type, for ranks to compare; ``None`` where values are only moved and the name is unknown."""
    return _ELEMENTS.get(tensor.dtype)


def element_of(tensor: torch.Tensor) -> str:
    """What its values are called."""
    element = _ELEMENTS.get(tensor.dtype)
    if element is None:
        raise TypeError(f"thalweg cannot combine values of {tensor.dtype}; cast the tensor first")
    return element


class Lent:
    """A tensor whose bytes are lent until an operation on them has ended.

    Where they do not lie in one piece of the host's memory, a copy is lent, and :meth:`settle` brings the
    result back. The copy of a tensor on a device waits for the device: calls whose tensors are all on one device use
    :class:`Staged` instead.
    """

    def __init__(self, tensor: torch.Tensor, reads: bool = True, writes: bool = True) -> None:
        self.tensor = tensor
        self._writes = writes
        self.host = tensor.detach()
        if tensor.is_cuda:
            self.host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            if reads:
                self.host.copy_(tensor)  # waits for the device
        elif not tensor.is_contiguous():
            self.host = tensor.detach().contiguous()

    @property
    def memory(self) -> tuple[int, int]:
        """Address and length."""
        return self.host.data_ptr(), self.host.numel() * self.host.element_size()

    @property
    def rows(self) -> int:
        """Length of the first dimension."""
        return self.host.shape[0] if self.host.dim() else 0

    def settle(self) -> None:
        """The operation has ended."""
        if self._writes and self.host.data_ptr() != self.tensor.data_ptr():
            with torch.no_grad():
                self.tensor.copy_(self.host)


class Staged:
    """Flat tensors of a device, one behind the other in pinned memory while an operation works on them.

    They have memory of the host between :meth:`place` and the end of the operation.
    """

    def __init__(self, tensors: list[torch.Tensor], rows: int, *, reads: bool, writes: bool) -> None:
        self._tensors = tensors
        self._reads, self._writes = reads, writes
        #: Length of the first dimension of the tensor that it is all of.
        self.rows = rows
        self._length = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self._host: torch.Tensor | None = None

    @property
    def values(self) -> int:
        """Number of values."""
        return sum(tensor.numel() for tensor in self._tensors)

    @property
    def room(self) -> int:
        """Bytes that it takes of a block."""
        return -(-self._length // _ALIGNMENT) * _ALIGNMENT

    def place(self, block: torch.Tensor, offset: int) -> None:
        """Gives it memory of the host: bytes of a block."""
        self._host = block[offset : offset + self._length].view(self._tensors[0].dtype)

    @property
    def host(self) -> torch.Tensor:
        """The values, in memory of the host."""
        assert self._host is not None, "an operation begins after its memory was placed"
        return self._host

    @property
    def memory(self) -> tuple[int, int]:
        """Address and length."""
        return (self.host.data_ptr() if self._length else 0), self._length

    def settle(self) -> None:
        """The work has ended: its stream has the copies of the results."""

    def copies_out(self) -> list[Copy]:
        """Copies that bring to the host what the operation reads."""
        return list(zip(self._tensors, self._parts())) if self._reads and self._length else []

    def copies_back(self) -> list[Copy]:
        """Copies that bring the result to the device."""
        return list(zip(self._parts(), self._tensors)) if self._writes and self._length else []

    def _parts(self) -> list[torch.Tensor]:
        return list(self.host.split([tensor.numel() for tensor in self._tensors]))


Memory = Lent | Staged


def listed(tensors: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    """A list of tensors, also of one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def divided(lent: Memory, ranks: int, splits: list[int] | None = None) -> list[tuple[int, int]]:
    """Memory of a tensor in one piece for each rank: equal pieces, or by numbers of rows."""
    address, length = lent.memory
    if not splits:
        piece = length // ranks
        return [(address + at * piece if piece else 0, piece) for at in range(ranks)]
    row = length // lent.rows if lent.rows else 0
    pieces, start = [], address
    for split in splits:
        pieces.append((start if split * row else 0, split * row))
        start += split * row
    return pieces


def check_divisible(tensor: torch.Tensor, ranks: int, splits: list[int] | None = None) -> None:
    """Raises ValueError unless the tensor can be divided equally, or by these numbers of rows."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits and tensor.numel() * tensor.element_size() % ranks:
        raise ValueError(f"a tensor of {tuple(tensor.shape)} cannot be divided by {ranks} ranks")
    if splits and sum(splits) != rows:
        raise ValueError(f"splits {splits} do not add up to {rows} rows")
