"""Builds the wheel: the plug-in of NCCL, which the wheel contains, and then everything else by maturin.

The plug-in is the crate ``nccl`` beside this package. Where the crate is not there, as in a source distribution, or on
a system other than Linux, the wheel lacks the plug-in. So it does with ``THALWEG_WITHOUT_NCCL=1``, which saves its
build.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import maturin
from maturin import (  # noqa: F401
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

_PACKAGE = pathlib.Path(__file__).resolve().parent.parent
_MANIFEST = _PACKAGE.parent / "nccl" / "Cargo.toml"
_LIBRARY = _PACKAGE / "src" / "thalweg" / "libnccl-net-thalweg.so"


def build_wheel(*given: Any, **named: Any) -> str:
    _build_plugin()
    return maturin.build_wheel(*given, **named)


def build_editable(*given: Any, **named: Any) -> str:
    _build_plugin()
    return maturin.build_editable(*given, **named)


# spec: N-08
def _build_plugin() -> None:
    """Builds the plug-in, and copies it to where maturin finds it."""
    if not sys.platform.startswith("linux") or not _MANIFEST.is_file():
        return
    if os.environ.get("THALWEG_WITHOUT_NCCL"):
        _LIBRARY.unlink(missing_ok=True)
        return
    # The folder that maturin uses: both crates are made of the same parts.
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or _PACKAGE / "target").absolute()
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", str(_MANIFEST)]
    subprocess.run(command, check=True, env=os.environ | {"CARGO_TARGET_DIR": str(target)})
    built = target / os.environ.get("CARGO_BUILD_TARGET", "") / "release" / "libnccl_net_thalweg.so"
    shutil.copyfile(built, _LIBRARY)
