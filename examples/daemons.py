"""A switch and a server on this host, and trainings that pass through them, for the examples."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator

import thalweg

DDP = pathlib.Path(__file__).with_name("ddp.py")
TOKEN = "examples"


@contextlib.contextmanager
def started(loss: float = 0.0) -> Iterator[tuple[thalweg.Switch, dict[str, str]]]:
    """The switch, which loses a share of its packets, and the environment in which ranks find both."""
    secret = os.urandom(16)
    switch = thalweg.Switch("127.0.0.1:0", secret, loss=loss)
    server = thalweg.Server("127.0.0.1:0", secret, token=TOKEN, switch=switch.address)
    environment = os.environ | {
        "THALWEG_SERVER": server.address,
        "THALWEG_SWITCH": switch.address,
        "THALWEG_TOKEN": TOKEN,
        # On one host sums would not pass the switch.
        "THALWEG_SHARE_MEMORY": "0",
    }
    try:
        yield switch, environment
    finally:
        server.stop()
        switch.stop()


def ddp(ranks: int, *options: str) -> list[str]:
    """The command of a training with `ddp.py`."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*torchrun, f"--nproc_per_node={ranks}", str(DDP), *options]
