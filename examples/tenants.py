"""Two jobs that know nothing of each other, through one switch and one server.

    python3 examples/tenants.py

Starts the daemons, then two trainings (`ddp.py`) at the same time, of two ranks each, and tells what the
switch has added for both.
"""

import os
import pathlib
import subprocess
import sys

import thalweg

DDP = pathlib.Path(__file__).with_name("ddp.py")


def main() -> None:
    secret = os.urandom(16)
    switch = thalweg.Switch("127.0.0.1:0", secret)
    server = thalweg.Server("127.0.0.1:0", secret, token="two tenants", switch=switch.address)
    environment = os.environ | {
        "THALWEG_SERVER": server.address,
        "THALWEG_SWITCH": switch.address,
        "THALWEG_TOKEN": "two tenants",
        # On one host sums would not pass the switch.
        "THALWEG_SHARE_MEMORY": "0",
    }
    tenants = {
        name: subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", DDP,
             "--steps", "30"],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for name in ("A", "B")
    }  # fmt: skip
    for name, tenant in tenants.items():
        for line in tenant.communicate()[0].splitlines():
            print(f"{name}  {line}")
    packets, sums = switch.counts()
    print(f"the switch took in {packets} gradient packets and completed {sums} sums")
    server.stop()
    switch.stop()
    if any(tenant.returncode for tenant in tenants.values()):
        raise SystemExit("a tenant has failed")


if __name__ == "__main__":
    main()
