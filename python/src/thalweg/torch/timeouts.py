"""Texts of operations that timed out, and the ranks that they waited for.

The group ends an operation whose time is over and aborts its job. The reason of the abort reaches the other ranks as
text, so the text names the ranks in a form that every rank reads back.
"""

from __future__ import annotations

import collections.abc
import re
import typing

# A rank whose address is given: the server describes at most four of those that it waits for.
_DESCRIBED = re.compile(r"\brank (\d+) \(")
_STALLED = re.compile(r"operation \d+ stalls\b")
_TIMED_OUT = re.compile(r"timed out after [\d.]+ s(?:, waiting for ranks? (\d+(?:, \d+)*))?")


class Stall(typing.NamedTuple):
    """Why an operation does not go on."""

    text: str
    #: Ranks that are waited for.
    ranks: tuple[int, ...]
    noticed_at: float

    @staticmethod
    def of(note: str, now: float) -> Stall | None:
        """The stall that a note of the session explains. Other notes are none."""
        if not _STALLED.match(note):
            return None
        # The rank before these words is the one that waits.
        _, _, awaited = note.rpartition(" waits for ")
        ranks = sorted({int(rank) for rank in _DESCRIBED.findall(awaited)})
        return Stall(note, tuple(ranks), now)


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
