"""The guide for PyTorch, walked by its own commands: from `pip install` to a step with Gloo and one with Thalweg."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "pytorch.md"
PROGRAM = ROOT / "target" / "release" / "thalweg"
# `.ci/run python` leaves the wheel there.
WHEELS = pathlib.Path(sys.prefix) / "wheels"

RESULT = re.compile(r"^\[0\] (gloo|thalweg): (\d+) ms a step, loss (\d+\.\d{4})$", re.MULTILINE)


def _blocks() -> list[tuple[str, str]]:
    """The blocks of the section: kind and text."""
    section = GUIDE.read_text().split("\n## From nothing to a faster step\n")[1].split("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def _run(line: str, folder: pathlib.Path) -> str:
    """Runs a line of the guide in a folder that stands for the repository; `python3` is the Python of the tests."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "THALWEG_"))}
    environment["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = ["sh", "-c", line]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _lend_packages(environment: pathlib.Path) -> None:
    """Makes the packages of the tests importable in an environment, except the wheel: torch is not fetched again."""
    [packages] = environment.glob("lib/python*/site-packages")
    lent = environment / "lent"
    lent.mkdir()
    for entry in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("thalweg", "pip", "setuptools", "_distutils", "distutils")):
            (lent / entry.name).symlink_to(entry)
    (packages / "lent.pth").write_text(f"{lent}\n")


@pytest.fixture
def wheel() -> pathlib.Path:
    """The wheel, where there is one, a program and a lab for it."""
    if os.geteuid() != 0:
        pytest.skip("labs need root")
    wheels = sorted(WHEELS.glob("thalweg-*.whl"))
    if not wheels or not PROGRAM.exists():
        pytest.skip(f"there is no {PROGRAM} or no wheel in {WHEELS}: bash .ci/run smoke python")
    lab = subprocess.run([PROGRAM, "lab", "--hosts", "1", "--", "true"], capture_output=True, text=True, timeout=60)
    if lab.returncode != 0 and not os.environ.get("CI"):
        pytest.skip(lab.stderr)
    return wheels[-1]


def test_a_user_comes_from_pip_install_to_a_step_with_the_backend(wheel, tmp_path):
    install, script, run, printed = _blocks()
    assert [kind for kind, _ in (install, script, run, printed)] == ["sh", "python", "sh", "text"]
    build, create, add = install[1].splitlines()
    assert build == "cargo build --release", "the program is there already"
    (tmp_path / "target" / "release").mkdir(parents=True)
    (tmp_path / "target" / "release" / "thalweg").symlink_to(PROGRAM)
    _run(create, tmp_path)
    environment = tmp_path / "trial"
    _lend_packages(environment)
    assert " ./python " in add
    _run(add.replace("./python", str(wheel)), tmp_path)
    place = _run("trial/bin/python -c 'import thalweg; print(thalweg.__file__)'", tmp_path)
    assert pathlib.Path(place.strip()).is_relative_to(environment), "the wheel that was installed just now"
    (tmp_path / "train.py").write_text(script[1])

    lines = run[1].splitlines()
    assert [line.split()[-1] for line in lines] == ["gloo", "thalweg"]
    found = []
    for line in lines:
        assert line.startswith("sudo target/release/thalweg lab ")
        output = _run(line.removeprefix("sudo "), tmp_path)
        print(output)
        found += RESULT.findall(output)
    # How fast each of them is depends on what else this machine does.
    assert [backend for backend, _, _ in found] == ["gloo", "thalweg"]
    assert all(int(step_ms) > 0 for _, step_ms, _ in found)
    gloo, thalweg = (float(loss) for _, _, loss in found)
    assert abs(thalweg - gloo) <= 1e-3 * gloo, found
    # The guide prints lines of the same form.
    promised = RESULT.findall(printed[1])
    assert [backend for backend, _, _ in promised] == ["gloo", "thalweg"]
