"""The process group: every collective of ``torch.distributed``, by one of the compiled part."""

from __future__ import annotations

import atexit
import datetime
import logging
import threading
import time
import typing
import weakref

import torch
import torch.distributed as dist

from .. import _core
from .memory import Lent, element_of, moved_element_of
from .reductions import Reduction
from .work import Work

_log = logging.getLogger("thalweg")

Tensors = typing.List[torch.Tensor]
# How long the thread that hands out results may take to notice that the group is over.
_LOOK_S = 0.2
# Groups with operations under way. These work on memory of tensors, so nobody may let go of them.
_busy: set[ThalwegGroup] = set()


class ThalwegGroup(dist.ProcessGroup):
    """Ranks that sum through switches.

    Operations are begun in the order of calls. A thread of the group hands out results as they come.
    """

    def __init__(
        self, rank: int, size: int, session: _core.Session, timeout: datetime.timedelta
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout
        self._session = session
        self._name = self._desc = "undefined"
        self._works: dict[int, Work] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._calls = 0
        self._thread = threading.Thread(
            target=_hand_out, args=(weakref.ref(self), session), name="thalweg-results", daemon=True
        )
        self._thread.start()
        # A process that ends without destroying its groups would be missed by the others.
        atexit.register(_leave, weakref.ref(self))

    # What torch asks of a group.

    def getBackendName(self) -> str:
        return "thalweg"

    def name(self) -> str:
        return "thalweg"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    # Torch keeps names with backends of its own kind, and this group is none of them.

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._desc

    def getGroupName(self) -> str:
        return self._name

    def getGroupDesc(self) -> str:
        return self._desc

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    def allreduce(self, tensors: Tensors, opts: typing.Any = None) -> Work:
        return self._all_reduce("allreduce", _listed(tensors), opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: typing.Any = None) -> Work:
        return self._all_reduce("allreduce_coalesced", tensors, opts)

    def broadcast(self, tensors: Tensors, opts: typing.Any) -> Work:
        lent = [Lent(tensor) for tensor in _listed(tensors)]
        begin = [
            _later(self._session.broadcast, opts.rootRank, one.memory, moved_element_of(one.tensor))
            for one in lent
        ]
        return self._start("broadcast", begin, tensors, _settle(lent))

    def allgather(self, output: list[Tensors], input: Tensors, opts: typing.Any = None) -> Work:
        lent, begin = [], []
        for outputs, one in zip(output, input):
            given, places = Lent(one), [Lent(place, reads=False) for place in outputs]
            lent += [given, *places]
            memories = [place.memory for place in places]
            element = moved_element_of(one)
            begin.append(_later(self._session.all_gather, given.memory, memories, element))
        places = [one for one in lent if not any(one.tensor is given for given in input)]
        return self._start("allgather", begin, output, _settle(places), keep=lent)

    def allgather_coalesced(
        self, output: list[Tensors], input: Tensors, opts: typing.Any = None
    ) -> Work:
        by_input = [list(outputs) for outputs in zip(*output)]
        return self.allgather(by_input, input, opts)

    def _allgather_base(
        self, output: torch.Tensor, input: torch.Tensor, opts: typing.Any = None
    ) -> Work:
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def allgather_into_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: typing.Any = None
    ) -> Work:
        begin, lent, keep = [], [], []
        for output, input in zip(outputs, inputs):
            given, place = Lent(input), Lent(output, reads=False)
            lent.append(place)
            keep.append(given)
            places, element = _divided(place, self._size), moved_element_of(input)
            begin.append(_later(self._session.all_gather, given.memory, places, element))
        return self._start("all_gather_into_tensor", begin, outputs, _settle(lent), keep=keep)

    def reduce_scatter(self, output: Tensors, input: list[Tensors], opts: typing.Any = None) -> Work:
        joined = [torch.cat([part.reshape(-1) for part in parts]) for parts in input]
        counts = [[part.numel() for part in parts] for parts in input]
        return self._reduce_scatter("reduce_scatter", output, joined, counts, opts)

    def _reduce_scatter_base(
        self, output: torch.Tensor, input: torch.Tensor, opts: typing.Any = None
    ) -> Work:
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: typing.Any = None
    ) -> Work:
        counts = [[output.numel()] * self._size for output in outputs]
        return self._reduce_scatter("reduce_scatter_tensor", outputs, inputs, counts, opts)

    def reduce(self, tensors: Tensors, opts: typing.Any) -> Work:
        reduction = Reduction(opts, self._size)
        is_root = opts.rootRank == self._rank
        # What the others contribute stays as it is.
        kept = [tensor if is_root else tensor.clone() for tensor in _listed(tensors)]
        lent = [reduction.lend(tensor) for tensor in kept]
        begin = [
            _later(
                self._session.reduce,
                opts.rootRank,
                one.memory,
                element_of(one.tensor),
                reduction.name(one.tensor),
                reduction.declared(one.tensor),
            )
            for one in lent
        ]
        return self._start("reduce", begin, tensors, lambda: is_root and reduction.settle(lent))

    def gather(self, output: list[Tensors], input: Tensors, opts: typing.Any) -> Work:
        given = Lent(_listed(input)[0])
        places = [Lent(place, reads=False) for place in output[0]] if output else []
        memories, element = [place.memory for place in places], moved_element_of(given.tensor)
        begin = [_later(self._session.gather, opts.rootRank, given.memory, memories, element)]
        return self._start("gather", begin, output, _settle(places), keep=[given])

    def scatter(self, output: Tensors, input: list[Tensors], opts: typing.Any) -> Work:
        place = Lent(_listed(output)[0], reads=False)
        given = [Lent(part) for part in input[0]] if input else []
        memories, element = [part.memory for part in given], moved_element_of(place.tensor)
        begin = [_later(self._session.scatter, opts.rootRank, memories, place.memory, element)]
        return self._start("scatter", begin, output, _settle([place]), keep=given)

    def alltoall(self, output: Tensors, input: Tensors, opts: typing.Any = None) -> Work:
        places = [Lent(place, reads=False) for place in output]
        given = [Lent(part) for part in input]
        inputs, outputs = ([one.memory for one in some] for some in (given, places))
        element = moved_element_of(input[0]) if input else None
        begin = [_later(self._session.all_to_all, inputs, outputs, element)]
        return self._start("alltoall", begin, output, _settle(places), keep=given)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: typing.Any = None,
    ) -> Work:
        place, given = Lent(output, reads=False), Lent(input)
        inputs = _divided(given, self._size, input_split_sizes)
        outputs = _divided(place, self._size, output_split_sizes)
        begin = [_later(self._session.all_to_all, inputs, outputs, moved_element_of(input))]
        return self._start("all_to_all_single", begin, output, _settle([place]), keep=[given])

    def barrier(self, opts: typing.Any = None) -> Work:
        return self._start("barrier", [self._session.barrier], None, lambda: None)

    def monitored_barrier(self, timeout: typing.Any = None, wait_all_ranks: bool = False) -> None:
        self.barrier().wait(timeout)

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        lent = Lent(_listed(tensors)[0])
        begin = [_later(self._session.send, dst, tag, lent.memory, moved_element_of(lent.tensor))]
        return self._start(f"send to rank {dst}", begin, tensors, lambda: None, keep=[lent])

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        lent = Lent(_listed(tensors)[0], reads=False)
        begin = [_later(self._session.receive, src, tag, lent.memory, moved_element_of(lent.tensor))]
        return self._start(f"recv from rank {src}", begin, tensors, _settle([lent]))

    # What torch does not have.

    def all_reduce_bounded(
        self,
        tensor: torch.Tensor,
        loss: float,
        layer: tuple[int, int] | None = None,
        op: typing.Any = dist.ReduceOp.AVG,
    ) -> Work:
        """The mean (or ``SUM``) of a tensor of floats, of which a share of each rank may be missing.

        The mean is that of the ranks that are in it, value by value, and the same bits everywhere; a sum is the
        mean times all ranks. ``work.missing`` tells whose values are missing where. ``layer`` is which one of how
        many the tensor belongs to: front layers are more urgent to switches that have priorities.
        """
        return self._reduce_bounded("all_reduce_bounded", tensor, (loss, layer, op))

    def reduce_scatter_bounded(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        loss: float,
        layer: tuple[int, int] | None = None,
        op: typing.Any = dist.ReduceOp.AVG,
    ) -> Work:
        """The same where each rank keeps its part. All of ``input`` is overwritten."""
        if output.numel() * self._size != input.numel():
            raise ValueError(
                f"{input.numel()} values are not {output.numel()} for each of {self._size} ranks"
            )

        def keep_own() -> None:
            own = input.view(-1).chunk(self._size)[self._rank] if input.numel() else input.view(-1)
            with torch.no_grad():
                output.view(-1).copy_(own)

        counts = [output.numel()] * self._size
        terms = (loss, layer, op)
        return self._reduce_bounded("reduce_scatter_bounded", input, terms, keep_own, counts)

    # The same under the names that newer versions of torch use.

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    def shutdown(self) -> None:
        """Leaves the job, when everything that was begun has ended."""
        if not self._is_over.is_set():
            self._is_over.set()
            try:
                self._session.leave()
            except _core.SessionError as error:
                _log.debug("left a job that had failed: %s", error)
            self._thread.join()

    def abort(self) -> None:
        """Ends at once. What is under way fails, here and elsewhere."""
        self._is_over.set()
        self._session.abort()

    # How it is done.

    def _all_reduce(self, name: str, tensors: Tensors, opts: typing.Any) -> Work:
        reduction = Reduction(opts, self._size)
        lent = [reduction.lend(tensor) for tensor in tensors]
        begin = [
            _later(
                self._session.all_reduce,
                one.memory,
                element_of(one.tensor),
                reduction.name(one.tensor),
                reduction=reduction.declared(one.tensor),
            )
            for one in lent
        ]
        return self._start(name, begin, tensors, lambda: reduction.settle(lent, is_divided=True))

    def _reduce_bounded(
        self,
        name: str,
        tensor: torch.Tensor,
        terms: tuple[float, tuple[int, int] | None, typing.Any],
        then: typing.Callable[[], None] = lambda: None,
        counts: list[int] | None = None,
    ) -> Work:
        """``counts`` is how many values each rank keeps, where none keeps all."""
        loss, layer, op = terms
        if not tensor.is_floating_point():
            raise TypeError(f"only floats may lack something, not {tensor.dtype}")
        reduction = Reduction.of(op, self._size)
        how = reduction.bounded_name()
        lent = reduction.lend(tensor)
        begin = _later(
            self._session.all_reduce,
            lent.memory,
            element_of(tensor),
            how,
            loss,
            layer,
            reduction=reduction.declared(tensor),
            counts=counts,
        )

        def settle() -> None:
            reduction.settle_bounded(lent)
            then()

        return self._start(name, [begin], tensor, settle)

    def _reduce_scatter(
        self,
        name: str,
        outputs: Tensors,
        inputs: Tensors,
        counts: list[list[int]],
        opts: typing.Any,
    ) -> Work:
        reduction = Reduction(opts, self._size)
        begin, places, keep = [], [], []
        for output, input, parts in zip(outputs, inputs, counts):
            given, place = reduction.lend(input, is_changed=False), Lent(output, reads=False)
            keep.append(given)
            places.append(place)
            begin.append(
                _later(
                    self._session.reduce_scatter,
                    given.memory,
                    place.memory,
                    parts,
                    element_of(input),
                    reduction.name(input),
                    reduction.declared(input),
                )
            )
        return self._start(name, begin, outputs, lambda: reduction.settle(places), keep=keep)

    def _start(
        self,
        name: str,
        begin: list[typing.Callable[[], int]],
        result: typing.Any,
        settle: typing.Callable[[], typing.Any],
        keep: typing.Any = None,
    ) -> Work:
        with self._lock:
            self._calls += 1
            title = f"{name} (call {self._calls} of this group, rank {self._rank} of {self._size})"
            # Keeps what was lent for as long as it takes.
            work = Work(title, len(begin), result, lambda keep=keep: settle())
            for one in begin:
                self._works[one()] = work
                _busy.add(self)
        if not begin:
            work._parts = 1
            work.end_part(None)
        return work

    def _on_end(
        self,
        number: int,
        failure: tuple[str, list[int]] | None,
        missing: list[tuple[int, int, list[int]]] | None,
    ) -> None:
        with self._lock:
            work = self._works.pop(number)
            if not self._works:
                _busy.discard(self)
        error = None
        if failure is not None:
            age = time.monotonic() - work.begun_at
            error = _core.SessionError(f"{work.name}, begun {age:.1f} s ago: {failure[0]}")
        # What one of its operations does not report, nobody knows of the whole.
        work.missing = None if work.missing is None or missing is None else work.missing + missing
        work.end_part(error)

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            works, self._works = set(self._works.values()), {}
            _busy.discard(self)
        for work in works:
            work.fail(_core.SessionError(f"{work.name}: its results cannot be handed out: {error}"))

    def _is_idle(self) -> bool:
        with self._lock:
            return not self._works


