#!/usr/bin/env python3
"""All-reduces of PyTorch's nccl backend in a lab: NCCL's own sockets, the plug-in, and a ceiling without network, in turns.

    sudo python3 scripts/nccl_in_a_lab.py --hosts 4 --rate 2.5gbit --mb 64 --rounds 3

All ranks share one GPU. The script starts NVIDIA's MPS and ends it: without it, the time slices of the GPU hide the network.
`--arms` chooses among sockets (NCCL alone), thalweg (the plug-in through a switch and a server), direct (the plug-in
without daemons), and null (sums that cost a copy: `nccl_null.c`). Prints one JSON document with every time, and the medians
on standard error.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "target/release/thalweg", type=pathlib.Path)
    parser.add_argument("--library", default=ROOT / "target/python/release/libnccl_net_thalweg.so", type=pathlib.Path)
    parser.add_argument("--python", default="python3", help="a Python with PyTorch for CUDA")
    parser.add_argument("--hosts", default="4")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--lab", default="", help='more options of `thalweg lab`, such as "--per-packet --loss 0.01"')
    parser.add_argument("--mb", nargs="+", default=["64"], help="MiB of a tensor")
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--iterations", default="7")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["sockets", "thalweg", "null"])
    arguments = parser.parse_args()
    for path in (arguments.program, arguments.library):
        if not path.exists():
            parser.error(f"there is no {path}: build it (docs/nccl.md), or name another")
    with tempfile.TemporaryDirectory() as folder, Mps():
        environments = {arm: ARMS[arm](arguments, folder) for arm in arguments.arms}
        runs = {arm: [] for arm in arguments.arms}
        for turn in range(arguments.rounds):
            for arm in arguments.arms[turn % len(arguments.arms) :] + arguments.arms[: turn % len(arguments.arms)]:
                runs[arm].append(run(arguments, arm, environments[arm]))
    show(runs)
    print(json.dumps({"hosts": arguments.hosts, "rate": arguments.rate, "lab": arguments.lab, "runs": runs}))


class Mps:
    """NVIDIA's Multi-Process Service, unless it runs already."""

    def __enter__(self):
        self.is_own = subprocess.run(["nvidia-cuda-mps-control", "-d"], stderr=subprocess.DEVNULL).returncode == 0

    def __exit__(self, *_):
        if self.is_own:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, stdout=subprocess.DEVNULL)


def sockets(_arguments, _folder):
    return {"NCCL_NET_PLUGIN": "none"}


def plugin(arguments, _folder):
    return {"NCCL_NET_PLUGIN": str(arguments.library), "NCCL_NET_PLUGIN_REF_COUNT": "1", "NCCL_COLLNET_ENABLE": "1"}


def null(arguments, folder):
    library = f"{folder}/libnccl-net-null.so"
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, HERE / "nccl_null.c"], check=True)
    return plugin(arguments, folder) | {"NCCL_NET_PLUGIN": library, "THALWEG_NCCL_LIBRARY": str(arguments.library)}


ARMS = {"sockets": sockets, "thalweg": plugin, "direct": plugin, "null": null}


def run(arguments, arm, environment):
    daemons = ["--daemons"] if arm == "thalweg" else []
    rank = [arguments.python, HERE / "nccl_rank.py", "--iterations", arguments.iterations]
    rank += ["--mb", *arguments.mb, "--dtype", *arguments.dtype]
    lab = [arguments.program, "lab", "--hosts", arguments.hosts, "--rate", arguments.rate, *arguments.lab.split(), *daemons]
    done = subprocess.run([*lab, "--", *rank], capture_output=True, text=True, env=os.environ | environment)
    answers = [line for line in done.stdout.splitlines() if line.startswith("[0] [")]
    if done.returncode or not answers:
        sys.exit(f"{arm} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    print(f"{arm}: {answers[0][4:]}", file=sys.stderr, flush=True)
    return json.loads(answers[0][4:])


def show(runs):
    for arm, rounds in runs.items():
        for at, row in enumerate(rounds[0]):
            every = [time for one in rounds for time in one[at]["times_ms"]]
            median = statistics.median(every)
            print(f"{arm:8} {row['mb']:8g} MiB {row['dtype']:9} median {median:9.2f} ms", file=sys.stderr)


if __name__ == "__main__":
    main()
