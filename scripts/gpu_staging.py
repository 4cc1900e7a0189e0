#!/usr/bin/env python3
"""Tensors in GPU memory with the backend of PyTorch: results, streams, and times beside tensors in main memory.

    python3 scripts/gpu_staging.py                       # two ranks on one GPU
    python3 scripts/gpu_staging.py --ranks 4 --network   # without shared memory: ranks sum over loopback
    python3 scripts/gpu_staging.py --mb 64 --pieces-mb 1 4 8 64 --json

Ranks share the GPUs of this machine. With several ranks on one GPU, start NVIDIA's MPS first
(`nvidia-cuda-mps-control -d`), or the time slices of the GPU hide the rest. Settings of the backend come from the
environment (THALWEG_SERVER, THALWEG_SWITCH and so on). The program ends with 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import sys
import time
import typing

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import thalweg.torch
from thalweg.torch.staging import PIECE_BYTES

TYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
)
# Cycles of a GPU that make a stream late: a few milliseconds.
LATE_CYCLES = 5_000_000
# The same for a call that must not wait for it: some tenths of a second.
VERY_LATE_CYCLES = 500_000_000
# Longest time of a call that does not wait.
AT_ONCE_S = 0.1


class Trial:
    """One rank: makes tensors that are late on their stream, calls operations, and compares on that stream."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.streams = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(3))]
        # The same order at all ranks.
        self.draw = random.Random(1)
        self.wrong: list[str] = []
        self.checks = 0

    def values(self, count: int, kind: torch.dtype, rank: int) -> torch.Tensor:
        """Values that every rank can compute, small enough for exact sums."""
        found = (torch.arange(count, device="cuda") * 7 + rank) % 5
        return found > 2 if kind == torch.bool else found.to(kind)

    def late(self, values: torch.Tensor) -> torch.Tensor:
        """A tensor that has its values only after a while on the current stream."""
        tensor = torch.empty_like(values).fill_(1)
        torch.cuda._sleep(LATE_CYCLES)
        return tensor.copy_(values)

    def check(self, name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        """Compares on the current stream, as a program would use the result."""
        self.checks += 1
        is_equal = torch.equal(found, expected)
        if not is_equal:
            at = (found != expected).flatten().nonzero()[:3].flatten().tolist()
            self.wrong.append(f"{name}: {tuple(found.shape)} of {found.dtype}, wrong at {at}")

    def check_close(self, name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        """The same where sums are rounded."""
        is_close = torch.isclose(found, expected, rtol=1e-3, atol=1e-5)
        self.check(name, is_close, torch.ones_like(is_close))

    def operations(self, count: int, kind: torch.dtype) -> None:
        """Every operation that is cut into pieces, started together, each on a stream of its own."""
        own = self.values(count, kind, self.rank)
        every = [self.values(count, kind, rank) for rank in range(self.ranks)]
        total = self.total(every, kind)
        torch.cuda.synchronize()
        begun = []
        gathers = (self.all_gather, self.gather_one)
        for call in (self.all_reduce, self.broadcast, *gathers, self.reduce_scatter, self.message):
            stream = self.draw.choice(self.streams)
            with torch.cuda.stream(stream):
                begun.append((call.__name__, stream, *call(own, every, total)))
        self.draw.shuffle(begun)
        for name, stream, work, found, expected in begun:
            with torch.cuda.stream(stream):
                work.wait()
                self.check(name, found, expected)

    def total(self, every: list[torch.Tensor], kind: torch.dtype) -> torch.Tensor:
        """The sum of all ranks, of bool the "or"."""
        return torch.stack(every).any(0) if kind == torch.bool else torch.stack(every).sum(0).to(kind)

    def all_reduce(self, own, every, total):
        tensor = self.late(own)
        return dist.all_reduce(tensor, async_op=True), tensor, total

    def broadcast(self, own, every, total):
        tensor, root = self.late(own), self.ranks - 1
        return dist.broadcast(tensor, root, async_op=True), tensor, every[root]

    def all_gather(self, own, every, total):
        outputs = torch.stack([torch.zeros_like(own) for _ in every])
        work = dist.all_gather(list(outputs.unbind()), self.late(own), async_op=True)
        return work, outputs, torch.stack(every)

    def gather_one(self, own, every, total):
        output = torch.zeros(own.numel() * self.ranks, dtype=own.dtype, device="cuda")
        return dist.all_gather_into_tensor(output, self.late(own), async_op=True), output, torch.cat(every)

    def reduce_scatter(self, own, every, total):
        output = torch.zeros_like(own)
        # The input is dropped before it is used: its memory must not be given away meanwhile.
        return dist.reduce_scatter_tensor(output, self.late(own.repeat(self.ranks)), async_op=True), output, total

    def message(self, own, every, total):
        came = torch.zeros_like(own)
        sent = dist.isend(self.late(own), (self.rank + 1) % self.ranks)
        work = dist.irecv(came, (self.rank - 1) % self.ranks)
        sent.wait()
        return work, came, every[(self.rank - 1) % self.ranks]

    def turned(self) -> None:
        """A tensor that is not contiguous, and means."""
        given = self.values(3 * 1_000_003, torch.float32, self.rank).view(3, -1).t()
        expected = sum(self.values(3 * 1_000_003, torch.float32, rank) for rank in range(self.ranks))
        tensor = given.clone(memory_format=torch.preserve_format)
        assert not tensor.is_contiguous()
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        mean = (expected / self.ranks).view(3, -1).t()
        self.check_close("all_reduce of a transposed tensor", tensor, mean)
        work = thalweg.torch.thalweg_group().all_reduce_bounded(given.contiguous(), 0.0)
        self.check_close("all_reduce_bounded", work.get_future().wait(), mean)

    def beside_the_host(self) -> None:
        """Calls on tensors of both memories alternate, and have one order."""
        tensors = [torch.full((2_000_003,), float(at), device="cuda" if at % 2 else "cpu") for at in range(8)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for at, work in reversed(list(enumerate(works))):
            work.wait()
            self.check("alternating memories", tensors[at], torch.full_like(tensors[at], float(at * self.ranks)))

    def returns_at_once(self) -> float:
        """Seconds of a call whose tensor is very late."""
        tensor = torch.ones(1_000_003, device="cuda")
        torch.cuda.synchronize()
        torch.cuda._sleep(VERY_LATE_CYCLES)
        tensor.fill_(2.0)
        began = time.perf_counter()
        work = dist.all_reduce(tensor, async_op=True)
        took = time.perf_counter() - began
        if took > AT_ONCE_S or work.is_completed():
            self.wrong.append(f"a call on a late tensor took {took:.3f} s, and should return at once")
        work.wait()
        self.check("late all_reduce", tensor, torch.full_like(tensor, 2.0 * self.ranks))
        return took

    def training(self) -> None:
        """DDP: the same parameters at all ranks, which are those of one process that has all data."""
        data = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)).cuda()
        models = []
        for is_distributed in (True, False):
            torch.manual_seed(0)
            layers = torch.nn.Linear(256, 2_048), torch.nn.ReLU(), torch.nn.Linear(2_048, 256)
            model = torch.nn.Sequential(*layers).cuda()
            trained = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1) if is_distributed else model
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            batch = data.chunk(self.ranks)[self.rank] if is_distributed else data
            for _ in range(5):
                optimizer.zero_grad()
                trained(batch).square().mean().backward()
                optimizer.step()
            models.append([parameter.detach() for parameter in model.parameters()])
        for found, expected in zip(*models):
            gathered = [torch.empty_like(found) for _ in range(self.ranks)]
            dist.all_gather(gathered, found)
            for other in gathered:
                self.check("parameters of all ranks", other, found)
            self.check_close("training", found, expected)


