#!/usr/bin/env python3
"""Work of PyTorch ranks in a lab: NCCL's own sockets, the plug-in, Gloo, and the backend for PyTorch, in turns.

    sudo python3 scripts/nccl_in_a_lab.py --hosts 4 --rate 2.5gbit --mb 64 --rounds 3
    sudo python3 scripts/nccl_in_a_lab.py --work training --options "--steps 8 --sharded --layers 4" --arms backend gloo

The work is one of

- sums (`nccl_rank.py`): all-reduces, checked and timed,
- training (`nccl_training.py`): steps of a transformer, by DDP or FSDP2,
- operations (`nccl_operations.py`): every operation of torch's nccl backend, checked.

`--arms` chooses among

- sockets: NCCL alone,
- thalweg: the plug-in through a switch and a server,
- run: the same, started by `thalweg nccl run`,
- direct: the plug-in without daemons, messages over TCP,
- flows: the same, messages over flows,
- null: sums that cost a copy (`nccl_null.c`),
- backend: the backend for PyTorch through a switch and a server,
- gloo: Gloo.

All ranks share one GPU. The script starts NVIDIA's MPS and ends it: without it, the time slices of the GPU hide the
network. Prints the medians on standard error, and one JSON document with every time. A run that fails, or takes longer
than `--limit`, is in the document as well, and the exit code is 1. The output of every run is kept in `$OUT`, or else
in `target`.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LOGS = pathlib.Path(os.environ.get("OUT") or ROOT / "target")
# Time that a lab has to end when it is asked to.
END_LIMIT_S = 10


def main():
    arguments = parsed()
    with tempfile.TemporaryDirectory() as folder, Mps(not arguments.without_mps):
        made = {arm: ARMS[arm](arguments, pathlib.Path(folder)) for arm in arguments.arms}
        runs = {arm: [] for arm in arguments.arms}
        for turn in range(arguments.rounds):
            for arm in arguments.arms[turn % len(arguments.arms) :] + arguments.arms[: turn % len(arguments.arms)]:
                runs[arm].append(run(arguments, arm, made[arm], turn))
                note = json.dumps(runs[arm][-1], default=str)
                print(f"{arm}: {note[:1_000]}", file=sys.stderr, flush=True)
    summary = summarized(runs)
    for row in summary:
        print(" ".join(f"{name}={value}" for name, value in row.items()), file=sys.stderr)
    document = {"hosts": arguments.hosts, "rate": arguments.rate, "lab": arguments.lab, "work": arguments.work}
    print(json.dumps(document | {"options": arguments.options, "summary": summary, "runs": runs}))
    sys.exit(any("failed" in one for rounds in runs.values() for one in rounds))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_programs(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch for CUDA")
    parser.add_argument("--hosts", default="4")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--lab", default="", help='more options of `thalweg lab`, such as "--per-packet --loss 0.01"')
    parser.add_argument("--work", choices=WORK, default="sums")
    parser.add_argument("--options", default="", help='more options of the work, such as "--steps 8 --sharded"')
    parser.add_argument("--mb", nargs="+", default=["64"], help="MiB of a tensor, for sums")
    parser.add_argument("--dtype", nargs="+", default=["float32"], help="types of values, for sums")
    parser.add_argument(
        "--memory", nargs="+", choices=["cuda", "cpu"], default=["cuda"], help="of the tensors, for sums"
    )
    parser.add_argument("--iterations", default="7", help="sums of a run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180, help="longest time of a run in seconds")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["sockets", "thalweg", "null"])
    arguments = parser.parse_args()
    check_programs(parser, arguments)
    if os.geteuid() != 0:
        parser.error("labs need root: run it with sudo")
    return arguments


def add_programs(parser):
    """Arguments that other scripts have as well."""
    parser.add_argument("--program", default=ROOT / "target/release/thalweg", type=pathlib.Path)
    parser.add_argument("--library", default=ROOT / "target/python/release/libnccl_net_thalweg.so", type=pathlib.Path)
    parser.add_argument("--without-mps", action="store_true", help="do not start NVIDIA's MPS")


def check_programs(parser, arguments):
    for name in ("program", "library"):
        path = getattr(arguments, name).absolute()
        if not path.exists():
            parser.error(f"there is no {path}: build it (docs/nccl.md), or name another")
        setattr(arguments, name, path)


class Mps:
    """NVIDIA's Multi-Process Service, unless it runs already or the machine has no such program."""

    def __init__(self, is_wanted=True):
        self.is_wanted = is_wanted and shutil.which("nvidia-cuda-mps-control") is not None

    def __enter__(self):
        started = ["nvidia-cuda-mps-control", "-d"]
        self.is_own = self.is_wanted and subprocess.run(started, stderr=subprocess.DEVNULL).returncode == 0

    def __exit__(self, *_):
        if self.is_own:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, stdout=subprocess.DEVNULL)


def bounded(command, environment, limit_s, log):
    """Runs a lab, and ends it after a time. Returns its exit code (None if it was ended) and output, which is kept."""
    LOGS.mkdir(exist_ok=True)
    path = LOGS / log
    with path.open("w") as output:
        lab = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment)
        try:
            code = lab.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            # It removes its network, and does not wait for its programs after the second one.
            for _ in range(2):
                lab.send_signal(signal.SIGINT)
                time.sleep(1)
            try:
                lab.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                lab.kill()
                lab.wait()
    return code, path.read_text(errors="replace")


