"""The backend ``thalweg`` of ``torch.distributed``.

    import torch.distributed as dist
    import thalweg.torch

    dist.init_process_group("thalweg")

Importing this module registers the backend. Ranks find each other through the store that ``torchrun``
gives; rank 0 starts a switch and a server, unless the settings name others
(:class:`Options`, :mod:`thalweg.torch.settings`).
"""

from __future__ import annotations

import typing
import warnings

import torch.distributed as dist

from . import timeouts
from .device_backend import DeviceBackend, config_of_creation, other_backends
from .errors import (
    AbortedError,
    ClosedError,
    DisagreementError,
    NetworkError,
    OperationTimeoutError,
    PathError,
    PeerError,
    ThalwegError,
    UnreachableError,
)
from .group import ThalwegGroup, group_of
from .hooks import (
    BoundedLossState,
    bounded_loss_hook,
    ddp_hook,
    fsdp_hook,
    thalweg_group,
)
from .meeting import Rendezvous, meet
from .operations import Operations
from .options import Options
from .runner import Runner
from .settings import Settings
from .work import Work

__all__ = [
    "AbortedError",
    "BoundedLossState",
    "ClosedError",
    "DisagreementError",
    "NetworkError",
    "OperationTimeoutError",
    "Options",
    "PathError",
    "PeerError",
    "Settings",
    "ThalwegError",
    "ThalwegGroup",
    "UnreachableError",
    "Work",
    "bounded_loss_hook",
    "ddp_hook",
    "fsdp_hook",
    "register",
    "thalweg_group",
]

# Names that are in `thalweg.tolerance` now. Until the next release they work here as well, and warn.
_MOVED = ("Drop", "LOSSES", "LossBounds", "LossCosts", "Trainer", "loss_bound", "loss_costs")


def _create(given: typing.Any, options: object = None) -> ThalwegGroup | DeviceBackend:
    """Called by torch for every group that uses the backend."""
    is_mixed = bool(other_backends(config_of_creation()))
    # Options of a mixed group may be those of its other backend.
    if options is None or (is_mixed and not isinstance(options, Options)):
        options = _default_options()
    elif not isinstance(options, Options):
        raise TypeError(f"pg_options is {options!r}: a group of thalweg takes thalweg.torch.Options")
    settings = Settings.load(options)
    rank, size = given.group_rank, given.group_size
    timeout_s = timeouts.of_group(given.timeout, options).total_seconds()
    session, piece_bytes = meet(Rendezvous(given.store, rank, size, str(given.group_id), timeout_s), settings)
    server_of_rank_0 = str(session.settings()["server"]) if settings.server is None else None
    limit_s = settings.operation_timeout or timeout_s
    runner = Runner(session, rank, size, limit_s, server_of_rank_0, settings.gpu_pinned_bytes)
    operations = Operations(rank, size, runner, piece_bytes)
    group = ThalwegGroup(rank, size, operations, options, settings.join_timeout or timeout_s)
    if not is_mixed or group.backend is None:
        return group
    # The group of torch has the tensors of other devices, and asks no more of this one than its part by device.
    group.backend.group = group
    return group.backend


def _default_options() -> Options | None:
    default = dist.distributed_c10d._world.default_pg
    group = None if default is None else group_of(default)
    return None if group is None else group.options


def register() -> None:
    """Registers the backend with torch, once."""
    if "thalweg" not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            "thalweg", _create, extended_api=True, devices=["cpu", "cuda"]
        )


def __getattr__(name: str) -> object:
    if name == "Tally":
        warnings.warn("Tally is now BoundedLossState", DeprecationWarning, stacklevel=2)
        return BoundedLossState
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = f"thalweg.torch.{name} is now thalweg.tolerance.{name}"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    import thalweg.tolerance

    return getattr(thalweg.tolerance, name)


if dist.is_available():
    register()
