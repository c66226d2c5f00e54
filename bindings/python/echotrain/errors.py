"""Exceptions: one class per status. Most also derive from the built-in class that Python code
expects."""

from __future__ import annotations

from typing import Iterable


class EchoTrainError(RuntimeError):
    """Base class of all errors of the library. ``status`` is the code of the C API."""

    status = -12

    def __init__(self, message: str):
        super().__init__(message)


class InvalidArgumentError(EchoTrainError, ValueError):
    status = -1


class NotFoundError(EchoTrainError, LookupError, FileNotFoundError):
    status = -2


class DataIOError(EchoTrainError, OSError):
    status = -3


class CorruptDataError(EchoTrainError, ValueError):
    status = -4


class OutOfMemoryError(EchoTrainError, MemoryError):
    status = -5


class NoDeviceError(EchoTrainError):
    status = -6


class DeviceError(EchoTrainError):
    status = -7


class DeviceLostError(DeviceError):
    status = -8


class CancelledError(EchoTrainError):
    status = -9


class StateError(EchoTrainError):
    status = -10


class UnsupportedError(EchoTrainError, NotImplementedError):
    status = -11


class InternalError(EchoTrainError):
    status = -12


class CallbackError(EchoTrainError):
    """A map function failed. If its own exception is known, that one is raised instead, with this
    error as its cause."""

    status = -13


class NotFiniteError(EchoTrainError, ArithmeticError):
    """A loss or gradient was NaN or infinite; the message names what produced it."""

    status = -14


class RankLostError(EchoTrainError, ConnectionError):
    """A process of the group is dead, frozen or unreachable; the message says which. A `Transport`
    raises it with the missing ranks."""

    status = -15

    def __init__(self, message: str, missing: Iterable[int] = ()):
        super().__init__(message)
        self.missing = tuple(missing)


def _subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


_BY_STATUS = {cls.status: cls for cls in _subclasses(EchoTrainError)}


def make_error(status: int, message: str) -> EchoTrainError:
    return _BY_STATUS.get(status, EchoTrainError)(message)
