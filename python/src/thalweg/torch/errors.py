"""Exceptions of the backend, one class for each kind of failure.

All are subclasses of :class:`ThalwegError`, which is a ``torch.distributed.DistBackendError`` and so a
``RuntimeError``. Settings and arguments that are invalid raise ``ValueError`` or ``TypeError`` instead, from the call
that has them.
"""

from __future__ import annotations

import collections.abc
import typing

import torch.distributed as dist

from .. import _core
from . import timeouts

__all__ = [
    "AbortedError",
    "ClosedError",
    "DisagreementError",
    "NetworkError",
    "OperationTimeoutError",
    "PathError",
    "PeerError",
    "ThalwegError",
    "UnreachableError",
]


# spec: E-07
class ThalwegError(dist.DistBackendError, _core.SessionError):
    """A job failed, and with it the operation that raised this. ``__cause__`` is the source, where there is one."""

    #: Kind of the failure, a word for programs. Each subclass has its own; others are ``config`` (the server refuses a
    #: setting of the rank), ``system`` (the system of this host refused something) and ``internal`` (a defect).
    kind: str = "internal"

    def __init__(
        self,
        text: str,
        *,
        ranks: collections.abc.Iterable[int] = (),
        operation: str | None = None,
        since: float | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(text)
        if kind is not None:
            self.kind = kind
        #: Ranks of the group that are at fault, ascending, where that is known.
        self.ranks: tuple[int, ...] = tuple(sorted(ranks))
        #: Name of the operation, such as ``all_reduce``; ``None`` where no operation failed.
        self.operation = operation
        #: Seconds without progress where that is why it failed, else seconds since the operation began.
        self.since = since


class PeerError(ThalwegError):
    """Another rank, or its host, failed."""

    kind = "peer"


class UnreachableError(ThalwegError):
    """Rank 0 has no address that all other ranks reach. ``ranks`` are those that do not reach the best one."""

    kind = "unreachable"


class NetworkError(ThalwegError):
    """The server, or the store through which ranks join, is out of reach, or hosts are in different networks."""

    kind = "network"


class PathError(ThalwegError):
    """A path carries shorter packets than before. The operation has failed; the group goes on with shorter ones."""

    kind = "path"


class ClosedError(ThalwegError):
    """The group was left before the operation, or before it ended."""

    kind = "closed"


class OperationTimeoutError(ThalwegError, TimeoutError):
    """Joining or an operation took longer than its timeout. The text contains "timed out"."""

    kind = "timeout"


class AbortedError(ThalwegError):
    """A rank ended the job by ``abort``, an interrupt or an exception."""

    kind = "aborted"


class DisagreementError(ThalwegError):
    """Ranks called different operations."""

    kind = "disagreement"


_CLASSES: dict[str, type[ThalwegError]] = {
    found.kind: found
    for found in (
        PeerError,
        OperationTimeoutError,
        AbortedError,
        DisagreementError,
        UnreachableError,
        NetworkError,
        PathError,
        ClosedError,
    )
}


# The compiled part says this of a server that it has lost.
_LOST_SERVER = "no connection to the server at "


def of_failure(
    failure: _core._Failure,
    *,
    operation: str | None = None,
    title: str = "",
    age_s: float | None = None,
    server_of_rank_0: str | None = None,
) -> Exception:
    """The exception for what the compiled part reports of an operation, or of joining.

    A server at the address `server_of_rank_0` runs in the process of rank 0, and dies with it.
    """
    kind, text, ranks, since, source = failure
    if server_of_rank_0 is not None and _LOST_SERVER in text:
        kind, ranks = "peer", [0]
        text = f"rank 0, which runs the server at {server_of_rank_0}, does not answer: {text}"
    text = f"{title}: {text}" if title else text
    # A server may refuse a rank while it runs, and the call that learns it is not at fault.
    if kind == "call" or kind == "config" and operation in (None, "join"):
        return ValueError(text)
    if kind == "timeout" and "timed out" not in text:
        text = f"timed out: {text}"
    awaited = timeouts.awaited(text) if kind == "aborted" else None
    if awaited is not None:
        # The rank that aborted the job is not at fault: those that it waited for are.
        kind, ranks = "timeout", list(awaited)
    found = _CLASSES.get(kind, ThalwegError)
    error = found(text, ranks=ranks, operation=operation, since=age_s if since is None else since, kind=kind)
    if source is not None:
        number, cause = source
        error.__cause__ = RuntimeError(cause) if number is None else OSError(number, cause)
    return error


def of_core(
    error: _core.SessionError, operation: str | None = None, server_of_rank_0: str | None = None
) -> Exception:
    """The exception for one that the compiled part raised."""
    failure: typing.Any = getattr(error, "failure", None)
    if failure is None:
        return ThalwegError(str(error), operation=operation)
    return of_failure(failure, operation=operation, server_of_rank_0=server_of_rank_0)


def to_json(error: ThalwegError) -> dict[str, object]:
    """An error as values of JSON, for other ranks."""
    return {
        "kind": error.kind,
        "text": str(error),
        "ranks": error.ranks,
        "operation": error.operation,
        "since": error.since,
    }


def of_json(value: typing.Any) -> ThalwegError:
    """The error of another rank."""
    kind = value["kind"]
    found = _CLASSES.get(kind, ThalwegError)
    ranks, operation, since = value["ranks"], value["operation"], value["since"]
    return found(value["text"], ranks=ranks, operation=operation, since=since, kind=kind)
