"""Trains a model that loses what a simulated network lost.

    thalweg figure mlt-16 --quick --out out/mlt-16
    python3 examples/components.py out/mlt-16/mlt-16.csv
    python3 examples/components.py out/mlt-16/mlt-16.csv --data DIRECTORY      # MNIST's files, idx format

The figure adds the parts of bounded deliveries one by one and tells how fast each is; this tells what each
learns. Of every gradient as much is missing as there, and large and small packets in the proportion in which the
network dropped important ones and others. Prints the quality after as many rounds.
"""

import argparse
import collections
import csv
import pathlib

import models
import torch
from pictures import given
from torch.nn.functional import avg_pool2d

from thalweg.tolerance import Drop, Trainer

MISSING, IMPORTANT, OTHERS = "missing", "dropped of the important", "dropped of the others"


def losses(path: pathlib.Path) -> dict[str, tuple[float, float]]:
    """By parts: the share of large and of small packets that is missing."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    with path.open() as lines:
        for line in csv.DictReader(lines):
            if line["chart"].startswith("Losses of ") and line["series"] not in found[line["x"]]:
                found[line["x"]][line["series"]] = float(line["y"])
    if not found:
        raise SystemExit(f"{path} has no losses: make it with `thalweg figure mlt-16 --out DIRECTORY`")
    shares = {}
    for parts, row in found.items():
        dropped = row[IMPORTANT] + row[OTHERS]
        # Half of the packets are important.
        weight = 2 * row[IMPORTANT] / dropped if dropped else 1.0
        shares[parts] = (row[MISSING] * weight, row[MISSING] * (2 - weight))
    return shares


class Both:
    """Loses large packets and small ones, each a share of its own."""

    def __init__(self, large: float, small: float, seed: int) -> None:
        # Small ones first: what becomes zero is still small, so that large ones stay the same.
        self._drops = [Drop(small, "small", seed=seed), Drop(large, "large", seed=seed + 1_000)]

    def model(self, model: torch.nn.Module, worker: int = 0) -> None:
        for drop in self._drops:
            drop.model(model, worker)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("figure", type=pathlib.Path, help="mlt-16.csv")
    arguments.add_argument("--data", type=pathlib.Path, help="MNIST's files; else pictures are made")
    arguments.add_argument("--rounds", type=int, default=100)
    arguments.add_argument("--seeds", type=int, default=3)
    options = arguments.parse_args()

    torch.set_num_threads(1)
    data, test = ((avg_pool2d(pictures, 2), labels) for pictures, labels in given(options.data))
    classes, side = int(data[1].max()) + 1, data[0].shape[-1]
    trainer = Trainer(lambda: models.cnn(classes, side), data, test, options.rounds, 16)
    print(f"a CNN, {trainer.workers} workers, {options.rounds} rounds, {options.seeds} seeds")
    print("parts         missing: large   small   quality, and of each seed")
    for parts, (large, small) in losses(options.figure).items():
        found = [trainer(Both(large, small, seed), seed) for seed in range(options.seeds)]
        each = "  ".join(f"{quality:.4f}" for quality in found)
        print(f"{parts:12} {large:15.1%}  {small:6.1%}  {sum(found) / len(found):8.4f}   {each}", flush=True)


if __name__ == "__main__":
    main()
