"""Vulkan devices."""

# Annotations are not postponed here: pdoc cannot resolve those of a NamedTuple then.

import os
from typing import TYPE_CHECKING, Dict, List, Literal, NamedTuple, Optional, Tuple, Union

from . import _log, native
from ._calls import OnProgress, reporting
from .pipeline import _NotPicklable

if TYPE_CHECKING:
    from ._types import StrPath

__all__ = ["Device", "Runtime", "devices"]

_Kind = Literal["discrete", "integrated", "virtual", "cpu", "other"]
_Kernels = Literal["automatic", "cpu", "tiled", "matrix"]


class Device(NamedTuple):
    """A Vulkan device of this machine."""

    index: int  # type: ignore[assignment]  # nobody looks for a value in it, which is what tuple.index does
    name: str
    driver: str
    kind: _Kind
    memory_bytes: int


_KINDS: Tuple[_Kind, ...] = ("discrete", "integrated", "virtual", "cpu", "other")
_KERNELS: Tuple[_Kernels, ...] = ("automatic", "cpu", "tiled", "matrix")  # ETR_KERNELS_*


def _device(info: native.DeviceInfo) -> Device:
    return Device(info.index, info.name, info.driver, _KINDS[info.kind], info.memory_bytes)


def devices() -> List[Device]:
    """Returns the Vulkan devices, discrete GPUs first."""
    return [_device(info) for info in native.devices()]


class Runtime(_NotPicklable):
    """An open device. ``device`` is its index or part of its name; None: the first device. At most
    ``memory_limit_bytes`` of its memory are used; 0: no limit. ``tuning`` is a file that
    :meth:`tune` wrote; None: the user's file, if it exists; "": none. A device that does not finish
    its work within ``hang_seconds`` of waiting is treated as lost; 0: 300 on GPUs, no limit on CPUs.

    ``kernels`` is the family of kernels. ``cache_dir`` is the folder of the pipeline cache; None:
    the user's, "": none. ``validation`` loads Vulkan's validation layer, whose messages are logged.
    With ``trust_driver``, the first results of kernels are not compared with the host's. See
    etr_runtime_options in the C header."""

    def __init__(self, device: Union[None, int, str] = None, memory_limit_bytes: int = 0,
                 tuning: Optional["StrPath"] = None, hang_seconds: float = 0, *, kernels: _Kernels = "automatic",
                 cache_dir: Optional["StrPath"] = None, validation: bool = False, trust_driver: bool = False) -> None:
        if kernels not in _KERNELS:
            raise ValueError(f"kernels is {kernels!r}; it is one of {', '.join(_KERNELS)}")
        _log.start()
        options = native.DeviceOptions()
        options.device = "" if device is None else str(device)
        options.memory_limit_bytes, options.hang_seconds = memory_limit_bytes, hang_seconds
        options.kernels = _KERNELS.index(kernels)
        options.validation, options.trust_driver = validation, trust_driver
        options.users_tuning, options.users_cache = tuning is None, cache_dir is None
        options.tuning, options.cache_dir = os.fsdecode(tuning or ""), os.fsdecode(cache_dir or "")
        self._handle = native.RuntimeHandle(options)
        self._name = self.device.name

    def tune(self, path: Optional["StrPath"] = None, progress: Optional[OnProgress] = None) -> None:
        """Finds, by trying them, the fastest kernels on this device for the models whose trainers
        have had their first batch. Writes them to the file ``path`` (None: the user's file, for all
        later runs). Trainers created later use them.

        ``progress(done, total, text)`` is called after each product and convolution, on the thread
        that measures; ``text`` names it and the kernel that was chosen. If it returns False, and
        with Ctrl-C, tuning ends there, and what was measured is written."""
        reporting(lambda told: self._handle.tune("" if path is None else os.fsdecode(path), told), progress)

    @property
    def device(self) -> Device:
        """The device that is open."""
        return _device(self._handle.device())

    def close(self) -> None:
        """Releases the device when its trainers and runs, which remain usable, are gone, too."""
        self._handle.close()

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Runtime({self._name!r})"


_runtimes: Dict[str, Runtime] = {}


def as_runtime(device: Union[None, int, str, Runtime]) -> Runtime:
    """Returns the runtime of a device; one for each device, unless the program has its own."""
    if isinstance(device, Runtime):
        return device
    key = "" if device is None else str(device)
    if key not in _runtimes:
        _runtimes[key] = Runtime(device)
    return _runtimes[key]
