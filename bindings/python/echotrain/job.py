"""Jobs and their runs."""

# Annotations are not postponed here: pdoc cannot resolve those of a NamedTuple then.

import atexit
import os
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Literal, Mapping, NamedTuple, Optional, Tuple, TypeVar, Union

from . import _log, _schema, native
from ._calls import OnEvaluation, OnProgress, Told, interruptible, reporting, without_text
from .device import Runtime, as_runtime
from .errors import EchoTrainError, StateError
from .pipeline import _NotPicklable
from .transport import Failures, Lent, Transport, check_transport

if TYPE_CHECKING:
    from ._types import StrPath
    from .training import Trainer

__all__ = ["Event", "Job", "JobRun"]

_Start = Literal["new", "resume", "overwrite", "evaluate", "trial"]
_EventKind = Literal["progress", "evaluation", "checkpoint", "end", "step", "epoch"]
_Result = TypeVar("_Result")


class Event(NamedTuple):
    """The state of a run at one moment. loss and accuracy are means over the steps since the
    previous event; at "epoch" and "end" they are means over the epoch."""

    kind: _EventKind  # of a job's run: progress, evaluation, checkpoint, end; of Trainer.run: step, epoch, end
    step: int
    epoch: int
    total_steps: int = 0  # at which a job's run ends, by its plan (an estimate if samples are echoed); 0: unknown
    seconds: float = 0.0  # of training, without evaluation and checkpoints; of Trainer.run: since it began
    loss: float = float("nan")
    accuracy: float = float("nan")
    learning_rate: float = 0.0
    examples_per_second: float = 0.0
    device_wait_share: float = 0.0  # of a job's run: share of the time so far in which the device was idle
    examples: int = 0  # this and the next two: since the start of the run
    fresh: int = 0
    echoed: int = 0
    bad_records: int = 0  # distinct ones
    eval_loss: float = float("nan")
    eval_accuracy: float = float("nan")
    target_reached: bool = False


_STARTS: Tuple[_Start, ...] = ("new", "resume", "overwrite", "evaluate", "trial")  # ETR_START_*
_EVENT_KINDS: Tuple[_EventKind, ...] = ("progress", "evaluation", "checkpoint", "end")


