"""The process group of torch."""

from __future__ import annotations

import datetime
import typing

import torch
import torch.distributed as dist

from .device_backend import DeviceBackend, other_backends, register_devices
from .operations import OPERATIONS, Operations
from .options import Options
from .work import Work, Works


class ThalwegGroup(dist.ProcessGroup):
    """Ranks that sum through switches.

    Operations are begun in the order of calls. A thread of the group ends them as results arrive.
    """

    def __init__(
        self, rank: int, size: int, operations: Operations, options: Options | None = None, join_timeout_s: float = 0.0
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._join_timeout_s = join_timeout_s
        self._runner = operations.runner
        #: Options that the group was made with.
        self.options = options
        self._name = self._desc = "undefined"
        self._is_checked = False
        self._operations = operations
        #: The group's part by device. ``None`` before torch 2.15.
        self.backend: DeviceBackend | None = register_devices(self, self._operations)

    # Methods that torch calls by name.

    def getBackendName(self) -> str:
        return "thalweg"

    def name(self) -> str:
        return "thalweg"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def settings(self) -> dict[str, object]:
        """Settings of the group, as it uses them."""
        # The runner ends operations: the session's own limit is only the longest that there is. Joining has two phases,
        # and the session's own limit is for the second.
        own = {
            "operation_timeout": self._runner.timeout_s,
            "join_timeout": self._join_timeout_s,
            "gpu_piece_bytes": self._operations.piece_bytes,
            "gpu_pinned_bytes": self._runner.pinned_bytes,
        }
        return {**self._runner.session.settings(), **own}

    # Torch keeps names with backends of its own kind, and this group is not one.

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._desc

    def getGroupName(self) -> str:
        return self._name

    def getGroupDesc(self) -> str:
        return self._desc

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    # Operations are added below.

    def monitored_barrier(self, timeout: typing.Any = None, wait_all_ranks: bool = False) -> None:
        """Waits for all ranks, and raises an error that names those that are missing when the time is over.

        Rank 0 waits for the others and answers when all have come; with `wait_all_ranks` its error names all that are
        missing, otherwise the first. The job of a group that has failed here is over.
        """
        self._operations.monitored_barrier(timeout, wait_all_ranks)

    def _start_coalescing(self, device: object = None) -> None:
        self._operations.start_coalescing()

    def _end_coalescing(self, device: object = None) -> Works:
        return self._operations.end_coalescing()

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the timeout of operations that are begun from now on."""
        self._runner.timeout_s = timeout.total_seconds()

    def shutdown(self) -> None:
        """Leaves the job, when all operations have ended."""
        self._runner.leave()

    def abort(self) -> None:
        """Ends the job at once. Operations in progress fail, here and at the other ranks."""
        self._runner.abort("the program called abort")

    # Methods that torch does not have. Its flight recorder does not see them.

    def all_reduce_bounded(
        self,
        tensor: torch.Tensor,
        max_missing: float,
        layer: tuple[int, int] | None = None,
        op: typing.Any = dist.ReduceOp.AVG,
    ) -> Work:
        """The mean (or ``SUM``) of a tensor of floats, of which a share of each rank may be missing.

        The mean is that of the ranks that are in it, value by value, and the same bits at all ranks; a sum is the
        mean times all ranks. ``work.missing`` lists whose values are missing where. ``layer`` is the index of the
        tensor's layer and the number of layers: front layers are more urgent to switches that have priorities.
        """
        return self._operations.all_reduce_bounded(tensor, max_missing, layer, op)

    def reduce_scatter_bounded(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        max_missing: float,
        layer: tuple[int, int] | None = None,
        op: typing.Any = dist.ReduceOp.AVG,
    ) -> Work:
        """The same where each rank keeps its part. All of ``input`` is overwritten."""
        return self._operations.reduce_scatter_bounded(output, input, max_missing, layer, op)

    def _check_backends(self) -> None:
        """Raises ValueError where other devices of the group were given other backends, which torch ignores."""
        if not self._is_checked:
            config = dist.distributed_c10d._world.pg_backend_config.get(self)
            others = other_backends(config)
            if others:
                raise ValueError(
                    f'backend="{config}": this version of torch lets no group of thalweg have other backends beside '
                    f'it, and {", ".join(others)} would have no effect. Use torch 2.15 or newer; or backend="thalweg", '
                    "and a group of its own for each other backend (torch.distributed.new_group)"
                )
            self._is_checked = True


def group_of(group: dist.ProcessGroup) -> ThalwegGroup | None:
    """The group, or its part that is thalweg's where it has several backends. ``None`` if it has no such part."""
    if isinstance(group, ThalwegGroup):
        return group
    for device in getattr(group, "_device_types", ()):
        backend = group._get_backend(device)
        if isinstance(backend, DeviceBackend):
            return backend.group
    return None


def _operation(name: str) -> typing.Callable[..., Work]:
    """An operation of the group.

    With a backend it takes torch's way: the base class runs its hooks, of which one feeds the flight recorder, and
    calls the backend of the tensor's device.
    """
    of_base = getattr(dist.ProcessGroup, name, None)

    def operation(self: ThalwegGroup, *given: typing.Any, **named: typing.Any) -> Work:
        self._check_backends()
        if self.backend is None or of_base is None:
            begun: Work = getattr(self._operations, name)(*given, **named)
            return begun
        return self.backend.begun(of_base(self, *given, **named))

    # The base class looks for an override and would call this function for ever. It stops at a caller of the same name.
    operation.__code__ = operation.__code__.replace(co_name=name)
    operation.__name__, operation.__qualname__ = name, f"ThalwegGroup.{name}"
    return operation


for _name in OPERATIONS:
    setattr(ThalwegGroup, _name, _operation(_name))
# Before torch 2.15 some have other names. Later versions have them as well, and look for them after the new ones.
for _former, _name in {
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
}.items():
    if not hasattr(dist.ProcessGroup, _name):
        setattr(ThalwegGroup, _former, getattr(ThalwegGroup, _name))
