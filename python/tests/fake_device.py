"""A device without hardware: its streams copy when a test, or a thread at random, lets them."""

from __future__ import annotations

import collections
import ctypes
import queue
import random
import threading
import time
import typing

import torch

from thalweg.torch import device as devices


class FakeEvent:
    """Done when its stream has come to it."""

    def __init__(self) -> None:
        self._done = threading.Event()

    def wait(self) -> None:
        self._done.wait()

    def is_done(self) -> bool:
        return self._done.is_set()

    def set(self) -> None:
        self._done.set()


class FakeStream:
    """Work in order. An event in it is one that it waits for."""

    def __init__(self) -> None:
        self.work: collections.deque[typing.Any] = collections.deque()

    def step(self) -> bool:
        """Does the first thing. False if it has nothing to do, or waits for an event that is not done."""
        if not self.work or isinstance(self.work[0], FakeEvent) and not self.work[0].is_done():
            return False
        first = self.work.popleft()
        if not isinstance(first, FakeEvent):
            first()
        return True

    def run(self) -> None:
        """Does all that it can."""
        while self.step():
            pass

    def mark(self) -> FakeEvent:
        event = FakeEvent()
        self.work.append(event.set)
        return event


class FakeDevice:
    """Owns every tensor while it is enabled. Tensors are in main memory, and only streams change those of results."""

    def __init__(self) -> None:
        self.is_enabled = True
        self.current, self.out, self.back = FakeStream(), FakeStream(), FakeStream()
        self.pinned_bytes: list[int] = []
        self.fails: Exception | None = None

    def device_of(self, tensors: typing.Iterable[torch.Tensor]) -> FakeDevice | None:
        return self if self.is_enabled and any(True for _ in tensors) else None

    def owns(self, tensor: torch.Tensor) -> bool:
        return True

    def pinned(self, length: int) -> torch.Tensor:
        self.pinned_bytes.append(length)
        return torch.full((length,), 0xAA, dtype=torch.uint8)

    def mark(self) -> FakeEvent:
        return self.current.mark()

    def copy_out(self, copies: list[devices.Copy], after: FakeEvent) -> FakeEvent:
        if self.fails is not None:
            raise self.fails
        self.out.work.append(after)
        return self._copied(self.out, copies)

    def copy_back(self, copies: list[devices.Copy]) -> FakeEvent:
        return self._copied(self.back, copies)

    def _copied(self, stream: FakeStream, copies: list[devices.Copy]) -> FakeEvent:
        for source, target in copies:
            stream.work.append(lambda source=source, target=target: target.copy_(source))
        return stream.mark()

    def follow(self, event: FakeEvent) -> None:
        self.current.work.append(event)

    def keep(self, tensor: torch.Tensor) -> None:
        pass

    def future_devices(self) -> list[typing.Any]:
        return []

    def synchronize(self) -> None:
        """Waits for the current stream, as a program does before it reads a tensor."""
        self.mark().wait()

    def run_at_random(self, seed: int) -> None:
        """Does the work of all streams by a thread, from now on."""
        draw = random.Random(seed)

        def run() -> None:
            while True:
                stream = draw.choice((self.current, self.out, self.back))
                if not stream.step() or draw.random() < 0.2:
                    time.sleep(draw.random() * 5e-4)

        threading.Thread(target=run, daemon=True).start()


class FakeSession:
    """A session whose operations begin in an order that a test reads, and end when it says."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, tuple[int, int]]] = []
        self.ends: queue.Queue[typing.Any] = queue.Queue()
        self.elements: list[str] = []
        #: Bytes of each rank's part of a gather or scatter.
        self.parts: list[list[int]] = []
        self.reason: str | None = None

    def settings(self) -> dict[str, object]:
        return {"stall_after": 5.0}

    def next(self, timeout_s: float) -> object:
        try:
            return self.ends.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def take_notes(self) -> list[typing.Any]:
        return []

    def abort(self, reason: str) -> None:
        self.reason = reason

    def leave(self, limit_s: float | None = None) -> bool:
        return True

    def all_reduce(self, memory: tuple[int, int], element: str, *_: object, **__: object) -> int:
        self.elements.append(element)
        return self._begin("all_reduce", memory)

    def all_gather(self, memory: tuple[int, int], outputs: list[tuple[int, int]], element: object) -> int:
        self.parts.append([length for _, length in outputs])
        return self._begin("all_gather", memory)

    def reduce_scatter(self, memory: tuple[int, int], output: tuple[int, int], counts: list[int], *_: object) -> int:
        self.parts.append([output[1]] * len(counts))
        return self._begin("reduce_scatter", memory)

    def receive(self, source: int, tag: int, memory: tuple[int, int], element: object) -> int:
        return self._begin("receive", memory)

    def barrier(self) -> int:
        return self._begin("barrier", (0, 0))

    def _begin(self, name: str, memory: tuple[int, int]) -> int:
        self.begun.append((name, memory))
        return len(self.begun) - 1

    def values(self, number: int) -> list[float]:
        """Values of float32 that an operation works on."""
        address, length = self.begun[number][1]
        return list((ctypes.c_float * (length // 4)).from_address(address))

    def end(self, number: int, factor: float = 2.0, failure: object = None) -> None:
        """Ends an operation, whose result is its values times a factor."""
        address, length = self.begun[number][1]
        memory = (ctypes.c_float * (length // 4)).from_address(address) if length else []
        for at in range(len(memory)):
            memory[at] *= factor
        self.ends.put((number, failure, [], None))
