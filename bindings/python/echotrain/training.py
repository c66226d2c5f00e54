"""Trainers and jobs."""

from __future__ import annotations

import atexit
import collections
import json
import sys
import threading
import time
import warnings
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _schema, native
from ._schema import Spec
from .callbacks import Callback, EarlyStopping, SaveCheckpoint, as_callbacks  # noqa: F401
from .errors import CancelledError, EchoTrainError, StateError
from ._calls import OnEvaluation, Told, of_pipelines
from .model import LayerSummary, Model, Summary  # noqa: F401
from .pipeline import _POLL_SECONDS, Batch, Pipeline, _NotPicklable
from .transport import Failures, Lent, Transport, check_transport

_job_schema = _schema.load("job")
schedule = _schema.make_function("schedule", "schedule", "the learning rate over the steps of a run",
                                 _job_schema["schedule"])


class Device(NamedTuple):
    index: int
    name: str
    driver: str
    kind: str  # discrete, integrated, virtual, cpu or other
    memory_bytes: int


_KINDS = ("discrete", "integrated", "virtual", "cpu", "other")


def _device(info) -> Device:
    return Device(info.index, info.name, info.driver, _KINDS[info.kind], info.memory_bytes)


def devices() -> List[Device]:
    """The Vulkan devices, discrete GPUs first."""
    return [_device(info) for info in native.devices()]


class Runtime(_NotPicklable):
    """An opened device: the first, the one with that index, or the one with that text in its name. At most
    ``memory_limit_bytes`` of its memory are taken; 0: what there is. ``tuning`` is a file of :meth:`tune`;
    None: the user's, if there is one."""

    def __init__(self, device: Union[None, int, str] = None, memory_limit_bytes: int = 0,
                 tuning: Optional[str] = None):
        self._handle = native.RuntimeHandle("" if device is None else str(device), memory_limit_bytes,
                                            "" if tuning is None else str(tuning))

    def tune(self, path: Optional[str] = None) -> None:
        """Finds the fastest kernels on this device for the models whose trainers have had their first batch, by
        trying, and keeps them in ``path`` (None: for all later runs of this user). Trainers made later use them."""
        self._handle.tune("" if path is None else str(path))

    @property
    def device(self) -> Device:
        return _device(self._handle.device())

    def __repr__(self) -> str:
        return f"Runtime({self.device.name!r})"


_runtimes: Dict[str, Runtime] = {}


def _runtime(device: Union[None, int, str, Runtime]) -> Runtime:
    if isinstance(device, Runtime):
        return device
    key = "" if device is None else str(device)
    if key not in _runtimes:
        _runtimes[key] = Runtime(device)
    return _runtimes[key]


class StepResult(NamedTuple):
    step: int
    samples: int
    loss: float
    accuracy: float
    learning_rate: float


class Event(NamedTuple):
    """One moment of a run. loss and accuracy are means since the event before, at "epoch" and "end"
    over the epoch."""

    kind: str  # of a job's run: progress, evaluation, checkpoint, end; of Trainer.run: step, epoch, end
    step: int
    epoch: int
    total_steps: int = 0  # 0: not known
    seconds: float = 0.0  # since the run began
    loss: float = float("nan")
    accuracy: float = float("nan")
    learning_rate: float = 0.0
    examples_per_second: float = 0.0
    device_wait_share: float = 0.0  # of a job's run
    examples: int = 0
    fresh: int = 0
    echoed: int = 0
    bad_records: int = 0
    eval_loss: float = float("nan")
    eval_accuracy: float = float("nan")
    target_reached: bool = False


_STARTS = ("new", "resume", "overwrite")  # ETR_START_*
_EVENT_KINDS = ("progress", "evaluation", "checkpoint", "end")


@dataclass
class History:
    """What `Trainer.fit` returns: ``history["loss"][epoch]`` and so on, with Keras' keys."""

    epoch: List[int] = field(default_factory=list)
    history: Dict[str, List[float]] = field(default_factory=dict)

    def add(self, epoch: int, logs: Mapping[str, float]) -> None:
        self.epoch.append(epoch)
        for key, value in logs.items():
            self.history.setdefault(key, []).append(value)


