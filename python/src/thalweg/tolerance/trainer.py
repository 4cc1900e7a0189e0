"""Data-parallel training within one process, to try what loss does."""

from __future__ import annotations

import dataclasses
import typing

import torch
from torch import nn

from .dropping import Drop

Examples = tuple[torch.Tensor, torch.Tensor]


def _sgd(parameters: typing.Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def cross_entropy(output: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Of classes, one for every example or for every place of it."""
    return nn.functional.cross_entropy(output.flatten(0, -2), answers.flatten())


def right_answers(model: nn.Module, test: Examples) -> float:
    """The share of examples, or of places in them, for which the likeliest class is the right one."""
    parts = zip(test[0].split(1_000), test[1].split(1_000))
    right = sum(int((model(given).argmax(-1) == answers).sum()) for given, answers in parts)
    return right / test[1].numel()


@dataclasses.dataclass
class Trainer:
    """A training that :func:`~thalweg.tolerance.loss_bound` can repeat.

        thalweg.tolerance.loss_bound(Trainer(make_model, (inputs, answers), test, rounds=200))

    In every round each worker finds the gradient of a batch of its own and loses a part of it; the mean over
    all workers, in which lost values count as zero, is the step of the optimizer.
    """

    # Makes a model. Its weights are drawn from torch's generator, which is seeded before.
    model: typing.Callable[[], nn.Module]
    # Inputs and answers, first dimension examples.
    data: Examples
    # What `quality` is asked with.
    test: Examples
    rounds: int
    # Examples of a worker and round.
    batch: int = 32
    workers: int = 4
    # Whether the learning rate falls evenly to zero, so that quality does not hang on the last few batches.
    decays: bool = True
    optimizer: typing.Callable[[typing.Iterable[nn.Parameter]], torch.optim.Optimizer] = _sgd
    objective: typing.Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = cross_entropy
    quality: typing.Callable[[nn.Module, Examples], float] = right_answers

    def __post_init__(self) -> None:
        for name in ("rounds", "batch", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and has to be 1 or more")
        for name in ("data", "test"):
            inputs, answers = getattr(self, name)
            if len(inputs) != len(answers) or len(inputs) == 0:
                counts = f"{len(inputs)} inputs and {len(answers)} answers"
                raise ValueError(f"{name} has {counts}: give as many of both, and some")

    def __call__(self, drop: Drop, seed: int) -> float:
        """Trains, and returns the quality at the end."""
        *_, quality = self.curve(drop, seed, every=self.rounds)
        return quality

    def curve(
        self, drop: Drop, seed: int, *, every: int, rounds: int | None = None
    ) -> typing.Iterator[float]:
        """Trains, and yields the quality after every `every` rounds."""
        inputs, answers = self.data
        torch.manual_seed(seed)
        model = self.model().to(inputs.device)
        optimizer = self.optimizer(model.parameters())
        rounds = rounds or self.rounds
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0 if self.decays else 1, rounds)
        order = torch.randperm(len(inputs), device=inputs.device)
        for done in range(1, rounds + 1):
            first = (done - 1) * self.workers * self.batch
            places = torch.arange(first, first + self.workers * self.batch, device=inputs.device) % len(order)
            self._step(model, optimizer, order[places].split(self.batch), drop)
            schedule.step()
            if done % every == 0:
                yield self._quality(model)

    def _step(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: typing.Sequence[torch.Tensor],
        drop: Drop,
    ) -> None:
        inputs, answers = self.data
        parameters = list(model.parameters())
        means: list[torch.Tensor | None] = [None] * len(parameters)
        for worker, batch in enumerate(batches):
            model.zero_grad()
            self.objective(model(inputs[batch]), answers[batch]).backward()
            drop.model(model, worker)
            for at, parameter in enumerate(parameters):
                if parameter.grad is not None:
                    part = parameter.grad / self.workers
                    before = means[at]
                    means[at] = part if before is None else before + part
        for mean, parameter in zip(means, parameters):
            parameter.grad = mean
        optimizer.step()

    def _quality(self, model: nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            quality = self.quality(model, self.test)
        model.train()
        return quality
