"""Trains a small CNN with DistributedDataParallel.

    torchrun --nproc_per_node=4 examples/ddp.py
    torchrun --nproc_per_node=4 examples/ddp.py --backend gloo --losses gloo.json
    torchrun --nproc_per_node=4 examples/ddp.py --data DIRECTORY      # MNIST's files, idx format

Without --data it makes pictures of its own: bars in four directions, with noise. Prints the loss, the
accuracy, and whether all ranks hold the same bits afterwards.
"""

import argparse
import gzip
import json
import pathlib
import struct
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thalweg.torch  # noqa: F401  registers the backend

SIDE = 28


def made_pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bars in four directions, at places of their own."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=draw)
    offsets = torch.randint(-6, 7, (count, 1, 1), generator=draw)
    rows = torch.arange(SIDE).view(1, -1, 1).expand(count, -1, SIDE)
    columns = torch.arange(SIDE).view(1, 1, -1).expand(count, SIDE, -1)
    middle = SIDE // 2 + offsets
    distances = torch.stack(
        [rows - middle, columns - middle, rows - columns - offsets, rows + columns - SIDE - offsets], 1
    )
    chosen = distances[torch.arange(count), labels]
    pictures = (chosen.abs() <= 2).float() + torch.randn(chosen.shape, generator=draw) * 0.5
    return pictures.unsqueeze(1), labels


def read_idx(directory: pathlib.Path, name: str) -> torch.Tensor:
    """A file in MNIST's format, packed or not."""
    for path in (directory / name, directory / f"{name}.gz"):
        if path.exists():
            raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            dimensions = raw[3]
            shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
            values = torch.frombuffer(bytearray(raw[4 + 4 * dimensions :]), dtype=torch.uint8)
            return values.view(*shape)
    raise SystemExit(f"{directory} has neither {name} nor {name}.gz: give MNIST's files with --data")


def mnist(directory: pathlib.Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    pictures = read_idx(directory, f"{part}-images-idx3-ubyte").float().div(255).unsqueeze(1)
    return pictures, read_idx(directory, f"{part}-labels-idx1-ubyte").long()


def network(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, classes),
    )  # fmt: skip


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
    arguments.add_argument("--losses", type=pathlib.Path, help="write the loss of every step there")
    options = arguments.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if options.data:
        (pictures, labels), test = mnist(options.data, "train"), mnist(options.data, "t10k")
    else:
        (pictures, labels), test = made_pictures(8_000, 1), made_pictures(1_000, 2)

    torch.manual_seed(0)
    model = DistributedDataParallel(network(int(labels.max()) + 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(3))
    losses, started = [], time.monotonic()
    for step in range(options.steps):
        first = (step * ranks + rank) * options.batch
        batch = order[torch.arange(first, first + options.batch) % len(order)]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
        loss.backward()
        optimizer.step()
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
        if options.losses:
            options.losses.write_text(json.dumps(losses))
    dist.destroy_process_group()
    if not is_same:
        raise SystemExit("the ranks have drifted apart")


if __name__ == "__main__":
    main()
