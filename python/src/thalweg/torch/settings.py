"""Settings of a process group: from its :class:`~thalweg.torch.Options`, the environment, and a file.

Options win over the environment, which wins over the file: ``thalweg.toml`` in the working directory, or the path
in ``THALWEG_CONFIG``. A setting ``name`` is ``Options(name=…)``, ``THALWEG_NAME`` and the key ``name`` of the file.

===================== ==========================================================================================
setting               meaning
===================== ==========================================================================================
``server``            a running ``thalweg server``, as host:port; without it, rank 0 starts a server
``switch``            the switch of this rack, as host:port
``token``             token of the job, where the server asks for it; a server that rank 0 starts asks for it
``token_file``        a file with the token
``ca_file``           certificates that vouch for the server, where it uses TLS
``secret_file``       the secret of the cluster: needed with a switch but no server, and refused with a server
``job``               name of the job; groups add a suffix. Default: the run ID of torchrun, else a random name
``interface``         network interface to send from, as ``eth1``
``bind``              address to send from, instead of ``interface``
``ports``             UDP ports to choose from, as ``5000-5100``; default: any free port
``threads``           most sending threads; the job has the smallest number of all ranks'. Default: one for every
                      4 Gbps of the host's link, at most a quarter of the cores, 1 to 4
``link_rate_mbps``    rate of the host's link, for that default and rates of deliveries; default: what the driver
                      of the interface reports
``paths``             source ports to send from, 1 to 8, of which routers with several equal paths choose one; default 1
``numeric``           ``auto``, ``float``, ``fixed:SCALE`` or ``dynamic:SCALE``: what switches add
``collective``        ``auto``, ``aggregate``, ``direct``, ``server`` or ``ring``
``share_memory``      ``0``, ``false``, ``no``, ``off``: ranks of one host do not combine in memory first
``failure_after``     seconds until a rank whose process or host is gone fails the job; default 10
``stall_after``       seconds without progress until a warning explains the stall; default 5
``join_timeout``      seconds to wait for all ranks to join; default: the timeout of the group
``operation_timeout`` seconds for an operation; default: the timeout of the group
``pacing``            ``off``, or ``scheduled``: send when the agent of the host (``thalweg agent``) says so
``agent``             the socket of that agent; default /run/thalweg-agent.sock
``metrics``           address that serves metrics, as ``127.0.0.1:9465``: the local rank is added to a port above 0
``gpu_piece_bytes``   length of the pieces of a tensor in GPU memory, each an operation of its own, as rank 0 has it;
                      those of gathers and scatters have up to 16 times as many bytes; default 4 MiB
``gpu_pinned_bytes``  most pinned memory of a group for such pieces; default 512 MiB
===================== ==========================================================================================
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import logging
import os
import pathlib
import stat
import typing

from .staging import PIECE_BYTES, PINNED_BYTES

if typing.TYPE_CHECKING:
    from .options import Options

_log = logging.getLogger("thalweg")

# Socket on which an agent listens by default.
AGENT_SOCKET = "/run/thalweg-agent.sock"

_FLAGS = ("share_memory",)
_FLAG_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_COUNTS = ("threads", "link_rate_mbps", "paths", "gpu_piece_bytes", "gpu_pinned_bytes")
_SECONDS = ("failure_after", "stall_after", "join_timeout", "operation_timeout")
_TEXTS = (
    "server",
    "switch",
    "token",
    "token_file",
    "ca_file",
    "secret_file",
    "job",
    "interface",
    "bind",
    "ports",
    "numeric",
    "collective",
    "pacing",
    "agent",
    "metrics",
)
NAMES = (*_TEXTS, *_COUNTS, *_FLAGS, *_SECONDS)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a group, from all sources together."""

    server: str | None = None
    switch: str | None = None
    token: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    secret_file: str | None = None
    job: str | None = None
    interface: str | None = None
    bind: str | None = None
    ports: str | None = None
    threads: int | None = None
    link_rate_mbps: int | None = None
    paths: int | None = None
    numeric: str = "auto"
    collective: str = "auto"
    share_memory: bool = True
    failure_after: float = 10.0
    stall_after: float | None = None
    join_timeout: float | None = None
    operation_timeout: float | None = None
    pacing: str = "off"
    agent: str = AGENT_SOCKET
    metrics: str | None = None
    gpu_piece_bytes: int = PIECE_BYTES
    gpu_pinned_bytes: int = PINNED_BYTES

    @staticmethod
    def load(options: Options | None = None) -> Settings:
        """Reads all sources."""
        values = _from_file(pathlib.Path(os.environ.get("THALWEG_CONFIG", "thalweg.toml")))
        from_environment = {
            name: os.environ[f"THALWEG_{name.upper()}"]
            for name in NAMES
            if f"THALWEG_{name.upper()}" in os.environ
        }
        check_names(from_environment, "the environment")
        values.update(from_environment)
        if options is not None:
            values.update(options.given)
        settings = Settings(**{name: _typed(name, value) for name, value in values.items()})
        settings._check()
        return settings

    def secret(self) -> bytes:
        """Returns the secret of the cluster, or a random one where there is no switch to share it with."""
        if self.secret_file is None:
            if self.switch is not None:
                raise ValueError(
                    "switch names a switch, but no setting has the secret that it shares with servers: "
                    "set secret_file, or server to use a running server"
                )
            return os.urandom(16)
        # A second line has the secret that the first one replaces. A job that begins needs only the first.
        text = (_confidential(self.secret_file).split() or [""])[0]
        try:
            secret = bytes.fromhex(text)
        except ValueError:
            secret = b""
        if len(secret) != 16:
            raise ValueError(f"{self.secret_file} must hold 32 hexadecimal digits")
        return secret

    def token_text(self) -> str | None:
        """Returns the token, from its file where that is set."""
        if self.token_file is None:
            return self.token
        return _confidential(self.token_file).strip()

    def _check(self) -> None:
        for one, other in (("token", "token_file"), ("interface", "bind")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} are both set: set one of them")
        if self.pacing not in ("off", "scheduled"):
            raise ValueError(f"pacing is {self.pacing!r}: choose off or scheduled")
        if self.ca_file is not None and self.server is None:
            raise ValueError("ca_file is set, but only a running server uses TLS: set server as well")
        if self.secret_file is not None and self.server is not None:
            raise ValueError(
                "secret_file is set, but only a server that rank 0 starts uses the secret: set server or secret_file"
            )
        for name in ("token_file", "ca_file", "secret_file"):
            path = getattr(self, name)
            if path is not None and not pathlib.Path(path).is_file():
                raise ValueError(f"{name} names {path}, and there is no such file")


