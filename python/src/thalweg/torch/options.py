"""Settings of one process group, given as ``pg_options``."""

from __future__ import annotations

import datetime
import typing

from torch._C import _distributed_c10d

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

Seconds = float | datetime.timedelta


class Given(typing.TypedDict, total=False):
    """Settings and their types, for type checkers. Options refuse any other name when the program runs as well."""

    server: str | None
    switch: str | None
    token: str | None
    token_file: str | None
    ca_file: str | None
    secret_file: str | None
    job: str | None
    interface: str | None
    bind: str | None
    ports: str | None
    threads: int | None
    link_rate_mbps: int | None
    paths: int | None
    numeric: str | None
    collective: str | None
    share_memory: bool | None
    failure_after: Seconds | None
    stall_after: Seconds | None
    join_timeout: Seconds | None
    operation_timeout: Seconds | None
    pacing: str | None
    agent: str | None
    metrics: str | None
    gpu_piece_bytes: int | None
    gpu_pinned_bytes: int | None


# spec: E-02
class Options(_distributed_c10d.Backend.Options):
    """Settings of a group.

        options = thalweg.torch.Options(server="10.0.3.2:4808", ca_file="ca.pem", failure_after=5)
        dist.init_process_group("thalweg", pg_options=options)

    A setting that is left out, or ``None``, comes from the environment (``THALWEG_SERVER`` for `server`), then from
    the file ``thalweg.toml``, then from the defaults. Groups that are made later without options have those of the
    default group. :mod:`thalweg.torch.settings` describes each setting.
    """

    def __init__(self, **given: Unpack[Given]) -> None:
        super().__init__("thalweg")
        #: Settings that were given, by name.
        self.given: dict[str, object] = {
            name: value for name, value in given.items() if value is not None
        }
        # Imported late: settings are documented there, and name this class.
        from .settings import check_names

        check_names(self.given, "Options")

    def __repr__(self) -> str:
        hidden = {name: "…" if name == "token" else value for name, value in self.given.items()}
        return f"Options({', '.join(f'{name}={value!r}' for name, value in hidden.items())})"