def time_ms(tensor: torch.Tensor, iterations: int, call: typing.Callable[[torch.Tensor], object]) -> float:
    """Median time of the slowest rank."""
    times = []
    for _ in range(iterations + 1):
        tensor.fill_(1.0)
        dist.barrier()
        torch.cuda.synchronize()
        began = time.perf_counter()
        call(tensor)
        torch.cuda.synchronize()
        took = torch.tensor((time.perf_counter() - began) * 1e3)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        times.append(took.item())
    return statistics.median(times[1:])


def staged_whole(group: typing.Any) -> typing.Callable[[torch.Tensor], object]:
    """The former way: a pinned copy of the tensor by the caller, a sum of main memory, and a copy back."""
    kept: dict[int, torch.Tensor] = {}

    def call(tensor: torch.Tensor) -> None:
        host = kept.setdefault(tensor.numel(), torch.empty_like(tensor, device="cpu").pin_memory())
        host.copy_(tensor)
        dist.all_reduce(host, group=group)
        tensor.copy_(host)

    return call


def times(options: argparse.Namespace) -> list[dict[str, object]]:
    rows = []
    for mb in options.mb:
        values = round(mb * (1 << 18))
        on_gpu, on_host = torch.empty(values, device="cuda"), torch.empty(values)
        row: dict[str, object] = {"mb": mb, "ranks": dist.get_world_size()}
        row["host_ms"] = time_ms(on_host, options.iterations, dist.all_reduce)
        row["gpu_whole_ms"] = time_ms(on_gpu, options.iterations, staged_whole(None))
        for piece in options.pieces_mb:
            given = thalweg.torch.Options(gpu_piece_bytes=round(piece * (1 << 20)))
            group = dist.new_group(backend="thalweg", pg_options=given)
            row[f"gpu_{piece:g}_mb_pieces_ms"] = time_ms(
                on_gpu, options.iterations, lambda tensor: dist.all_reduce(tensor, group=group)
            )
            dist.destroy_process_group(group)
        rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    return rows


