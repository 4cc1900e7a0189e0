"""Trains a small CNN with DistributedDataParallel.

    torchrun --nproc_per_node=4 examples/ddp.py
    torchrun --nproc_per_node=4 examples/ddp.py --backend gloo --losses gloo.json
    torchrun --nproc_per_node=4 examples/ddp.py --data DIRECTORY      # MNIST's files, idx format
    torchrun --nproc_per_node=4 examples/ddp.py --bound 0.1           # gradients may lack a tenth

Without --data it makes pictures of its own: bars in four directions, with noise. Prints the loss, the
accuracy, and whether all ranks hold the same bits afterwards.
"""

import argparse
import json
import pathlib
import time

import torch
import torch.distributed as dist
from models import cnn
from pictures import given
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch  # registers the backend


def same_bits_everywhere(model: nn.Module) -> bool:
    """Compares with rank 0, bit by bit."""
    for parameter in model.parameters():
        theirs = parameter.detach().clone()
        dist.broadcast(theirs, 0)
        is_same = torch.tensor([int(torch.equal(theirs, parameter))])
        dist.all_reduce(is_same, op=dist.ReduceOp.MIN)
        if not is_same.item():
            return False
    return True


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--backend", default="thalweg", help="thalweg or gloo")
    arguments.add_argument("--data", type=pathlib.Path, help="a directory with MNIST's files")
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--batch", type=int, default=64, help="pictures of a rank and step")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument(
        "--bound", type=float, help="the share of a rank's gradients that may be missing; exact without it"
    )
    arguments.add_argument("--losses", type=pathlib.Path, help="write the loss of every step there")
    options = arguments.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    (pictures, labels), test = given(options.data)

    torch.manual_seed(options.seed)
    model = DistributedDataParallel(cnn(int(labels.max()) + 1))
    state = None
    if options.bound is not None:
        state = thalweg.torch.BoundedLossState(max_missing=options.bound)
        model.register_comm_hook(state, thalweg.torch.bounded_loss_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # Steps become smaller towards the end, so that what was learned does not depend on the last batch.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(options.seed + 3))
    losses, started = [], time.monotonic()
    for step in range(options.steps):
        first = (step * ranks + rank) * options.batch
        batch = order[torch.arange(first, first + options.batch) % len(order)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        schedule.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1:4}  loss {losses[-1]:.4f}", flush=True)
    took = time.monotonic() - started
    is_same = same_bits_everywhere(model.module)
    with torch.no_grad():
        right = (model.module(test[0]).argmax(1) == test[1]).float().mean().item()
    if rank == 0:
        print(
            f"{options.backend}, {ranks} ranks: {options.steps} steps in {took:.1f} s, test accuracy "
            f"{right:.1%}, the same bits at all ranks: {'yes' if is_same else 'NO'}"
        )
        if state:
            missing = max(state.share_missing(other) for other in range(ranks))
            print(f"missing of the gradients of one rank: at most {missing:.2%}")
        if options.losses:
            options.losses.write_text(json.dumps(losses))
    dist.destroy_process_group()
    if not is_same:
        raise SystemExit("the ranks have drifted apart")


if __name__ == "__main__":
    main()
