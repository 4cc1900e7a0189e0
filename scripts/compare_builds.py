#!/usr/bin/env python3
"""Speed of two builds of the program, in turns on one machine, beside the noise of a build against itself.

    python3 scripts/compare_builds.py BEFORE AFTER [--rounds 5] [--only fabric switch]

BEFORE and AFTER are folders with the program `thalweg` and, to measure them, the benchmarks `pair` and
`relay` (built with `cargo bench --no-run -p thalweg-flow --bench pair` and `-p thalweg-fabric --bench relay`).
Every round runs BEFORE, AFTER, and AFTER once more, in an order that rotates. Prints one JSON document: for each
measurement the runs of each arm, their medians, after / before, and after / after again, which is noise alone.
Measurements in a lab need root; all of them are times or costs, so that less is faster.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

LAB = ["bench", "allreduce", "--json", "--lab", "--hosts", "8", "--collective", "aggregate"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path, help="folder of the earlier build")
    parser.add_argument("after", type=pathlib.Path, help="folder of the later build")
    parser.add_argument("--rounds", type=int, default=5, help="how often all arms are run (default: 5)")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS), help="measurements to run")
    parser.add_argument("--out", type=pathlib.Path, help="file for the document after every round, in place of standard output")
    arguments = parser.parse_args()
    arms = {"before": arguments.before, "after": arguments.after, "after_again": arguments.after}
    for arm, folder in arms.items():
        if not (folder / "thalweg").exists():
            parser.error(f"{folder} has no program `thalweg`: build it and name its folder for {arm}")
    runs = {}
    for turn in range(arguments.rounds):
        for name in arguments.only:
            for arm in rotated(list(arms), turn):
                for key, value in MEASUREMENTS[name](arms[arm]).items():
                    runs.setdefault(key, {}).setdefault(arm, []).append(value)
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        document = json.dumps({key: summary(times) for key, times in runs.items()}, indent=1)
        if arguments.out:
            arguments.out.write_text(document)
    if not arguments.out:
        print(document)


def rotated(items, by):
    by %= len(items)
    return items[by:] + items[:by]


def summary(runs):
    medians = {arm: statistics.median(times) for arm, times in runs.items()}
    return {
        "runs": runs,
        "medians": medians,
        "after_over_before": round(medians["after"] / medians["before"], 4),
        "after_over_itself": round(medians["after"] / medians["after_again"], 4),
    }


def output(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def fabric(folder):
    result = json.loads(output([folder / "thalweg", "bench", "fabric", "--json", "--runs", "1"]))
    return {"fabric_ns_per_hop": 1e9 / result["packet_hops_per_s"]}


def aggregate(folder):
    result = json.loads(output([folder / "thalweg", "bench", "aggregate", "--json"]))
    return {f"aggregate_{values}_ns": cost for values, cost in result["ns_per_packet"].items()}


def switch(folder):
    arguments = ["bench", "switch", "--json", "--seconds", "2", "--feeders", "3"]
    return {"switch_ns_per_packet": json.loads(output([folder / "thalweg", *arguments]))["ns_per_packet"]}


def lab(name, *options):
    def measured(folder):
        result = json.loads(output([folder / "thalweg", *LAB, *options]))
        return {name: result[0]["median_ms"]}

    return measured


def benchmark(program, pattern):
    def measured(folder):
        if not (folder / program).exists():
            return {}
        costs = [float(cost) for cost in re.findall(pattern, output([folder / program]))]
        return {f"{program}_{at}_ns": cost for at, cost in enumerate(costs)} if program == "pair" else {"relay_ns": min(costs)}

    return measured


MEASUREMENTS = {
    "fabric": fabric,
    "aggregate": aggregate,
    "switch": switch,
    "relay": benchmark("relay", r"([\d.]+) ns a hop"),
    "pair": benchmark("pair", r"([\d.]+) ns a packet"),
    "lab": lab("lab_1gbps_16mb_ms", "--rate", "1gbit", "--mb", "16", "--iterations", "7"),
    "loss": lab("lab_100mbps_loss_ms", "--rate", "100mbit", "--mb", "4", "--loss", "0.01", "--per-packet", "--iterations", "5"),
}

if __name__ == "__main__":
    main()