def check_names(values: collections.abc.Iterable[str], source: str) -> None:
    """Raises ValueError for a setting that is unknown."""
    for name in values:
        if name not in NAMES:
            raise ValueError(f"{source}: unknown setting {name}; there are {', '.join(NAMES)}")


def _typed(name: str, value: object) -> typing.Any:
    """A value of the type that the setting has, whatever source it comes from."""
    if name in _FLAGS:
        word = str(value).lower()
        if word not in _FLAG_WORDS:
            raise ValueError(f"{name} is {value!r}: choose one of {', '.join(_FLAG_WORDS)}")
        return _FLAG_WORDS[word]
    if name in _SECONDS:
        if isinstance(value, datetime.timedelta):
            value = value.total_seconds()
        seconds = _number(name, value, float)
        if not 0 < seconds < float("inf"):
            raise ValueError(f"{name} is {value}: choose seconds above 0")
        return seconds
    if name in _COUNTS:
        count = _number(name, value, int)
        if count < 1:
            raise ValueError(f"{name} is {value}: choose 1 or more")
        return count
    return str(value)


Number = typing.TypeVar("Number", int, float)


def _number(name: str, value: object, kind: type[Number]) -> Number:
    try:
        return kind(str(value))
    except ValueError:
        raise ValueError(f"{name} is {value!r}, and has to be a number") from None


def _confidential(name: str) -> str:
    """Returns the text of a file that only its owner should read, and warns where others can."""
    path = pathlib.Path(name)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        _log.warning("%s has mode %04o: others can read it; chmod 600 %s", path, mode, path)
    return path.read_text()


def _from_file(path: pathlib.Path) -> dict[str, object]:
    if not path.exists():
        if "THALWEG_CONFIG" in os.environ:
            raise ValueError(f"THALWEG_CONFIG names {path}, and there is no such file")
        return {}
    try:
        import tomllib
    except ImportError:
        raise ValueError(f"{path} cannot be read before Python 3.11: use variables instead") from None
    values = tomllib.loads(path.read_text())
    check_names(values, str(path))
    return values