def _bar(progress: Optional[bool], epoch: int, epochs: int, pipeline: Pipeline):
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules  # a terminal or Jupyter
    if progress is False or (progress is None and not watched):
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress:
            raise ImportError("progress=True needs tqdm: pip install echotrain[progress]") from None
        return None
    try:
        total = len(pipeline)
    except TypeError:
        total = None
    return tqdm(desc=f"epoch {epoch + 1}/{epochs}", total=total, unit=" batches", leave=True)


class Trainer(_NotPicklable):
    """Trains a model on a Vulkan device. Used by one thread at a time: a call while another is in one is a StateError.

    ``learning_rate`` is a number, or a `schedule`. ``total_steps`` is where decaying schedules end.
    """

    def __init__(self, model: Model, optimizer: Spec, learning_rate: Union[float, Spec], *,
                 device: Union[None, int, str, Runtime] = None, seed: int = 0, total_steps: int = 0):
        if not isinstance(model, Model):
            raise TypeError(f"the model is {model!r}; make one of the layers: et.Model([...])")
        if isinstance(learning_rate, Spec):
            rate = learning_rate.options
        else:
            rate = {"learning_rate": float(learning_rate)}
        if not isinstance(optimizer, Spec) or optimizer.kind != "optimizers":
            raise TypeError(f"{optimizer!r} is no optimizer")
        self.runtime = _runtime(device)
        spec = native.OptimizerHandle(optimizer.name, _schema.to_json(optimizer.options),
                                      _schema.to_json(rate))
        self._handle = native.TrainerHandle(self.runtime._handle, model._handle, spec, seed, total_steps)
        self._model, self._optimizer, self._rate = model, optimizer, rate
        self.stop_training = False

    def step(self, batch: Union[Batch, Mapping[str, Any]]) -> None:
        """Starts a step on fields "image" and "label"; returns while the device works."""
        self._handle.step((batch if isinstance(batch, Batch) else Batch(batch))._handle)

    def result(self, wait: bool = True) -> Optional[StepResult]:
        """The oldest finished step that was not asked for; None where there is none."""
        r = self._handle.result(wait)
        return StepResult(r.step, r.samples, r.loss, r.accuracy, r.learning_rate) if r.valid else None

    def results(self, wait: bool = False) -> Iterator[StepResult]:
        """Finished steps; with ``wait`` all that are in flight too."""
        while (result := self.result(wait)) is not None:
            yield result

    @of_pipelines
    def evaluate(self, pipeline: Pipeline, progress: Optional[OnEvaluation] = None) -> Dict[str, float]:
        """Loss and accuracy over one whole epoch of a pipeline: where one has begun, the rest is read past, told as 0
        batches done, and the next is evaluated. ``progress(done, batches)`` is called after each batch, on the
        thread that evaluates; ``batches`` is None where it is not known. It must not use the trainer. Returning False stops
        the evaluation, which is a CancelledError then; what it raises is raised again."""
        with Told(progress) as told:
            r = _interruptible(lambda: self._handle.evaluate(pipeline._handle, told), pipeline.cancel)
        return {"loss": r.loss, "accuracy": r.accuracy}

    def predict(self, images: Union[Batch, Mapping[str, Any], np.ndarray]) -> np.ndarray:
        """The last layer's outputs, [N, outputs]; for a classifier logits. An array is the field "image"; a dict has the
        fields that the model reads."""
        fields = images if isinstance(images, Mapping) else {"image": images}
        batch = images if isinstance(images, Batch) else Batch(fields)
        # A batch takes no longer than a step; there is nothing to cancel, so Ctrl-C just leaves it.
        return Batch(_interruptible(lambda: self._handle.predict(batch._handle)))["output"]

    @staticmethod
    def detections(outputs: np.ndarray, least_score: float = 0.5, most_overlap: float = 0.45,
                   most: int = 100) -> List[np.ndarray]:
        """What a detector (``models.ssd``) found, of the outputs of ``predict``: for each image an array
        [boxes, 6] of label, left, top, right, bottom (shares of the image) and score, the best first.

        Boxes count from ``least_score`` on, the probability of their class; of two of a class whose intersection over
        union is above ``most_overlap`` the better one stays."""
        handle = native.TrainerHandle.detections(Batch({"output": outputs})._handle, least_score, most_overlap, most)
        return [rows[rows[:, 0] >= 0] for rows in Batch(handle)["boxes"]]

    def save(self, directory) -> None:
        """Weights (safetensors), optimizer state and step count, in a new folder below."""
        self._handle.save(str(directory))

    def export_onnx(self, path) -> None:
        """Writes the model with its weights as an ONNX file, for other runtimes: inputs by the names of their fields,
        images [N, H, W, C] as here, one output "output". Needs a step or a prediction before."""
        self._handle.export_onnx(str(path))

    def load(self, directory) -> None:
        """The newest whole checkpoint below ``directory``, made with this model and this optimizer."""
        self._handle.load(str(directory))

    def load_pytorch(self, path, names: Optional[Mapping[str, str]] = None) -> None:
        """Weights that PyTorch trained, to begin with: a safetensors file of a ``state_dict``, before the first batch.

        Tensors are found by the model's names with PyTorch's words for their last part, and laid out anew. ``names``
        replaces beginnings of the model's names: ``{"backbone.": "model.encoder.", "head": ""}``, where ``""`` leaves
        tensors as they are."""
        self._handle.load_pytorch(str(path), _schema.to_json(dict(names or {})))

    def weights(self) -> Dict[str, np.ndarray]:
        """All parameters and running statistics by their names, float32 and in the model's order: a copy, read-only.
        Needs a step or a prediction before."""
        return dict(Batch(self._handle.weights("")))

    def weight(self, name: str) -> np.ndarray:
        """The one of that name: ``trainer.weight("conv2d_1.weight")``."""
        return Batch(self._handle.weights(name))[name]

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replaces those that are given, float32 and of the same shapes, or none where one does not fit. The optimizer's
        state stays."""
        self._handle.set_weights(Batch(weights)._handle)

    def set_hyperparameter(self, name: str, value: float) -> None:
        """Changes one of the optimizer's ("momentum", "beta1", "beta2", "decay", "weight_decay") or the loss's
        ("label_smoothing") from the next step on, at no cost. Checkpoints keep it."""
        self._handle.set_hyperparameter(name, float(value))

    def summary(self) -> Summary:
        """Layers, shapes and parameters, as the first batch made them. Needs a step or a prediction before;
        `Model.summary` does not."""
        return Summary(self._handle.summary("text"), json.loads(self._handle.summary("json")))

    def __repr__(self) -> str:
        rate = self._rate["learning_rate"] if list(self._rate) == ["learning_rate"] else Spec(
            "schedule", "schedule", self._rate)
        return (f"Trainer({self._model!r}, {self._optimizer!r}, {rate!r}, device={self.runtime.device.name!r})")

    @of_pipelines
    def fit(self, pipeline: Pipeline, epochs: int = 1, *, validation: Optional[Pipeline] = None,
            callbacks: Iterable[Union[Callback, Callable[[int, Dict[str, float]], None]]] = (),
            progress: Optional[bool] = None) -> History:
        """Trains on ``epochs`` epochs of ``pipeline``. A callback is a `Callback`, or a function of
        (epoch, logs). ``progress`` shows a bar by tqdm; None does so on a terminal and in Jupyter. Where a callback's
        ``on_evaluation`` returns False, that evaluation ends and the training goes on: the epoch's ``val_`` values are NaN."""
        _check_epochs(epochs)
        callbacks = as_callbacks(callbacks)
        history = History()
        self.stop_training = False
        for callback in callbacks:
            callback.on_train_begin(self)
        for epoch in range(epochs):
            logs = self._fit_epoch(pipeline, epoch, epochs, callbacks, progress)
            if validation is not None:
                scores = self._validate(validation, callbacks)
                logs.update({"val_" + key: value for key, value in scores.items()})
            history.add(epoch, logs)
            for callback in callbacks:
                callback.on_epoch_end(self, epoch, logs)
            if self.stop_training:
                break
        for callback in callbacks:
            callback.on_train_end(self, history)
        return history

    def _validate(self, validation: Pipeline, callbacks: List[Callback]) -> Dict[str, float]:
        stopped = False

        def on_evaluation(done: int, batches: Optional[int]) -> bool:
            nonlocal stopped
            for callback in callbacks:
                stopped |= callback.on_evaluation(self, done, batches) is False
            return not stopped

        try:
            return self.evaluate(validation, on_evaluation if callbacks else None)
        except CancelledError:
            if not stopped:  # but by Pipeline.cancel
                raise
        return {"loss": float("nan"), "accuracy": float("nan")}

    @of_pipelines
    def run(self, pipeline: Pipeline, epochs: int = 1, *,
            validation: Optional[Pipeline] = None) -> Iterator[Event]:
        """Trains like `fit`, and yields an `Event` of kind "step" for each step, "epoch" for each epoch,
        with the evaluation on ``validation``, and "end" at last. Leaving the loop ends the training."""
        _check_epochs(epochs)
        began, examples = time.monotonic(), 0

        def event(kind: str, result: StepResult, **more: Any) -> Event:
            seconds = time.monotonic() - began
            return Event(kind, result.step, epoch, seconds=seconds, learning_rate=result.learning_rate,
                         examples=examples, examples_per_second=examples / max(seconds, 1e-9), **more)

        for epoch in range(epochs):
            means = _Means()
            for result in self._steps(pipeline):
                means.add(result)
                examples += result.samples
                yield event("step", result, loss=result.loss, accuracy=result.accuracy)
            logs = means.logs(epoch)
            if validation is not None:
                logs.update({"eval_" + key: value for key, value in self.evaluate(validation).items()})
            yield event("epoch", result, **logs)
        yield event("end", result, **logs)

    def _steps(self, pipeline: Pipeline) -> Iterator[StepResult]:
        try:
            for batch in pipeline:
                self.step(batch)
                batch.close()
                yield from self.results(wait=False)
            yield from self.results(wait=True)
        finally:  # also when the loop was left: the next run's first result is its own
            collections.deque(self.results(wait=True), maxlen=0)

    def _fit_epoch(self, pipeline, epoch, epochs, callbacks, progress) -> Dict[str, float]:
        bar = _bar(progress, epoch, epochs, pipeline)
        means = _Means()
        try:
            for result in self._steps(pipeline):
                means.add(result)
                for callback in callbacks:
                    callback.on_batch_end(self, result)
                if bar:
                    bar.update()
                    bar.set_postfix({key: f"{value:.4f}" for key, value in means.logs(epoch).items()})
        finally:
            if bar:
                bar.close()
        return means.logs(epoch)


