"""A rank that does what lines on its standard input say. Run by tests, also by those in Rust.

Lines of its own that are for the test begin with ``@``, as those of ``crates/thalweg/tests/failures/roles.rs`` do.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch

# Of the group. Deadlines of joining and operations are in the environment.
TIMEOUT = datetime.timedelta(minutes=30)


def tell(line: str) -> None:
    """Tells the test."""
    print(f"\n@{line}", flush=True)


class Weights(nn.Module):
    """One parameter, whose gradient is the input."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(values))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return (self.weights * given).sum()


def gradients(rank: int, step: int, values: int) -> torch.Tensor:
    """Gradients of a rank: small multiples of the number of ranks, whose means are exact."""
    return (torch.arange(values) * 7 + rank * 13 + step * 31) % 101 - 50.0


def train(values: int, steps: int) -> None:
    """Steps of a training, whose gradients are checked."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(Weights(values))
    for step in range(steps):
        model.zero_grad()
        model(gradients(rank, step, values) * ranks).backward()
        expected = sum(gradients(other, step, values) for other in range(ranks))
        found = model.module.weights.grad
        assert found is not None and torch.equal(found, expected), f"sum {step} is wrong"
        tell(f"sum {step}")


def obey(command: list[str]) -> None:
    """Does what a line says."""
    match command:
        case ["sum", values, steps]:
            train(int(values), int(steps))
        case ["all_reduce"]:
            dist.all_reduce(torch.ones(10))
        case ["barrier"]:
            dist.barrier()
        case ["send"]:
            dist.send(torch.ones(3_000_000), 1)
        case ["recv"]:
            dist.recv(torch.ones(3), 1)
        case ["fork", seconds]:
            if os.fork() == 0:
                # A child that loads data, for example. It uses nothing of the group.
                time.sleep(float(seconds))
                os._exit(0)
        case ["abort", seconds]:
            threading.Timer(float(seconds), thalweg.torch.thalweg_group().abort).start()
        case _:
            raise ValueError(f"no command {command}")


def join() -> None:
    """Joins. The store does not wait for the other ranks, so that joining does."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=rank == 0, timeout=TIMEOUT, wait_for_workers=False)
    dist.init_process_group("thalweg", store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)


def main() -> None:
    torch.set_num_threads(1)
    try:
        tell("joining")
        join()
        tell("joined")
        for line in sys.stdin:
            obey(line.split())
            tell("done")
    except (RuntimeError, thalweg.torch.ThalwegError) as error:
        ranks = list(getattr(error, "ranks", ()))
        tell(f"error {ranks} {str(error).splitlines()[0]}")
        # Until the test ends.
        sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
