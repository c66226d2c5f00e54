"""Trainers."""

from __future__ import annotations

import collections
import importlib
import os
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _schema, native
from ._job import schedule
from ._schema import Optimizer, Schedule, Spec, former_argument
from .callbacks import Callback, CallbackFunction, as_callbacks
from .device import Runtime, as_runtime
from .errors import CallbackError, CancelledError, StateError
from ._calls import OnEvaluation, Told, interruptible, of_pipelines, without_text
from .job import Event, _EventKind
from .model import Model, Summary
from .pipeline import Batch, Pipeline, _NotPicklable

if TYPE_CHECKING:
    from ._types import Array, Fields, Floats, StrPath

__all__ = ["History", "StepResult", "Trainer", "schedule"]


class StepResult(NamedTuple):
    """The result of a step. Loss and accuracy are means over its samples."""

    step: int
    samples: int
    loss: float
    accuracy: float
    learning_rate: float


@dataclass
class History:
    """The result of `Trainer.fit`: ``fit(...).history["loss"][epoch]`` and so on, with the keys
    that Keras uses."""

    epoch: List[int] = field(default_factory=list[int])
    history: Dict[str, List[float]] = field(default_factory=dict[str, List[float]])

    def add(self, epoch: int, logs: Mapping[str, float]) -> None:
        """Appends the values of an epoch."""
        self.epoch.append(epoch)
        for key, value in logs.items():
            self.history.setdefault(key, []).append(value)


def _bar(progress: Optional[bool], epoch: int, epochs: int, pipeline: Pipeline) -> Any:
    watched = sys.stderr.isatty() or "ipykernel" in sys.modules  # a terminal or Jupyter
    if progress is False or (progress is None and not watched):
        return None
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm  # by name: type checkers need not know it
    except ImportError:
        if progress:
            raise ImportError("progress=True needs tqdm: pip install echotrain[progress]") from None
        return None
    total: Optional[int]
    try:
        total = len(pipeline)
    except TypeError:
        total = None
    return tqdm(desc=f"epoch {epoch + 1}/{epochs}", total=total, unit=" batches", leave=True)


