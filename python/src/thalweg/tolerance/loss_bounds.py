"""How much loss of gradients a model stands.

    bounds = thalweg.tolerance.loss_bound(train)          # train(drop, seed) returns the quality that it reached
    print(bounds)

The loss bound of a model is the largest loss at which it reaches the quality of the lossless training in
the same number of rounds. It is what a bounded-loss transport may be given.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import statistics
import typing

from . import loss_plot
from .dropping import PACKET_VALUES, Drop, Mode

Train = typing.Callable[[Drop, int], float]
# What is compared: any packets, or small ones first.
MODES: tuple[Mode, ...] = ("random", "importance")
LOSSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


# spec: M-16
def loss_bound(
    train: Train,
    *,
    losses: typing.Sequence[float] = LOSSES,
    seeds: int = 3,
    tolerance: float = 0.01,
    modes: typing.Sequence[Mode] = MODES,
    packet_values: int = PACKET_VALUES,
    progress: typing.Callable[[str], None] | None = None,
) -> LossBounds:
    """Trains without loss, then with ever more of it, until quality is lost.

    ``train(drop, seed)`` is a training of a fixed number of rounds, with everything random in it drawn from
    `seed`. It calls `drop` (see :class:`~thalweg.tolerance.Drop`) on the gradients of each worker before they are
    averaged, and returns the quality that it ends with: a number of which more is better, such as the share
    of right answers in a test. :class:`~thalweg.tolerance.Trainer` is one.

    Quality is the same if its mean over the seeds is at most `tolerance` below the lossless mean. A mode ends
    at the first of `losses` at which it is not. `progress` gets a line for every loss that was tried.
    """
    losses = sorted(losses)
    _check(losses, seeds, tolerance, modes)
    say = progress or (lambda _line: None)

    def tried(loss: float, mode: Mode) -> Point:
        drops = [Drop(loss, mode, seed=seed, packet_values=packet_values) for seed in range(seeds)]
        found = tuple(float(train(drop, seed)) for seed, drop in enumerate(drops))
        if loss > 0 and not any(drop.packets for drop in drops):
            raise ValueError("train never called drop: call it on every worker's gradients, before the mean")
        lost, packets = sum(drop.lost for drop in drops), sum(drop.packets for drop in drops)
        point = Point(mode, loss, lost / packets if packets else 0.0, found)
        say(f"{mode}, loss {percent(loss)}: quality {point.mean:.4f}")
        return point

    lossless = tried(0.0, "random").qualities
    if not all(map(math.isfinite, lossless)):
        raise ValueError(f"without loss, train returned {lossless}: quality has to be a number")
    bounds = LossBounds(lossless, (), tolerance, packet_values)
    for mode in modes:
        for loss in losses:
            point = tried(loss, mode)
            bounds = dataclasses.replace(bounds, points=(*bounds.points, point))
            if not bounds.holds(point):
                break
    return bounds


@dataclasses.dataclass(frozen=True)
class Point:
    """Trainings with one loss, a quality for every seed."""

    mode: str
    loss: float
    # The share of packets that were dropped indeed.
    dropped: float
    qualities: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.qualities)


@dataclasses.dataclass(frozen=True)
class LossBounds:
    """What :func:`loss_bound` found. Prints as a table."""

    # Qualities without loss, one for every seed.
    lossless: tuple[float, ...]
    # By mode, then by loss.
    points: tuple[Point, ...]
    tolerance: float
    packet_values: int

    @property
    def target(self) -> float:
        """The least quality that is the same as without loss."""
        return statistics.fmean(self.lossless) - self.tolerance

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.mode for point in self.points))

    def holds(self, point: Point) -> bool:
        """Whether quality is the same. What is not a number is not."""
        return point.mean >= self.target

    def bound(self, mode: str = "importance") -> float:
        """The largest loss at which quality is the same, there and at all smaller ones that were tried."""
        bound = 0.0
        for point in self.of_mode(mode):
            if not self.holds(point):
                break
            bound = point.loss
        return bound

    def is_open(self, mode: str) -> bool:
        """Whether no loss that was tried was too much: then the bound may be larger."""
        return all(map(self.holds, self.of_mode(mode)))

    def bound_text(self, mode: str) -> str:
        """The bound for people."""
        return f"{'at least ' if self.is_open(mode) else ''}{percent(self.bound(mode))}"

    def of_mode(self, mode: str) -> list[Point]:
        points = [point for point in self.points if point.mode == mode]
        if not points:
            raise ValueError(f"mode {mode!r} was not measured; measured were {', '.join(self.modes)}")
        return points

    def __str__(self) -> str:
        mean = statistics.fmean(self.lossless)
        low, high = min(self.lossless), max(self.lossless)
        lines = [
            f"without loss: quality {mean:.4f} ({len(self.lossless)} seeds, {low:.4f} to {high:.4f}); "
            f"the same is {self.target:.4f} or more",
            "  loss" + "".join(f"{mode:>16}" for mode in self.modes),
        ]
        for loss in sorted({point.loss for point in self.points}):
            cells = (self._cell(mode, loss) for mode in self.modes)
            lines.append(f"{percent(loss):>6}" + "".join(f"{cell:>16}" for cell in cells))
        lines.append(" bound" + "".join(f"{self.bound_text(mode):>16}" for mode in self.modes))
        if self._error() > self.tolerance:
            lines.append("The tolerance is less than the mean over these seeds is sure of: take more seeds.")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything, as one JSON document."""
        bounds = {
            mode: {"loss": self.bound(mode), "is_open": self.is_open(mode)} for mode in self.modes
        }
        document = {"bounds": bounds, "target": self.target, **dataclasses.asdict(self)}
        for point in document["points"]:
            # JSON has no other word for what is not a number.
            point["qualities"] = [q if math.isfinite(q) else None for q in point["qualities"]]
        return json.dumps(document, indent=1)

    def plot(self, path: str | pathlib.Path, title: str = "") -> None:
        """Draws quality against loss, all modes, as SVG."""
        curves = {
            mode: [(point.loss, point.qualities) for point in self.of_mode(mode)] for mode in self.modes
        }
        drawing = loss_plot.svg(curves, statistics.fmean(self.lossless), self.target, title)
        pathlib.Path(path).write_text(drawing)

    def _cell(self, mode: str, loss: float) -> str:
        for point in self.of_mode(mode):
            if point.loss == loss:
                return f"{point.mean:.4f}{' ' if self.holds(point) else '<'}"
        return ""

    def _error(self) -> float:
        """The standard error of the lossless mean."""
        count = len(self.lossless)
        return statistics.stdev(self.lossless) / math.sqrt(count) if count > 1 else 0.0


def percent(share: float) -> str:
    """A share as people write it."""
    return f"{100 * share:.3g}%"


def _check(losses: typing.Sequence[float], seeds: int, tolerance: float, modes: typing.Sequence[str]) -> None:
    if not losses or not all(0 < loss < 1 for loss in losses):
        raise ValueError(f"losses are {list(losses)}, and have to be shares above 0 and below 1 (0.1 is 10%)")
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, and at least one training is needed")
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance}, and has to be 0 or more, in units of quality")
    if not modes or not set(modes) <= set(MODES):
        raise ValueError(f"modes are {list(modes)}, and there are {', '.join(MODES)}")
