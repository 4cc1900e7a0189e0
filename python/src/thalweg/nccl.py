"""The plug-in of NCCL that the wheel contains.

    python3 -m thalweg.nccl              # its path
    python3 -m thalweg.nccl env          # the variables to set, as commands of a shell
    python3 -m thalweg.nccl env --json   # the same for programs

A program over NCCL that has these variables sums through Thalweg, without a changed line. Which server and which switch
it uses is up to further variables, ``THALWEG_SERVER`` and ``THALWEG_SWITCH`` above all.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import sys

_LIBRARY = "libnccl-net-thalweg.so"


# spec: N-08
def library() -> str:
    """The path of the library. Raises FileNotFoundError if the wheel was built without it."""
    path = pathlib.Path(__file__).resolve().with_name(_LIBRARY)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist: this package was built without the plug-in of NCCL. `pip install ./python` in the "
            "project's own files builds both; or build it with `cargo build --release --manifest-path nccl/Cargo.toml` "
            "and name nccl/target/release/libnccl_net_thalweg.so in NCCL_NET_PLUGIN"
        )
    return str(path)


def environment() -> dict[str, str]:
    """The variables of NCCL that make it use the library."""
    return {
        "NCCL_NET_PLUGIN": library(),
        # NCCL uses no CollNet without it.
        "NCCL_COLLNET_ENABLE": "1",
        # NCCL 2.28 and 2.29 do not find a plug-in again that they have unloaded.
        "NCCL_NET_PLUGIN_REF_COUNT": "1",
    }


def main(given: list[str] | None = None) -> int:
    """The program. Returns its exit code: 2 if there is no library."""
    arguments = argparse.ArgumentParser(
        prog="python3 -m thalweg.nccl",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("command", nargs="?", choices=["env"], help="print the variables in place of the path")
    arguments.add_argument("--json", action="store_true", help="print one JSON document")
    options = arguments.parse_args(given)
    try:
        found = environment() if options.command == "env" else {"library": library()}
    except FileNotFoundError as error:
        print(f"thalweg.nccl: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(found))
    elif options.command == "env":
        print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items()))
    else:
        print(found["library"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
