"""Trains a small GPT, sharded over the ranks with FSDP2.

    torchrun --nproc_per_node=4 examples/fsdp.py [--backend gloo]

The text is made: sums of two numbers, written out. Prints the loss and a few sums that the model
completes afterwards.
"""

import argparse
import time

import torch
import torch.distributed as dist
from models import Gpt
from texts import ALPHABET, LENGTH, sums
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import thalweg.torch  # noqa: F401  registers the backend


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--backend", default="thalweg", help="thalweg or gloo")
    arguments.add_argument("--steps", type=int, default=60)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = Gpt(len(ALPHABET), LENGTH)
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw, started = torch.Generator().manual_seed(rank), time.monotonic()
    for step in range(options.steps):
        lines = sums(64, draw)
        optimizer.zero_grad()
        guesses = model(lines[:, :-1])
        loss = nn.functional.cross_entropy(guesses.flatten(0, 1), lines[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1:4}  loss {mean.item():.4f}", flush=True)
    if rank == 0:
        took = time.monotonic() - started
        print(f"{options.backend}, {ranks} ranks: {options.steps} steps in {took:.1f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
