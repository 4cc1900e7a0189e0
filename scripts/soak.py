#!/usr/bin/env python3
"""Two tenants' jobs for an hour, while daemons are killed and somebody attacks.

    cargo build --release && python3 scripts/soak.py [--minutes 60] [--seed 1] [--loss 0.01] [--program target/release/thalweg]

Starts a switch that loses packets and a server, both on 127.0.0.1, and two tenants, each with one job of three processes
after the other (`thalweg bench-rank`, which checks every sum). At times drawn from the seed the switch, the server or both
are killed and started again. An attacker sends random and replayed packets to both, opens connections that say nothing or
nonsense, and registers jobs that never come together, at bounded rates. Replays need the right to read packets of the
loopback interface, which root has; without it there are none.

Prints one JSON document: sums that were right and wrong, jobs that failed, kills, what the attacker did, and the resident
memory of both daemons after a tenth of the time, at the end, and at most. Progress is on standard error. Ends by itself, with
exit code 1 if a sum was wrong or a job failed. Ctrl-C ends it early.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = "soak-token"
RANKS = 3
TENANTS = {"alice": 60_000, "bob": 20_000}
ITERATIONS = 1_500
# A rank gives up a server after 10 s.
AWAY_S = (0.2, 2.5)
KILL_EVERY_S = (8.0, 30.0)
# What the attacker does in a second, at most.
PACKETS_PER_S = 4_000
CONNECTIONS_MAX = 64


class Daemon:
    """A daemon that is killed and started again at its address."""

    def __init__(self, program, role, arguments):
        self.program, self.role, self.arguments = program, role, arguments
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
        """Notes the resident memory, and how long the process has run."""
        with self.lock:
            if self.process is None:
                return
            try:
                status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            except OSError:
                return
            kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
            self.rss_kb.append((now, kb, now - self.started))

    def memory(self, began, seconds):
        def at(moment):
            close = [sample for sample in self.rss_kb if sample[0] <= moment] or self.rss_kb[:1]
            return {"rss_mb": round(close[-1][1] / 1024, 1), "age_s": round(close[-1][2], 1)} if close else None

        most = max((kb for _, kb, _ in self.rss_kb), default=0)
        return {"at_tenth": at(began + seconds / 10), "at_end": at(began + seconds), "most_mb": round(most / 1024, 1)}


class Soak:
    def __init__(self, arguments):
        self.program, self.seed, self.seconds = str(arguments.program), arguments.seed, 60 * arguments.minutes
        self.over = threading.Event()
        self.counts, self.failures, self.lock = collections.Counter(), [], threading.Lock()
        self.switch = Daemon(self.program, "switch", ["--loss", str(arguments.loss), "--seed", str(self.seed)])
        server = ["--switch", self.switch.address, "--token", TOKEN]
        self.server = Daemon(self.program, "server", server)
        self.began = time.monotonic()
        self.end = self.began + self.seconds

    def count(self, **counts):
        with self.lock:
            self.counts.update(counts)

    def rank(self, job, rank, ranks, values, token=TOKEN, iterations=ITERATIONS):
        command = [self.program, "bench-rank", "--server", self.server.address, "--switch", self.switch.address]
        command += ["--token", token, "--job", job, "--rank", str(rank), "--ranks", str(ranks)]
        command += ["--values", str(values), "--iterations", str(iterations), "--collective", "aggregate"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tenant(self, name, values):
        """One job after the other, until time is over."""
        number = 0
        while not self.over.is_set():
            ranks = [self.rank(f"{name}-{number}", rank, RANKS, values) for rank in range(RANKS)]
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
        draw = random.Random(f"{self.seed} kills")
        while not self.over.wait(draw.uniform(*KILL_EVERY_S)):
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
            seen.extend(captured(ear, {port for _, port in targets}))
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
        """Ranks of jobs that never come together, with the token and without."""
        draw, number = random.Random(f"{self.seed} registrations"), 0
        while not self.over.is_set():
            token = TOKEN if draw.random() < 0.7 else "wrong"
            name = draw.choice([f"evil-{number}", "alice-0", "bob-0"]) if token != TOKEN else f"evil-{number}"
            rank = self.rank(name, 0, draw.randrange(2, 4_000), 100, token, 1)
            self.over.wait(draw.uniform(0.5, 2.0))
            rank.kill()
            rank.communicate()
            self.count(registrations=1)
            number += 1

    def run(self):
        work = [threading.Thread(target=self.tenant, args=tenant) for tenant in TENANTS.items()]
        work += [threading.Thread(target=t) for t in (self.killer, self.packets, self.connections, self.registrations)]
        [thread.start() for thread in work]
        try:
            while (now := time.monotonic()) < self.end:
                self.switch.sample(now)
                self.server.sample(now)
                if int(now - self.began) % 60 == 0:
                    print(f"soak: {now - self.began:.0f} s, {dict(self.counts)}", file=sys.stderr)
                time.sleep(1)
        except KeyboardInterrupt:
            self.seconds = time.monotonic() - self.began
        finally:
            self.over.set()
            [thread.join() for thread in work]
            for daemon in (self.switch, self.server):
                daemon.sample(time.monotonic())
        return self.document()

    def document(self):
        counts = {name: self.counts[name] for name in sorted(self.counts)}
        right, wrong = counts.pop("sums_right", 0), counts.pop("sums_wrong", 0)
        memory = {daemon.role: daemon.memory(self.began, self.seconds) for daemon in (self.switch, self.server)}
        result = {"seed": self.seed, "seconds": round(self.seconds), "sums_right": right, "sums_wrong": wrong}
        return {**result, "failures": self.failures, "counts": counts, "memory": memory}

    def stop(self):
        self.over.set()
        self.switch.kill()
        self.server.kill()


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
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"soak: {arguments.program} is not there: run `cargo build --release`, or give --program")
    soak = Soak(arguments)
    try:
        document = soak.run()
    finally:
        soak.stop()
    print(json.dumps(document, indent=2))
    sys.exit(1 if document["sums_wrong"] or document["failures"] else 0)


if __name__ == "__main__":
    main()
