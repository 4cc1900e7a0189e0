#!/usr/bin/env python3
"""Failures while ranks sum with PyTorch's nccl backend and the plug-in: a switch, a server and a rank are killed in a lab.

    sudo python3 scripts/nccl_failures.py [--only switch server rank]

Four hosts have a rank each, all on one GPU, one host has the switch, and one the server. Prints one line of JSON for each
failure: for every rank the number of sums, the longest time between two of them, and how it ended, after how many seconds.
Every sum is checked.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RANKS, SWITCH, SERVER = 4, 4, 5
TOKEN = "a-token-of-this-lab"
# Sums before the failure, and time for which ranks go on after it.
SUMS_BEFORE, SECONDS_AFTER = 20, 12
# Time until a switch, or a server, is started again.
AWAY_S = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "target/release/thalweg", type=pathlib.Path)
    parser.add_argument("--library", default=ROOT / "target/python/release/libnccl_net_thalweg.so", type=pathlib.Path)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--only", nargs="+", choices=FAILURES, default=list(FAILURES))
    arguments = parser.parse_args()
    subprocess.run(["nvidia-cuda-mps-control", "-d"], stderr=subprocess.DEVNULL)
    for failure in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"failure": failure, "ranks": tried(arguments, failure, folder)}), flush=True)
    subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, stdout=subprocess.DEVNULL)


def tried(arguments, failure, folder):
    secret = subprocess.run([arguments.program, "secret", "new"], capture_output=True, text=True, check=True).stdout
    pathlib.Path(folder, "secret").write_text(secret)
    os.chmod(f"{folder}/secret", 0o600)
    lab = [arguments.program, "lab", "--hosts", str(RANKS + 2), "--rate", arguments.rate, "--"]
    environment = os.environ | {
        "FAILURE": failure,
        "FOLDER": folder,
        "PROGRAM": str(arguments.program.absolute()),
        "NCCL_NET_PLUGIN": str(arguments.library.absolute()),
        "NCCL_NET_PLUGIN_REF_COUNT": "1",
        "NCCL_COLLNET_ENABLE": "1",
        "NCCL_DEBUG": "WARN",
        "THALWEG_TOKEN": TOKEN,
    }
    done = subprocess.run([*lab, sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=120)
    pathlib.Path(ROOT, "target", f"nccl-failure-{failure}.log").write_text(done.stdout + done.stderr)
    return [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("rank-*"))]


def host():
    """What one host of the lab does."""
    number, folder = int(os.environ["THALWEG_LAB_RANK"]), pathlib.Path(os.environ["FOLDER"])
    network = os.environ["THALWEG_LAB_ADDR"].rsplit(".", 1)[0]
    switch, server = f"{network}.{SWITCH + 1}:4800", f"{network}.{SERVER + 1}:4808"
    if number == SWITCH:
        daemon(folder, "switch", ["switch", "--bind", switch])
    elif number == SERVER:
        daemon(folder, "server", ["server", "--bind", server, "--switch", switch, "--token", TOKEN])
    else:
        os.environ |= {"THALWEG_SERVER": server, "THALWEG_SWITCH": switch, "WORLD_SIZE": str(RANKS)}
        rank(folder, number)


def daemon(folder, role, command):
    """A daemon, until all ranks have ended. It is killed and started again where that is the failure."""
    command = [os.environ["PROGRAM"], *command, "--secret-file", folder / "secret"]
    running = subprocess.Popen(command)
    if os.environ["FAILURE"] == role:
        wait_for(folder / "go")
        running.kill()
        time.sleep(AWAY_S)
        running = subprocess.Popen(command)
    while len(list(folder.glob("rank-*"))) < RANKS:
        time.sleep(0.1)
    running.terminate()
    running.wait()


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def rank(folder, number):
    """Starts the rank, and reports how it ended."""
    program = subprocess.Popen(
        [sys.executable, __file__, "--sums"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    ends, lines = [], []
    for line in program.stdout:
        if line.startswith("sum "):
            ends.append(time.time())
            if number == 0 and len(ends) == SUMS_BEFORE:
                (folder / "go").write_text(str(time.time()))
            if number == RANKS - 1 and len(ends) == SUMS_BEFORE and os.environ["FAILURE"] == "rank":
                program.send_signal(signal.SIGKILL)
        else:
            lines.append(line.rstrip())
            print(line, end="", flush=True)
    program.wait()
    began = float((folder / "go").read_text()) if (folder / "go").exists() else time.time()
    warnings = [line for line in lines if "NCCL WARN" in line or "Error" in line]
    report = {
        "rank": number,
        "sums": len(ends),
        "longest_pause_s": round(max((after - before for before, after in zip(ends, ends[1:])), default=0), 2),
        "ended_with": program.returncode,
        "ended_after_s": round(time.time() - began, 1),
        "warning": next((line.split("NCCL WARN")[-1].strip() for line in warnings), None),
    }
    (folder / f"rank-{number}").write_text(json.dumps(report))


def sums():
    """Sums for some time after the failure, each of them checked. Ranks agree on the end by a sum."""
    import torch
    import torch.distributed as dist

    os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    go, done = pathlib.Path(os.environ["FOLDER"], "go"), 0
    while True:
        values = torch.full((4 << 20,), float(dist.get_rank() + done % 7), device="cuda")
        # The last value is the number of ranks that have seen enough.
        values[-1] = float(go.exists() and time.time() - go.stat().st_mtime > SECONDS_AFTER)
        dist.all_reduce(values)
        expected = sum(range(RANKS)) + RANKS * (done % 7)
        if not bool((values[:-1] == expected).all()):
            sys.exit("a sum is wrong")
        done += 1
        print(f"sum {done}", flush=True)
        if values[-1].item() > 0:
            break
    dist.destroy_process_group()


FAILURES = ("switch", "server", "rank")

if __name__ == "__main__":
    if "--sums" in sys.argv:
        sums()
    elif "THALWEG_LAB_RANK" in os.environ:
        host()
    else:
        main()
