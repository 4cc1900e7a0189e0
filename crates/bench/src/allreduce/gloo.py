"""One rank of an all-reduce by Gloo, with the clock and the checks of `thalweg bench allreduce`.

The benchmark starts it with the number of values, their type and the number of all-reduces. It prints one line of JSON.
"""

import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

# Sums of 16-bit values are rounded at most once by each further rank.
UNIT = {"f32": 0.0, "bf16": 2.0**-8, "f16": 2.0**-11}
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def main():
    # Standard input ends with the benchmark, however that ends.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    values, dtype, iterations = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    times_ms, exact = [], True
    for turn in range(iterations + 1):
        tensor = contribution(values, dtype, dist.get_rank(), turn).to(TYPES[dtype])
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(tensor)
        elapsed_ms = (time.perf_counter() - started) * 1e3
        exact = exact and is_right(tensor, dtype, turn)
        # The first one opens connections.
        if turn > 0:
            times_ms.append(elapsed_ms)
    print(json.dumps({"times_ms": times_ms, "exact": exact, "missing": 0.0, "threads": thread_times()}))
    dist.destroy_process_group()


def contribution(values, dtype, rank, turn):
    """Whole numbers, so that sums of single precision are exact in any order."""
    most = 1023 if dtype == "f32" else 127
    return ((torch.arange(values) * 7 + rank * 13 + turn) & most).float()


def is_right(tensor, dtype, turn):
    ranks = dist.get_world_size()
    expected = sum(contribution(tensor.numel(), dtype, rank, turn) for rank in range(ranks))
    return bool(((tensor.float() - expected).abs() <= ranks * UNIT[dtype] * expected).all())


def thread_times():
    """Processor time of every thread, in seconds, by name."""
    times = []
    for thread in os.listdir("/proc/self/task"):
        folder = f"/proc/self/task/{thread}"
        with open(f"{folder}/comm") as name, open(f"{folder}/schedstat") as run:
            times.append((name.read().strip(), round(int(run.read().split()[0]) / 1e9, 3)))
    return sorted(times)


main()
