"""Training as one of several ranks over a transport of the program."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Literal, NoReturn, Optional, Sequence, Tuple

import numpy as np

from . import native
from .errors import EchoTrainError, RankLostError, UnsupportedError

if TYPE_CHECKING:
    from ._types import Array

__all__ = ["Transport"]

_Reduction = Literal["sum", "min", "max"]

_NUMBERS: Tuple[np.dtype[Any], ...] = tuple(  # by ETR_NUMBER_*
    map(np.dtype, (np.float32, np.float64, np.int32, np.int64, np.float16)))
_REDUCTIONS: Tuple[_Reduction, ...] = ("sum", "min", "max")  # by ETR_REDUCE_*
_BYTES: np.dtype[Any] = np.dtype(np.uint8)


def _array(address: int, size_bytes: int, dtype: np.dtype[Any]) -> Array:
    if size_bytes == 0:
        return np.empty(0, dtype)
    return np.frombuffer(memoryview((ctypes.c_char * size_bytes).from_address(address)), dtype)


class Transport:
    """One rank's end of a group of processes, over whatever moves data between them: mpi4py, Ray,
    sockets. Override its methods, and pass an object of your class to `Job.run`, on all ranks at
    the same time. Data-parallel training needs `all_reduce`, `all_gather`, `broadcast` and `split`;
    features that need another method say so.

    All ranks call the same methods in the same order. Arrays are in the library's memory and valid
    only during the call. A method returns when its work is done, and should end within `timeout`
    seconds. An exception ends the run, which raises it: a `RankLostError`, ``ConnectionError`` or
    ``TimeoutError`` if ranks are missing. After that only `abort` and `close` are called.

    Methods are called on threads of the library, one at a time. A transport that `split` returns
    may be called at the same time as this one.
    """

    timeout: float = 60.0  # in seconds, for the method that is being called

    def __init__(self, rank: int, size: int) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}: ranks are numbered from 0 to the size minus 1")
        self.rank = rank
        self.size = size

    def all_reduce(self, array: Array, op: _Reduction) -> None:
        """Replaces ``array`` by the "sum", "min" or "max" (``op``) of the arrays of all ranks, with
        the same bits on all of them. Its type is float32, float64, int32 or int64, or float16 if
        gradients are compressed to fp16."""
        self._lacks("all_reduce")

    def reduce_scatter(self, array: Array, counts: Sequence[int], part: Array, op: _Reduction) -> None:
        """Reduces ``array`` over all ranks and writes this rank's part of the result to ``part``.
        Rank r gets the r-th part, with ``counts[r]`` elements."""
        self._lacks("reduce_scatter")

    def all_gather(self, part: Array, sizes: Sequence[int], array: Array) -> None:
        """Concatenates the parts of all ranks, which have ``sizes`` bytes, in ``array``, in rank
        order."""
        self._lacks("all_gather")

    def broadcast(self, array: Array, root: int) -> None:
        """Copies ``array``, which holds bytes, from the rank ``root`` to all ranks."""
        self._lacks("broadcast")

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._lacks("barrier")

    def send(self, array: Array, to: int, tag: int) -> None:
        """Sends bytes to the rank ``to``. The n-th send with a tag matches the n-th `receive` with
        that tag."""
        self._lacks("send")

    def receive(self, array: Array, source: int, tag: int) -> None:
        """Receives into ``array`` the bytes that the rank ``source`` sends."""
        self._lacks("receive")

    def split(self, colour: int, key: int) -> Optional[Transport]:
        """Returns a new transport between the ranks that pass the same ``colour``, ordered by key,
        then by rank; None for a negative colour. All ranks call it."""
        self._lacks("split")

    def abort(self, reason: str) -> None:
        """Makes methods that are waiting, here and on other ranks, raise. It is called on another
        thread. Without it, the other ranks notice only by their time-outs that this rank is
        gone."""

    def close(self) -> None:
        """Called once, at the end. Waits until the other ranks have received what this one sent."""

    def _lacks(self, function: str) -> NoReturn:
        raise UnsupportedError(f"{type(self).__name__} has no function {function}")


def _reason_of(failure: BaseException) -> str:
    told = str(failure) if isinstance(failure, EchoTrainError) else f"{type(failure).__name__}: {failure}"
    return told.replace("\0", "\\0").encode(errors="backslashreplace").decode()


class Failures:
    """Keeps the first exception that a run's transports raised; the library's later errors repeat
    it.

    The library owns the transports, and the exception's traceback refers to the run, so the
    transports refer to this object weakly: otherwise Python's collector could not see the cycle."""

    def __init__(self) -> None:
        self._first: Optional[BaseException] = None
        self._told = ""

    def add(self, failure: BaseException) -> str:
        """Keeps the exception and returns the reason to report to the library."""
        told = _reason_of(failure)
        if self._first is None:
            self._first, self._told = failure, told
        return told

    def original(self, error: EchoTrainError) -> BaseException:
        """Returns the exception that ended the run, or the error itself if that has another cause
        or says more."""
        if self._first is None or isinstance(self._first, EchoTrainError) or self._told[:250] not in str(error):
            return error
        self._first.__cause__ = error
        return self._first


