"""Models that train, and the examples as their readers run them."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def _train(rank: int, ranks: int) -> tuple[list[float], list[float], bool]:
    groups = {"thalweg": None, "gloo": dist.new_group(backend="gloo")}
    losses = {name: _losses(rank, group) for name, group in groups.items()}
    return losses["thalweg"][0], losses["gloo"][0], losses["thalweg"][1]


def _losses(rank: int, group) -> tuple[list[float], bool]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
    model = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(20):
        given = torch.randn(32, 20, generator=draw)
        optimizer.zero_grad()
        loss = (model(given) - given.sum(1, keepdim=True).tanh()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    first = flat.clone()
    dist.broadcast(first, 0)
    return losses, torch.equal(first, flat)


def test_ddp_learns_as_with_gloo_and_keeps_the_same_bits(run):
    for losses, of_gloo, is_same in run(4, _train):
        assert is_same
        assert losses[-1] < losses[0]
        assert max(abs(a - b) for a, b in zip(losses, of_gloo)) < 1e-5


def _torchrun(script: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, EXAMPLES / script, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", ["ddp.py", "fsdp.py"])
def test_an_example(script):
    assert "thalweg, 2 ranks: 10 steps" in _torchrun(script, "--steps", "10")


def test_two_tenants_on_one_switch():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "tenants.py"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the same bits at all ranks: yes") == 2
    assert "completed 0 sums" not in done.stdout


def test_gradients_that_may_lack_something():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "bounded.py", "--steps", "5", "--ranks", "2", "--loss", "0.05"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1].split()
    assert last[-1] == "yes", "the same bits everywhere"
    assert 0 < float(last[-2].rstrip("%")) <= 10, "something is missing, within the bound"
