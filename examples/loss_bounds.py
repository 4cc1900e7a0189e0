"""Measures how much loss of gradients four small models stand.

    python3 examples/loss_bounds.py --quick                       # made data, under two minutes
    python3 examples/loss_bounds.py --data DIRECTORY --text FILE  # MNIST's files, idx format; any text
    python3 examples/loss_bounds.py --models mlp --costs          # and what losses of each layer cost

Four workers train in this process. Packets of their gradients are lost, at random or small ones first, and
the bound is the largest loss at which a model is as good after as many rounds. Prints a table; writes the
numbers and a drawing for each model into --out.
"""

import argparse
import pathlib
import sys
import time

import models
import texts
import torch
from pictures import given
from torch import nn
from torch.nn.functional import avg_pool2d

from thalweg.tolerance import LOSSES, LossBounds, Trainer, loss_bound, loss_costs

MODELS = ("mlp", "cnn", "gru", "gpt")
QUICK_LOSSES = (0.1, 0.5, 0.9)
# Of a training, in full and quick.
ROUNDS = (300, 60)
# Characters of a file's text that are seen at once.
WINDOW = 32


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-3)


def picture_trainer(name: str, options: argparse.Namespace) -> Trainer:
    # Half the resolution is a quarter of the work, and says as much about losses.
    data, test = ((avg_pool2d(pictures, 2), labels) for pictures, labels in given(options.data))
    classes, side = int(data[1].max()) + 1, data[0].shape[-1]
    make = {"mlp": models.mlp, "cnn": models.cnn, "gru": models.Recurrent}[name]
    optimizer = adam if name == "gru" else sgd
    return Trainer(lambda: make(classes, side), data, test, ROUNDS[options.quick], 16, optimizer=optimizer)


def text_trainer(options: argparse.Namespace) -> Trainer:
    if options.text:
        lines, letters = texts.windows(options.text, WINDOW)
        # The end of the text is the test: nothing of it was seen.
        first, last = lines[: len(lines) * 9 // 10], lines[len(lines) * 9 // 10 :][:1_000]
    else:
        lines, letters = texts.sums(9_000, torch.Generator().manual_seed(1)), len(texts.ALPHABET)
        first, last = lines[:8_000], lines[8_000:]
    length = lines.shape[1] - 1
    data, test = ((part[:, :-1], part[:, 1:]) for part in (first, last))
    return Trainer(
        lambda: models.Gpt(letters, length, blocks=1), data, test, ROUNDS[options.quick], 8, optimizer=adam
    )


def measured(name: str, options: argparse.Namespace) -> tuple[nn.Module, LossBounds]:
    def say(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr, flush=True)

    trainer = text_trainer(options) if name == "gpt" else picture_trainer(name, options)
    losses = QUICK_LOSSES if options.quick else options.losses
    bounds = loss_bound(
        trainer, losses=losses, seeds=options.seeds, tolerance=options.tolerance, progress=say
    )
    (options.out / f"{name}.json").write_text(bounds.to_json())
    bounds.plot(options.out / f"{name}.svg", f"{name}: {trainer.rounds} rounds, {trainer.workers} workers")
    print(f"{name}, {trainer.rounds} rounds, {bounds}\n", flush=True)
    if options.costs:
        costs = loss_costs(trainer, seeds=options.seeds, tolerance=options.tolerance, progress=say)
        costs.write(options.out / f"{name}-costs.csv")
        costs.write_layers(options.out / f"{name}-layers.json", name)
        print(f"{name}, {costs}\n", flush=True)
    return trainer.model(), bounds


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    arguments.add_argument("--data", type=pathlib.Path, help="MNIST's files; else pictures are made")
    arguments.add_argument("--text", type=pathlib.Path, help="a text for the GPT; else sums are made")
    arguments.add_argument("--seeds", type=int, default=3, help="trainings for each loss (3)")
    arguments.add_argument("--losses", type=float, nargs="+", default=LOSSES, help="shares to try, as 0.1")
    arguments.add_argument("--tolerance", type=float, default=0.01, help="as much less is the same (0.01)")
    arguments.add_argument("--quick", action="store_true", help="a fifth of the rounds, three losses")
    arguments.add_argument("--costs", action="store_true", help="measure what losses of each layer cost, too")
    arguments.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/loss-bounds"))
    options = arguments.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    found = {name: measured(name, options) for name in options.models}
    print("model    values  without loss     at random   small first")
    for name, (model, bounds) in found.items():
        values = sum(parameter.numel() for parameter in model.parameters())
        quality = sum(bounds.lossless) / len(bounds.lossless)
        cells = "".join(f"{bounds.bound_text(mode):>14}" for mode in ("random", "importance"))
        print(f"{name:5} {values:9,} {quality:13.4f}{cells}")
    print(f"{time.monotonic() - started:.0f} s; numbers and drawings are in {options.out}")


if __name__ == "__main__":
    main()
