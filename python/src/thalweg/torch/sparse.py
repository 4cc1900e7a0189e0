"""Sums of sparse tensors, by gathering the indices and values of all ranks."""

from __future__ import annotations

import typing

import torch
from torch._C import _distributed_c10d

from .reductions import Reduction
from .work import Work

if typing.TYPE_CHECKING:
    from .operations import Operations


def all_reduce(group: Operations, tensors: list[torch.Tensor], opts: typing.Any) -> Work:
    """Sums sparse tensors of the same shape, as Gloo does.

    The number of indices differs from rank to rank and is exchanged first, so that this waits: it returns a work that
    has ended.
    """
    reduction = Reduction(opts, group.size())
    if reduction.declared(torch.empty(0)) not in ("sum", "mean"):
        raise ValueError("sparse tensors can be reduced by SUM and AVG only")
    for tensor in tensors:
        if tensor.layout != torch.sparse_coo:
            raise TypeError(f"only sparse tensors of the layout sparse_coo can be summed, not {tensor.layout}")
        total = _sum(group, tensor.coalesce())
        with torch.no_grad():
            tensor.copy_(total / group.size() if reduction.is_mean else total)
    work = Work("all_reduce", "all_reduce of sparse tensors", 0, tensors, lambda: None)
    work.end_part(None)
    return work


def _sum(group: Operations, tensor: torch.Tensor) -> torch.Tensor:
    shape = torch.tensor([tensor.sparse_dim(), *tensor.shape], dtype=torch.int64)
    counts = _gathered(group, torch.tensor([tensor._nnz(), len(shape)]), [(2,)] * group.size())
    if any(int(lengths) != len(shape) for _, lengths in counts):
        raise ValueError(f"ranks have sparse tensors of different dimensions, this one {tuple(tensor.shape)}")
    shapes = _gathered(group, shape, [tuple(shape.shape)] * group.size())
    if any(not torch.equal(other, shape) for other in shapes):
        found = ", ".join(str(tuple(other[1:].tolist())) for other in shapes)
        raise ValueError(f"ranks have sparse tensors of different shapes: {found}")
    indices, values = tensor.indices(), tensor.values()
    all_indices = _gathered(group, indices, [(indices.shape[0], int(n)) for n, _ in counts])
    all_values = _gathered(group, values, [(int(n), *values.shape[1:]) for n, _ in counts])
    together = torch.sparse_coo_tensor(
        torch.cat(all_indices, dim=1), torch.cat(all_values), tensor.shape
    )
    return together.coalesce()


def _gathered(
    group: Operations, mine: torch.Tensor, shapes: list[tuple[int, ...]]
) -> list[torch.Tensor]:
    outputs = [torch.empty(shape, dtype=mine.dtype, device=mine.device) for shape in shapes]
    group.allgather([outputs], [mine.contiguous()], _distributed_c10d.AllgatherOptions()).wait()
    return outputs
