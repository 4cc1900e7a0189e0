"""Gradients that need not be complete, and everything else exact.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, thalweg.torch.ddp_hook(loss=0.1))

A share of each rank's gradients may be missing from a step: nobody waits for the last packets of a slow or lossy
path. The mean is that of the ranks that are in it, and every rank gets the same bits.
"""

from __future__ import annotations

import collections.abc
import threading
import typing

import torch
import torch.distributed as dist

from .group import ThalwegGroup
from .work import Work

if typing.TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

Hook = typing.Callable[[typing.Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]


class Tally:
    """What was missing so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = 0
        self._missing: dict[int, int] = {}

    def add(self, values: int, missing: list[tuple[int, int, list[int]]]) -> None:
        """Counts a tensor."""
        with self._lock:
            self._values += values
            for start, end, ranks in missing:
                for rank in ranks:
                    self._missing[rank] = self._missing.get(rank, 0) + end - start

    @property
    def values(self) -> int:
        """How many values were reduced."""
        with self._lock:
            return self._values

    def share_missing(self, rank: int) -> float:
        """Which share of a rank's values did not make it."""
        with self._lock:
            return self._missing.get(rank, 0) / self._values if self._values else 0.0


def ddp_hook(
    loss: float = 0.1, layers: bool = True, group: dist.ProcessGroup | None = None
) -> Hook:
    """A communication hook for ``DistributedDataParallel``: means of gradients that may lack something.

    ``loss`` is the largest share of any rank's gradients that may be missing, from 0 (exact) to less than 1. With
    ``layers`` buckets of the model's front are more urgent than those of its back, to switches that have
    priorities. The hook's attribute ``tally`` tells what was missing so far.
    """
    _check(loss)
    tally, place = Tally(), _Place(layers)

    # Torch compares annotations, and those of this file are not evaluated.
    def hook(state, bucket):  # type: ignore[no-untyped-def]
        gradients = bucket.buffer()
        layer = place.of(bucket.index(), bucket.is_last())
        work = _thalweg(group).all_reduce_bounded(gradients, loss, layer)
        return _then(work, gradients, tally)

    hook.tally = tally  # type: ignore[attr-defined]
    return hook


def fsdp_hook(model: FSDPModule, loss: float = 0.1, layers: bool = True) -> Tally:
    """The same for FSDP2: every reduce-scatter of gradients in ``model`` may lack something.

    Call it after ``fully_shard``. Gathers of parameters stay exact. Returns what tells what was missing so far.
    """
    from torch.distributed.fsdp import FSDPModule

    _check(loss)
    tally = Tally()
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise TypeError("the model is not sharded: call fully_shard first")
    for index, module in enumerate(sharded):
        layer = (index, len(sharded)) if layers else None
        module.set_custom_reduce_scatter(_reduce_scatter(loss, layer, tally))
    return tally


def _reduce_scatter(loss: float, layer: tuple[int, int] | None, tally: Tally) -> typing.Any:
    """What FSDP2 calls in place of its own."""
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

    class Bounded(ReduceScatter):
        def allocate(
            self,
            size: collections.abc.Sequence[typing.Any],
            *,
            dtype: torch.dtype,
            device: torch.device,
        ) -> torch.Tensor:
            return torch.empty(*size, dtype=dtype, device=device)

        def __call__(
            self,
            output_tensor: torch.Tensor,
            input_tensor: torch.Tensor,
            group: dist.ProcessGroup,
            op: typing.Any,
            async_op: bool = False,
        ) -> dist.Work | None:
            # The input is of `allocate`, and nobody's afterwards: the sum may take its place.
            # Whatever the operation is called, the shards become means.
            work = _thalweg(group).reduce_scatter_bounded(
                output_tensor, input_tensor, loss, layer, op
            )
            counted = _then(work, input_tensor, tally)
            if async_op:
                return work
            work.wait()
            # Who looks at the tally after a step finds all of it.
            counted.wait()
            return None

    return Bounded()


class _Place:
    """Where buckets are in the model. They are counted from its back."""

    def __init__(self, tells: bool) -> None:
        self._tells = tells
        self._buckets: int | None = None

    def of(self, index: int, is_last: bool) -> tuple[int, int] | None:
        """Which layer a bucket is, of how many, once a step has shown how many there are."""
        buckets = self._buckets
        if is_last:
            self._buckets = index + 1
        if not self._tells or buckets is None or index >= buckets:
            return None
        return buckets - 1 - index, buckets


def _then(
    work: Work, gradients: torch.Tensor, tally: Tally
) -> torch.futures.Future[torch.Tensor]:
    def result(future: torch.futures.Future) -> torch.Tensor:
        future.value()
        # A mean of which nobody knows what it lacks fails.
        assert work.missing is not None
        tally.add(gradients.numel(), work.missing)
        return gradients

    return work.get_future().then(result)


def _thalweg(group: dist.ProcessGroup | None) -> ThalwegGroup:
    chosen = group or dist.distributed_c10d._get_default_group()
    if not isinstance(chosen, ThalwegGroup):
        name = chosen.name() if hasattr(chosen, "name") else type(chosen).__name__
        raise TypeError(f'the group is of backend {name}: gradients may be lost with "thalweg" only')
    return chosen


def _check(loss: float) -> None:
    if not 0 <= loss < 1:
        raise ValueError(f"loss is {loss}: choose a share from 0 to less than 1")
