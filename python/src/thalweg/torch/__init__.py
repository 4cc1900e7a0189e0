"""The backend ``thalweg`` of ``torch.distributed``.

    import torch.distributed as dist
    import thalweg.torch

    dist.init_process_group("thalweg")

Importing this module registers the backend. Ranks find each other through the store that ``torchrun``
gives; rank 0 brings a switch and a server along, unless the settings name others
(:mod:`thalweg.torch.settings`).
"""

from __future__ import annotations

import datetime
import typing

import torch.distributed as dist

from .dropping import Drop
from .group import ThalwegGroup
from .hooks import Tally, ddp_hook, fsdp_hook
from .layer_costs import LossCosts, loss_costs
from .loss_bounds import LOSSES, LossBounds, loss_bound
from .meeting import meet
from .settings import Settings
from .trainer import Trainer

__all__ = [
    "Drop",
    "LOSSES",
    "LossBounds",
    "LossCosts",
    "Settings",
    "Tally",
    "ThalwegGroup",
    "Trainer",
    "ddp_hook",
    "fsdp_hook",
    "loss_bound",
    "loss_costs",
    "register",
]


def _create(options: typing.Any, _backend_options: typing.Any = None) -> ThalwegGroup:
    """Called by torch for every group that uses the backend."""
    timeout: datetime.timedelta = options.timeout
    settings = Settings.load()
    rank, size = options.group_rank, options.group_size
    session = meet(options.store, rank, size, timeout.total_seconds(), settings)
    return ThalwegGroup(rank, size, session, timeout)


def register() -> None:
    """Makes the backend known to torch. Called twice, it does nothing."""
    if "thalweg" not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            "thalweg", _create, extended_api=True, devices=["cpu", "cuda"]
        )


if dist.is_available():
    register()
