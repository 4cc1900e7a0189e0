"""The compiled part. Private: memory is an address and a length in bytes, and operations are numbers."""

from collections.abc import Sequence
from typing import TypeAlias, final

_Memory: TypeAlias = tuple[int, int]
# From which value to which, and the ranks whose values are missing there.
_Lacking: TypeAlias = tuple[int, int, list[int]]
# Number of an error of the system where it is one, and text.
_Source: TypeAlias = tuple[int | None, str]
# Kind, text, ranks at fault, seconds without progress where that is why, and source.
_Failure: TypeAlias = tuple[str, str, list[int], float | None, _Source | None]
# Whether it is worth a warning, text, and all ranks of which it speaks.
_Note: TypeAlias = tuple[bool, str, list[int]]
# Number, failure, values that the result lacks, and the rank that sent it where that was any.
_End: TypeAlias = tuple[int, _Failure | None, list[_Lacking] | None, int | None]

class SessionError(RuntimeError):
    kind: str
    ranks: tuple[int, ...]
    since: float | None

@final
class Switch:
    """A switch that sums, on a thread of its own."""

    def __new__(
        cls, bind: str, secret: bytes, loss: float = 0.0, metrics: str | None = None
    ) -> Switch: ...
    @property
    def address(self) -> str: ...
    @property
    def metrics_address(self) -> str | None: ...
    def counts(self) -> tuple[int, int]: ...
    def stop(self) -> None: ...

@final
class Server:
    """A server that completes sums and admits ranks to jobs, on threads of its own."""

    def __new__(
        cls,
        bind: str,
        secret: bytes,
        token: str | None = None,
        switch: str | None = None,
        tls: tuple[str, str] | None = None,
        metrics: str | None = None,
    ) -> Server: ...
    @property
    def address(self) -> str: ...
    @property
    def metrics_address(self) -> str | None: ...
    def stop(self) -> None: ...

@final
class Session:
    """One rank's part in a job. A method that begins an operation returns its number; ``next`` reports its end."""

    def __new__(
        cls,
        server: str,
        job: str,
        rank: int,
        ranks: int,
        **given: object,
    ) -> Session: ...
    def settings(self) -> dict[str, object]: ...
    @property
    def hosts(self) -> int: ...
    def all_reduce(
        self,
        memory: _Memory,
        element: str,
        how: str,
        loss: float = 0.0,
        layer: tuple[int, int] | None = None,
        reduction: str | None = None,
        counts: Sequence[int] | None = None,
    ) -> int: ...
    def reduce(
        self, root: int, memory: _Memory, element: str, how: str, reduction: str | None = None
    ) -> int: ...
    def reduce_scatter(
        self,
        input: _Memory,
        output: _Memory,
        counts: Sequence[int],
        element: str,
        how: str,
        reduction: str | None = None,
    ) -> int: ...
    def broadcast(self, root: int, memory: _Memory, element: str | None = None) -> int: ...
    def all_gather(
        self, input: _Memory, outputs: Sequence[_Memory], element: str | None = None
    ) -> int: ...
    def gather(
        self, root: int, input: _Memory, outputs: Sequence[_Memory], element: str | None = None
    ) -> int: ...
    def scatter(
        self, root: int, inputs: Sequence[_Memory], output: _Memory, element: str | None = None
    ) -> int: ...
    def all_to_all(
        self, inputs: Sequence[_Memory], outputs: Sequence[_Memory], element: str | None = None
    ) -> int: ...
    def barrier(self) -> int: ...
    def send(self, to: int, tag: int, memory: _Memory, element: str | None = None) -> int: ...
    def receive(self, source: int, tag: int, memory: _Memory, element: str | None = None) -> int: ...
    def receive_any(self, tag: int, memory: _Memory, element: str | None = None) -> int: ...
    def next(self, timeout_s: float) -> _End | None: ...
    def take_notes(self) -> list[_Note]: ...
    def leave(self, limit_s: float | None = None) -> bool: ...
    def abort(self, reason: str) -> None: ...
