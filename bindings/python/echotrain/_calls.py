"""Helpers for calls of a trainer: callbacks into the program, checks of arguments, and
interruptible calls."""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import Any, Callable, List, Optional, Tuple, Type, TypeVar, cast

from . import native
from .errors import CancelledError
from .pipeline import _POLL_SECONDS, Pipeline

OnEvaluation = Callable[[int, Optional[int]], Optional[bool]]
OnProgress = Callable[[int, Optional[int], str], Optional[bool]]
_Result = TypeVar("_Result")
_Method = TypeVar("_Method", bound=Callable[..., Any])


class _Progress(native.Progress):
    """Calls a Python function from a call that reports its progress."""

    def __init__(self, function: OnProgress) -> None:
        super().__init__()
        self._function = function
        self.failure: Optional[BaseException] = None

    def report(self, done: int, total: int, text: str) -> bool:
        try:
            return self._function(done, None if total < 0 else total, text) is not False
        except BaseException as failure:  # it must not leave the callback
            self.failure = failure
            return False


def without_text(function: Optional[Callable[[int, Any], Optional[bool]]]) -> Optional[OnProgress]:
    """Takes the text away from what ``function`` is told: evaluations and packing have none."""
    return None if function is None else lambda done, total, text: function(done, total)


class Told:
    """A context in which a function of the program receives the progress of a call. An
    exception that it raises is raised again at the end of the context, or, with ``later``, by
    `raise_failure`, unless it ended the call."""

    def __init__(self, function: Optional[OnProgress], later: bool = False) -> None:
        self._told, self._later = None if function is None else _Progress(function), later

    def __enter__(self) -> Optional[_Progress]:
        return self._told

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        if kind is CancelledError or (error is None and not self._later):
            self.raise_failure()

    def raise_failure(self) -> None:
        if self._told is not None and self._told.failure is not None:
            raise self._told.failure


def _described(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if hasattr(value, "dtype") and hasattr(value, "shape") else type(value).__name__


def of_pipelines(method: _Method) -> _Method:
    """Wraps a method that takes a Pipeline. If it is called with arrays, as in other libraries, the
    error says what to do."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[:1] or (kwargs.get("pipeline"),)
        if isinstance(given[0], Pipeline):
            return method(self, *args, **kwargs)
        arrays = [value for value in args if not isinstance(value, (int, Pipeline))] or given
        raise TypeError(f"{method.__name__} takes a Pipeline, not {' and '.join(map(_described, arrays))}; for arrays: "
                        "et.Pipeline([et.source([{'image': x, 'label': y} for x, y in zip(images, labels)]), "
                        "et.stages.shuffle(), et.stages.batch(32)])")

    return cast(_Method, checked)


def reporting(call: Callable[[native.Progress], _Result], progress: Optional[OnProgress] = None) -> _Result:
    """Runs a call that reports its progress, so that Ctrl-C ends it at its next report. ``progress``
    (None: nobody) is called on the thread that does the work; an exception of it is raised again."""
    stopped = threading.Event()

    def report(done: int, total: Optional[int], text: str) -> Optional[bool]:
        if stopped.is_set():
            return False
        return None if progress is None else progress(done, total, text)

    with Told(report) as told:
        return interruptible(lambda: call(cast(native.Progress, told)), stopped.set)


def interruptible(call: Callable[[], _Result], cancel: Optional[Callable[[], None]] = None) -> _Result:
    """Runs a blocking call on another thread, so that Ctrl-C can cancel it or, without ``cancel``,
    leave it to end by itself."""
    outcome: List[Tuple[Optional[_Result], Optional[BaseException]]] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="echotrain-call", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
    except BaseException:
        if cancel is not None:
            cancel()
            thread.join()
        raise
    value, error = outcome[0]
    if error is not None:
        raise error
    return cast(_Result, value)
