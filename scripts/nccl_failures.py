#!/usr/bin/env python3
"""Failures while ranks sum with PyTorch's nccl backend and the plug-in, in a lab.

    sudo python3 scripts/nccl_failures.py [--only switch server rank setting token library] [--work sums ddp]

Four hosts have a rank each, all on one GPU, one host has the switch, and one the server. Failures are

- switch, server: it is killed, and started again three seconds later,
- rank: the last rank is killed,
- setting, token: the last rank has a setting that is invalid, or another token, so that CollNet cannot connect,
- library: the last rank does not load the library.

Prints one line of JSON for each failure and work. It has, for every rank: the number of sums, the longest time between
two of them, and the exit code; seconds after the failure, or after the start of a rank that cannot connect, until the
plug-in's warning, until PyTorch's error, and until the process has ended; and `hung` for a process that had to be
killed. Every sum is checked. With `--work ddp`, a sum is a step of DistributedDataParallel whose gradients are known.

Ranks take turns on the GPU: MPS is not started, since the process that is killed would be a client of it.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from nccl_in_a_lab import Mps, add_programs, bounded, check_programs, plugin

RANKS, SWITCH, SERVER = 4, 4, 5
TOKEN = "a-token-of-this-lab"
# Sums before the failure, and time for which ranks go on after it.
SUMS_BEFORE, SECONDS_AFTER = 20, 12
# Time until a switch, or a server, is started again.
AWAY_S = 3
# Settings of the last rank that fail it, and all others with it, when CollNet connects.
MISFITS = {
    "setting": {"THALWEG_THREADS": "few"},
    "token": {"THALWEG_TOKEN": "another"},
    "library": {"NCCL_NET_PLUGIN": "none"},
}
FAILURES = ("switch", "server", "rank", *MISFITS)
WORK = ("sums", "ddp")
# Values of each of the parameters of the work `ddp`.
PARAMETERS = [1 << 20] * 4
# Time that the lab has beyond that of its ranks.
GRACE_S = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_programs(parser)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--only", nargs="+", choices=FAILURES, default=list(FAILURES))
    parser.add_argument("--work", nargs="+", choices=WORK, default=["sums"])
    parser.add_argument("--limit", type=float, default=60, help="longest time of a rank in seconds")
    parser.add_argument("--with-mps", action="store_true", help="start MPS for the lost rank as well")
    arguments = parser.parse_args()
    check_programs(parser, arguments)
    if os.geteuid() != 0:
        parser.error("labs need root: run it with sudo")
    for failure in arguments.only:
        for work in arguments.work:
            is_shared = not arguments.without_mps and (failure != "rank" or arguments.with_mps)
            with tempfile.TemporaryDirectory() as folder, Mps(is_shared):
                found = tried(arguments, failure, work, folder)
            print(json.dumps({"failure": failure, "work": work} | found), flush=True)


def tried(arguments, failure, work, folder):
    secret = subprocess.run([arguments.program, "secret", "new"], capture_output=True, text=True, check=True).stdout
    pathlib.Path(folder, "secret").write_text(secret)
    os.chmod(f"{folder}/secret", 0o600)
    lab = [arguments.program, "lab", "--hosts", str(RANKS + 2), "--rate", arguments.rate, "--"]
    environment = plugin(
        arguments.library,
        {
            "FAILURE": failure,
            "WORK": work,
            "FOLDER": folder,
            "LIMIT": str(arguments.limit),
            "PROGRAM": str(arguments.program),
            "THALWEG_TOKEN": TOKEN,
            # The time after which a rank without the library, which never comes, is given up.
            "THALWEG_JOIN_TIMEOUT": os.environ.get("THALWEG_JOIN_TIMEOUT", "15"),
            # NCCL writes whole lines at once to a file only.
            "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "INFO"),
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            "NCCL_DEBUG_FILE": "/dev/stderr",
        },
    )
    log = f"nccl-failure-{failure}-{work}.log"
    code, output = bounded([*lab, sys.executable, __file__], environment, arguments.limit + GRACE_S, log)
    reports = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("rank-*"))]
    if len(reports) == RANKS:
        return {"ranks": reports}
    return {"failed": f"exit code {code}", "end": output.splitlines()[-8:], "ranks": reports}


def host():
    """Work of one host of the lab."""
    number, folder = int(os.environ["THALWEG_LAB_RANK"]), pathlib.Path(os.environ["FOLDER"])
    network = os.environ["THALWEG_LAB_ADDR"].rsplit(".", 1)[0]
    switch, server = f"{network}.{SWITCH + 1}:4800", f"{network}.{SERVER + 1}:4808"
    if number == SWITCH:
        daemon(folder, "switch", ["switch", "--bind", switch])
    elif number == SERVER:
        daemon(folder, "server", ["server", "--bind", server, "--switch", switch, "--token", TOKEN])
    else:
        os.environ |= {"THALWEG_SERVER": server, "THALWEG_SWITCH": switch, "WORLD_SIZE": str(RANKS)}
        if number == RANKS - 1:
            os.environ |= MISFITS.get(os.environ["FAILURE"], {})
        Rank(folder, number).run()


def daemon(folder, role, command):
    """A daemon, until all ranks have ended. It is killed and started again where that is the failure."""
    command = [os.environ["PROGRAM"], *command, "--secret-file", folder / "secret"]
    running = subprocess.Popen(command)
    if os.environ["FAILURE"] == role:
        wait_for(folder / "go", folder)
        running.kill()
        running.wait()
        time.sleep(AWAY_S)
        running = subprocess.Popen(command)
    while not have_ended(folder):
        time.sleep(0.1)
    running.terminate()
    running.wait()


def have_ended(folder):
    return len(list(folder.glob("rank-*"))) == RANKS


def wait_for(path, folder):
    while not path.exists() and not have_ended(folder):
        time.sleep(0.01)


class Rank:
    """The program of a rank, and the times of its lines."""

    def __init__(self, folder, number):
        self.folder, self.number = folder, number
        self.sums, self.lines, self.hung = [], [], False
        self.started = time.time()

    def run(self):
        """Starts the program, and reports how it ended."""
        program = subprocess.Popen(
            [sys.executable, __file__, "--sums"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        watch = threading.Timer(float(os.environ["LIMIT"]), self.end, [program])
        watch.start()
        for line in program.stdout:
            if line.startswith("sum "):
                self.sums.append(time.time())
                self.fail_where_due(program)
            else:
                self.lines.append((time.time(), line.rstrip()))
                print(line, end="", flush=True)
        program.wait()
        watch.cancel()
        ended = time.time()
        # It is complete when it is there.
        (self.folder / f"part-{self.number}").write_text(json.dumps(self.report(program.returncode, ended)))
        (self.folder / f"part-{self.number}").rename(self.folder / f"rank-{self.number}")

    def end(self, program):
        self.hung = True
        program.kill()

    def fail_where_due(self, program):
        """Has the failure begin after enough sums."""
        if len(self.sums) != SUMS_BEFORE:
            return
        is_own = os.environ["FAILURE"] == "rank"
        if is_own and self.number == RANKS - 1:
            program.send_signal(signal.SIGKILL)
        if self.number == (RANKS - 1 if is_own else 0):
            (self.folder / "going").write_text(str(time.time()))
            (self.folder / "going").rename(self.folder / "go")

    def report(self, code, ended):
        go = self.folder / "go"
        is_later = go.exists() and os.environ["FAILURE"] not in MISFITS
        began = float(go.read_text()) if is_later else self.started
        warning = self.first("NET/Thalweg", lambda line: "WARN" in line)
        error = self.first("Error", lambda line: "NCCL INFO" not in line)
        remote = any("ncclRemoteError" in line or "-> 6" in line for _, line in self.lines)
        pauses = [after - before for before, after in zip(self.sums, self.sums[1:])]

        def after(found):
            return found and round(found[0] - began, 2)

        return {
            "rank": self.number,
            "sums": len(self.sums),
            "longest_pause_s": round(max(pauses, default=0), 2),
            "ended_with": code,
            "hung": self.hung,
            "warned_after_s": after(warning),
            "raised_after_s": after(error),
            "ended_after_s": round(ended - began, 2),
            "is_remote_error": remote,
            "collnet_via": sum("CollNet via" in line for _, line in self.lines),
            "warning": warning and warning[1].split("NET/Thalweg: ")[-1][:400],
            "error": error and error[1][:300],
            "falls_back": (self.first("Cannot initialize CollNet") or (0, None))[1],
        }

    def first(self, text, also=lambda _: True):
        """Time and text of the first line with a text, after the failure if there is one then."""
        go = self.folder / "go"
        began = float(go.read_text()) if go.exists() else 0
        found = [(at, line) for at, line in self.lines if text in line and also(line)]
        later = [(at, line) for at, line in found if at >= began]
        return next(iter(later or found), None)


def sums():
    """Sums until some time after the failure, each of them checked. Ranks agree on the end by a sum."""
    import torch
    import torch.distributed as dist

    os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"), timeout=datetime.timedelta(seconds=40))
    go, done = pathlib.Path(os.environ["FOLDER"], "go"), 0
    # After failures to connect there is nothing to wait for.
    lasting = 0 if os.environ["FAILURE"] in MISFITS else SECONDS_AFTER
    step = trained() if os.environ["WORK"] == "ddp" else summed
    is_over = False
    while not is_over:
        # The last value is the number of ranks that have seen enough.
        enough = float(go.exists() and time.time() - go.stat().st_mtime > lasting)
        is_over = step(float(dist.get_rank() + done % 7), sum(range(RANKS)) + RANKS * (done % 7), enough)
        done += 1
        print(f"sum {done}", flush=True)
    dist.destroy_process_group()


def summed(value, expected, enough):
    import torch
    import torch.distributed as dist

    values = torch.full((4 << 20,), value, device="cuda")
    values[-1] = enough
    dist.all_reduce(values)
    if not bool((values[:-1] == expected).all()):
        sys.exit("a sum is wrong")
    return values[-1].item() > 0


def trained():
    """A step of DDP. The gradient of every parameter is the value of the rank, so that the mean is known."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Sums(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.zeros(count) for count in PARAMETERS)
            self.end = torch.nn.Parameter(torch.zeros(1))

        def forward(self, value, enough):
            return sum(part.sum() for part in self.parts) * value + self.end.sum() * enough

    model = Sums().cuda()
    model_of_all = DistributedDataParallel(model, device_ids=[0], bucket_cap_mb=8)

    def step(value, expected, enough):
        model.zero_grad()
        model_of_all(torch.tensor(value, device="cuda"), torch.tensor(enough, device="cuda")).backward()
        mean = expected / RANKS
        if not all(bool((part.grad == mean).all()) for part in model.parts):
            sys.exit("a gradient is wrong")
        return model.end.grad.item() > 0

    return step


if __name__ == "__main__":
    if "--sums" in sys.argv:
        sums()
    elif "THALWEG_LAB_RANK" in os.environ:
        host()
    else:
        main()
