"""Texts of operations that timed out, and the ranks that they waited for.

The group ends an operation whose time is over and aborts its job. The reason of the abort reaches the other ranks as
text, so the text names the ranks in a form that every rank reads back.
"""

from __future__ import annotations

import collections.abc
import datetime
import re
import typing
import warnings

from torch.distributed.constants import default_pg_timeout

if typing.TYPE_CHECKING:
    from .options import Options

_STALLED = re.compile(r"operation \d+ stalls\b")
_TIMED_OUT = re.compile(r"timed out after [\d.]+ s(?:, waiting for ranks? (\d+(?:, \d+)*))?")


class Stall(typing.NamedTuple):
    """Why an operation does not go on."""

    text: str
    #: All ranks that are waited for. The text describes the first of them.
    ranks: tuple[int, ...]
    noticed_at: float

    @staticmethod
    def of(note: str, ranks: collections.abc.Iterable[int], now: float) -> Stall | None:
        """The stall that a note of the session explains, and the ranks that it waits for. Other notes are none."""
        if not _STALLED.match(note):
            return None
        return Stall(note, tuple(sorted(set(ranks))), now)


def text(title: str, after_s: float, ranks: collections.abc.Sequence[int]) -> str:
    """An operation that timed out, and the ranks that it waited for where these are known."""
    whom = f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
    return f"{title} timed out after {after_s:.1f} s" + (f", waiting for {whom}" if ranks else "")


def awaited(text: str) -> tuple[int, ...] | None:
    """The ranks that an operation waited for, by the text that another rank made. ``None`` if none timed out."""
    found = _TIMED_OUT.search(text)
    if found is None:
        return None
    return tuple(map(int, found[1].split(", "))) if found[1] else ()


def of_group(timeout: datetime.timedelta, options: Options | None) -> datetime.timedelta:
    """The timeout of a group: the one that the program gave to torch, or else to torch's own field of the options."""
    own = default_pg_timeout if options is None else options._timeout
    if own in (default_pg_timeout, timeout):
        return timeout
    if timeout != default_pg_timeout:
        text = f"pg_options._timeout ({own}) has no effect beside timeout={timeout}: set one of them"
        warnings.warn(text, stacklevel=2)
        return timeout
    return own
