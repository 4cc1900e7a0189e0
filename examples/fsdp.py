"""Trains a small GPT, sharded over the ranks with FSDP2.

    torchrun --nproc_per_node=4 examples/fsdp.py [--backend gloo]

The text is made: sums of two numbers, written out. Prints the loss and a few sums that the model
completes afterwards.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import thalweg.torch  # noqa: F401  registers the backend

LETTERS = "0123456789+= "
LENGTH = 12


def texts(count: int, draw: torch.Generator) -> torch.Tensor:
    """Lines like ``17+25=42``, in the numbers of their letters."""
    pairs = torch.randint(0, 50, (count, 2), generator=draw).tolist()
    lines = [f"{a}+{b}={a + b}".ljust(LENGTH + 1) for a, b in pairs]
    return torch.tensor([[LETTERS.index(letter) for letter in line] for line in lines])


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.thinking = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False, is_causal=True)[0]
        return x + self.thinking(self.between(x))


class Gpt(nn.Module):
    def __init__(self, width: int = 64, blocks: int = 3) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, len(LETTERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.letters(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


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
    model = Gpt()
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw, started = torch.Generator().manual_seed(rank), time.monotonic()
    for step in range(options.steps):
        lines = texts(64, draw)
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