class Job(_NotPicklable):
    """A job from a file, its text or a dict, with overrides: ``Job("job.json", {"train.steps":
    100})``. If a file names no ``output.dir``, the job gets one: ``runs/`` and the stem of the
    file's name."""

    def __init__(self, job: Union["StrPath", Mapping[str, Any]], overrides: Optional[Mapping[str, Any]] = None) -> None:
        text = _schema.dumps(job) if isinstance(job, Mapping) else os.fsdecode(job)
        is_json = isinstance(job, Mapping) or text.lstrip().startswith("{")
        sets = [f"{key}={value if isinstance(value, str) else _schema.dumps(_schema.plain(value), key)}"
                for key, value in (overrides or {}).items()]
        _log.start()
        self._handle = native.JobHandle(text, is_json, sets)
        self._shown = f"Job({job!r}{f', {dict(overrides)!r}' if overrides else ''})"

    def __repr__(self) -> str:
        return self._shown

    @property
    def json(self) -> Dict[str, Any]:
        """The job with overrides and defaults filled in."""
        return _schema.from_json(self._handle.json())

    @property
    def output_dir(self) -> Optional[str]:
        """The folder that a run writes into; None if it writes nothing."""
        return self._handle.output_dir() or None

    def advise(self, *, device: Union[None, int, str, Runtime] = None, seconds: float = 3,
               check: bool = False, progress: Optional[OnProgress] = None) -> Dict[str, Any]:
        """Measures the job for a few seconds and advises whether echoing helps, where an echo node
        should stand and with which factor, and what else would help first:
        ``print(job.advise()["text"])``. ``seconds`` is the length of each measurement. ``job`` in
        the result is the changed job: ``Job(advice["job"])``. With ``check`` both jobs also run in
        turns, and ``checked`` has the outcomes. Writes nothing.

        ``progress(calls, None, text)`` is called often, on the thread that measures; ``text`` says
        what is being done, and is "" while that continues. If it returns False, this raises
        CancelledError. Ctrl-C ends it, too."""
        runtime = as_runtime(device)
        return _schema.from_json(reporting(lambda told: self._handle.advise(runtime._handle, seconds, check, told), progress))

    def run(self, *, device: Union[None, int, str, Runtime] = None, resume: bool = False,
            overwrite: bool = False, start: Optional[_Start] = None,
            on_evaluation: Optional[OnEvaluation] = None, transport: Optional[Transport] = None) -> "JobRun":
        """Starts the job; iterate over the result. ``output.dir`` holds one run: ``resume``
        continues from its newest checkpoint, and ``overwrite`` begins again in its place. Without
        either, a folder that holds a run is a StateError. Two further ways to begin write nothing:
        ``start="evaluate"`` takes the weights of the newest checkpoint, for `JobRun.evaluate` and
        `JobRun.trainer`; the run has no events. ``start="trial"`` begins anew, for
        `JobRun.profile`.

        ``on_evaluation(done, batches)`` is called after each batch of an evaluation, as in
        `Trainer.evaluate`. Returning False stops that evaluation, and the run continues without it.
        An exception stops it, too, and is raised after the event that follows.

        With a ``transport`` the run is one of several ranks, which all start at the same time. The
        run then owns the transport."""
        if resume and overwrite:
            raise ValueError("resume continues the earlier run and overwrite removes it; give one")
        if start is None:
            start = "resume" if resume else "overwrite" if overwrite else "new"
        elif resume or overwrite:
            raise ValueError("start says how the run begins; leave resume and overwrite out")
        if start not in _STARTS:
            raise ValueError(f"start is {start!r}; it is one of {', '.join(_STARTS)}")
        return JobRun(self, as_runtime(device), _STARTS.index(start), on_evaluation, transport)


# Runs and their trainers must end before the interpreter does: their threads use the device, and
# call transports in the interpreter.
_open: "weakref.WeakSet[Union[JobRun, Trainer]]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for run_or_trainer in list(_open):
        run_or_trainer._end_with_program()


