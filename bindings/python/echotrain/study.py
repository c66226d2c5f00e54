"""Studies: many trials of jobs that compare conditions."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Union

from . import _log, _schema, native
from .device import Runtime, as_runtime
from .pipeline import _POLL_SECONDS, _NotPicklable

if TYPE_CHECKING:
    from ._types import StrPath

__all__ = ["Study"]


# Studies must end before the interpreter does: their threads use the device.
_open: weakref.WeakSet[Study] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for study in list(_open):
        study.close()


class Study(_NotPicklable):
    """A study from a file, with overrides for the jobs of all trials: ``Study("study.json",
    {"data": "shards"})``.

    ``with et.Study("study.json") as study: results = study.run()`` runs it. Its folder keeps every
    finished trial: a study that is run again continues, also with trials, searches and conditions
    that were added to the file. A study serves one thread at a time, except for `results`,
    `write_report`, `stop` and `close`."""

    def __init__(self, path: StrPath, overrides: Optional[Mapping[str, Any]] = None) -> None:
        sets = [f"{key}={value if isinstance(value, str) else _schema.dumps(_schema.plain(value), key)}"
                for key, value in (overrides or {}).items()]
        _log.start()
        self._handle = native.StudyHandle(os.fsdecode(path), sets)
        self._directory = ""
        self._shown = f"Study({path!r}{f', {dict(overrides)!r}' if overrides else ''})"
        _open.add(self)

    def __repr__(self) -> str:
        return self._shown

    @property
    def json(self) -> Dict[str, Any]:
        """The study with jobs, labels and overrides filled in."""
        return _schema.from_json(self._handle.json())

    @property
    def output_dir(self) -> str:
        """The folder that the study writes into: its own, or the one that `start` was given."""
        return self._directory or self._handle.output_dir()

    def start(self, *, device: Union[None, int, str, Runtime] = None, directory: Optional[StrPath] = None,
              parallel: Optional[int] = None, overwrite: bool = False) -> None:
        """Prepares the study to run. ``parallel`` is the number of trials that run at once; 0: as
        many as the device has room for, None: as the study says. ``overwrite`` runs all trials
        again, in place of those that ``directory`` holds."""
        folder = "" if directory is None else os.fsdecode(directory)
        self._handle.start(as_runtime(device)._handle, folder, -1 if parallel is None else parallel, overwrite)
        self._directory = folder

    def events(self, every: float = 0.25) -> Iterator[Dict[str, Any]]:
        """Runs the study and yields events, at least every ``every`` seconds: dicts with "kind"
        (progress, trial, condition, end), "done", "total", "running", "seconds_left", "condition",
        "best_to_target" and "best_metric". See the C function etr_study_next_event."""
        told = time.monotonic()
        while True:  # in short waits: Ctrl-C ends it
            text = self._handle.next_event(min(_POLL_SECONDS, every))
            if not text:
                return
            event = _schema.from_json(text)
            if event["kind"] == "progress" and time.monotonic() - told < every:
                continue
            told = time.monotonic()
            yield event

    def run(self, *, device: Union[None, int, str, Runtime] = None, directory: Optional[StrPath] = None,
            parallel: Optional[int] = None, overwrite: bool = False) -> List[Dict[str, Any]]:
        """Runs the study to its end, with the options of `start`, writes its report, and returns
        its results."""
        self.start(device=device, directory=directory, parallel=parallel, overwrite=overwrite)
        for _ in self.events():
            pass
        self.write_report()
        return self.results()

    def results(self, directory: Optional[StrPath] = None) -> List[Dict[str, Any]]:
        """Returns a dict for each condition, from the trials that a folder holds so far, as in
        results.json: "labels", "trials" and their "counts" by status, "to_target" by clock and
        "best_metric" (median, least and most over the searches), "best" (the best trial with its
        "point"), "gain" over the baseline (over pairs of searches; None: infinite), "searches" and
        "warnings"."""
        return _schema.rows_from_json(self._handle.results(self._directory if directory is None else os.fsdecode(directory)))

    def write_report(self, directory: Optional[StrPath] = None) -> None:
        """Writes report.html, results.json, tables and figures into a folder, from the trials that
        it holds so far. It must be a folder of this study."""
        self._handle.write_report(self._directory if directory is None else os.fsdecode(directory))

    def stop(self) -> None:
        """Ends the study soon, abandoning the trials that are running."""
        self._handle.stop()

    def close(self) -> None:
        """Stops the study and releases its folder."""
        self._handle.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
