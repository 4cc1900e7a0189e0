"""Every collective of ``torch.distributed``, by one of the compiled part."""

from __future__ import annotations

import collections.abc
import datetime
import functools
import threading
import typing

import torch
import torch.distributed as dist

from . import device as devices
from . import sparse, staging, timeouts
from .calls import Begin, Call, Operand
from .errors import OperationTimeoutError
from .memory import Lent, Memory, Staged, check_divisible, divided, element_of, listed, moved_element_of
from .reductions import Reduction
from .runner import Runner
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

    They are begun in the order of calls. A thread of the group ends them as results arrive. Tensors of a device are cut
    into pieces of `piece_bytes`, the same number at all ranks.
    """

    def __init__(self, rank: int, size: int, runner: Runner, piece_bytes: int = staging.PIECE_BYTES) -> None:
        self._rank, self._size = rank, size
        self.piece_bytes = piece_bytes
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
        tensors, root = listed(tensors), opts.rootRank
        call = self._call(tensors)
        for tensor in tensors:
            is_root = root == self._rank
            for (lent,) in call.cut(Operand([tensor], reads=is_root, writes=not is_root)):
                begin = _later(self._session.broadcast, root, lent, moved_element_of(tensor))
                call.add(begin, [lent])
        return self._start("broadcast", call, tensors, opts)

    def allgather(self, output: list[Tensors], input: Tensors, opts: typing.Any = None) -> Work:
        call = self._call([*input, *(place for places in output for place in places)])
        for places, given in zip(output, input):
            # Every rank has all lengths, and cuts if they are the same.
            if call.device is not None and len({(place.numel(), place.dtype) for place in places}) == 1:
                self._gather_pieces(call, Operand(list(places), reads=False), given)
                continue
            own = call.whole(given, writes=False)
            lent = [call.whole(place, reads=False) for place in places]
            call.add(_later(self._session.all_gather, own, lent, moved_element_of(given)), [own, *lent])
        return self._start("all_gather", call, output, opts)

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
        call = self._call([*outputs, *inputs])
        for output, given in zip(outputs, inputs):
            check_divisible(output, self._size)
            self._gather_pieces(call, Operand([output], reads=False, rows=self._size), given)
        return self._start("all_gather_into_tensor", call, outputs, opts)

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
        reduction, root = Reduction(opts, self._size), opts.rootRank
        is_root = root == self._rank
        # Tensors of the other ranks stay as they are.
        kept = [reduction.given(tensor if is_root else tensor.clone()) for tensor in listed(tensors)]
        call = self._call(kept)
        for tensor in kept:
            named = element_of(tensor), reduction.name(tensor), reduction.declared(tensor)
            for (lent,) in call.cut(Operand([tensor], writes=is_root)):
                on_host = reduction.divided(lent) if is_root else None
                call.add(_later(self._session.reduce, root, lent, *named), [lent], on_host)
        return self._start("reduce", call, tensors, opts)

    def gather(self, output: list[Tensors], input: Tensors, opts: typing.Any) -> Work:
        given, places = listed(input)[0], list(output[0]) if output else []
        call = self._call([given, *places])
        own, lent = call.whole(given, writes=False), [call.whole(place, reads=False) for place in places]
        begin = _later(self._session.gather, opts.rootRank, own, lent, moved_element_of(given))
        call.add(begin, [own, *lent])
        return self._start("gather", call, output, opts)

    def scatter(self, output: Tensors, input: list[Tensors], opts: typing.Any) -> Work:
        place, given = listed(output)[0], list(input[0]) if input else []
        call = self._call([place, *given])
        own, lent = call.whole(place, reads=False), [call.whole(part, writes=False) for part in given]
        begin = _later(self._session.scatter, opts.rootRank, lent, own, moved_element_of(place))
        call.add(begin, [own, *lent])
        return self._start("scatter", call, output, opts)

    def alltoall(self, output: Tensors, input: Tensors, opts: typing.Any = None) -> Work:
        call = self._call([*output, *input])
        places = [call.whole(place, reads=False) for place in output]
        given = [call.whole(part, writes=False) for part in input]
        element = moved_element_of(input[0]) if input else None
        call.add(_later(self._session.all_to_all, given, places, element), [*places, *given])
        return self._start("all_to_all", call, output, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: typing.Any = None,
    ) -> Work:
        check_divisible(output, self._size, output_split_sizes)
        check_divisible(input, self._size, input_split_sizes)
        call = self._call([output, input])
        place, given = call.whole(output, reads=False), call.whole(input, writes=False)

        def begin() -> int:
            inputs = divided(given, self._size, input_split_sizes)
            outputs = divided(place, self._size, output_split_sizes)
            return self._session.all_to_all(inputs, outputs, moved_element_of(input))

        call.add(begin, [place, given])
        return self._start("all_to_all_single", call, output, opts)

    def barrier(self, opts: typing.Any = None) -> Work:
        call = self._call([])
        call.add(self._session.barrier, [])
        return self._start("barrier", call, None, opts)

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
        tensor = listed(tensors)[0]
        call = self._call([tensor], is_bounded=False)
        lent = call.whole(tensor, reads=False)
        call.add(_later(self._session.receive_any, tag, lent, moved_element_of(tensor)), [lent])
        return self._start("recv", call, tensors, detail=" from any rank")

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

        own = input.view(-1)
        if input.numel():
            own = own.chunk(self._size)[self._rank]
        counts = [output.numel()] * self._size
        terms = (max_missing, layer, op)
        return self._reduce_bounded("reduce_scatter_bounded", input, terms, (own, output.view(-1)), counts)

    # How it is done.

    def _call(self, tensors: Tensors, is_bounded: bool = True) -> Call:
        return Call(devices.device_of(tensors), self.piece_bytes, is_bounded=is_bounded)

    def _all_reduce(self, name: str, tensors: Tensors, opts: typing.Any) -> Work:
        reduction = Reduction(opts, self._size)
        given = [reduction.given(tensor) for tensor in tensors]
        call, begin = self._call(given), self._session.all_reduce
        for tensor in given:
            element, how, declared = element_of(tensor), reduction.name(tensor), reduction.declared(tensor)
            for (lent,) in call.cut(Operand([tensor])):
                call.add(functools.partial(_all_reduced, begin, lent, element, how, declared), [lent])
        return self._start(name, call, tensors, opts)

    def _gather_pieces(self, call: Call, places: Operand, given: torch.Tensor) -> None:
        """Gathers a tensor of every rank: as a whole, or piece by piece from a device."""

        def begin(own: Memory, place: Memory) -> int:
            outputs = divided(place, self._size)
            return self._session.all_gather(own.memory, outputs, moved_element_of(given))

        for own, place in call.cut(Operand([given], writes=False), places):
            call.add(functools.partial(begin, own, place), [own, place])

    def _reduce_bounded(
        self,
        name: str,
        tensor: torch.Tensor,
        terms: tuple[float, tuple[int, int] | None, typing.Any],
        kept: tuple[torch.Tensor, torch.Tensor] | None = None,
        counts: list[int] | None = None,
    ) -> Work:
        """``counts`` has the number of values that each rank keeps, where none keeps all.

        ``kept`` is the part of the result that this rank keeps then, and where it belongs. The tensor is not cut: its
        bound is one of all its values.
        """
        max_missing, layer, op = terms
        if not tensor.is_floating_point():
            raise TypeError(f"only floats may lack something, not {tensor.dtype}")
        reduction = Reduction.of(op, self._size)
        how, given = reduction.bounded_name(), reduction.given(tensor)
        call = self._call([given])
        lent = call.whole(given)
        begin = _later(
            self._session.all_reduce,
            lent,
            element_of(given),
            how,
            max_missing,
            layer,
            reduction=reduction.declared(given),
            counts=counts,
        )
        call.add(begin, [lent], reduction.multiplied(lent))
        if kept is not None:
            call.finish_with(*kept)
        return self._start(name, call, tensor)

    def _reduce_scatter(
        self,
        name: str,
        outputs: Tensors,
        inputs: Tensors,
        counts: list[list[int]],
        opts: typing.Any,
    ) -> Work:
        reduction = Reduction(opts, self._size)
        given = [reduction.given(input, is_changed=False) for input in inputs]
        call = self._call([*outputs, *given])
        for output, input, parts in zip(outputs, given, counts):
            pieces: collections.abc.Iterable[list[Memory]]
            if call.device is not None and len(set(parts)) == 1 and input.numel() == sum(parts):
                pieces = call.cut(
                    Operand([input], writes=False, rows=self._size), Operand([output], reads=False)
                )
            else:
                pieces = [[call.whole(input, writes=False), call.whole(output, reads=False)]]
            for lent, place in pieces:
                self._scatter_piece(call, (lent, place), parts, reduction, input)
        return self._start(name, call, outputs, opts)

    def _scatter_piece(
        self, call: Call, memory: tuple[Memory, Memory], parts: list[int], reduction: Reduction, tensor: torch.Tensor
    ) -> None:
        lent, place = memory
        named = element_of(tensor), reduction.name(tensor), reduction.declared(tensor)
        if isinstance(place, Staged) and len(set(parts)) == 1:
            parts = [place.values] * self._size
        begin = _later(self._session.reduce_scatter, lent, place, parts, *named)
        call.add(begin, [lent, place], reduction.divided(place))

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
        call = self._call([tensor], is_bounded=False)
        lent = call.whole(tensor, reads=is_sent, writes=not is_sent)
        begun = self._session.send if is_sent else self._session.receive
        call.add(_later(begun, peer, tag, lent, moved_element_of(tensor)), [lent])
        detail = f" {'to' if is_sent else 'from'} rank {peer}"
        return self._start(name, call, [tensor], detail=detail, timeout=timeout, peers=(peer,))

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
        call: Call,
        result: object,
        opts: typing.Any = None,
        *,
        detail: str = "",
        timeout: datetime.timedelta | None = None,
        peers: tuple[int, ...] = (),
    ) -> Work:
        timeout = getattr(opts, "timeout", timeout)
        work = self.runner.start(name, call, result, detail=detail, timeout=timeout, peers=peers)
        works = getattr(self._coalescing, "works", None)
        if works is not None:
            works.append(work)
        return work


def _all_reduced(begin: typing.Callable[..., int], lent: Memory, element: str, how: str, declared: str) -> int:
    """The most frequent operation, shorter than by :func:`_later`."""
    return begin(lent.memory, element, how, reduction=declared)


def _later(
    call: typing.Callable[..., int], *arguments: typing.Any, **named: typing.Any
) -> Begin:
    """Calls the compiled part later, when tensors among the arguments, and in lists among them, have their memory."""
    return lambda: call(*[_RESOLVED.get(type(one), _unchanged)(one) for one in arguments], **named)


def _unchanged(argument: typing.Any) -> typing.Any:
    return argument


_RESOLVED: dict[type, typing.Callable[[typing.Any], typing.Any]] = {
    Lent: lambda lent: lent.memory,
    Staged: lambda staged: staged.memory,
    list: lambda several: [_RESOLVED.get(type(one), _unchanged)(one) for one in several],
}
