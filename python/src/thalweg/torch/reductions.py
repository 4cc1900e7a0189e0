"""What torch calls its reductions, and what is left to do beside adding."""

from __future__ import annotations

import typing

import torch
import torch.distributed as dist

from .memory import Memory

_NAMES = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "mean",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.PREMUL_SUM: "premul",
}


class Reduction:
    """One reduction of a group with a given number of ranks."""

    def __init__(self, opts: typing.Any, ranks: int) -> None:
        self._set_up(dist.ReduceOp.SUM if opts is None else opts.reduceOp, ranks)

    @classmethod
    def of(cls, op: typing.Any, ranks: int) -> Reduction:
        """By torch's name for it."""
        reduction = cls.__new__(cls)
        reduction._set_up(op, ranks)
        return reduction

    def _set_up(self, op: typing.Any, ranks: int) -> None:
        self._ranks = ranks
        self._factor: typing.Any = None
        name = next((name for known, name in _NAMES.items() if op == known), None)
        if name is None:
            raise ValueError(f"thalweg does not know {op}: SUM, AVG, MIN, MAX, PRODUCT or PREMUL_SUM")
        self._name = name
        if self._name == "premul":
            # Older versions have no other way to it.
            self._factor = op.__getstate__()[1]

    def given(self, tensor: torch.Tensor, is_changed: bool = True) -> torch.Tensor:
        """The tensor to reduce: multiplied if the reduction asks for that, in place if it may be changed."""
        if self._name == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
            raise TypeError(f"the mean of {tensor.dtype} would be rounded: cast the tensor, or use SUM")
        if self._factor is None:
            return tensor
        if is_changed:
            with torch.no_grad():
                tensor.mul_(self._factor)
            return tensor
        return typing.cast(torch.Tensor, tensor * self._factor)

    def name(self, tensor: torch.Tensor) -> str:
        """What the compiled part is to do."""
        if tensor.dtype == torch.bool:
            return {"sum": "max", "product": "min"}.get(self._name, self._name)
        return "sum" if self._name == "premul" else self._name

    def declared(self, tensor: torch.Tensor) -> str:
        """The reduction that the caller asked for: ranks that declare different ones get an error."""
        if tensor.dtype == torch.bool:
            return self.name(tensor)
        return "premul_sum" if self._name == "premul" else self._name

    @property
    def is_mean(self) -> bool:
        """Whether the sum is divided."""
        return self._name == "mean"

    def bounded_name(self) -> str:
        """For sums that may lack something: means of what is there."""
        if self._name not in ("sum", "mean", "premul"):
            raise ValueError(f"only sums and means may lack something, not {self._name}")
        return "mean"

    def multiplied(self, lent: Memory) -> typing.Callable[[], object] | None:
        """Makes a sum of a mean where one was asked for, on the host."""
        return None if self.is_mean else lambda: lent.host.mul_(self._ranks)

    def divided(self, lent: Memory) -> typing.Callable[[], object] | None:
        """Makes a mean of a sum where one was asked for, on the host."""
        return (lambda: lent.host.div_(self._ranks)) if self.is_mean else None
