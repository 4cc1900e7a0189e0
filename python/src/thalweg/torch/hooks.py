"""Gradients that may lack a bounded share, and everything else exact.

    state = thalweg.torch.BoundedLossState(max_missing=0.1)
    model = DistributedDataParallel(model)
    model.register_comm_hook(state, thalweg.torch.bounded_loss_hook)

A share of each rank's gradients may be missing from a step: no rank waits for the last packets of a slow or lossy
path. The mean is that of the ranks that are in it, and every rank gets the same bits.
"""

# No `from __future__ import annotations`: torch compares the annotations of a hook with its own types.

import collections.abc
import threading
import typing
import warnings

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from .group import ThalwegGroup, group_of
from .work import Missing, Work

Hook = collections.abc.Callable[[typing.Any, GradBucket], torch.futures.Future[torch.Tensor]]


class BoundedLossState:
    """State of :func:`bounded_loss_hook`: the bound, and the number of values that were missing so far."""

    def __init__(
        self,
        max_missing: float = 0.1,
        *,
        layers: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """`max_missing` is the largest share of any rank's gradients that may be missing, from 0 (exact) to below 1.

        With `layers`, gradients of the model's front are more urgent than those of its back, to switches that have
        priorities. `group` is the process group, the default one if it is ``None``.
        """
        if not 0 <= max_missing < 1:
            raise ValueError(f"max_missing is {max_missing}: choose a share from 0 to less than 1")
        self.max_missing = max_missing
        self.layers = layers
        self.group = group
        self._lock = threading.Lock()
        self._values = 0
        self._missing: dict[int, int] = {}
        # Number of buckets, known after the first step. They are counted from the back of the model.
        self._buckets: int | None = None

    @property
    def values(self) -> int:
        """Number of values that were reduced so far."""
        with self._lock:
            return self._values

    def share_missing(self, rank: int) -> float:
        """Share of a rank's values that were missing so far."""
        with self._lock:
            return self._missing.get(rank, 0) / self._values if self._values else 0.0

    def add(self, values: int, missing: Missing) -> None:
        """Counts a tensor."""
        with self._lock:
            self._values += values
            for start, end, ranks in missing:
                for rank in ranks:
                    self._missing[rank] = self._missing.get(rank, 0) + end - start

    def layer_of(self, index: int, is_last: bool) -> tuple[int, int] | None:
        """Layer of a bucket, and number of layers, once a step has shown how many buckets there are."""
        buckets = self._buckets
        if is_last:
            self._buckets = index + 1
        if not self.layers or buckets is None or index >= buckets:
            return None
        return buckets - 1 - index, buckets


def bounded_loss_hook(
    state: BoundedLossState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook for ``DistributedDataParallel``: means of gradients that may lack something."""
    gradients = bucket.buffer()
    layer = state.layer_of(bucket.index(), bucket.is_last())
    work = thalweg_group(state.group).all_reduce_bounded(gradients, state.max_missing, layer)
    return _counted(work, gradients, state)


def fsdp_hook(
    model: torch.nn.Module,
    state: BoundedLossState | float | None = None,
    layers: bool = True,
    *,
    loss: float | None = None,
) -> BoundedLossState:
    """The same for FSDP2: every reduce-scatter of gradients in `model` may lack something.

        thalweg.torch.fsdp_hook(model, thalweg.torch.BoundedLossState(max_missing=0.1))

    Call it after ``fully_shard``. Gathers of parameters stay exact. Returns the state.
    """
    from torch.distributed.fsdp import FSDPModule

    if isinstance(state, float | int) or loss is not None:
        _warn("fsdp_hook(model, loss=…)", "fsdp_hook(model, BoundedLossState(max_missing=…))")
        state = BoundedLossState(state if isinstance(state, float | int) else loss or 0.0, layers=layers)
    state = state or BoundedLossState(layers=layers)
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not sharded:
        raise TypeError("the model is not sharded: call fully_shard first")
    for index, module in enumerate(sharded):
        layer = (index, len(sharded)) if state.layers else None
        module.set_custom_reduce_scatter(_reduce_scatter(state, layer))
    return state


def ddp_hook(loss: float = 0.1, layers: bool = True, group: dist.ProcessGroup | None = None) -> Hook:
    """The former spelling of :func:`bounded_loss_hook`, for ``register_comm_hook(None, hook)``. It will go."""
    _warn(
        "register_comm_hook(None, ddp_hook(loss=…))",
        "register_comm_hook(BoundedLossState(max_missing=…), bounded_loss_hook)",
    )
    state = BoundedLossState(loss, layers=layers, group=group)

    def hook(_: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        return bounded_loss_hook(state, bucket)

    hook.tally = state  # type: ignore[attr-defined]
    return hook


def thalweg_group(group: dist.ProcessGroup | None = None) -> ThalwegGroup:
    """The group, the default one if it is ``None``, with the methods that torch does not have.

    Of a group with several backends it is the part that is thalweg's.
    """
    chosen = group or dist.distributed_c10d._get_default_group()
    found = group_of(chosen)
    if found is None:
        name = chosen.name() if hasattr(chosen, "name") else type(chosen).__name__
        raise TypeError(f'the group is of backend {name}: gradients may be lost with "thalweg" only')
    return found


def _reduce_scatter(state: BoundedLossState, layer: tuple[int, int] | None) -> typing.Any:
    """The reduce-scatter that FSDP2 calls in place of its own."""
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
            # The input is from `allocate`, and unused afterwards: the sum may take its place.
            # FSDP2 calls it by several names, and the shards always become means.
            work = thalweg_group(group).reduce_scatter_bounded(
                output_tensor, input_tensor, state.max_missing, layer, op
            )
            counted = _counted(work, input_tensor, state)
            if async_op:
                return work
            work.wait()
            # The state is complete after a step.
            counted.wait()
            return None

    return Bounded()


def _counted(
    work: Work, gradients: torch.Tensor, state: BoundedLossState
) -> torch.futures.Future[torch.Tensor]:
    def result(future: torch.futures.Future[typing.Any]) -> torch.Tensor:
        future.value()
        # A mean of which nobody knows what it lacks fails.
        assert work.missing is not None
        state.add(gradients.numel(), work.missing)
        return gradients

    return work.get_future().then(result)


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
