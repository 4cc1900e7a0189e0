"""Every collective of ``torch.distributed``, by one of the compiled part."""

from __future__ import annotations

import datetime
import functools
import threading
import typing

import torch
import torch.distributed as dist

from . import sparse, timeouts
from .errors import OperationTimeoutError
from .memory import Lent, divided, element_of, listed, moved_element_of
from .reductions import Reduction
from .runner import Begin, Runner
from .work import Work, Works

Tensors = list[torch.Tensor]
# Beyond the tags of programs, which have 32 bits.
_MONITOR_TAG = 1 << 62
# Time that the ranks of a monitored barrier have to raise its own error, before their messages time out.
_MONITOR_GRACE = datetime.timedelta(seconds=2)
# Operations that torch calls by these names, also those of a backend.
OPERATIONS = (
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "scatter",
    "send",
)


class Operations:
    """Operations of one group, under the names that torch gives them.

    They are begun in the order of calls. A thread of the group ends them as results arrive.
    """

    def __init__(self, rank: int, size: int, runner: Runner) -> None:
        self._rank, self._size = rank, size
        self.runner = runner
        self._session = runner.session
        self._coalescing = threading.local()

    def size(self) -> int:
        """Number of ranks."""
        return self._size

    def allreduce(self, tensors: Tensors, opts: typing.Any = None) -> Work:
        tensors = listed(tensors)
        if any(tensor.is_sparse for tensor in tensors):
            return sparse.all_reduce(self, tensors, opts)
        return self._all_reduce("all_reduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: typing.Any = None) -> Work:
        return self._all_reduce("all_reduce_coalesced", tensors, opts)

    def broadcast(self, tensors: Tensors, opts: typing.Any) -> Work:
        lent = [Lent(tensor) for tensor in listed(tensors)]
        begin = [
            _later(self._session.broadcast, opts.rootRank, one.memory, moved_element_of(one.tensor))
            for one in lent
        ]
        return self._start("broadcast", begin, tensors, _settle(lent), opts)

    def allgather(self, output: list[Tensors], input: Tensors, opts: typing.Any = None) -> Work:
        lent, begin = [], []
        for outputs, one in zip(output, input):
            given, places = Lent(one), [Lent(place, reads=False) for place in outputs]
            lent += [given, *places]
            memories = [place.memory for place in places]
            element = moved_element_of(one)
            begin.append(_later(self._session.all_gather, given.memory, memories, element))
        places = [one for one in lent if not any(one.tensor is given for given in input)]
        return self._start("all_gather", begin, output, _settle(places), opts, keep=lent)

    def allgather_coalesced(
        self, output: list[Tensors], input: Tensors, opts: typing.Any = None
    ) -> Work:
        by_input = [list(outputs) for outputs in zip(*output)]
        return self.allgather(by_input, input, opts)

    def all_gather_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: typing.Any = None
    ) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: typing.Any = None
    ) -> Work:
        begin, lent, keep = [], [], []
        for output, input in zip(outputs, inputs):
            given, place = Lent(input), Lent(output, reads=False)
            lent.append(place)
            keep.append(given)
            places, element = divided(place, self._size), moved_element_of(input)
            begin.append(_later(self._session.all_gather, given.memory, places, element))
        return self._start("all_gather_into_tensor", begin, outputs, _settle(lent), opts, keep=keep)

    def reduce_scatter(self, output: Tensors, input: list[Tensors], opts: typing.Any = None) -> Work:
        joined = [torch.cat([part.reshape(-1) for part in parts]) for parts in input]
        counts = [[part.numel() for part in parts] for parts in input]
        return self._reduce_scatter("reduce_scatter", output, joined, counts, opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: typing.Any = None
    ) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: typing.Any = None
    ) -> Work:
        counts = [[output.numel()] * self._size for output in outputs]
        return self._reduce_scatter("reduce_scatter_tensor", outputs, inputs, counts, opts)

    def reduce(self, tensors: Tensors, opts: typing.Any) -> Work:
        reduction = Reduction(opts, self._size)
        is_root = opts.rootRank == self._rank
        # Tensors of the other ranks stay as they are.
        kept = [tensor if is_root else tensor.clone() for tensor in listed(tensors)]
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
        settle = _nothing if not is_root else lambda: reduction.settle(lent)
        return self._start("reduce", begin, tensors, settle, opts)

    def gather(self, output: list[Tensors], input: Tensors, opts: typing.Any) -> Work:
        given = Lent(listed(input)[0])
        places = [Lent(place, reads=False) for place in output[0]] if output else []
        memories, element = [place.memory for place in places], moved_element_of(given.tensor)
        begin = [_later(self._session.gather, opts.rootRank, given.memory, memories, element)]
        return self._start("gather", begin, output, _settle(places), opts, keep=[given])

    def scatter(self, output: Tensors, input: list[Tensors], opts: typing.Any) -> Work:
        place = Lent(listed(output)[0], reads=False)
        given = [Lent(part) for part in input[0]] if input else []
        memories, element = [part.memory for part in given], moved_element_of(place.tensor)
        begin = [_later(self._session.scatter, opts.rootRank, memories, place.memory, element)]
        return self._start("scatter", begin, output, _settle([place]), opts, keep=given)

    def alltoall(self, output: Tensors, input: Tensors, opts: typing.Any = None) -> Work:
        places = [Lent(place, reads=False) for place in output]
        given = [Lent(part) for part in input]
        inputs, outputs = ([one.memory for one in some] for some in (given, places))
        element = moved_element_of(input[0]) if input else None
        begin = [_later(self._session.all_to_all, inputs, outputs, element)]
        return self._start("all_to_all", begin, output, _settle(places), opts, keep=given)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: typing.Any = None,
    ) -> Work:
        place, given = Lent(output, reads=False), Lent(input)
        inputs = divided(given, self._size, input_split_sizes)
        outputs = divided(place, self._size, output_split_sizes)
        begin = [_later(self._session.all_to_all, inputs, outputs, moved_element_of(input))]
        return self._start("all_to_all_single", begin, output, _settle([place]), opts, keep=[given])

    def barrier(self, opts: typing.Any = None) -> Work:
        return self._start("barrier", [self._session.barrier], None, _nothing, opts)

    # spec: E-02
    def monitored_barrier(
        self, timeout: typing.Any = None, wait_all_ranks: bool = False
    ) -> None:
        """:meth:`thalweg.torch.ThalwegGroup.monitored_barrier`."""
        timeout = getattr(timeout, "timeout", timeout)
        is_set = timeout is not None and timeout.total_seconds() > 0
        limit = timeout if is_set else datetime.timedelta(seconds=self.runner.timeout_s)
        # Rank 0 may notice its own deadline a moment later than the others, and the group only after both.
        answer_limit = limit + datetime.timedelta(seconds=2)
        moved = functools.partial(self._move, tag=_MONITOR_TAG, timeout=answer_limit + _MONITOR_GRACE)
        if self._rank > 0:
            moved("send", torch.zeros(1), 0).wait(answer_limit)
            self._named("monitored_barrier", moved("recv", torch.zeros(1), 0), answer_limit)
            return
        arrivals = {rank: moved("recv", torch.zeros(1), rank) for rank in range(1, self._size)}
        self._collect(arrivals, limit, wait_all_ranks)
        for rank in arrivals:
            moved("send", torch.zeros(1), rank).wait()

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        return self._move("send", listed(tensors)[0], dst, tag)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        return self._move("recv", listed(tensors)[0], src, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        lent = Lent(listed(tensors)[0], reads=False)
        begin = [_later(self._session.receive_any, tag, lent.memory, moved_element_of(lent.tensor))]
        return self._start("recv", begin, tensors, _settle([lent]), detail=" from any rank")

    def start_coalescing(self) -> None:
        self._coalescing.works = []

    def end_coalescing(self) -> Works:
        works, self._coalescing.works = self._coalescing.works, None
        return Works(works)

    # Methods that torch does not have.

    def all_reduce_bounded(
        self,
        tensor: torch.Tensor,
        max_missing: float,
        layer: tuple[int, int] | None = None,
        op: typing.Any = dist.ReduceOp.AVG,
    ) -> Work:
        """:meth:`thalweg.torch.ThalwegGroup.all_reduce_bounded`."""
        return self._reduce_bounded("all_reduce_bounded", tensor, (max_missing, layer, op))

    def reduce_scatter_bounded(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        max_missing: float,
        layer: tuple[int, int] | None = None,
        op: typing.Any = dist.ReduceOp.AVG,
    ) -> Work:
        """:meth:`thalweg.torch.ThalwegGroup.reduce_scatter_bounded`."""
        if output.numel() * self._size != input.numel():
            raise ValueError(
                f"{input.numel()} values are not {output.numel()} for each of {self._size} ranks"
            )

        def keep_own() -> None:
            own = input.view(-1).chunk(self._size)[self._rank] if input.numel() else input.view(-1)
            with torch.no_grad():
                output.view(-1).copy_(own)

        counts = [output.numel()] * self._size
        terms = (max_missing, layer, op)
        return self._reduce_bounded("reduce_scatter_bounded", input, terms, keep_own, counts)

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
        return self._start(
            name, begin, tensors, lambda: reduction.settle(lent, is_divided=True), opts
        )

    def _reduce_bounded(
        self,
        name: str,
        tensor: torch.Tensor,
        terms: tuple[float, tuple[int, int] | None, typing.Any],
        then: typing.Callable[[], object] = lambda: None,
        counts: list[int] | None = None,
    ) -> Work:
        """``counts`` has the number of values that each rank keeps, where none keeps all."""
        max_missing, layer, op = terms
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
            max_missing,
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
        return self._start(name, begin, outputs, lambda: reduction.settle(places), opts, keep=keep)

    def _move(
        self,
        name: str,
        tensor: torch.Tensor,
        peer: int,
        tag: int,
        timeout: datetime.timedelta | None = None,
    ) -> Work:
        """Sends a tensor to a rank, or receives it from there (``send``, ``recv``)."""
        is_sent = name == "send"
        lent = Lent(tensor, reads=is_sent)
        call = self._session.send if is_sent else self._session.receive
        begin = _later(call, peer, tag, lent.memory, moved_element_of(tensor))
        return self._start(
            name,
            [begin],
            [tensor],
            _nothing if is_sent else _settle([lent]),
            detail=f" {'to' if is_sent else 'from'} rank {peer}",
            timeout=timeout,
            keep=[lent],
            peers=(peer,),
        )

    def _collect(
        self, arrivals: dict[int, Work], limit: datetime.timedelta, waits_for_all: bool
    ) -> None:
        """Waits for the ranks of a monitored barrier, and aborts the job if some do not come."""
        ends_at = datetime.datetime.now() + limit
        missing = []
        for rank, arrival in arrivals.items():
            left = max(ends_at - datetime.datetime.now(), datetime.timedelta(milliseconds=1))
            try:
                arrival.wait(left)
            except OperationTimeoutError:
                missing.append(rank)
                if not waits_for_all:
                    break
        if missing:
            text = timeouts.text("monitored_barrier", limit.total_seconds(), missing)
            self.runner.abort(text)
            raise OperationTimeoutError(
                text, ranks=missing, operation="monitored_barrier", since=limit.total_seconds()
            )

    def _named(self, name: str, work: Work, limit: datetime.timedelta) -> None:
        try:
            work.wait(limit)
        except OperationTimeoutError as error:
            text = timeouts.text(name, limit.total_seconds(), [0])
            raise OperationTimeoutError(text, ranks=[0], operation=name, since=error.since) from None

    def _start(
        self,
        name: str,
        begin: list[Begin],
        result: object,
        settle: typing.Callable[[], object],
        opts: typing.Any = None,
        *,
        detail: str = "",
        timeout: datetime.timedelta | None = None,
        keep: object = None,
        peers: tuple[int, ...] = (),
    ) -> Work:
        timeout = getattr(opts, "timeout", timeout)
        work = self.runner.start(
            name, begin, result, settle, detail=detail, timeout=timeout, keep=keep, peers=peers
        )
        works = getattr(self._coalescing, "works", None)
        if works is not None:
            works.append(work)
        return work


def _later(
    call: typing.Callable[..., int], *arguments: typing.Any, **named: typing.Any
) -> Begin:
    return lambda: call(*arguments, **named)


def _settle(lent: list[Lent]) -> typing.Callable[[], object]:
    def settle() -> None:
        for one in lent:
            one.settle()

    return settle


def _nothing() -> None:
    pass