class JobRun(_NotPicklable):
    """A running job: ``with job.run() as run: for event in run: ...``. The kind of the last event
    is "end". The run holds ``output.dir`` until then, or until `close`, which leaving ``with``
    calls. Any thread may call `stop` and `close`. Ctrl-C stops the run.

    A run and its trainer serve one thread at a time, together: a call on one of them during a call
    of another thread on either is a StateError."""

    def __init__(self, job: Job, runtime: Runtime, start: int, on_evaluation: Optional[OnEvaluation] = None,
                 transport: Optional[Transport] = None) -> None:
        self._on_evaluation, self._shown = on_evaluation, f"JobRun({job!r})"
        self._flags, self._closed = threading.RLock(), False
        self._calling, self._closing, self._program_ends = threading.Lock(), threading.Lock(), False
        self._transport = transport
        self._failures: Optional[Failures] = None
        self._runtime = runtime
        self._trainer: Optional[Trainer] = None
        if transport is None:
            self._handle = native.RunHandle(runtime._handle, job._handle, start)
        else:
            self._handle = self._joined(runtime._handle, job._handle, start, check_transport(transport))
        _open.add(self)

    def _joined(self, runtime: native.RuntimeHandle, job: native.JobHandle, start: int,
                transport: Transport) -> native.RunHandle:
        failures = Failures()
        rank, size = transport.rank, transport.size  # which may raise, while the transport has an owner
        lent = Lent(transport, weakref.ref(failures)).__disown__()  # the run owns it from here on
        try:
            handle = native.RunHandle(runtime, job, start, rank, size, lent)
        except EchoTrainError as error:
            raise failures.original(error)
        self._failures = failures
        return handle

    def _call(self, call: Callable[[], _Result]) -> _Result:
        """Returns the result of a call that may use the transport. An exception of the transport that
        ended it is raised again."""
        with self._calling:
            if self._program_ends:
                raise StateError("the program ends, and its runs with it")
            try:
                return call()
            except EchoTrainError as error:
                raise self._failures.original(error) if self._failures else error

    def _end_with_program(self) -> None:
        """Waits for calls of other threads to return, because they could not once the interpreter
        is gone."""
        self._program_ends = True
        self.stop()
        for call in self._calling, self._closing:
            if call.acquire(timeout=5 + (self._transport or Transport).timeout):
                call.release()
        self.close()

    def __repr__(self) -> str:
        return self._shown

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def events(self, every: float = 0) -> Iterator[Event]:
        """Runs the job and yields events, as iterating over it does, at least every ``every``
        seconds; 0: as the job says. An evaluation, a checkpoint or the first step may take
        longer."""
        while True:
            told = Told(without_text(self._on_evaluation), later=True)
            with told as progress:
                e = interruptible(lambda: self._call(lambda: self._handle.next_event(every, progress)), self._handle.stop)
            yield Event(_EVENT_KINDS[e.kind], *(getattr(e, name) for name in Event._fields[1:]))
            told.raise_failure()
            if e.kind == 3:
                return

    @property
    def trainer(self) -> "Trainer":
        """The run's trainer, to read and set weights and hyperparameters between two events, to
        predict, evaluate, save and export. What is set takes effect in the run's next step. The run
        makes its own steps: `Trainer.step`, `Trainer.fit` and the like are StateErrors.

        The trainer remains usable when the run is closed, if it was asked for before. Only if
        several ranks trained together and had not reached the end, its calls are StateErrors
        then."""
        if self._trainer is None:
            from .training import Trainer  # which needs this module
            self._trainer = Trainer._of_run(self._handle.trainer(), self._runtime, f"{self._shown}.trainer")
            _open.add(self._trainer)
        return self._trainer

    def evaluate(self) -> Dict[str, float]:
        """Returns loss and accuracy over the job's evaluation pipeline. ``on_evaluation`` is told
        its progress; if that returns False, or after `stop`, this raises CancelledError. An
        exception of ``on_evaluation`` is raised again."""
        with Told(without_text(self._on_evaluation)) as told:
            r = interruptible(lambda: self._call(lambda: self._handle.evaluate(told)), self._handle.stop)
        return {"loss": r.loss, "accuracy": r.accuracy}

    def profile(self, steps: int = 10) -> Dict[str, Any]:
        """Measures where the time of a training step goes, kernel by kernel, over steps on a batch
        of the job's pipeline. These steps train: begin the run with ``start="trial"``. `stop` and
        Ctrl-C end the wait for that batch."""
        return _schema.from_json(interruptible(lambda: self._call(lambda: self._handle.profile(steps, "json")),
                                               self._handle.stop))

    def set_hyperparameter(self, name: str, value: float) -> None:
        """Deprecated: use `Trainer.set_hyperparameter` of `trainer`."""
        warnings.warn("JobRun.set_hyperparameter is deprecated; use JobRun.trainer.set_hyperparameter",
                      DeprecationWarning, stacklevel=2)
        self.trainer.set_hyperparameter(name, value)

    def stop(self) -> None:
        """Asks the run to end soon and in order. Does nothing if it is closed."""
        with self._flags:
            if not self._closed:
                self._handle.stop()

    def close(self) -> None:
        """Ends the run and releases its folder. Progress since the newest
        checkpoint is lost; to keep it, call `stop` and read to the last event. A thread that is
        waiting for an event gets it first."""
        self.stop()
        with self._flags:
            self._closed = True
        # It waits for the transport, whose methods may call stop() and close(): these must not wait
        # for it.
        first = self._closing.acquire(blocking=False)
        try:
            self._handle.close()
        finally:
            if first:
                self._closing.release()

    def __enter__(self) -> "JobRun":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stats(self) -> Dict[str, Any]:
        """Returns the statistics of the run's input pipeline, as `Pipeline.stats` does; with several
        ranks also what this one has exchanged."""
        return _schema.from_json(self._handle.pipeline_stats())
