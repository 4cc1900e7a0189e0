#!/usr/bin/env python3
"""Where the slots of a job with too few aggregators move, as in the stream of figure atp-15.

    python3 scripts/moved_slots.py target/release/thalweg [--ms 10]

Runs the stream with 128 aggregators and a trace, and reads from every result where its fragment was summed and whether
the server moves its slot. Prints a line for some laps; a lap is one fragment of every slot:

- moved: slots that the server moves;
- distinct: aggregators of 64 consecutive fragments, on average (50.5 if slots were spread by chance);
- most: slots of the aggregator that has most of them (32 on average);
- pairs: pairs of slots at most 63 apart that have one aggregator, so that they are in flight together;
- together: share of these pairs that have one aggregator in the next lap as well.

Then prints the pairs of a model of the rule, in which the later one of a pair moves, and the earlier one as well with
probability 0.3: with one stride for all slots, which is the rule, and with a stride for each slot.
"""

import argparse
import collections
import pathlib
import random
import struct
import subprocess
import tempfile

AGGREGATORS = 128
SLOTS = 4_096
NEAR = 64
PARAMETER = 17

WORKERS = [f"w{at}" for at in range(8)]
SCENARIO = """
title = "A stream with too few aggregators"
stop-after = "{ms}ms"
[topology.list]
hosts = {hosts}
switches = ["switch"]
cables = [{cables}]
[switch]
port-buffer = "1MB"
ecn-threshold = "60KB"
[aggregation]
fragment-values = 62
overhead-bytes = 58
numeric = "fixed"
timeout = "1ms"
aggregators = {aggregators}
window = "aimd"
initial-window = "60KB"
recovery = "paper"
[[traffic]]
[traffic.all-reduce]
collective = "aggregate"
workers = [0, 1, 2, 3, 4, 5, 6, 7]
server = 8
bytes = "4MB"
rounds = 1_000_000
in-flight = 4
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="the program thalweg")
    parser.add_argument("--ms", type=int, default=10, help="simulated milliseconds (default: 10); 19 MB of trace each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = traced(arguments.program, arguments.ms, pathlib.Path(folder))
    print("lap  moved  distinct  most   pairs  together")
    laps = max(results) // SLOTS
    for lap in range(laps):
        if lap % 3 == 0:
            print_lap(results, lap)
    print("\nmodel, pairs of every third lap")
    for name, has_own in (("one stride", False), ("own strides", True)):
        print(f"{name:>11}  {modelled(has_own)}")


def traced(program, ms, folder):
    """By sequence number, the aggregator of a fragment and whether its slot moves."""
    ends = [(worker, "100Gbps") for worker in WORKERS] + [("ps", "60Gbps")]
    cables = ", ".join(f'{{ ends = ["{host}", "switch"], rate = "{rate}", delay = "1.2us" }}' for host, rate in ends)
    hosts = str([*WORKERS, "ps"]).replace("'", '"')
    scenario = folder / "stream.toml"
    scenario.write_text(SCENARIO.format(ms=ms, hosts=hosts, cables=cables, aggregators=AGGREGATORS))
    trace = folder / "stream.pcapng"
    subprocess.run([program, "sim", scenario, "--json", "--trace", trace], check=True, stdout=subprocess.DEVNULL)
    return read(trace.read_bytes())


def read(data):
    """Reads the results that the server sends; docs/wire.md has the fields."""
    results, links, at = {}, [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 1:
            (name_bytes,) = struct.unpack_from("<H", data, at + 18)
            links.append(data[at + 20 : at + 20 + name_bytes])
        elif kind == 6 and links[struct.unpack_from("<I", data, at + 8)[0]] == b"ps to switch":
            header = data.find(b"TW", at + 28, at + 80)
            if header >= 0 and data[header + 3] == PARAMETER:
                (sequence,) = struct.unpack_from("<Q", data, header + 24)
                aggregator = int.from_bytes(data[header + 48 : header + 51], "little")
                (next_distance,) = struct.unpack_from("<H", data, header + 56)
                results.setdefault(sequence, (aggregator, next_distance > 0))
        at += length
    return results


def print_lap(results, lap):
    def of_lap(number):
        return [results.get(number * SLOTS + slot, (None, False)) for slot in range(SLOTS)]

    here, there = of_lap(lap), of_lap(lap + 1)
    aggregators = [aggregator for aggregator, _ in here]
    parts = [len(set(aggregators[at : at + NEAR])) for at in range(0, SLOTS, NEAR)]
    most = collections.Counter(aggregators).most_common(1)[0][1]
    pairs = list(pairs_of(aggregators))
    together = sum(there[one][0] is not None and there[one][0] == there[other][0] for one, other in pairs)
    moved = sum(moves for _, moves in here) / SLOTS
    distinct, share = sum(parts) / len(parts), together / len(pairs)
    print(f"{lap:>3}  {moved:>5.1%}  {distinct:>8.1f}  {most:>4}  {len(pairs):>6}  {share:>8.1%}")


def pairs_of(aggregators):
    """Pairs of slots that are near each other and have one aggregator, the earlier one first."""
    near = collections.defaultdict(list)
    for slot, aggregator in enumerate(aggregators):
        near[aggregator] = [other for other in near[aggregator] if other > slot - NEAR]
        yield from ((other, slot) for other in near[aggregator])
        near[aggregator].append(slot)


def modelled(has_own, laps=16, seed=1):
    rng = random.Random(seed)
    aggregators = [rng.randrange(AGGREGATORS) for _ in range(SLOTS)]
    strides = [rng.randrange(1, AGGREGATORS, 2) if has_own else 37 for _ in range(SLOTS)]
    counts = []
    for _ in range(laps):
        pairs = list(pairs_of(aggregators))
        later = {one for _, one in pairs}
        earlier = {one for one, _ in pairs if rng.random() < 0.3}
        for slot in later | earlier:
            aggregators[slot] = (aggregators[slot] + strides[slot]) % AGGREGATORS
        counts.append(len(pairs))
    return counts[::3]


if __name__ == "__main__":
    main()
