#!/usr/bin/env python3
"""Markdown table of runs of `thalweg bench allreduce --json`, with every single time.

    python3 scripts/allreduce_table.py FOLDER

FOLDER has a file *.json for every run of the command, with what it printed. A row is one file, in the order of their
names: network, tensor, and for each collective and for Gloo the median in milliseconds, then the times of all
all-reduces, with a stroke between rounds. The last column is the time of the first collective over that of Gloo.
"""

import argparse
import json
import pathlib
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder with the documents")
    files = sorted(parser.parse_args().folder.glob("*.json"))
    if not files:
        parser.error("the folder has no file *.json")
    print("| network | MTU | tensor | median and every time, ms | over Gloo's |")
    print("|---|---|---|---|---|")
    for file in files:
        print(row(file))


def row(file):
    try:
        arms = json.loads(file.read_text())
        first = arms[0]
        if not all(arm["exact"] for arm in arms):
            sys.exit(f"{file}: a sum was wrong")
        gloo = next((arm for arm in arms if arm["collective"] == "gloo"), None)
        over = f"{first['median_ms'] / gloo['median_ms']:.3f}" if gloo and gloo is not first else ""
        times = "<br>".join(map(times_of, arms))
        return f"| {network(first, file)} | {mtu(first)} | {tensor(first)} | {times} | {over} |"
    except (ValueError, KeyError, IndexError, TypeError) as error:
        sys.exit(f"{file} is not what `thalweg bench allreduce --json` prints: {error!r}")


def network(arm, file):
    if arm["mtu"] is None:
        return f"{arm['hosts']} processes of one host" + ("" if arm["shared_memory"] else ", no shared memory")
    rate = arm.get("rate_bps")
    # Builds that do not say the rate: then the name of the file has to.
    link = bits_per_second(rate) if rate else file.stem
    parts = [f"{arm['hosts']} × {link}"]
    parts += [f"{arm['racks']} racks"] * (arm["racks"] > 1)
    parts += ["packet by packet"] * arm.get("per_packet", False)
    parts += [f"{100 * arm['loss']:g}% lost"] * (arm["loss"] > 0)
    parts += [f"{arm['jobs']} jobs"] * (arm["jobs"] > 1)
    return ", ".join(parts)


def bits_per_second(rate):
    return f"{rate / 1e9:g} Gbps" if rate >= 1e9 else f"{rate / 1e6:g} Mbps"


def mtu(arm):
    return f"{arm['mtu']:,}" if arm["mtu"] else ""


def tensor(arm):
    size = arm["mb"] * 1024 if arm["mb"] < 1 else arm["mb"]
    unit = "KiB" if arm["mb"] < 1 else "MiB"
    narrow = f", the same values as {arm['dtype']}" if arm["dtype"] != "f32" else ""
    return f"{size:g} {unit} of f32{narrow}"


def times_of(arm):
    times, rounds = arm["times_ms"], arm["rounds"]
    each = len(times) // rounds
    digits = 2 if arm["median_ms"] < 10 else 1
    by_round = [times[at : at + each] for at in range(0, len(times), each)]
    listed = " / ".join(" ".join(f"{time:.{digits}f}" for time in times) for times in by_round)
    job = f" (job {arm['job']})" if arm["jobs"] > 1 else ""
    return f"{arm['collective']}{job} **{arm['median_ms']:.{digits}f}**: {listed}"


if __name__ == "__main__":
    main()
