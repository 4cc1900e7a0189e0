"""A program as users write it, for the type checker: `mypy --strict` must accept it. It is not run."""

# mypy: warn-unused-ignores

from __future__ import annotations

import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import thalweg
import thalweg.tolerance
import thalweg.torch


def train(model: torch.nn.Module) -> float:
    options = thalweg.torch.Options(
        server="10.0.3.2:4808",
        ca_file="ca.pem",
        token_file="job.token",
        interface="eth1",
        failure_after=5,
        metrics="127.0.0.1:9465",
        join_timeout=datetime.timedelta(minutes=2),
    )
    dist.init_process_group("thalweg", pg_options=options)
    state = thalweg.torch.BoundedLossState(max_missing=0.1)
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(state, thalweg.torch.bounded_loss_hook)
    try:
        parallel(torch.ones(1)).sum().backward()
    except thalweg.torch.OperationTimeoutError as error:
        ranks: tuple[int, ...] = error.ranks
        operation: str | None = error.operation
        since: float | None = error.since
        kind: str = error.kind
        raise SystemExit(f"{kind}: {operation} waited for {ranks}, {since} s") from error
    work: thalweg.torch.Work = thalweg.torch.thalweg_group().all_reduce_bounded(torch.ones(3), 0.1)
    work.wait(datetime.timedelta(seconds=5))
    return state.share_missing(0)


def misspelt() -> thalweg.torch.Options:
    # The type checker refuses it: an exception that is not needed is an error of this file.
    return thalweg.torch.Options(sever="10.0.3.2:4808")  # type: ignore[call-arg]


def daemons() -> str:
    with_switch = thalweg.Switch("127.0.0.1:0", bytes(16), metrics="127.0.0.1:0")
    served_at: str | None = with_switch.metrics_address
    print(served_at)
    server = thalweg.Server("127.0.0.1:0", bytes(16), token="t", switch=with_switch.address)
    return server.address


def bound(trainer: thalweg.tolerance.Trainer) -> float:
    return thalweg.tolerance.loss_bound(trainer).bound("importance")
