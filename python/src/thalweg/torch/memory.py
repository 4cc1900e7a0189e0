"""Tensors as memory that the compiled part works on."""

from __future__ import annotations

import torch

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
    result back.
    """

    def __init__(self, tensor: torch.Tensor, reads: bool = True) -> None:
        self.tensor = tensor
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

    def settle(self) -> None:
        """The operation has ended."""
        if self.host.data_ptr() != self.tensor.data_ptr():
            with torch.no_grad():
                self.tensor.copy_(self.host)


def listed(tensors: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    """A list of tensors, also of one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def divided(lent: Lent, ranks: int, splits: list[int] | None = None) -> list[tuple[int, int]]:
    """Memory of a tensor in one piece for each rank: equal pieces, or by numbers of rows."""
    address, length = lent.memory
    if not splits:
        if length % ranks:
            raise ValueError(f"a tensor of {tuple(lent.host.shape)} cannot be divided by {ranks} ranks")
        piece = length // ranks
        return [(address + at * piece if piece else 0, piece) for at in range(ranks)]
    rows = lent.host.shape[0] if lent.host.dim() else 0
    if sum(splits) != rows:
        raise ValueError(f"splits {splits} do not add up to {rows} rows")
    row = length // rows if rows else 0
    pieces, start = [], address
    for split in splits:
        pieces.append((start if split * row else 0, split * row))
        start += split * row
    return pieces