class Lent(native.Transport):
    """Adapts a `Transport` to the library's interface."""

    def __init__(self, transport: Transport, failures: weakref.ref[Failures]) -> None:
        super().__init__()
        self._transport, self._failures = transport, failures

    def run(self, call: native.TransportCall) -> None:
        try:
            if call.timeout() > 0:  # 0 for an abort, which comes while another method waits
                self._transport.timeout = call.timeout()
            _FUNCTIONS[call.operation()](self, self._transport, call)
        except BaseException as failure:  # it must not leave the callback
            missing: List[int] = [int(rank) for rank in getattr(failure, "missing", ())]
            failures = self._failures()
            reason = failures.add(failure) if failures else _reason_of(failure)
            call.fail(_status_of(failure), reason, missing)

    def _all_reduce(self, to: Transport, call: native.TransportCall) -> None:
        to.all_reduce(_output(call, _number_of(call)), _REDUCTIONS[call.reduction()])

    def _reduce_scatter(self, to: Transport, call: native.TransportCall) -> None:
        dtype = _number_of(call)
        to.reduce_scatter(_input(call, dtype), list(call.parts()), _output(call, dtype), _REDUCTIONS[call.reduction()])

    def _all_gather(self, to: Transport, call: native.TransportCall) -> None:
        to.all_gather(_input(call), list(call.parts()), _output(call))

    def _broadcast(self, to: Transport, call: native.TransportCall) -> None:
        to.broadcast(_output(call), call.peer())

    def _barrier(self, to: Transport, call: native.TransportCall) -> None:
        to.barrier()

    def _send(self, to: Transport, call: native.TransportCall) -> None:
        to.send(_input(call), call.peer(), call.tag())

    def _receive(self, to: Transport, call: native.TransportCall) -> None:
        to.receive(_output(call), call.peer(), call.tag())

    def _split(self, to: Transport, call: native.TransportCall) -> None:
        part = to.split(call.colour(), call.key())
        if part is None and call.colour() >= 0:
            raise TypeError(f"{type(to).__name__}.split returned None for the colour {call.colour()}; it must return a Transport")
        if part is not None:
            check_transport(part)
            call.give(part.rank, part.size, Lent(part, self._failures).__disown__())

    def _abort(self, to: Transport, call: native.TransportCall) -> None:
        to.abort(call.reason())

    def _close(self, to: Transport, call: native.TransportCall) -> None:
        to.close()


_FUNCTIONS: Dict[int, Callable[[Lent, Transport, native.TransportCall], None]] = {
    getattr(native.TransportCall, name): getattr(Lent, "_" + name) for name in (
        "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "send", "receive", "split", "abort", "close")}


def _input(call: native.TransportCall, dtype: np.dtype[Any] = _BYTES) -> Array:
    array = _array(call.input(), call.input_bytes(), dtype)
    array.flags.writeable = False
    return array


def _number_of(call: native.TransportCall) -> np.dtype[Any]:
    if call.number() >= len(_NUMBERS):
        raise UnsupportedError("NumPy has no bfloat16: over a transport in Python, gradients are compressed to fp16")
    return _NUMBERS[call.number()]


def _output(call: native.TransportCall, dtype: np.dtype[Any] = _BYTES) -> Array:
    return _array(call.output(), call.output_bytes(), dtype)


def _status_of(failure: BaseException) -> int:
    if isinstance(failure, EchoTrainError):
        return failure.status
    return RankLostError.status if isinstance(failure, (ConnectionError, TimeoutError)) else -13


def check_transport(given: object) -> Transport:
    """Returns the object if it is a transport; else raises TypeError."""
    if not isinstance(given, Transport):
        raise TypeError(f"{given!r} is not a transport: derive its class from echotrain.Transport")
    return given
