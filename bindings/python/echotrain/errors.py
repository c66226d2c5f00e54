"""Exceptions: one class per status. Most also derive from the built-in class that Python code
expects."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Tuple, Type

__all__ = ["CallbackError", "CancelledError", "CorruptDataError", "DataIOError", "DeviceError", "DeviceLostError",
           "EchoTrainError", "InternalError", "InvalidArgumentError", "NoDeviceError", "NotFiniteError",
           "NotFoundError", "OutOfMemoryError", "RankLostError", "StateError", "UnsupportedError"]


class EchoTrainError(RuntimeError):
    """Base class of all errors of the library. ``status`` is the code of the C API."""

    status: int = -12

    def __init__(self, message: str) -> None:
        super().__init__(message)


class InvalidArgumentError(EchoTrainError, ValueError):
    """An argument, an option or a file of settings is wrong; the message says which."""

    status = -1


class NotFoundError(EchoTrainError, LookupError, FileNotFoundError):
    """A file, a folder, a field or something else by that name does not exist."""

    status = -2


class DataIOError(EchoTrainError, OSError):
    """Reading or writing failed."""

    status = -3


class CorruptDataError(EchoTrainError, ValueError):
    """A file or a record is damaged."""

    status = -4


class OutOfMemoryError(EchoTrainError, MemoryError):
    """The memory of the host or the device, or a limit on it, is used up."""

    status = -5


class NoDeviceError(EchoTrainError):
    """There is no Vulkan device, or none of that name."""

    status = -6


class DeviceError(EchoTrainError):
    """A call of Vulkan failed."""

    status = -7


class DeviceLostError(DeviceError):
    """The device was lost; what lives on it cannot be used any more."""

    status = -8


class CancelledError(EchoTrainError):
    """The call was cancelled, or a function of the program stopped it."""

    status = -9


class StateError(EchoTrainError):
    """The object cannot do that now: it is closed, in use by another thread, or has not begun."""

    status = -10


class UnsupportedError(EchoTrainError, NotImplementedError):
    """The device, the platform or a function of the program does not support that."""

    status = -11


class InternalError(EchoTrainError):
    """A defect of the library."""

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

    def __init__(self, message: str, missing: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.missing: Tuple[int, ...] = tuple(missing)


def _subclasses(cls: Type[EchoTrainError]) -> Iterator[Type[EchoTrainError]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


_BY_STATUS: Dict[int, Type[EchoTrainError]] = {cls.status: cls for cls in _subclasses(EchoTrainError)}


def make_error(status: int, message: str) -> EchoTrainError:
    """Makes the exception of a status; the native module calls it."""
    return _BY_STATUS.get(status, EchoTrainError)(message)
