"""A job that torchrun starts again after one of its ranks was killed."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import restart_script
import torch
from torch import nn

SCRIPT = pathlib.Path(__file__).with_name("restart_script.py")


def _undisturbed() -> list[float]:
    """Losses of rank 0 where nobody dies: one process with the mean of both gradients."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(restart_script.STEPS):
        gradients = []
        for rank in range(2):
            optimizer.zero_grad()
            loss = restart_script.loss_of(model, step, rank)
            loss.backward()
            gradients.append([parameter.grad.clone() / 2 for parameter in model.parameters()])
            if rank == 0:
                losses.append(loss.item())
        for parameter, one, other in zip(model.parameters(), *gradients):
            parameter.grad = one + other
        optimizer.step()
    return losses


# spec: E-10 sockets
def test_a_job_whose_rank_was_killed_is_restarted_under_its_name(daemons_losing, tmp_path):
    # The server outlives the job, and knows its name.
    daemons_losing(0.0)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "--rdzv-id=night"]
    done = subprocess.run(
        [*command, "--max-restarts=1", SCRIPT, tmp_path], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [int(step) for _, _, step, _ in lines] == list(range(restart_script.STEPS))
    before = restart_script.DIES_AT
    assert [attempt for attempt, *_ in lines] == ["0"] * before + ["1"] * (restart_script.STEPS - before)
    # The name is that of the run, whatever process has rank 0.
    assert {job for _, job, *_ in lines} == {"torch-night/0"}
    assert [float(loss) for *_, loss in lines] == _undisturbed()
