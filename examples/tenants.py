"""Two jobs that know nothing of each other, through one switch and one server.

    python3 examples/tenants.py

Starts the daemons, then two trainings (`ddp.py`) at the same time, of two ranks each, and tells what the
switch has added for both.
"""

import subprocess

import daemons


def main() -> None:
    with daemons.started() as (switch, environment):
        command = daemons.ddp(2, "--steps", "30")
        tenants = {
            name: subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            for name in ("A", "B")
        }
        for name, tenant in tenants.items():
            for line in tenant.communicate()[0].splitlines():
                print(f"{name}  {line}")
        packets, sums = switch.counts()
        print(f"the switch took in {packets} gradient packets and completed {sums} sums")
    if any(tenant.returncode for tenant in tenants.values()):
        raise SystemExit("a tenant has failed")


if __name__ == "__main__":
    main()
