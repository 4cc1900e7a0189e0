"""The part of a group that torch looks up by device."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

_DEVICES = ("cpu", "cuda")


def register_devices(group: dist.ProcessGroup, rank: int, size: int) -> None:
    """Registers a backend for each device, where torch lets Python make one.

    Operations go to the group itself. Torch asks for the backend of a device before some of them
    (``batch_isend_irecv``, ``monitored_barrier``), for what it can do.
    """
    try:
        backend = _DeviceBackend(rank, size)
    except TypeError:
        return  # Versions before 2.15 have only backends of C++: the group answers by itself.
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(custom)
    for device in _DEVICES:
        group._register_backend(torch.device(device), custom, backend)


class _DeviceBackend(_distributed_c10d.Backend):
    """A backend that names itself, and whose operations are the group's."""

    # The base class would look for these here, and call itself for ever.
    supports_coalescing = False
    supports_reconfigure = False
    supports_shrinking = False
    supports_splitting = False
    supports_window = False
    _supports_time_estimate = False

    def getBackendName(self) -> str:
        return "thalweg"

    def name(self) -> str:
        return "thalweg"
