"""The part of a group that torch looks up by device."""

from __future__ import annotations

import datetime
import sys
import threading
import typing

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from .operations import OPERATIONS, Operations
from .work import Work, Works

if typing.TYPE_CHECKING:
    from .group import ThalwegGroup

_DEVICES = ("cpu", "cuda")


class DeviceBackend(_distributed_c10d.Backend):
    """Operations of a group, where torch calls them: after its hooks, of which one feeds the flight recorder.

    Python can make one since torch 2.15. Versions before have only backends of C++.
    """

    # The base class would look for these here, and call itself for ever.
    supports_coalescing = False
    supports_reconfigure = False
    supports_shrinking = False
    supports_splitting = False
    supports_window = False
    _supports_time_estimate = False

    def __init__(self, rank: int, size: int, operations: Operations) -> None:
        super().__init__(rank, size)
        self._operations = operations
        self._options = _distributed_c10d.Backend.Options("thalweg")
        self._begun = threading.local()
        #: The group, where torch has another one, which has more backends and calls this one by itself.
        self.group: ThalwegGroup | None = None

    @property
    def options(self) -> _distributed_c10d.Backend.Options:
        return self._options

    def getBackendName(self) -> str:
        return "thalweg"

    def name(self) -> str:
        return "thalweg"

    def begun(self, holder: dist.Work) -> Work:
        """The work that this thread has begun last. Torch returns a `holder`, which can only wait for it."""
        work, self._begun.work = getattr(self._begun, "work", None), None
        return typing.cast(Work, holder) if work is None else work

    def abort(self) -> None:
        self._operations.runner.abort("the program called abort")

    def shutdown(self) -> None:
        self._operations.runner.leave()
        self.group = None

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._operations.runner.timeout_s = timeout.total_seconds()

    def monitored_barrier(self, opts: typing.Any, wait_all_ranks: bool = False) -> None:
        self._operations.monitored_barrier(opts, wait_all_ranks)

    def start_coalescing(self) -> None:
        self._operations.start_coalescing()

    def end_coalescing(self) -> Works:
        return self._operations.end_coalescing()


def _forwarded(name: str) -> typing.Callable[..., Work]:
    def operation(self: DeviceBackend, *given: typing.Any) -> Work:
        work: Work = getattr(self._operations, name)(*given)
        if self.group is None:
            self._begun.work = work
        return work

    operation.__name__ = operation.__qualname__ = name
    return operation


for _name in OPERATIONS:
    setattr(DeviceBackend, _name, _forwarded(_name))
# Tensors on a GPU have a call of their own.
DeviceBackend.allreduce_sparse = _forwarded("allreduce")  # type: ignore[attr-defined]


def register_devices(group: dist.ProcessGroup, operations: Operations) -> DeviceBackend | None:
    """Makes the backend of a group and registers it for each device. ``None`` where torch lets only C++ make one."""
    try:
        backend = DeviceBackend(group.rank(), group.size(), operations)
    except TypeError:
        return None
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(custom)
    for device in _DEVICES:
        group._register_backend(torch.device(device), custom, backend)
    return backend


def other_backends(config: object) -> list[str]:
    """Devices that have another backend than thalweg, as ``cpu:gloo``, in the configuration of a group."""
    pairs = [pair.split(":") for pair in str(config).split(",")] if config else []
    return sorted(":".join(pair) for pair in pairs if pair[1:] not in ([], ["thalweg"]))


def config_of_creation() -> object:
    """The configuration of the group that torch is about to make, ``None`` if it is not found.

    Torch does not tell a backend for which devices it is made, and a backend of one device has to be another object
    than a group. So this looks at what torch knows.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_locals.get("backend_config")
