"""One rank of `nccl_in_a_lab.py`: all-reduces of PyTorch, checked and timed. Rank 0 prints one line of JSON.

Ranks share one GPU. Each takes a NCCL_HOSTID of its own, so that NCCL treats it as another host. With tensors of main
memory alone, no GPU is needed.
"""

import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, nargs="+", default=[64])
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--memory", nargs="+", choices=["cuda", "cpu"], default=["cuda"])
    parser.add_argument("--backend", choices=["nccl", "thalweg", "gloo"], default="nccl")
    parser.add_argument("--iterations", type=int, default=7)
    arguments = parser.parse_args()
    begin(arguments)
    rows = [
        row
        for mb in arguments.mb
        for dtype in arguments.dtype
        for row in rows_of(mb, getattr(torch, dtype), arguments.memory, arguments.iterations)
    ]
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def begin(arguments):
    os.environ.setdefault("NCCL_HOSTID", f"host-{os.environ['RANK']}")
    if "cuda" in arguments.memory:
        torch.cuda.set_device(0)
    if arguments.backend == "thalweg":
        import thalweg.torch  # noqa: F401
    bound = {"device_id": torch.device("cuda:0")} if arguments.backend == "nccl" else {}
    dist.init_process_group(arguments.backend, timeout=datetime.timedelta(seconds=60), **bound)


def rows_of(mb, dtype, memories, iterations):
    """Times in milliseconds, a row for each memory, after one sum of each that is not timed. Memories take turns."""
    count = max(int(mb * (1 << 20)) // dtype.itemsize, 1)
    tensors = {memory: torch.empty(count, dtype=dtype, device=memory) for memory in memories}
    times = {memory: [] for memory in memories}
    for turn in range(iterations + 1):
        for memory, values in tensors.items():
            values.fill_(turn + 1)
            elapsed_ms = timed(values)
            if not bool((values == (turn + 1) * dist.get_world_size()).all()):
                raise SystemExit(f"the sum of {mb} MiB of {dtype} in {memory} is wrong")
            if turn > 0:
                times[memory].append(round(elapsed_ms, 2))
    kind = str(dtype).removeprefix("torch.")
    return [{"mb": mb, "dtype": kind, "memory": memory, "times_ms": taken} for memory, taken in times.items()]


def timed(values):
    """Time from a barrier until this rank has the sum, in milliseconds."""
    # A process that spins while it waits would take the cores that the network needs.
    done = torch.cuda.Event(blocking=True) if values.is_cuda else None
    dist.barrier()
    wait(done)
    started = time.perf_counter()
    dist.all_reduce(values)
    wait(done)
    return (time.perf_counter() - started) * 1e3


def wait(done):
    if done is not None:
        done.record()
        done.synchronize()


if __name__ == "__main__":
    main()
