"""Helpers for calls of a trainer: callbacks into the program, checks of arguments, and
interruptible calls."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, List, Optional

from . import native
from .errors import CancelledError
from .pipeline import _POLL_SECONDS, Pipeline

OnEvaluation = Callable[[int, Optional[int]], Optional[bool]]


class _Evaluation(native.Progress):
    """Calls a Python function from an evaluation."""

    def __init__(self, function: OnEvaluation):
        super().__init__()
        self._function, self.failure = function, None

    def report(self, done: int, batches: int) -> bool:
        try:
            return self._function(done, None if batches < 0 else batches) is not False
        except BaseException as failure:  # it must not leave the callback
            self.failure = failure
            return False


class Told:
    """A context in which a function of the program receives the progress of evaluations. An
    exception that it raises is raised again at the end of the context, or, with ``later``, by
    `raise_failure`, unless it ended the call."""

    def __init__(self, function: Optional[OnEvaluation], later: bool = False):
        self._told, self._later = None if function is None else _Evaluation(function), later

    def __enter__(self) -> Optional[_Evaluation]:
        return self._told

    def __exit__(self, kind, error, traceback) -> None:
        if kind is CancelledError or (error is None and not self._later):
            self.raise_failure()

    def raise_failure(self) -> None:
        if self._told is not None and self._told.failure is not None:
            raise self._told.failure


def _described(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if hasattr(value, "dtype") and hasattr(value, "shape") else type(value).__name__


def of_pipelines(method: Callable) -> Callable:
    """Wraps a method that takes a Pipeline. If it is called with arrays, as in other libraries, the
    error says what to do."""

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        given = args[:1] or (kwargs.get("pipeline"),)
        if isinstance(given[0], Pipeline):
            return method(self, *args, **kwargs)
        arrays = [value for value in args if not isinstance(value, (int, Pipeline))] or given
        raise TypeError(f"{method.__name__} takes a Pipeline, not {' and '.join(map(_described, arrays))}; for arrays: "
                        "et.Pipeline([et.source([{'image': x, 'label': y} for x, y in zip(images, labels)]), "
                        "et.stages.shuffle(), et.stages.batch(32)])")

    return checked


def interruptible(call: Callable[[], Any], cancel: Optional[Callable[[], None]] = None) -> Any:
    """Runs a blocking call on another thread, so that Ctrl-C can cancel it or, without ``cancel``,
    leave it to end by itself."""
    outcome: List[Any] = []

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
    return value