def run_rank(rank: int, options: argparse.Namespace, port: int, answers: typing.Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if options.network:
        os.environ["THALWEG_SHARE_MEMORY"] = "0"
    torch.set_num_threads(1)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("thalweg", rank=rank, world_size=options.ranks)
    trial = Trial(rank, options.ranks)
    late_s = trial.returns_at_once()
    piece = PIECE_BYTES // 4
    for count in (1, 3, 1_023, piece // 3, piece - 1, piece + 1, 3 * piece + 17):
        for kind in TYPES:
            trial.operations(count, kind)
    trial.turned()
    trial.beside_the_host()
    trial.training()
    rows = times(options) if options.mb else []
    torch.cuda.synchronize()
    answers.put((rank, trial.checks, trial.wrong[:20], late_s, rows))
    dist.destroy_process_group()


def main() -> int:
    """The program."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--network", action="store_true", help="ranks of one host do not combine in memory first")
    arguments.add_argument("--mb", type=float, nargs="*", default=[1, 16, 64], help="MiB of the tensors that are timed")
    arguments.add_argument("--pieces-mb", type=float, nargs="+", default=[1, 4, 8], help="MiB of a piece")
    arguments.add_argument("--iterations", type=int, default=9)
    arguments.add_argument("--json", action="store_true", help="print one JSON document")
    options = arguments.parse_args()
    if not torch.cuda.is_available():
        arguments.error("PyTorch finds no GPU here")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answers = mp.get_context("spawn").SimpleQueue()
    mp.spawn(run_rank, (options, port, answers), options.ranks)
    found = sorted(answers.get() for _ in range(options.ranks))
    wrong = [f"rank {rank}: {text}" for rank, _, texts, _, _ in found for text in texts]
    document = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "checks": sum(checks for _, checks, _, _, _ in found),
        "wrong": wrong,
        "late_call_ms": round(max(late_s for _, _, _, late_s, _ in found) * 1e3, 3),
        "times": found[0][4],
    }
    if options.json:
        print(json.dumps(document))
    else:
        print(f"torch {document['torch']}, {document['gpu']}: {document['checks']} comparisons, {len(wrong)} wrong")
        print(f"a call on a tensor that is late returned after {document['late_call_ms']} ms")
        print("\n".join([*wrong, *(json.dumps(row) for row in found[0][4])]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
