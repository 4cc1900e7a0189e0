#!/usr/bin/env python3
"""Shares of a simulated link: an aggregation job beside a flow or a second job, for every congestion control.

    cargo build --release && python3 scripts/link_shares.py [--beside dctcp cubic job] [--packet small full]
        [--control aimd] [--setting 'span-fragments = 256'] [--seeds 10]

Six workers and a server around a switch; the other sender also uses the cable of the first worker. A run that stops
after 5 ms and one that stops after 15 ms say what the job summed in between. Prints one line a control: the job's
share of the cable in percent for each seed, headers included. 50 is fair.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target" / "release" / "thalweg"
STOPS_MS = (5, 15)
LINK_GBPS = 100

# Values of a packet, and the bytes that it occupies of a link beside them.
PACKETS = {"small": (62, 58), "full": (352, 130)}

CONTROLS = {
    "small": ["aimd", "delay", "delay 4us", "dctcp", "new-reno", "cubic", "bbr", "swift", "swift 8us", "swift 4us"],
    "full": ["aimd", "dctcp", "new-reno", "cubic", "bbr"],
}

SCENARIO = """
title = "shares of a link"
stop-after = "{stop_ms}ms"
[topology.one-switch]
hosts = 15
host-cable = {{ rate = "{link_gbps}Gbps", delay = "1us" }}
[switch]
ecn-threshold = "100KB"
port-buffer = "4MB"
[transport]
control = "{flow}"
[aggregation]
fragment-values = {values}
overhead-bytes = {overhead}
numeric = "fixed"
window = "{window}"
{target}
{settings}
"""

JOB = """
[[traffic]]
[traffic.all-reduce]
collective = "aggregate"
workers = {workers}
server = {server}
bytes = "496KB"
in-flight = 8
rounds = 100000
start = "{start}"
"""

FLOW = """
[[traffic]]
[traffic.incast]
senders = [14]
receiver = 0
bytes-each = "2000MB"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", nargs="+", default=["dctcp", "cubic", "job"], help="a flow's control, or job")
    parser.add_argument("--packet", nargs="+", choices=list(PACKETS), default=list(PACKETS), help="small is the paper's")
    parser.add_argument("--control", nargs="+", help="only these controls of the job")
    parser.add_argument("--setting", nargs="+", default=[], help="further lines of [aggregation]")
    parser.add_argument("--seeds", type=int, default=3, help="seeds from 1 to this one")
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        parser.error(f"there is no {PROGRAM}: run cargo build --release first")
    for packet in arguments.packet:
        for beside in arguments.beside:
            for control in arguments.control or CONTROLS[packet]:
                seeds = range(1, arguments.seeds + 1)
                shares = [share(control, beside, packet, arguments.setting, seed) for seed in seeds]
                print(f"{packet:6} {control:10} beside {beside:6}", *(f"{part:5.0%}" for part in shares), flush=True)


def share(control, beside, packet, settings, seed):
    """The job's share of the cable between the two stops."""
    values, overhead = PACKETS[packet]
    early, late = (summed_bytes(control, beside, packet, settings, seed, stop_ms) for stop_ms in STOPS_MS)
    wire_bits = (late - early) * 8 * (values * 4 + overhead) / (values * 4)
    return wire_bits / ((STOPS_MS[1] - STOPS_MS[0]) * 1e-3 * LINK_GBPS * 1e9)


def summed_bytes(control, beside, packet, settings, seed, stop_ms):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(scenario(control, beside, packet, settings, stop_ms))
        file.flush()
        command = [PROGRAM, "sim", file.name, "--seed", str(seed), "--json"]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)["jobs"][0]["summed_bytes"][0]


def scenario(control, beside, packet, settings, stop_ms):
    window, _, target = control.partition(" ")
    values, overhead = PACKETS[packet]
    text = SCENARIO.format(
        stop_ms=stop_ms,
        link_gbps=LINK_GBPS,
        flow="dctcp" if beside == "job" else beside,
        values=values,
        overhead=overhead,
        window=window,
        target=f'queue-target = "{target}"' if target else "",
        settings="\n".join(settings),
    )
    text += JOB.format(workers=[0, 1, 2, 3, 4, 5], server=6, start="1ms")
    other = JOB.format(workers=[0, 7, 8, 9, 10, 11], server=12, start="0ms")
    return text + (other if beside == "job" else FLOW)


if __name__ == "__main__":
    main()
