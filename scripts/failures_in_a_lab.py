#!/usr/bin/env python3
"""Every failure that a job must notice or survive, in networks of one machine, with the default settings.

    sudo python3 scripts/failures_in_a_lab.py [--python target/python-tests/bin/python] [--json]

Ranks, switches and servers are processes on hosts of a lab, and are killed, stopped, cut off and started again during
operations, between them and while ranks join. Prints a table: the time until the last rank had its error and the text
of the error, or the longest pause of a job that goes on. With --python, ranks are training scripts with
DistributedDataParallel as well, and torchrun on two hosts starts a training again whose rank was killed; that
interpreter needs PyTorch and the wheel (`bash .ci/run python` makes one).

Needs root, and six minutes after the tests are built (eleven on a busy machine). Exit code 1 if a row is not as it has to be.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# `generated` beside it makes cargo use the build of all tests, where there is one.
TEST = ["cargo", "test", "--workspace", "--locked", "--test", "failures", "--test", "generated"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=pathlib.Path, help="interpreter with PyTorch and the wheel")
    parser.add_argument("--restart", action="store_true", help="measure only the restart by torchrun; needs --python")
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of the table")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("failures_in_a_lab: labs need root: run it with sudo")
    with tempfile.TemporaryDirectory() as folder:
        document = pathlib.Path(folder) / "failures.json"
        environment = {**os.environ, "THALWEG_FAILURES_JSON": str(document)}
        if arguments.python is not None:
            environment["THALWEG_FAILURES_PYTHON"] = str(arguments.python.absolute())
        test = "a_restart_in_a_lab" if arguments.restart else "every_failure_in_a_lab"
        command = [*TEST, "--", "--ignored", "--nocapture", test]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        if not document.exists():
            sys.exit(f"failures_in_a_lab: nothing was measured:\n{done.stdout}")
        table = [line for line in done.stdout.splitlines() if line.startswith("| ") or line.startswith("|-")]
        print(document.read_text() if arguments.json else "\n".join(table))
    sys.exit(0 if done.returncode == 0 else 1)


if __name__ == "__main__":
    main()
