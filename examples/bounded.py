"""Trains with gradients that may lack something, and without, through a switch that loses packets.

    python3 examples/bounded.py
    python3 examples/bounded.py --data DIRECTORY --steps 300 --seeds 3      # MNIST's files, idx format

Starts a switch that loses --loss of its packets and a server, then trains the model of `ddp.py` with --ranks
ranks: exactly, and with at most --bound of any rank's gradients missing. Prints what both have learned after as
many steps, and what was missing.
"""

import argparse
import pathlib
import re
import subprocess

import daemons

LAST_LINE = re.compile(r"steps in ([\d.]+) s, test accuracy ([\d.]+)%, the same bits at all ranks: (\w+)")
MISSING = re.compile(r"at most ([\d.]+)%")


def train(options: argparse.Namespace, environment: dict[str, str], seed: int, bound: float | None) -> dict:
    """One training, and what came out."""
    command = daemons.ddp(options.ranks, "--steps", str(options.steps), "--batch", str(options.batch))
    command += ["--seed", str(seed)]
    command += ["--data", str(options.data)] if options.data else []
    command += ["--bound", str(bound)] if bound is not None else []
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    found = LAST_LINE.search(done.stdout)
    if done.returncode or not found:
        raise SystemExit(f"a training has failed:\n{done.stdout}")
    seconds, accuracy, is_same = found.groups()
    missing = MISSING.search(done.stdout)
    return {
        "seconds": float(seconds),
        "accuracy": float(accuracy),
        "is_same": is_same == "yes",
        "missing": float(missing.group(1)) if missing else 0.0,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--data", type=pathlib.Path, help="a directory with MNIST's files")
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--batch", type=int, default=64, help="pictures of a rank and step")
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--seeds", type=int, default=1, help="number of trainings of each kind")
    arguments.add_argument("--bound", type=float, default=0.1, help="share of gradients that may be missing")
    arguments.add_argument("--loss", type=float, default=0.01, help="share of packets that the switch loses")
    options = arguments.parse_args()

    print(f"{options.loss:.1%} of the packets lost, {options.ranks} ranks, {options.steps} steps")
    print("seed  exact: accuracy  bounded: accuracy  difference  missing of a rank  the same bits")
    with daemons.started(options.loss) as (_, environment):
        for seed in range(options.seeds):
            exact = train(options, environment, seed, None)
            bounded = train(options, environment, seed, options.bound)
            difference = bounded["accuracy"] - exact["accuracy"]
            is_same = "yes" if exact["is_same"] and bounded["is_same"] else "NO"
            print(
                f"{seed:4}  {exact['accuracy']:14.1f}%  {bounded['accuracy']:16.1f}%  {difference:+9.1f}%  "
                f"{bounded['missing']:16.2f}%  {is_same:>13}",
                flush=True,
            )


if __name__ == "__main__":
    main()
