"""A rank that joins a group through a store of another process, and prints how that ended. Run by a test."""

from __future__ import annotations

import datetime
import json
import os

import torch.distributed as dist

import thalweg.torch
from thalweg.torch import reach
from thalweg.torch.meeting import Rendezvous, meet

TIMEOUT = datetime.timedelta(minutes=10)


def main() -> None:
    if "TEST_ADDRESSES" in os.environ:
        reach.own_addresses = lambda: os.environ["TEST_ADDRESSES"].split(",")
    store = dist.TCPStore("127.0.0.1", int(os.environ["STORE_PORT"]), timeout=TIMEOUT)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    given = Rendezvous(dist.PrefixStore("meeting", store), rank, ranks, "0", TIMEOUT.total_seconds())
    try:
        session = meet(given, thalweg.torch.Settings.load()).session
        found = {"class": "none"}
        session.leave(5.0)
    except BaseException as error:
        found = {"class": type(error).__name__, "text": str(error), "ranks": getattr(error, "ranks", ())}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
