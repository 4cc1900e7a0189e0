#!/usr/bin/env python3
"""All-reduce of one host: Thalweg beside Gloo, the same tensors, the same machine, in one run.

    python3 scripts/compare_gloo.py [--ranks 2 4] [--mb 64] [--rounds 3]

Makes a virtual environment in target/gloo with PyTorch in it (a download of some gigabytes, once), builds the program,
and takes turns: Gloo, Thalweg, Gloo, Thalweg, so that what the machine does beside meets both. Prints one JSON document:
medians of all rounds, and their ratio.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "gloo"

# One rank. Time runs from the barrier to the sum; the slowest rank counts, as in `thalweg bench allreduce`.
RANK = """
import json, sys, time
import torch, torch.distributed as dist
values, iterations = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, ranks, times = dist.get_rank(), dist.get_world_size(), []
for round in range(iterations + 1):
    tensor = (torch.arange(values) % 1024 + rank).float()
    dist.barrier()
    started = time.perf_counter()
    dist.all_reduce(tensor)
    times.append(time.perf_counter() - started)
    expected = (torch.arange(values) % 1024).float() * ranks + ranks * (ranks - 1) // 2
    assert torch.equal(tensor, expected), "the sum is wrong"
slowest = torch.tensor(times[1:])
dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
if rank == 0:
    print(json.dumps([t * 1e3 for t in slowest.tolist()]))
dist.destroy_process_group()
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="processes (default: 2 and 4)")
    parser.add_argument("--mb", type=float, default=64, help="MiB of a tensor of f32 (default: 64)")
    parser.add_argument("--rounds", type=int, default=3, help="how often they take turns (default: 3)")
    parser.add_argument("--iterations", type=int, default=7, help="all-reduces of a round (default: 7)")
    arguments = parser.parse_args()
    python = install_torch()
    program = build_thalweg()
    print(json.dumps([compare(python, program, ranks, arguments) for ranks in arguments.ranks]))


def compare(python, program, ranks, arguments):
    gloo_ms, thalweg_ms = [], []
    for turn in range(arguments.rounds):
        print(f"{ranks} ranks, round {turn + 1} of {arguments.rounds}", file=sys.stderr)
        gloo_ms += run_gloo(python, ranks, arguments)
        thalweg_ms += run_thalweg(program, ranks, arguments)
    gloo, thalweg = statistics.median(gloo_ms), statistics.median(thalweg_ms)
    return {
        "ranks": ranks,
        "mb": arguments.mb,
        "gloo_median_ms": round(gloo, 2),
        "thalweg_median_ms": round(thalweg, 2),
        "times_faster": round(gloo / thalweg, 2),
    }


def run_gloo(python, ranks, arguments):
    values = str(round(arguments.mb * 262144))
    children = []
    for rank in range(ranks):
        settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531", "GLOO_SOCKET_IFNAME": "lo"}
        settings |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
        command = [python, "-c", RANK, values, str(arguments.iterations)]
        children.append(subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True))
    outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        sys.exit("a rank of Gloo failed")
    return json.loads(outputs[0])


def run_thalweg(program, ranks, arguments):
    command = [program, "bench", "allreduce", "--json", "--collective", "aggregate", "--hosts", str(ranks)]
    command += ["--mb", str(arguments.mb), "--iterations", str(arguments.iterations)]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    (outcome,) = json.loads(result.stdout)
    assert outcome["exact"], "the sum is wrong"
    return outcome["times_ms"]


def install_torch():
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print("making a virtual environment with PyTorch …", file=sys.stderr)
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy"], check=True, stdout=sys.stderr)
    return str(python)


def build_thalweg():
    subprocess.run(["cargo", "build", "--release", "--package", "thalweg-cli"], cwd=ROOT, check=True, stdout=sys.stderr)
    return str(ROOT / "target" / "release" / "thalweg")


if __name__ == "__main__":
    main()
