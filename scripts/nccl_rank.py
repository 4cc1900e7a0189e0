"""One rank of `nccl_in_a_lab.py`: all-reduces by PyTorch's nccl backend, checked and timed. Rank 0 prints one line of JSON.

Ranks share one GPU. Each takes a NCCL_HOSTID of its own, so that NCCL treats it as another host.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, nargs="+", default=[64])
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--iterations", type=int, default=7)
    arguments = parser.parse_args()
    os.environ.setdefault("NCCL_HOSTID", f"host-{os.environ['RANK']}")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    rows = [
        {"mb": mb, "dtype": dtype, "times_ms": times(mb, getattr(torch, dtype), arguments.iterations)}
        for mb in arguments.mb
        for dtype in arguments.dtype
    ]
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def times(mb, dtype, iterations):
    """Times from a barrier until rank 0 has the sum, in milliseconds, after one sum that is not timed."""
    # A process that spins while it waits would take the cores that the network needs.
    done = torch.cuda.Event(blocking=True)
    values = torch.empty(max(int(mb * (1 << 20)) // dtype.itemsize, 1), device="cuda", dtype=dtype)
    taken = []
    for turn in range(iterations + 1):
        values.fill_(turn + 1)
        dist.barrier()
        wait(done)
        started = time.perf_counter()
        dist.all_reduce(values)
        wait(done)
        elapsed_ms = (time.perf_counter() - started) * 1e3
        if not bool((values == (turn + 1) * dist.get_world_size()).all()):
            raise SystemExit(f"the sum of {mb} MiB of {dtype} is wrong")
        if turn > 0:
            taken.append(round(elapsed_ms, 2))
    return taken


def wait(done):
    done.record()
    done.synchronize()


if __name__ == "__main__":
    main()