class Trainer(_NotPicklable):
    """Trains a model on a Vulkan device, in a training loop of the program's own; `JobRun.trainer`
    is the one that a job's run trains. A trainer serves one thread at a time: a call during a call
    of another thread is a StateError.

    ``learning_rate`` is a number or a `schedule`. ``total_steps`` is the step at which decaying
    schedules end; 0: unknown.
    """

    runtime: Runtime
    stop_training: bool  # a callback sets it, to end the run after the epoch

    def __init__(self, model: Model, optimizer: Optimizer, learning_rate: Union[float, Schedule], *,
                 device: Union[None, int, str, Runtime] = None, seed: int = 0, total_steps: int = 0) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"the model is {model!r}; make one of the layers: et.Model([...])")
        if isinstance(learning_rate, Spec):
            rate = learning_rate.options
        else:
            rate = {"learning_rate": float(learning_rate)}
        if not isinstance(optimizer, Spec) or optimizer.kind != "optimizers":
            raise TypeError(f"{optimizer!r} is not an optimizer")
        self.runtime = as_runtime(device)
        spec = native.OptimizerHandle(optimizer.name, _schema.to_json(optimizer.options),
                                      _schema.to_json(rate))
        handle = native.TrainerHandle(self.runtime._handle, model._handle, spec, seed, total_steps)
        shown = rate["learning_rate"] if list(rate) == ["learning_rate"] else Spec("schedule", "schedule", rate)
        self._begin(handle, lambda: f"Trainer({model!r}, {optimizer!r}, {shown!r}, device={self.runtime.device.name!r})")

    def _begin(self, handle: native.TrainerHandle, shown: Callable[[], str]) -> None:
        self._handle, self._shown = handle, shown
        self._input_gradients = False  # whether backward() returns them
        self.stop_training = False

    @classmethod
    def _of_run(cls, handle: native.TrainerHandle, runtime: Runtime, shown: str) -> Trainer:
        trainer = cls.__new__(cls)
        trainer.runtime = runtime
        trainer._begin(handle, lambda: shown)
        return trainer

    def _end_with_program(self) -> None:
        self._handle.close()

    def step(self, batch: Union[Batch, Fields]) -> None:
        """Starts a step on a batch (by default with the fields "image" and "label") and returns
        while the device works.

        Take the results inside of the loop, with `results`: a loss or gradient that is not finite is
        reported only there, and until then later steps change nothing."""
        self._handle.step((batch if isinstance(batch, Batch) else Batch(batch))._handle)

    def result(self, wait: bool = True) -> Optional[StepResult]:
        """Returns the oldest finished step that has not been returned yet; None if there is none.
        With ``wait`` it first waits for a step in flight."""
        r = self._handle.result(wait)
        return StepResult(r.step, r.samples, r.loss, r.accuracy, r.learning_rate) if r.valid else None

    def results(self, wait: bool = False) -> Iterator[StepResult]:
        """Yields the finished steps; with ``wait`` also all steps that are in flight."""
        while (result := self.result(wait)) is not None:
            yield result

    def forward(self, batch: Union[Batch, Fields], input_gradients: bool = False) -> Floats:
        """Runs the model in training mode and returns the outputs of the last layer, [N, ...].

        With `backward` and `update` this makes a step pass by pass, instead of `step`: for a loss
        that the program computes, or for models whose gradients flow into each other.
        ``input_gradients``: `backward` is to return the gradients of the inputs, too."""
        batch = batch if isinstance(batch, Batch) else Batch(batch)
        self._input_gradients = input_gradients  # if the pass fails, there is no output to go back from
        return Batch(interruptible(lambda: self._handle.forward(batch._handle, input_gradients)))["output"]

    def backward(self, output_gradient: Array, accumulate: bool = False) -> Optional[Dict[str, Floats]]:
        """Computes the gradients of the parameters from the gradient of the loss with respect to
        the latest output of `forward`, float32 and in its shape. Call it once per `forward`, before
        the weights change.

        Without ``accumulate``, the gradients replace those since the last update; with it, they are
        added to them. Returns the gradients of the inputs by name if `forward` was called with
        ``input_gradients``."""
        fields = Batch({"output": np.asarray(output_gradient, np.float32)})
        if not self._input_gradients:
            self._handle.backward(fields._handle, accumulate)
            return None
        return dict(Batch(interruptible(lambda: self._handle.backward_to_inputs(fields._handle, accumulate))))

    def update(self) -> StepResult:
        """Updates the weights with the gradients that `backward` has computed since the last
        update. Its result has no loss and no accuracy: they are NaN."""
        r = interruptible(self._handle.update)
        return StepResult(r.step, r.samples, r.loss, r.accuracy, r.learning_rate)

    def gradients(self) -> Dict[str, Floats]:
        """Returns a read-only copy of the gradients since the last update by the names of the
        parameters."""
        return dict(Batch(self._handle.gradients("")))

    def gradient(self, name: str) -> Floats:
        """Returns the gradient of that parameter: ``trainer.gradient("conv2d_1.weight")``."""
        return Batch(self._handle.gradients(name))[name]

    def set_gradients(self, gradients: Mapping[str, Array]) -> None:
        """Replaces the given gradients, for example to clip them in a way of your own. They must be
        float32 and of the parameters' shapes. If one does not fit, none is replaced."""
        self._handle.set_gradients(Batch(gradients)._handle)

    @of_pipelines
    def evaluate(self, pipeline: Pipeline, progress: Optional[OnEvaluation] = None) -> Dict[str, float]:
        """Returns loss and accuracy over one whole epoch of a pipeline. If an epoch has begun, its
        rest is skipped, with ``done`` 0, and the next one is evaluated. ``progress(done, batches)``
        is called after each batch, on the thread that evaluates; ``batches`` is None if it is not
        known. It must not use the trainer. Returning False stops the evaluation, which then raises
        CancelledError; an exception of ``progress`` is raised again."""
        with Told(without_text(progress)) as told:
            try:
                r = interruptible(lambda: self._handle.evaluate(pipeline._handle, told), pipeline.cancel)
            except CallbackError as error:
                raise pipeline._failures.original(error)
        return {"loss": r.loss, "accuracy": r.accuracy}

    def predict(self, images: Union[Batch, Fields, Array]) -> Floats:
        """Returns the outputs of the last layer, [N, outputs]; for a classifier these are logits.
        An array is taken as the field "image"; a dict has the fields that the model reads."""
        fields = images if isinstance(images, Mapping) else {"image": images}
        batch = images if isinstance(images, Batch) else Batch(fields)
        # A batch takes no longer than a step, and cannot be cancelled: Ctrl-C leaves it to end by
        # itself.
        return Batch(interruptible(lambda: self._handle.predict(batch._handle)))["output"]

    @staticmethod
    def detections(outputs: Array, score_threshold: float = 0.5, iou_threshold: float = 0.45,
                   max_detections: int = 100, **former: float) -> List[Floats]:
        """Decodes the outputs of a detector (``models.ssd``), as returned by ``predict``: for each
        image an array [boxes, 6] of label, left, top, right, bottom (shares of the image) and
        score, the best first.

        A box counts if its score, the probability of its class, is at least ``score_threshold``. Of
        two boxes of a class whose intersection over union is above ``iou_threshold``, the better
        one stays. The former names of these arguments, ``least_score``, ``most_overlap`` and
        ``most``, still work, with a DeprecationWarning."""
        score_threshold = former_argument(former, "least_score", "score_threshold", score_threshold)
        iou_threshold = former_argument(former, "most_overlap", "iou_threshold", iou_threshold)
        max_detections = former_argument(former, "most", "max_detections", max_detections)
        if former:
            raise TypeError(f"detections() has no argument '{next(iter(former))}'")
        handle = native.TrainerHandle.detections(Batch({"output": outputs})._handle, score_threshold,
                                                 iou_threshold, max_detections)
        return [rows[rows[:, 0] >= 0] for rows in Batch(handle)["boxes"]]

    def save(self, directory: StrPath) -> None:
        """Saves a checkpoint in a new folder below ``directory``: weights (safetensors), optimizer
        state and step count."""
        self._handle.save(os.fsdecode(directory))

    def export_onnx(self, path: StrPath) -> None:
        """Exports the model with its weights as an ONNX file, for other runtimes. The inputs have
        the names of their fields, images are [N, H, W, C] as here, and there is one output
        "output". Needs a step or a prediction first."""
        self._handle.export_onnx(os.fsdecode(path))

    def load(self, directory: StrPath) -> None:
        """Loads the newest intact checkpoint below ``directory``. It must be of this model and this
        optimizer."""
        self._handle.load(os.fsdecode(directory))

    def load_pytorch(self, path: StrPath, names: Optional[Mapping[str, str]] = None) -> None:
        """Loads initial weights that PyTorch trained: a safetensors file of a ``state_dict``. Call
        it before the first batch.

        Tensors are looked up by the model's names, with PyTorch's words for their last part;
        layouts are converted. ``names`` maps prefixes of the model's names to those in the file:
        ``{"backbone.": "model.encoder.", "head": ""}``, where ``""`` leaves such tensors as they
        are."""
        self._handle.load_pytorch(os.fsdecode(path), _schema.to_json(dict(names or {})))

    def weights(self) -> Dict[str, Floats]:
        """Returns a read-only copy of all parameters and running statistics by name, float32 and in
        the model's order. Needs a step or a prediction first."""
        return dict(Batch(self._handle.weights("")))

    def weight(self, name: str) -> Floats:
        """Returns the weight of that name: ``trainer.weight("conv2d_1.weight")``."""
        return Batch(self._handle.weights(name))[name]

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replaces the given weights, which must be float32 and of the same shapes. If one does not
        fit, none is replaced. The optimizer's state is kept."""
        self._handle.set_weights(Batch(weights)._handle)

    def set_hyperparameter(self, name: str, value: float) -> None:
        """Changes a hyperparameter of the optimizer ("momentum", "beta1", "beta2", "decay",
        "weight_decay") or the loss ("label_smoothing") from the next step on, at no cost.
        Checkpoints keep the value."""
        self._handle.set_hyperparameter(name, float(value))

    def summary(self) -> Summary:
        """Lists layers, shapes and parameters, with the shapes of the first batch. Needs a step or
        a prediction first; `Model.summary` does not."""
        return Summary(self._handle.summary("text"), _schema.from_json(self._handle.summary("json")))

    def profile(self, batch: Union[Batch, Fields], steps: int = 10) -> Dict[str, Any]:
        """Measures where the time of a training step on ``batch`` goes, kernel by kernel. These
        steps train."""
        fields = batch if isinstance(batch, Batch) else Batch(batch)
        return _schema.from_json(interruptible(lambda: self._handle.profile(fields._handle, steps, "json")))

    def __repr__(self) -> str:
        return self._shown()

    @of_pipelines
    def fit(self, pipeline: Pipeline, epochs: int = 1, *, validation: Optional[Pipeline] = None,
            callbacks: Iterable[Union[Callback, CallbackFunction]] = (),
            progress: Optional[bool] = None) -> History:
        """Trains for ``epochs`` epochs of ``pipeline``. A callback is a `Callback` or a function of
        (epoch, logs). ``progress`` shows a tqdm bar; None does so on a terminal and in Jupyter. If
        a callback's ``on_evaluation`` returns False, that evaluation ends and training continues;
        the epoch's ``val_`` values are then NaN."""
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
            if not stopped:  # cancelled by Pipeline.cancel
                raise
        return {"loss": float("nan"), "accuracy": float("nan")}

    @of_pipelines
    def run(self, pipeline: Pipeline, epochs: int = 1, *,
            validation: Optional[Pipeline] = None) -> Iterator[Event]:
        """Trains like `fit`, and yields an `Event` of kind "step" for each step, of kind "epoch"
        for each epoch, with the evaluation on ``validation``, and finally of kind "end". Leaving
        the loop ends the training."""
        _check_epochs(epochs)
        began, examples = time.monotonic(), 0

        def event(kind: _EventKind, result: StepResult, **more: Any) -> Event:
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
            # There was a step: without one, logs() has failed.
            yield event("epoch", result, **logs)  # pyright: ignore[reportPossiblyUnboundVariable]
        yield event("end", result, **logs)  # pyright: ignore[reportPossiblyUnboundVariable]

    def _steps(self, pipeline: Pipeline) -> Iterator[StepResult]:
        try:
            for batch in pipeline:
                self.step(batch)
                batch.close()
                yield from self.results(wait=False)
            yield from self.results(wait=True)
        finally:  # also when the loop was left: the next run's first result is its own
            collections.deque(self.results(wait=True), maxlen=0)

    def _fit_epoch(self, pipeline: Pipeline, epoch: int, epochs: int, callbacks: List[Callback],
                   progress: Optional[bool]) -> Dict[str, float]:
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
    """Mean loss and accuracy over the samples of an epoch."""

    def __init__(self) -> None:
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
