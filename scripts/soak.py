#!/usr/bin/env python3
"""Two tenants' jobs for an hour, while daemons are killed and somebody attacks.

    cargo build --release && cargo test -p thalweg --test hostile --no-run
    sudo python3 scripts/soak.py [--minutes 60] [--seed 1] [--loss 0.01] [--program target/release/thalweg]

Starts a switch that loses packets and a server, both on 127.0.0.1, and two tenants, each with a token of its own and one job
of three processes after the other (`thalweg bench-rank`, which checks every sum). In the first five twelfths of the time the
switch, the server or both are killed and started again, at times drawn from the seed; then both are left alone, so that their
memory shows whether something grows. An attacker has a token for jobs of its own. It sends random and replayed packets to
both; contributions, queries and other packets, proper and not, that are sealed with the key of a job of its own and name that
job or a tenant's (the role `tenant` of the tests `hostile`); opens connections that say nothing or nonsense; registers jobs
that never come together, jobs that reserve memory, and the current jobs of the tenants, at bounded rates. Replays need the
right to read packets of the loopback interface, which root has; without it there are none.

Prints one JSON document: sums that were right and wrong, jobs that failed, kills, what the attacker did, what the server
refused and the switch dropped since they were last started, and the resident memory of both daemons at every twelfth of the
time. Progress is on standard error. Ends by itself, with exit code 1 if a sum was wrong, a job failed, a daemon or the
attacker ended by itself, or the memory of a daemon in the last twelfth (the median) is more than 5% and 4 MiB above that in
the twelfth after the half. Ctrl-C ends it early, and memory is not judged then.
"""

import argparse
import collections
import json
import os
import pathlib
import queue
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = 3
# The resident memory is reported at this number of moments: every five minutes of an hour.
MARKS = 12
TENANTS = {"alice": 60_000, "bob": 20_000}
ITERATIONS = 1_500
# A rank gives up a server after 10 s.
AWAY_S = (0.2, 2.5)
KILL_EVERY_S = (8.0, 30.0)
# Daemons are killed until this mark, and have one more to fill their memory before it is compared.
KILLS_UNTIL_MARK = 5
# Growth that is no leak: what allocators keep.
GROWTH_SHARE, GROWTH_MB = 0.05, 4.0
# What the attacker does in a second, at most.
PACKETS_PER_S = 4_000
CONNECTIONS_MAX = 64
# Packets that the attacker's tenant is shown in a second, at most.
SHOWN_PER_S = 200
ROLE = "THALWEG_FAILURES_ROLE"


