"""Devices whose memory the host reaches by copies, and the streams that copy."""

from __future__ import annotations

import collections.abc
import functools
import typing

import torch

# What is copied, and the memory that it is copied to.
Copy = tuple[torch.Tensor, torch.Tensor]


class Event(typing.Protocol):
    """A point in the work that a stream has queued."""

    def wait(self) -> None:
        """Blocks until the work before it is done."""

    def is_done(self) -> bool:
        """Returns true if the work before it is done."""


class Device(typing.Protocol):
    """A device with two streams of its own: one copies to the host, one back. No method waits for the device.

    The streams are apart, since copies to the host wait for work of the program, and results must not wait for those.
    """

    def owns(self, tensor: torch.Tensor) -> bool:
        """Returns true if the tensor is in its memory."""

    def pinned(self, length: int) -> torch.Tensor:
        """Allocates bytes of the host that a stream copies from and to by itself."""

    def mark(self) -> Event:
        """Marks the work that the current stream has queued so far."""

    def copy_out(self, copies: list[Copy], after: Event) -> Event:
        """Queues copies to the host, after an event of another stream."""

    def copy_back(self, copies: list[Copy]) -> Event:
        """Queues copies to the device."""

    def follow(self, event: Event) -> None:
        """Lets what the current stream queues from now on run after an event."""

    def keep(self, tensor: torch.Tensor) -> None:
        """Keeps the memory of a tensor that is freed until both streams have done what they have queued by then."""

    def future_devices(self) -> list[int | str | torch.device]:
        """Devices of a future whose result is in its memory."""


class _CudaEvent:
    """An event of CUDA. Its wait blocks in the driver, and does not spin."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event = torch.cuda.Event(blocking=True)
        self.event.record(stream)

    def wait(self) -> None:
        self.event.synchronize()

    def is_done(self) -> bool:
        return bool(self.event.query())


class Cuda:
    """A GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._out = torch.cuda.Stream(device)
        self._back = torch.cuda.Stream(device)

    def owns(self, tensor: torch.Tensor) -> bool:
        return tensor.device == self._device

    def pinned(self, length: int) -> torch.Tensor:
        with torch.cuda.device(self._device):
            return torch.empty(length, dtype=torch.uint8, pin_memory=True)

    def mark(self) -> Event:
        return _CudaEvent(torch.cuda.current_stream(self._device))

    def copy_out(self, copies: list[Copy], after: Event) -> Event:
        self._out.wait_event(typing.cast(_CudaEvent, after).event)
        return _copied(self._out, copies)

    def copy_back(self, copies: list[Copy]) -> Event:
        return _copied(self._back, copies)

    def follow(self, event: Event) -> None:
        torch.cuda.current_stream(self._device).wait_event(typing.cast(_CudaEvent, event).event)

    def keep(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(self._out)
        tensor.record_stream(self._back)

    def future_devices(self) -> list[int | str | torch.device]:
        return [self._device]


def _copied(stream: torch.cuda.Stream, copies: list[Copy]) -> Event:
    with torch.no_grad(), torch.cuda.stream(stream):
        for source, target in copies:
            target.copy_(source, non_blocking=True)
        return _CudaEvent(stream)


def device_of(tensors: collections.abc.Iterable[torch.Tensor]) -> Device | None:
    """The device of all tensors. ``None`` for tensors of the host, and for tensors of several devices."""
    found: Device | None = None
    for tensor in tensors:
        if tensor.is_cpu or found is not None and not found.owns(tensor):
            return None
        found = found or _cuda(tensor.device)
    return found


# One for all groups: a process has few streams that run at once.
@functools.cache
def _cuda(device: torch.device) -> Device:
    return Cuda(device)
