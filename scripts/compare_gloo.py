#!/usr/bin/env python3
"""All-reduce of one host: Thalweg beside Gloo, the same tensors, the same machine, in one run.

    python3 scripts/compare_gloo.py [--ranks 2 4] [--mb 64] [--rounds 3]

Makes a virtual environment in target/gloo with PyTorch in it (a download of some gigabytes, once), builds the program,
and has `thalweg bench allreduce --gloo` take turns: Thalweg, Gloo, Thalweg, Gloo, so that what the machine does beside
meets both. Prints one JSON document: medians of all rounds, and their ratio. For labs call that command with --lab.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "target" / "gloo"


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
    command = [program, "bench", "allreduce", "--json", "--collective", "aggregate", "--hosts", str(ranks)]
    command += ["--mb", str(arguments.mb), "--iterations", str(arguments.iterations)]
    command += ["--gloo", python, "--rounds", str(arguments.rounds)]
    result = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    medians = {outcome["collective"]: outcome["median_ms"] for outcome in json.loads(result.stdout)}
    return {
        "ranks": ranks,
        "mb": arguments.mb,
        "gloo_median_ms": medians["gloo"],
        "thalweg_median_ms": medians["aggregate"],
        "times_faster": round(medians["gloo"] / medians["aggregate"], 2),
    }


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
