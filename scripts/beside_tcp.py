#!/usr/bin/env python3
"""Share of a real link: an aggregation job beside one TCP connection, in a lab of four hosts.

    cargo build --release
    sudo target/release/thalweg lab --hosts 4 --rate 100mbit --per-packet --daemons -- \\
        python3 scripts/beside_tcp.py --window delay

Runs on every host of the lab. Hosts 0, 1 and 2 sum tensors; host 3 sends to host 0 over TCP, with the congestion
control of the kernel, until the job ends. Host 0 prints the job's share of the bytes that both brought to it from the
first sum to the last. 50% is fair. With --alone nothing is sent beside it.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import threading
import time

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "thalweg"
RANKS = 3
SENDER = 3
PORT = 5201
CHUNK_BYTES = 65_536
# Values of a packet of the job, and the bytes that it occupies of the link beside them.
PACKET_VALUES, OVERHEAD_BYTES = 352, 130
# Headers of a full TCP segment on Ethernet, and what it carries.
TCP_FRAME_BYTES, TCP_PAYLOAD_BYTES = 1_538, 1_448


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", default="delay", help="window of the job (default: delay)")
    parser.add_argument("--mb", type=int, default=2, help="MiB of a tensor (default: 2)")
    parser.add_argument("--iterations", type=int, default=12, help="tensors to sum (default: 12)")
    parser.add_argument("--alone", action="store_true", help="send nothing beside the job")
    arguments = parser.parse_args()
    if "THALWEG_LAB_RANK" not in os.environ or "THALWEG_SERVER" not in os.environ:
        parser.error("this runs on the hosts of a lab: see --help for the command")
    if not PROGRAM.exists():
        parser.error(f"there is no {PROGRAM}: run cargo build --release first")
    rank = int(os.environ["THALWEG_LAB_RANK"])
    if rank == SENDER:
        if not arguments.alone:
            send_until_closed()
    elif rank == 0:
        measure(arguments)
    else:
        run_rank(arguments, rank)


def measure(arguments):
    """Runs rank 0 beside a receiver, and prints the share."""
    receiver = None if arguments.alone else Receiver()
    if receiver:
        receiver.wait_for_sender()
    report = run_rank(arguments, 0)
    spans_ms = report["spans_ms"]
    line = f"{arguments.window}: a tensor takes {statistics.median(report['times_ms']):.0f} ms"
    if receiver:
        receiver.close()
        values = arguments.mb * 2**20 // 4
        packets = -(-values // PACKET_VALUES) * len(spans_ms)
        job_bytes = values * 4 * len(spans_ms) + packets * OVERHEAD_BYTES
        tcp_bytes = receiver.bytes_between(spans_ms[0][0], spans_ms[-1][1]) * TCP_FRAME_BYTES / TCP_PAYLOAD_BYTES
        line += f" beside TCP; the job has {job_bytes / (job_bytes + tcp_bytes):.0%} of the bytes of both"
    print(line, flush=True)


def run_rank(arguments, rank):
    command = [PROGRAM, "bench-rank", "--collective", "aggregate", "--job", "beside-tcp"]
    command += ["--server", os.environ["THALWEG_SERVER"], "--switch", os.environ["THALWEG_SWITCH"]]
    command += ["--token", os.environ["THALWEG_TOKEN"], "--rank", str(rank), "--ranks", str(RANKS)]
    command += ["--values", str(arguments.mb * 2**20 // 4), "--iterations", str(arguments.iterations)]
    command += ["--window", arguments.window]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


class Receiver:
    """Takes in what the sender sends, and remembers when."""

    def __init__(self):
        self.arrivals = []
        self.listener = socket.create_server((os.environ["THALWEG_LAB_ADDR"], PORT))
        self.connection = None

    def wait_for_sender(self):
        self.connection, _ = self.listener.accept()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        try:
            while chunk := self.connection.recv(CHUNK_BYTES):
                self.arrivals.append((time.time() * 1e3, len(chunk)))
        except OSError:
            pass  # It was closed.

    def bytes_between(self, begin_ms, end_ms):
        return sum(size for at_ms, size in list(self.arrivals) if begin_ms <= at_ms <= end_ms)

    def close(self):
        self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self.listener.close()


def send_until_closed():
    chunk = bytes(CHUNK_BYTES)
    with connect() as connection:
        try:
            while True:
                connection.sendall(chunk)
        except OSError:
            pass  # The job has ended.


def connect(patience_s=10):
    """Host 0 may not listen yet."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], PORT))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
