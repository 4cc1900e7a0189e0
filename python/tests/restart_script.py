"""A training that goes on from its last checkpoint, and of which one rank kills itself once. Run by a test."""

from __future__ import annotations

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch

STEPS, DIES_AT = 6, 3


def batch(step: int, rank: int) -> torch.Tensor:
    """The inputs of a rank."""
    return torch.randn(16, 4, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    """The loss of a rank's inputs."""
    given = batch(step, rank)
    return (model(given) - given.sum(1, keepdim=True)).square().mean()


def main(folder: pathlib.Path) -> None:
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("thalweg", pg_options=thalweg.torch.Options(failure_after=3))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    first = 0
    if (folder / "checkpoint.pt").exists():
        saved = torch.load(folder / "checkpoint.pt")
        first = saved["step"]
        model.load_state_dict(saved["model"])
    group = thalweg.torch.thalweg_group()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(first, STEPS):
        # Once: ranks of hosts may change with a restart, and an agent counts only restarts because of its own ranks.
        is_disturbed = "TEST_UNDISTURBED" not in os.environ and not (folder / "died").exists()
        if is_disturbed and rank == 1 and step == DIES_AT:
            (folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = loss_of(parallel, step, rank)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach().clone())
        if rank == 0:
            with (folder / "log").open("a") as log:
                log.write(f"{attempt} {group.settings()['job']} {step} {loss.item()!r}\n")
            torch.save({"step": step + 1, "model": model.state_dict()}, folder / "new.pt")
            (folder / "new.pt").rename(folder / "checkpoint.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
