"""What lost gradients cost, layer by layer: the table that ``thalweg plan --costs`` reads."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import statistics
import typing

from .dropping import PACKET_VALUES, Drop, Mode
from .trainer import Trainer

_SIZES: tuple[Mode, ...] = ("small", "large")


def loss_costs(
    trainer: Trainer,
    *,
    loss: float = 0.5,
    seeds: int = 3,
    tolerance: float = 0.01,
    longest: float = 2.0,
    packet_values: int = PACKET_VALUES,
    progress: typing.Callable[[str], None] | None = None,
) -> LossCosts:
    """How many rounds longer training takes when one layer loses small or large gradients.

    The quality to reach is what the trainer reaches without loss, less `tolerance`. Every layer in turn
    loses `loss` of its small packets, then of its large ones, while all others lose nothing; training goes on
    until the quality is there, for `longest` times the trainer's rounds at most, and at a learning rate that
    does not decay. Costs are taken to grow evenly with loss, so that one measurement gives the rounds for
    each percent.

    That is a training for every layer, size and seed. Costs of a few percent drown in what seeds differ by,
    which is why `loss` is large: look at the errors in the table before you use it.
    """
    trainer = dataclasses.replace(trainer, decays=False)
    if not 0 < loss < 1:
        raise ValueError(f"loss is {loss}, and has to be a share above 0 and below 1 (0.5 is 50%)")
    if seeds < 1 or longest < 1:
        raise ValueError(f"seeds is {seeds} and longest is {longest}, and both have to be 1 or more")
    say = progress or (lambda _line: None)
    final = statistics.fmean(trainer(Drop(0), seed) for seed in range(seeds))
    every = max(1, trainer.rounds // 50)
    limit = math.ceil(longest * trainer.rounds / every) * every

    def rounds(drop: Drop, seed: int) -> int:
        """Until the quality is there, or one step more than the limit."""
        curve = trainer.curve(drop, seed, every=every, rounds=limit)
        reached = next((at for at, quality in enumerate(curve, 1) if quality >= final - tolerance), None)
        return limit + every if reached is None else reached * every

    lossless = [rounds(Drop(0), seed) for seed in range(seeds)]
    costs = []
    shapes = {name: tuple(one.shape) for name, one in trainer.model().named_parameters()}
    # As the planner has it, a module with parameters of its own is a layer.
    for layer in dict.fromkeys(name.rpartition(".")[0] for name in shapes):
        for size in _SIZES:
            lossy = [
                rounds(Drop(loss, size, seed=seed, packet_values=packet_values, layers=[layer]), seed)
                for seed in range(seeds)
            ]
            extra = tuple(after - before for after, before in zip(lossy, lossless))
            costs.append(LayerCost(layer, size, extra, max(lossy) <= limit))
            say(f"{layer}, {size}: {statistics.fmean(extra):+.1f} rounds")
    return LossCosts(tuple(costs), loss, statistics.fmean(lossless), shapes)


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """What a layer lost, and how many rounds longer training took, for every seed."""

    layer: str
    size: str
    extra_rounds: tuple[int, ...]
    # If not, training took even longer than this.
    is_reached: bool

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        count = len(self.extra_rounds)
        return statistics.stdev(self.extra_rounds) / math.sqrt(count) if count > 1 else math.nan


@dataclasses.dataclass(frozen=True)
class LossCosts:
    """What :func:`loss_costs` found. Prints as a table."""

    costs: tuple[LayerCost, ...]
    # The share that was lost of a layer's small or large packets.
    loss: float
    # Rounds to the quality without loss, the mean over the seeds.
    lossless_rounds: float
    # Of the model's parameters, in its order.
    shapes: dict[str, tuple[int, ...]]

    def __str__(self) -> str:
        width = max(len(cost.layer) for cost in self.costs)
        lines = [
            f"extra rounds when {100 * self.loss:.3g}% of one layer's small or large packets are lost; "
            f"{self.lossless_rounds:.1f} without loss"
        ]
        for cost in self.costs:
            more = "" if cost.is_reached else "  or more: the quality was not reached"
            mean = statistics.fmean(cost.extra_rounds)
            lines.append(f"{cost.layer:<{width}}  {cost.size}  {mean:+7.1f} ± {cost.error:.1f}{more}")
        return "\n".join(lines)

    def write(self, path: str | pathlib.Path) -> None:
        """Writes them for ``thalweg plan --costs``, in rounds for each percent; gains count as no cost."""
        found: dict[str, dict[str, float]] = {}
        for cost in self.costs:
            rounds = max(statistics.fmean(cost.extra_rounds), 0.0)
            found.setdefault(cost.layer, {})[cost.size] = rounds / (100 * self.loss)
        rows = (f"{layer},{cost['small']:.6g},{cost['large']:.6g}" for layer, cost in found.items())
        pathlib.Path(path).write_text("\n".join(["layer,small,large", *rows]) + "\n")

    def write_layers(self, path: str | pathlib.Path, model: str) -> None:
        """Writes the table for ``thalweg plan --layers``. Gradients are taken to be ready back to front."""
        last = len(self.shapes) - 1
        parameters = [
            {"name": name, "shape": list(shape), "numel": math.prod(shape), "grad_ready_rank": last - at}
            for at, (name, shape) in enumerate(self.shapes.items())
        ]
        pathlib.Path(path).write_text(json.dumps({"model": model, "parameters": parameters}, indent=1))