class Daemon:
    """A daemon that is killed and started again at its address."""

    def __init__(self, program, role, arguments):
        self.metrics_address = f"127.0.0.1:{free_port()}"
        self.program, self.role = program, role
        self.arguments = [*arguments, "--metrics", self.metrics_address]
        self.process, self.address, self.lock = None, "127.0.0.1:0", threading.Lock()
        self.rss_kb = []
        self.start()

    def start(self):
        command = [self.program, self.role, "--bind", self.address, "--json", *self.arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)}: it does not start")
        with self.lock:
            self.process, self.address, self.started = process, json.loads(line)["address"], time.monotonic()

    def kill(self):
        with self.lock:
            process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdout.close()

    def sample(self, now):
        """Notes the resident memory, and how long the process has run. Raises where it has ended by itself."""
        with self.lock:
            if self.process is None:
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"the {self.role} has ended by itself, with {self.process.returncode}")
            try:
                status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            except OSError:
                return
            kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
            self.rss_kb.append((now, kb, now - self.started))

    def memory(self, began, seconds):
        """The resident memory at every mark, with the age of the process, and the most."""

        def at(moment):
            close = [sample for sample in self.rss_kb if sample[0] <= moment] or self.rss_kb[:1]
            mark = {"at_s": round(moment - began)}
            return {**mark, "rss_mb": round(close[-1][1] / 1024, 1), "age_s": round(close[-1][2])} if close else mark

        most = max((kb for _, kb, _ in self.rss_kb), default=0)
        marks = [at(began + seconds * mark / MARKS) for mark in range(1, MARKS + 1)]
        return {"marks": marks, "most_mb": round(most / 1024, 1)}

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def growth(self, began, seconds):
        """How much more memory it has in the last twelfth than in the one after the half, and if that is too much."""

        def median_mb(mark):
            start, end = (began + seconds * at / MARKS for at in (mark, mark + 1))
            inside = [kb for now, kb, _ in self.rss_kb if start <= now < end]
            return statistics.median(inside) / 1024 if inside else float("nan")

        half, end = median_mb(MARKS // 2), median_mb(MARKS - 1)
        # Without samples nothing is shown to be flat.
        is_flat = end <= half * (1 + GROWTH_SHARE) + GROWTH_MB
        return {"half_mb": round(half, 1), "end_mb": round(end, 1), "is_flat": is_flat}

    def metrics(self):
        """What it has counted by reason since it was started, without what is zero."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if "{reason=" in line]
        counts = ((line.rsplit(" ", 1)) for line in lines)
        return {name: int(count) for name, count in counts if count != "0"}


class Soak:
    def __init__(self, arguments):
        self.program, self.seed, self.seconds = str(arguments.program), arguments.seed, 60 * arguments.minutes
        self.attacker = str(arguments.attacker)
        self.over, self.is_whole = threading.Event(), True
        self.counts, self.failures, self.lock = collections.Counter(), [], threading.Lock()
        # The number of the job that each tenant has now, and packets of them for the attacker's tenant.
        self.current, self.shown = dict.fromkeys(TENANTS, 0), queue.Queue(maxsize=SHOWN_PER_S)
        self.folder = tempfile.TemporaryDirectory(prefix="thalweg-soak-")
        secret = str(pathlib.Path(self.folder.name) / "secret")
        subprocess.run([self.program, "secret", "new", "--out", secret], check=True, stdout=subprocess.DEVNULL)
        self.tokens = {name: self.token(secret, f"{name}-*") for name in (*TENANTS, "evil")}
        switch = ["--secret-file", secret, "--loss", str(arguments.loss), "--seed", str(self.seed)]
        self.switch = Daemon(self.program, "switch", switch)
        server = ["--secret-file", secret, "--require-token", "--switch", self.switch.address]
        self.server = Daemon(self.program, "server", server)
        self.began = time.monotonic()
        self.end = self.began + self.seconds

    def token(self, secret, jobs):
        command = [self.program, "token", "new", "--secret-file", secret, "--job", jobs, "--valid", "24h"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def count(self, **counts):
        with self.lock:
            self.counts.update(counts)

    def rank(self, job, rank, ranks, values, token, iterations=ITERATIONS):
        command = [self.program, "bench-rank", "--server", self.server.address, "--switch", self.switch.address]
        command += ["--token", token, "--job", job, "--rank", str(rank), "--ranks", str(ranks)]
        command += ["--values", str(values), "--iterations", str(iterations), "--collective", "aggregate"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tenant(self, name, values):
        """One job after the other, until time is over."""
        number = 0
        while not self.over.is_set():
            self.current[name] = number
            ranks = [self.rank(f"{name}-{number}", rank, RANKS, values, self.tokens[name]) for rank in range(RANKS)]
            ends = [rank.communicate() for rank in ranks]
            for rank, (process, (out, error)) in enumerate(zip(ranks, ends)):
                if process.returncode == 0 and json.loads(out)["exact"]:
                    self.count(sums_right=ITERATIONS + 1)
                elif process.returncode == 0:
                    self.count(sums_wrong=1)
                else:
                    lines = error.strip().splitlines() or ["no text"]
                    with self.lock:
                        self.failures.append(f"{name}-{number} rank {rank}: {lines[-1]}")
            self.count(jobs=1)
            number += 1

    def killer(self):
        draw, kills_end = random.Random(f"{self.seed} kills"), self.began + self.seconds * KILLS_UNTIL_MARK / MARKS
        while not self.over.wait(draw.uniform(*KILL_EVERY_S)) and time.monotonic() < kills_end:
            daemons = draw.choice([[self.switch], [self.server], [self.switch, self.server]])
            for daemon in daemons:
                daemon.kill()
                self.count(**{f"kills_{daemon.role}": 1})
            self.over.wait(draw.uniform(*AWAY_S))
            for daemon in daemons:
                daemon.start()

    def packets(self):
        """Random packets, and packets of the tenants once more, there or elsewhere, as they are or changed."""
        draw = random.Random(f"{self.seed} packets")
        sender, ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), listener()
        seen = collections.deque(maxlen=256)
        targets = [address_of(daemon.address) for daemon in (self.switch, self.server)]
        batch = PACKETS_PER_S // 50
        while not self.over.wait(0.02):
            for packet in captured(ear, {port for _, port in targets}):
                seen.append(packet)
                try:
                    self.shown.put_nowait(packet)
                except queue.Full:
                    pass  # It has enough of them.
            for _ in range(batch):
                packet, kind = self.packet(draw, seen)
                try:
                    sender.sendto(packet, draw.choice(targets))
                except OSError:
                    continue  # The other end is being started.
                self.count(**{kind: 1})

    @staticmethod
    def packet(draw, seen):
        if seen and draw.random() < 0.6:
            packet = bytearray(draw.choice(seen))
            if draw.random() < 0.5:
                return bytes(packet), "packets_replayed"
            for _ in range(1 + draw.randrange(4)):
                packet[draw.randrange(len(packet))] ^= 1 << draw.randrange(8)
            return bytes(packet[: draw.randrange(1, len(packet) + 1)]), "packets_changed"
        packet = bytearray(draw.randbytes(draw.randrange(0, 1_472)))
        if draw.random() < 0.7 and seen and len(packet) > 16:
            packet[:16] = draw.choice(seen)[:16].ljust(16, b"\0")
        return bytes(packet), "packets_random"

    def sealed(self):
        """A tenant with a job of its own, which seals what it sends with the key of that job."""
        role = f"tenant {self.server.address} {self.switch.address} {self.tokens['evil']} {self.seed}"
        command = [self.attacker, "roles::child", "--exact", "--nocapture"]
        tenant = subprocess.Popen(
            command, env={**os.environ, ROLE: role}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        reports = threading.Thread(target=self.hear, args=(tenant.stdout,))
        reports.start()
        while not self.over.wait(1):
            try:
                for _ in range(self.shown.qsize()):
                    print(self.shown.get_nowait().hex(), file=tenant.stdin)
                tenant.stdin.flush()
            except BrokenPipeError:
                break
        if not self.over.is_set():
            with self.lock:
                self.failures.append(f"the attacker's tenant ended by itself, with {tenant.wait()}")
        tenant.kill()
        tenant.wait()
        reports.join()

    def hear(self, reports):
        for line in reports:
            if line.startswith("@sent "):
                jobs, packets = (int(number) for number in line.split()[1:])
                with self.lock:
                    self.counts["sealed_jobs"], self.counts["packets_sealed"] = jobs, packets

    def connections(self):
        draw = random.Random(f"{self.seed} connections")
        lines = [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff", bytes(500), b""]
        held = collections.deque()
        while not self.over.wait(0.05):
            try:
                connection = socket.create_connection(address_of(self.server.address), timeout=1)
                connection.sendall(draw.choice(lines))
            except OSError:
                continue
            self.count(connections=1)
            held.append(connection)
            if len(held) > CONNECTIONS_MAX:
                held.popleft().close()
        while held:
            held.popleft().close()

    def registrations(self):
        """Ranks of its own jobs, alone or waiting for others, and of the tenants' jobs, with its token and a wrong one."""
        draw, number = random.Random(f"{self.seed} registrations"), 0
        while not self.over.is_set():
            token = self.tokens["evil"] if draw.random() < 0.8 else "wrong"
            name = draw.choice([f"evil-{number}", f"evil-{number}", *(f"{name}-{at}" for name, at in self.current.items())])
            ranks = draw.choice([1, draw.randrange(2, 4_000)])
            rank = self.rank(name, 0, ranks, 100, token, 1_000_000)
            self.over.wait(draw.uniform(0.5, 2.0))
            rank.kill()
            rank.communicate()
            self.count(registrations=1)
            number += 1

    def disturbers(self):
        return self.killer, self.packets, self.sealed, self.connections, self.registrations

    def run(self):
        work = [threading.Thread(target=self.tenant, args=tenant) for tenant in TENANTS.items()]
        work += [threading.Thread(target=t) for t in self.disturbers()]
        [thread.start() for thread in work]
        try:
            while (now := time.monotonic()) < self.end:
                self.switch.sample(now)
                self.server.sample(now)
                if int(now - self.began) % 60 == 0:
                    print(f"soak: {now - self.began:.0f} s, {dict(self.counts)}", file=sys.stderr)
                time.sleep(1)
        except KeyboardInterrupt:
            self.seconds, self.is_whole = time.monotonic() - self.began, False
        except RuntimeError as error:
            self.failures.append(str(error))
        finally:
            self.over.set()
            [thread.join() for thread in work]
        return self.document()

    def document(self):
        counts = {name: self.counts[name] for name in sorted(self.counts)}
        right, wrong = counts.pop("sums_right", 0), counts.pop("sums_wrong", 0)
        daemons = (self.switch, self.server)
        memory = {daemon.role: daemon.memory(self.began, self.seconds) for daemon in daemons}
        if self.is_whole:
            for daemon in daemons:
                growth = memory[daemon.role]["growth"] = daemon.growth(self.began, self.seconds)
                if not growth["is_flat"]:
                    self.failures.append(f"the memory of the {daemon.role} grows: {growth}")
            if not counts.get("packets_sealed"):
                self.failures.append("the attacker had no job to seal packets with")
        result = {"seed": self.seed, "seconds": round(self.seconds), "sums_right": right, "sums_wrong": wrong}
        reasons = {daemon.role: daemon.metrics() for daemon in daemons if daemon.is_running()}
        return {**result, "failures": self.failures, "counts": counts, "memory": memory, "reasons": reasons}

    def stop(self):
        self.over.set()
        self.switch.kill()
        self.server.kill()
        self.folder.cleanup()


def newest_attacker():
    """The test program `hostile` that was built last."""
    found = [path for path in ROOT.glob("target/*/deps/hostile-*") if path.suffix == "" and os.access(path, os.X_OK)]
    return max(found, key=lambda path: path.stat().st_mtime, default=ROOT / "target" / "debug" / "deps" / "hostile")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def listener():
    """A socket that gets packets of the loopback interface; none without the right to it."""
    try:
        ear = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        ear.bind(("lo", 0x0800))
    except OSError:
        print("soak: packets cannot be read without root: none are replayed", file=sys.stderr)
        return None
    ear.setblocking(False)
    return ear


def captured(ear, ports):
    """A few UDP payloads that were sent to these ports."""
    for _ in range(64 if ear is not None else 0):
        try:
            packet = ear.recv(65_535)
        except BlockingIOError:
            return
        header = 4 * (packet[0] & 15)
        is_udp = len(packet) > header + 8 + 64 and packet[9] == socket.IPPROTO_UDP
        if is_udp and int.from_bytes(packet[header + 2 : header + 4], "big") in ports:
            # What the kernel has not cut into datagrams yet is more than one of them.
            yield packet[header + 8 :][:1_472]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loss", type=float, default=0.01, help="share of the packets that the switch loses")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target" / "release" / "thalweg")
    parser.add_argument("--attacker", type=pathlib.Path, default=newest_attacker(), help="the test program hostile")
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"soak: {arguments.program} is not there: run `cargo build --release`, or give --program")
    if not os.access(arguments.attacker, os.X_OK):
        sys.exit("soak: the attacker is not there: run `cargo test -p thalweg --test hostile --no-run`, or give --attacker")
    soak = Soak(arguments)
    try:
        document = soak.run()
    finally:
        soak.stop()
    print(json.dumps(document, indent=2))
    sys.exit(1 if document["sums_wrong"] or document["failures"] else 0)


if __name__ == "__main__":
    main()
