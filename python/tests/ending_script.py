"""Two ranks that fork, and of which one fails with an operation in progress. Run by a test."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import thalweg.torch


def fork() -> None:
    """A forked process that ends by itself, as ``os.fork`` and ``sys.exit`` do."""
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except thalweg.torch.ThalwegError as error:
            print(f"child: {type(error).__name__}", flush=True)
        sys.exit(3)
    ends_at = time.monotonic() + 20
    while time.monotonic() < ends_at:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            print(f"child ended with {os.waitstatus_to_exitcode(status)}", flush=True)
            return
        time.sleep(0.05)
    print("child hangs", flush=True)
    os.kill(child, 9)


def main() -> None:
    dist.init_process_group("thalweg")
    rank = dist.get_rank()
    dist.barrier()
    if rank == 1:
        fork()
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"sum after the fork: {total.item()}", flush=True)
    if rank == 0:
        dist.all_reduce(torch.ones(10), async_op=True)
        print(f"raised at {time.monotonic()} s", flush=True)
        raise RuntimeError("on purpose")
    # Until the other has given up.
    time.sleep(4)
    try:
        dist.all_reduce(torch.ones(10))
    except thalweg.torch.AbortedError as error:
        print(f"AbortedError of ranks {error.ranks}", flush=True)


if __name__ == "__main__":
    main()
