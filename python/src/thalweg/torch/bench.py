"""Times of all-reduces, beside Gloo and NCCL in the same processes.

    torchrun --nproc_per_node=4 -m thalweg.torch.bench
    torchrun --nproc_per_node=4 -m thalweg.torch.bench --mb 1 16 64 --iterations 9 --json
    torchrun --nproc_per_node=4 -m thalweg.torch.bench --nccl

The backends take turns, so that other work of the machine disturbs all of them alike. A time runs from a barrier
until the slowest rank has the sum. The program prints medians and checks every sum.

NCCL sums tensors in GPU memory, the others in main memory. Ranks may share one GPU: start NVIDIA's MPS first
(`nvidia-cuda-mps-control -d`), or the time slices of the GPU hide the network. Every rank counts as a host of its own
for NCCL, so that it uses sockets and not shared memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import typing

import torch
import torch.distributed as dist

import thalweg.torch  # noqa: F401  registers the backend

Groups = dict[str, typing.Any]


def _time_ms(values: torch.Tensor, group: typing.Any) -> float:
    ranks = dist.get_world_size()
    given = values + dist.get_rank()
    dist.barrier(group=group)
    _synchronize(given)
    started = time.perf_counter()
    dist.all_reduce(given, group=group)
    _synchronize(given)
    took = torch.tensor((time.perf_counter() - started) * 1e3, device=values.device)
    if not torch.equal(given, values * ranks + sum(range(ranks))):
        raise SystemExit("the sum is wrong")
    dist.all_reduce(took, op=dist.ReduceOp.MAX, group=group)
    return took.item()


def _synchronize(values: torch.Tensor) -> None:
    if values.is_cuda:
        torch.cuda.synchronize()


def compare(mb: float, iterations: int, groups: Groups) -> dict[str, float]:
    """Median time of every backend for a tensor of `mb` MiB of float32."""
    values = (torch.arange(round(mb * (1 << 18))) % 1_024).float()
    tensors = {name: values.cuda() if name == "nccl" else values for name in groups}
    times: dict[str, list[float]] = {name: [] for name in groups}
    for iteration in range(iterations + 1):
        for name, group in groups.items():
            took = _time_ms(tensors[name], group)
            if iteration > 0:  # the first operation sets up connections
                times[name].append(took)
    medians = {f"{name}_median_ms": round(statistics.median(all), 3) for name, all in times.items()}
    ratio = medians["gloo_median_ms"] / medians["thalweg_median_ms"]
    return {"ranks": dist.get_world_size(), "mb": mb, **medians, "times_faster": round(ratio, 3)}


def _groups(with_nccl: bool) -> Groups:
    groups: Groups = {"thalweg": None, "gloo": dist.new_group(backend="gloo")}
    if with_nccl:
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
        groups["nccl"] = dist.new_group(backend="nccl")
    return groups


def _show(rows: list[dict[str, float]]) -> None:
    names = [key.removesuffix("_median_ms") for key in rows[0] if key.endswith("_median_ms")]
    print("ranks     MiB" + "".join(f"{name:>14}" for name in names) + "  gloo / thalweg")
    for row in rows:
        times = "".join(f"{row[f'{name}_median_ms']:11.2f} ms" for name in names)
        print(f"{row['ranks']:5} {row['mb']:7g}{times}{row['times_faster']:16.2f}")


def main() -> None:
    """The program."""
    arguments = argparse.ArgumentParser(
        prog="thalweg.torch.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--mb", type=float, nargs="+", default=[1, 16, 64], help="MiB of a tensor")
    arguments.add_argument("--iterations", type=int, default=9)
    arguments.add_argument("--nccl", action="store_true", help="time NCCL over sockets as well; needs a GPU")
    arguments.add_argument("--json", action="store_true", help="print one JSON document")
    options = arguments.parse_args()
    if min(options.mb) <= 0 or options.iterations < 1:
        arguments.error("--mb and --iterations have to be above 0")
    if options.nccl and not torch.cuda.is_available():
        arguments.error("--nccl needs a GPU, and PyTorch finds none: leave it out")
    torch.set_num_threads(1)
    os.environ.setdefault("NCCL_HOSTID", f"rank-{os.environ.get('RANK', '0')}")
    dist.init_process_group("thalweg")
    groups = _groups(options.nccl)
    rows = [compare(mb, options.iterations, groups) for mb in options.mb]
    if dist.get_rank() == 0:
        if options.json:
            print(json.dumps(rows))
        else:
            _show(rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
