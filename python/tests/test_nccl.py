"""The plug-in of NCCL in the wheel."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import subprocess
import sys

import pytest

import thalweg.nccl


@pytest.fixture
def path() -> str:
    """The path of the library. A wheel may be built without it, but not by CI."""
    try:
        return thalweg.nccl.library()
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _module(*arguments: str) -> str:
    command = [sys.executable, "-m", "thalweg.nccl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


# spec: N-08 sockets
def test_the_module_prints_the_path_and_the_variables(path):
    assert _module() == f"{path}\n"
    assert pathlib.Path(path).name == "libnccl-net-thalweg.so", "the name that NCCL looks for"
    variables = {"NCCL_NET_PLUGIN": path, "NCCL_COLLNET_ENABLE": "1", "NCCL_NET_PLUGIN_REF_COUNT": "1"}
    assert json.loads(_module("env", "--json")) == variables
    script = f"{_module('env')}\nenv"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    for name, value in variables.items():
        assert f"{name}={value}\n" in shell.stdout


# spec: N-08 sockets
def test_programs_without_python_can_load_the_library(path):
    # Names that only Python has would be missing here.
    environment = {"LD_PRELOAD": path, "LD_BIND_NOW": "1"}
    done = subprocess.run(["/bin/true"], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    for table in ("ncclNetPlugin_v8", "ncclNetPlugin_v12", "ncclCollNetPlugin_v12", "ncclTunerPlugin_v5"):
        name = ctypes.c_char_p.in_dll(loaded, table)
        assert name.value == b"thalweg", table


def test_a_package_without_the_library_says_how_to_build_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(thalweg.nccl, "__file__", str(tmp_path / "nccl.py"))
    with pytest.raises(FileNotFoundError, match="cargo build .*nccl/Cargo.toml"):
        thalweg.nccl.library()
    for arguments in ([], ["env"], ["env", "--json"]):
        assert thalweg.nccl.main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and "built without the plug-in" in printed.err
    (tmp_path / "libnccl-net-thalweg.so").touch()
    assert thalweg.nccl.library() == str(tmp_path / "libnccl-net-thalweg.so")