class Arm:
    """A way to run the work."""

    def __init__(self, environment=None, backend="nccl", has_daemons=False, prefix=()):
        self.environment, self.backend = environment or {}, backend
        self.has_daemons, self.prefix = has_daemons, prefix


def plugin(library, more=None):
    chosen = {"NCCL_NET_PLUGIN": str(library), "NCCL_NET_PLUGIN_REF_COUNT": "1", "NCCL_COLLNET_ENABLE": "1"}
    return chosen | (more or {})


def null(arguments, folder):
    library = folder / "libnccl-net-null.so"
    subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, HERE / "nccl_null.c"], check=True)
    return Arm(plugin(library, {"THALWEG_NCCL_LIBRARY": str(arguments.library)}))


def started(arguments, _folder):
    prefix = [arguments.program, "nccl", "run", "--library", arguments.library, "--"]
    return Arm(has_daemons=True, prefix=prefix)


ARMS = {
    "sockets": lambda arguments, _: Arm({"NCCL_NET_PLUGIN": "none"}),
    "thalweg": lambda arguments, _: Arm(plugin(arguments.library), has_daemons=True),
    "run": started,
    "direct": lambda arguments, _: Arm(plugin(arguments.library, {"THALWEG_NCCL_NET": "tcp"})),
    "flows": lambda arguments, _: Arm(plugin(arguments.library, {"THALWEG_NCCL_NET": "flows"})),
    "null": null,
    "backend": lambda *_: Arm(backend="thalweg", has_daemons=True),
    "gloo": lambda *_: Arm(backend="gloo"),
}


def sums(arguments, arm):
    given = ["nccl_rank.py", "--iterations", arguments.iterations, "--backend", arm.backend]
    return [*given, "--mb", *arguments.mb, "--dtype", *arguments.dtype, "--memory", *arguments.memory]


WORK = {
    "sums": sums,
    "training": lambda _, arm: ["nccl_training.py", "--backend", arm.backend],
    "operations": lambda _, arm: ["nccl_operations.py"],
}


def run(arguments, arm, made, turn):
    """One run: what rank 0 has printed as JSON, the time of all, and the lines of the plug-in's log about CollNet."""
    script, *given = WORK[arguments.work](arguments, made)
    rank = [*made.prefix, arguments.python, HERE / script, *given, *arguments.options.split()]
    lab = [arguments.program, "lab", "--hosts", arguments.hosts, "--rate", arguments.rate, *arguments.lab.split()]
    lab += ["--daemons"] if made.has_daemons else []
    debug = {name: os.environ.get(name, value) for name, value in NCCL_LOG.items()}
    began = time.monotonic()
    code, output = bounded(
        [*lab, "--", *rank], made.environment | debug, arguments.limit, f"{arguments.work}-{arm}-{turn}.log"
    )
    outcome = {"took_s": round(time.monotonic() - began, 1), "collnet_via": output.count("CollNet via")}
    rows = [row for line in output.splitlines() if (row := document(line)) is not None]
    outcome |= {"rows": rows[-1] if rows and isinstance(rows[-1], list) else rows}
    if code != 0 or not rows:
        why = "took too long" if code is None else f"exit code {code}"
        lines = output.splitlines()
        errors = [line[:300] for line in lines if any(text in line for text in ("Error", "NCCL WARN", "error:"))]
        outcome["failed"] = {"why": why, "errors": errors[:8], "end": [line[:300] for line in lines[-4:]]}
    return outcome


# Enough to see how a communicator was set up. NCCL writes whole lines to a file only.
NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": "/dev/stderr"}


def document(line):
    """The JSON document that rank 0 has printed, if the line is one."""
    text = line.removeprefix("[0] ")
    if text == line or text[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def summarized(runs):
    """Medians of all times of an arm for each row, beside those of the first arm, and how far losses differ."""
    found = []
    reference = {}
    for arm, rounds in runs.items():
        rounds = [one["rows"] for one in rounds if one.get("rows")]
        for at, row in enumerate(rounds[0] if rounds else []):
            if "times_ms" not in row:
                continue
            every = [time for rows in rounds for time in rows[at]["times_ms"]]
            median = round(statistics.median(every), 2)
            named = {name: value for name, value in row.items() if name not in ("times_ms", "losses")}
            first = reference.setdefault(at, (median, row.get("losses")))
            found.append({"arm": arm, **named, "median_ms": median, "of_first": round(median / first[0], 3)})
            if row.get("losses"):
                found[-1]["losses_differ"] = difference(row["losses"], first[1])
        memories = {row.get("memory"): row["median_ms"] for row in found if row["arm"] == arm}
        if {"cuda", "cpu"} <= memories.keys() and len(runs[arm][0].get("rows", [])) == 2:
            found.append({"arm": arm, "cuda_of_cpu": round(memories["cuda"] / memories["cpu"], 3)})
    return found


def difference(losses, first):
    """The largest relative difference of losses of the same step."""
    return max((abs(a - b) / abs(b) for a, b in zip(losses, first or losses)), default=0.0)


if __name__ == "__main__":
    main()
