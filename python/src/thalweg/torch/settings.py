"""Where switches and servers are, if rank 0 is not to bring its own.

Settings come from the environment, or from a file ``thalweg.toml`` in the working directory (another
path in ``THALWEG_CONFIG``). The environment wins.

============================== ====================== ====================================================
variable                       key of the file        meaning
============================== ====================== ====================================================
``THALWEG_SERVER``             ``server``             a running ``thalweg server``, as host:port
``THALWEG_SWITCH``             ``switch``             the switch of this rack, as host:port
``THALWEG_TOKEN``              ``token``              what the server wants to see
``THALWEG_SECRET_FILE``        ``secret_file``        the cluster's secret: needed with a switch but no server
``THALWEG_COLLECTIVE``         ``collective``         ``auto``, ``aggregate``, ``server`` or ``ring``
``THALWEG_SHARE_MEMORY``       ``share_memory``       ``0``: ranks of one host do not combine in memory first
============================== ====================== ====================================================
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

_FLAGS = ("share_memory",)
_KEYS = ("server", "switch", "token", "secret_file", "collective", *_FLAGS)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the environment and the file say."""

    server: str | None = None
    switch: str | None = None
    token: str | None = None
    secret_file: str | None = None
    collective: str = "auto"
    share_memory: bool = True

    @staticmethod
    def load() -> Settings:
        """Reads both."""
        values = _from_file(pathlib.Path(os.environ.get("THALWEG_CONFIG", "thalweg.toml")))
        for key in _KEYS:
            given = os.environ.get(f"THALWEG_{key.upper()}")
            if given is not None:
                values[key] = given
        for flag in _FLAGS:
            if flag in values:
                values[flag] = str(values[flag]).lower() not in ("0", "false", "no")
        return Settings(**values)

    def secret(self) -> bytes:
        """The cluster's secret, or one that nobody else knows."""
        if self.secret_file is None:
            if self.switch is not None:
                raise ValueError(
                    "THALWEG_SWITCH names a switch, but nothing says what secret it shares with servers: "
                    "set THALWEG_SECRET_FILE, or THALWEG_SERVER to use a running server"
                )
            return os.urandom(16)
        text = pathlib.Path(self.secret_file).read_text().strip()
        try:
            secret = bytes.fromhex(text)
        except ValueError:
            secret = b""
        if len(secret) != 16:
            raise ValueError(f"{self.secret_file} must hold 32 hexadecimal digits")
        return secret


def _from_file(path: pathlib.Path) -> dict:
    if not path.exists():
        if "THALWEG_CONFIG" in os.environ:
            raise ValueError(f"THALWEG_CONFIG names {path}, and there is no such file")
        return {}
    try:
        import tomllib
    except ImportError:
        raise ValueError(f"{path} cannot be read before Python 3.11: use variables instead") from None
    values = tomllib.loads(path.read_text())
    unknown = sorted(set(values) - set(_KEYS))
    if unknown:
        raise ValueError(f"{path}: unknown {', '.join(unknown)}; there are {', '.join(_KEYS)}")
    return values