def _hand_out(group: weakref.ref[ThalwegGroup], session: _core.Session) -> None:
    """The thread of a group. It does not keep the group alive."""
    while True:
        end = session.next(_LOOK_S)
        alive = group()
        for is_warning, note in session.take_notes():
            _log.log(logging.WARNING if is_warning else logging.INFO, "%s", note)
        if alive is None or (end is None and alive._is_over.is_set() and alive._is_idle()):
            return
        try:
            if end is not None:
                alive._on_end(*end)
        except Exception as error:  # without this thread nobody would ever hear of anything
            alive._give_up(error)
            raise
        del alive


def _leave(group: weakref.ref[ThalwegGroup]) -> None:
    alive = group()
    if alive is not None:
        alive.shutdown()


def _listed(tensors: torch.Tensor | Tensors) -> Tensors:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _later(
    call: typing.Callable[..., int], *arguments: typing.Any, **named: typing.Any
) -> typing.Callable[[], int]:
    return lambda: call(*arguments, **named)


def _settle(lent: list[Lent]) -> typing.Callable[[], None]:
    return lambda: [one.settle() for one in lent] and None


def _divided(lent: Lent, ranks: int, splits: list[int] | None = None) -> list[tuple[int, int]]:
    """Its memory in one piece for each rank: equal ones, or so many rows each."""
    address, length = lent.memory
    if not splits:
        if length % ranks:
            raise ValueError(f"a tensor of {tuple(lent.host.shape)} cannot be divided by {ranks} ranks")
        piece = length // ranks
        return [(address + at * piece if piece else 0, piece) for at in range(ranks)]
    rows = lent.host.shape[0] if lent.host.dim() else 0
    if sum(splits) != rows:
        raise ValueError(f"splits {splits} do not add up to {rows} rows")
    row = length // rows if rows else 0
    pieces, start = [], address
    for split in splits:
        pieces.append((start if split * row else 0, split * row))
        start += split * row
    return pieces
