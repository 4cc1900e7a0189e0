"""How fast all-reduces are, beside Gloo in the same processes.

    torchrun --nproc_per_node=4 -m thalweg.torch.bench
    torchrun --nproc_per_node=4 -m thalweg.torch.bench --mb 1 16 64 --iterations 9 --json

Both take turns, so that what the machine does beside meets both. A time runs from a barrier until the
slowest rank has the sum; medians are told, and every sum is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist

import thalweg.torch  # noqa: F401  registers the backend


def _time_ms(values: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    ranks = dist.get_world_size()
    given = values + dist.get_rank()
    dist.barrier(group=group)
    started = time.perf_counter()
    dist.all_reduce(given, group=group)
    took = torch.tensor((time.perf_counter() - started) * 1e3)
    if not torch.equal(given, values * ranks + sum(range(ranks))):
        raise SystemExit("the sum is wrong")
    dist.all_reduce(took, op=dist.ReduceOp.MAX, group=group)
    return took.item()


def compare(mb: float, iterations: int, gloo: dist.ProcessGroup) -> dict:
    """Medians of both for a tensor of so many MiB of float32."""
    values = (torch.arange(round(mb * (1 << 18))) % 1_024).float()
    groups = {"thalweg": None, "gloo": gloo}
    times: dict[str, list[float]] = {name: [] for name in groups}
    for iteration in range(iterations + 1):
        for name, group in groups.items():
            took = _time_ms(values, group)
            if iteration > 0:  # the first one finds its way
                times[name].append(took)
    medians = {f"{name}_median_ms": round(statistics.median(all), 3) for name, all in times.items()}
    ratio = medians["gloo_median_ms"] / medians["thalweg_median_ms"]
    return {"ranks": dist.get_world_size(), "mb": mb, **medians, "times_faster": round(ratio, 3)}


def main() -> None:
    """The program."""
    arguments = argparse.ArgumentParser(
        prog="thalweg.torch.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--mb", type=float, nargs="+", default=[1, 16, 64], help="MiB of a tensor")
    arguments.add_argument("--iterations", type=int, default=9)
    arguments.add_argument("--json", action="store_true", help="print one JSON document")
    options = arguments.parse_args()
    if min(options.mb) <= 0 or options.iterations < 1:
        arguments.error("--mb and --iterations have to be above 0")
    torch.set_num_threads(1)
    dist.init_process_group("thalweg")
    gloo = dist.new_group(backend="gloo")
    rows = [compare(mb, options.iterations, gloo) for mb in options.mb]
    if dist.get_rank() == 0:
        if options.json:
            print(json.dumps(rows))
        else:
            print("ranks     MiB    thalweg       gloo  times faster")
            for row in rows:
                print(
                    f"{row['ranks']:5} {row['mb']:7g} {row['thalweg_median_ms']:7.2f} ms "
                    f"{row['gloo_median_ms']:7.2f} ms  {row['times_faster']:12.2f}"
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
