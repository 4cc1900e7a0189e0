"""Settings of one process group, given as ``pg_options``."""

from __future__ import annotations

import datetime

from torch._C import _distributed_c10d

Seconds = float | datetime.timedelta


# spec: E-02
class Options(_distributed_c10d.Backend.Options):
    """Settings of a group.

        options = thalweg.torch.Options(server="10.0.3.2:4808", ca_file="ca.pem", failure_after=5)
        dist.init_process_group("thalweg", pg_options=options)

    A setting that is left out, or ``None``, comes from the environment (``THALWEG_SERVER`` for `server`), then from
    the file ``thalweg.toml``, then from the defaults. Groups that are made later without options have those of the
    default group. :mod:`thalweg.torch.settings` describes each setting.
    """

    def __init__(
        self,
        *,
        server: str | None = None,
        switch: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        secret_file: str | None = None,
        job: str | None = None,
        interface: str | None = None,
        bind: str | None = None,
        ports: str | None = None,
        threads: int | None = None,
        numeric: str | None = None,
        collective: str | None = None,
        share_memory: bool | None = None,
        failure_after: Seconds | None = None,
        stall_after: Seconds | None = None,
        join_timeout: Seconds | None = None,
        operation_timeout: Seconds | None = None,
        **unknown: object,
    ) -> None:
        super().__init__("thalweg")
        given = dict(locals())
        for name in ("self", "unknown", "__class__"):
            given.pop(name, None)
        given.update(unknown)
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
