"""Gradients that lose packets, as on a network that may lose a part of them."""

from __future__ import annotations

import typing

import torch
from torch import nn

# Values of a packet, as the transport cuts tensors.
PACKET_VALUES = 352
# How the transport finds its threshold: from one packet in `_SAMPLE_EVERY`, and from `_LEAST_SAMPLE` at least.
_SAMPLE_EVERY, _LEAST_SAMPLE = 20, 16

# Which packets may be lost, and which of them first.
Mode = typing.Literal["random", "importance", "small", "large"]


class Drop:
    """Loses packets of gradients: their values become zero, in place.

    Call it for every gradient of every worker, before gradients are averaged::

        drop(parameter.grad, tensor=name, worker=worker)

    or ``drop.model(model, worker)`` for all gradients of a model. Every tensor is cut into packets of
    `packet_values` values. Each worker loses packets of its own, and of each tensor the share `loss`: to
    the packet in the course of the rounds, since a tensor of few packets cannot lose a tenth of them at once.

    A packet is small if the mean magnitude of its values is not above the median of such means in a sample
    of 5% of the tensor's packets, else large: the rule by which the transport tells important packets. What
    is lost, and what `loss` is a share of, depends on the mode:

    - ``random``: all packets alike.
    - ``importance``: small packets, at random among these, and large ones only when no small one is left.
    - ``small``, ``large``: only these, and `loss` is the share of these.

    With `layers`, only tensors of these modules lose anything (``"fc1"`` has ``"fc1.weight"``).
    """

    def __init__(
        self,
        loss: float,
        mode: Mode = "random",
        *,
        seed: int = 0,
        packet_values: int = PACKET_VALUES,
        layers: typing.Collection[str] | None = None,
    ) -> None:
        if not 0 <= loss < 1:
            raise ValueError(f"loss is {loss}, and has to be a share from 0 to less than 1 (0.1 is 10%)")
        if mode not in typing.get_args(Mode):
            raise ValueError(f"mode is {mode!r}, and there are {', '.join(typing.get_args(Mode))}")
        if packet_values < 1:
            raise ValueError(f"packet_values is {packet_values}, and has to be 1 or more")
        self.loss, self.mode, self.packet_values = loss, mode, packet_values
        self.layers = None if layers is None else frozenset(layers)
        # Packets that could have been lost until now, and those that were.
        self.packets, self.lost = 0, 0
        # Far from the seeds that a training begins with: their numbers must not come again here.
        self._draw = torch.Generator().manual_seed((seed + 1) * 0x9E37_79B9_7F4A_7C15 % (1 << 63))
        self._calls: dict[tuple[int, str], int] = {}
        # Packets that a tensor still has to lose, less than one after each call.
        self._due: dict[tuple[int, str], float] = {}

    def __call__(self, gradient: torch.Tensor, tensor: str = "", worker: int = 0) -> torch.Tensor:
        """Loses packets of one gradient of one worker, and returns it."""
        if gradient.layout != torch.strided or not gradient.is_floating_point():
            kind = f"{gradient.layout} of {gradient.dtype}"
            raise TypeError(f"{tensor or 'a gradient'} is {kind}, and only dense floats can lose packets")
        if self.loss == 0 or gradient.numel() == 0 or not self._is_subject(tensor):
            return gradient
        flat = gradient.detach().reshape(-1)
        lost = self._chosen(flat, (worker, tensor))
        if lost.any():
            values = lost.to(flat.device).repeat_interleave(self.packet_values)[: flat.numel()]
            flat.masked_fill_(values, 0)
            # Where a gradient does not lie in one piece, `flat` is a copy.
            if flat.data_ptr() != gradient.data_ptr():
                gradient.detach().copy_(flat.view(gradient.shape))
        return gradient

    def model(self, model: nn.Module, worker: int = 0) -> None:
        """Loses packets of all gradients that a model holds."""
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self(parameter.grad, name, worker)

    @property
    def share(self) -> float:
        """The share of packets that were lost until now."""
        return self.lost / self.packets if self.packets else 0.0

    def _is_subject(self, tensor: str) -> bool:
        return self.layers is None or tensor in self.layers or tensor.rpartition(".")[0] in self.layers

    def _chosen(self, flat: torch.Tensor, name: tuple[int, str]) -> torch.Tensor:
        """For every packet, whether it is lost."""
        packets = -(-flat.numel() // self.packet_values)
        ranks = torch.rand(packets, generator=self._draw)
        subject = torch.ones(packets, dtype=torch.bool)
        if self.mode != "random":
            is_small = self._small(flat, name)
            if self.mode == "importance":
                ranks += ~is_small
            else:
                subject = is_small if self.mode == "small" else ~is_small
                ranks.masked_fill_(~subject, 2)
        count = self._count(int(subject.sum()), name)
        lost = torch.zeros(packets, dtype=torch.bool)
        lost[ranks.argsort()[:count]] = True
        return lost

    def _count(self, subject: int, name: tuple[int, str]) -> int:
        """Number of packets, of `subject`, that are lost now. Fractions wait for the next call."""
        # Every worker and tensor begins elsewhere, so that not all lose their packet in the same round.
        due = self._due.setdefault(name, torch.rand((), generator=self._draw).item()) + self.loss * subject
        count = min(int(due), subject)
        self._due[name] = due - count
        self.packets += subject
        self.lost += count
        return count

    def _small(self, flat: torch.Tensor, name: tuple[int, str]) -> torch.Tensor:
        """For every packet, whether it is small, as the transport would say."""
        means = mean_magnitudes(flat, self.packet_values)
        call = self._calls[name] = self._calls.get(name, -1) + 1
        step = min(max(len(means) // _LEAST_SAMPLE, 1), _SAMPLE_EVERY)
        # What is not a number is large.
        return means <= means[call % step :: step].median()


def mean_magnitudes(flat: torch.Tensor, packet_values: int) -> torch.Tensor:
    """Of every packet, in float32 and on the CPU. The last packet may be shorter than the others."""
    magnitudes = flat.abs().float()
    whole = len(flat) // packet_values * packet_values
    means = magnitudes[:whole].view(-1, packet_values).mean(1)
    if whole < len(flat):
        means = torch.cat([means, magnitudes[whole:].mean().view(1)])
    return means.cpu()