def _check_epochs(epochs: int) -> None:
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; it must be at least 1")


class _Means:
    """Loss and accuracy over the samples of an epoch."""

    def __init__(self):
        self.samples, self.loss, self.accuracy = 0, 0.0, 0.0

    def add(self, result: StepResult) -> None:
        self.samples += result.samples
        self.loss += result.samples * result.loss
        self.accuracy += result.samples * result.accuracy

    def logs(self, epoch: int) -> Dict[str, float]:
        if self.samples == 0:
            raise StateError(f"epoch {epoch + 1} gave no batch: there are fewer samples than a batch holds "
                             "(see drop_remainder of the batch stage), or the pipeline's epochs are over")
        return {"loss": self.loss / self.samples, "accuracy": self.accuracy / self.samples}


def _interruptible(call: Callable[[], Any], cancel: Optional[Callable[[], None]] = None) -> Any:
    """Runs a call that blocks on another thread, so that Ctrl-C can cancel it, or without ``cancel``
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


class Job(_NotPicklable):
    """A job file (or its text, or a dict) with overrides: ``Job("job.json", {"train.steps": 100})``. A file without
    ``output.dir`` gets one, ``runs/`` and the stem of its name."""

    def __init__(self, job, overrides: Optional[Mapping[str, Any]] = None):
        text = json.dumps(job) if isinstance(job, Mapping) else str(job)
        is_json = isinstance(job, Mapping) or text.lstrip().startswith("{")
        sets = [f"{key}={value if isinstance(value, str) else json.dumps(_schema.plain(value))}"
                for key, value in (overrides or {}).items()]
        self._handle = native.JobHandle(text, is_json, sets)
        self._shown = f"Job({job!r}{f', {dict(overrides)!r}' if overrides else ''})"

    def __repr__(self) -> str:
        return self._shown

    @property
    def json(self) -> Dict[str, Any]:
        return json.loads(self._handle.json())

    def run(self, *, device: Union[None, int, str, Runtime] = None, resume: bool = False,
            overwrite: bool = False, on_evaluation: Optional[OnEvaluation] = None,
            transport: Optional[Transport] = None) -> "JobRun":
        """Starts the job; iterate over the result. ``output.dir`` holds one run: ``resume`` goes on from its newest
        checkpoint, ``overwrite`` begins anew in its place, and without either a folder in use is a StateError.
        ``on_evaluation(done, batches)`` is called after each batch of an evaluation, as in `Trainer.evaluate`; returning
        False stops that evaluation, and the run goes on without it. What it raises also stops it, and is raised after the
        event that follows. With a ``transport`` the run is one of several ranks, which begin theirs at the same time; it belongs
        to the run from then on."""
        if resume and overwrite:
            raise ValueError("resume goes on with the earlier run and overwrite removes it; give one")
        if self._handle.forgets_output() and not resume:
            warnings.warn("this run saves nothing, no checkpoint and no metrics: the job has no output.dir "
                          "('' says that this is meant)", stacklevel=2)
        start = "resume" if resume else "overwrite" if overwrite else "new"
        return JobRun(self, _runtime(device), _STARTS.index(start), on_evaluation, transport)


# They end before the interpreter does: their threads use the device, and ask a transport for the interpreter.
_open_runs: "weakref.WeakSet[JobRun]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for run in list(_open_runs):
        run._end_with_program()


class JobRun(_NotPicklable):
    """A running job: ``with job.run() as run: for event in run: ...``. The last event's kind is "end". It has its trainer and
    ``output.dir`` until then, or until `close`, which leaving ``with`` does. `stop` and `close` may come from any thread. Ctrl-C
    stops the run."""

    def __init__(self, job: Job, runtime: Runtime, start: int, on_evaluation: Optional[OnEvaluation] = None,
                 transport: Optional[Transport] = None):
        self._on_evaluation, self._shown = on_evaluation, f"JobRun({job!r})"
        self._closing, self._closed = threading.RLock(), False
        self._calling, self._program_ends = threading.Lock(), False
        self._transport, self._failures = transport, None
        if transport is None:
            self._handle = native.TrainerHandle(runtime._handle, job._handle, start)
        else:
            self._handle = self._joined(runtime._handle, job._handle, start, check_transport(transport))
        _open_runs.add(self)

    def _joined(self, runtime, job, start: int, transport: Transport) -> "native.TrainerHandle":
        failures = Failures()
        lent = Lent(transport, failures).__disown__()  # the trainer owns it from here on
        try:
            handle = native.TrainerHandle(runtime, job, start, transport.rank, transport.size, lent)
        except EchoTrainError as error:
            raise failures.original(error)
        self._failures = failures
        return handle

    def _next_event(self, progress) -> "native.Event":
        with self._calling:
            if self._program_ends:
                raise StateError("the program ends, and its runs with it")
            try:
                return self._handle.next_event(progress)
            except EchoTrainError as error:
                raise self._failures.original(error) if self._failures else error

    def _end_with_program(self) -> None:
        """A call that another thread is in returns first: it could not when the interpreter is gone."""
        self._program_ends = True
        self.stop()
        if self._calling.acquire(timeout=5 + (self._transport or Transport).timeout):
            self._calling.release()
        self.close()

    def __repr__(self) -> str:
        return self._shown

    def __iter__(self) -> Iterator[Event]:
        while True:
            told = Told(self._on_evaluation, later=True)
            with told as progress:
                e = _interruptible(lambda: self._next_event(progress), self._handle.stop)
            yield Event(_EVENT_KINDS[e.kind], *(getattr(e, name) for name in Event._fields[1:]))
            told.raise_failure()
            if e.kind == 3:
                return

    def set_hyperparameter(self, name: str, value: float) -> None:
        """As `Trainer.set_hyperparameter`, between two events. Where several processes train together all make the same
        call, after the same event of the kind "evaluation" or "checkpoint"."""
        with self._calling:
            self._handle.set_hyperparameter(name, float(value))

    def stop(self) -> None:
        """Asks the run to end soon and in order; nothing where it is closed."""
        with self._closing:
            if not self._closed:
                self._handle.stop()

    def close(self) -> None:
        """Ends the run and gives its trainer and its folder back. What was done since the newest checkpoint is lost: to keep
        it, `stop` and read to the last event. A thread that waits for an event gets it first."""
        self.stop()
        with self._closing:
            self._closed = True
            self._handle.close()

    def __enter__(self) -> "JobRun":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def stats(self) -> Dict[str, Any]:
        return json.loads(self._handle.pipeline_stats())
