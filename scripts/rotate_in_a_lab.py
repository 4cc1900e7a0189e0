#!/usr/bin/env python3
"""The secret of a cluster is replaced while two jobs run, in a lab.

    cargo build --release
    sudo target/release/thalweg lab --hosts 6 --rate 100mbit -- python3 scripts/rotate_in_a_lab.py [--program target/release/thalweg]

Host 0 is the switch, host 1 the server, hosts 2 and 3 run one job and 4 and 5 another, each with a token (`thalweg bench-rank`,
which checks every sum). Once both jobs sum, the switch is killed and started with both secrets, then the server with the new
one first, as `thalweg secret new --help` says. When the jobs have ended, both daemons get the new secret alone, and hosts 2 and
3 run a third job. Every host prints what it did; the exit code is 1 if a rank failed, a sum was wrong, or a job ended before
the secret was replaced.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

VALUES, ITERATIONS = 20_000, 1_500
JOBS = {2: ("alice", 0), 3: ("alice", 1), 4: ("bob", 0), 5: ("bob", 1)}
LIMIT_S = 300


class Host:
    def __init__(self, program):
        self.program = str(program.resolve())
        self.address = os.environ["THALWEG_LAB_ADDR"]
        # All hosts have the same parent, and the file system is one.
        self.folder = pathlib.Path(tempfile.gettempdir()) / f"thalweg-rotate-{os.getppid()}"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.daemon = None

    def note(self, name, text=""):
        whole = self.folder / f".{name}"
        whole.write_text(text)
        whole.rename(self.folder / name)

    def wait(self, name):
        end = time.monotonic() + LIMIT_S
        while not (self.folder / name).exists():
            if time.monotonic() > end:
                sys.exit(f"no {name} within {LIMIT_S} s")
            time.sleep(0.05)
        return (self.folder / name).read_text()

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    def restart(self, role, secret, *arguments):
        """Kills the daemon, if it runs, and starts it with another file of secrets."""
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
        command = [self.program, role, "--bind", f"{self.address}:4800", "--json", "--secret-file", str(self.folder / secret)]
        self.daemon = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        if not self.daemon.stdout.readline():
            sys.exit(f"the {role} does not start with the secrets of {secret}")
        print(f"{role} runs with {secret}", flush=True)

    def secrets(self):
        old, new = str(self.folder / "old"), str(self.folder / "new")
        self.run("secret", "new", "--out", old)
        self.run("secret", "new", "--after", old, "--out", new)
        old, new = (pathlib.Path(path).read_text() for path in (old, new))
        for name, text in (("old-and-new", old + new), ("new-and-old", new + old)):
            (self.folder / name).touch(mode=0o600)
            (self.folder / name).write_text(text)
        for job, secret in (("alice", "old"), ("bob", "old"), ("carol", "new")):
            token = self.run("token", "new", "--secret-file", str(self.folder / secret), "--job", job)
            self.note(f"token-{job}", token)

    def switch(self):
        self.secrets()
        self.restart("switch", "old")
        self.note("switch", f"{self.address}:4800")
        self.wait_for_jobs("summing")
        self.restart("switch", "old-and-new")
        self.note("switch-has-both")
        self.wait_for_jobs("ended")
        self.restart("switch", "new")
        self.note("switch-has-new")

    def server(self):
        own = ["--switch", self.wait("switch"), "--require-token"]
        self.restart("server", "old", *own)
        self.note("server", f"{self.address}:4800")
        self.wait("switch-has-both")
        time.sleep(2)
        self.restart("server", "new-and-old", *own)
        time.sleep(2)
        self.note("replaced", str(time.time()))
        self.wait("switch-has-new")
        self.restart("server", "new", *own)
        self.note("server-has-new")

    def wait_for_jobs(self, what):
        for host in JOBS:
            self.wait(f"{what}-{host}")

    def rank(self, number):
        job, rank = JOBS[number]
        ended = self.sum(number, job, rank)
        self.note(f"ended-{number}")
        replaced = float(self.wait("replaced"))
        if ended < replaced:
            sys.exit(f"job {job} ended {replaced - ended:.1f} s before the secret was replaced")
        print(f"job {job} ended {ended - replaced:.1f} s after the secret was replaced", flush=True)
        if job == "alice":
            self.wait("server-has-new")
            self.sum(number, "carol", rank)

    def sum(self, number, job, rank):
        server, switch, token = self.wait("server"), self.wait("switch"), self.wait(f"token-{job}")
        command = [self.program, "bench-rank", "--server", server, "--switch", switch, "--token", token, "--job", job]
        command += ["--rank", str(rank), "--ranks", "2", "--values", str(VALUES), "--iterations", str(ITERATIONS)]
        process = subprocess.Popen([*command, "--collective", "aggregate"], stdout=subprocess.PIPE, text=True)
        # Both ranks have joined and summed for a while.
        time.sleep(3)
        self.note(f"summing-{number}")
        out, _ = process.communicate()
        ended = time.time()
        if process.returncode or not json.loads(out)["exact"]:
            sys.exit(f"job {job}, rank {rank}: failed: {out}")
        print(f"job {job}, rank {rank}: {ITERATIONS + 1} sums, all right", flush=True)
        return ended


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=root / "target" / "release" / "thalweg")
    host, number = Host(parser.parse_args().program), int(os.environ["THALWEG_LAB_RANK"])
    if number > max(JOBS):
        sys.exit("give the lab 6 hosts")
    if number >= 2:
        host.rank(number)
        host.note(f"done-{number}")
        return
    try:
        host.switch() if number == 0 else host.server()
        for other in JOBS:
            host.wait(f"done-{other}")
        if number == 0:
            host.wait("done-1")
            shutil.rmtree(host.folder)
        else:
            host.note("done-1")
    finally:
        host.daemon.kill()


if __name__ == "__main__":
    main()
