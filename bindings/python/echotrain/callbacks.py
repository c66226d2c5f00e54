"""Callbacks of `Trainer.fit`."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Union

__all__ = ["Callback", "EarlyStopping", "SaveCheckpoint"]

if TYPE_CHECKING:
    from ._types import StrPath
    from .training import History, StepResult, Trainer

CallbackFunction = Callable[[int, Dict[str, float]], object]  # of (epoch, logs)


class Callback:
    """Base class of callbacks. Override the methods that you need. Set ``trainer.stop_training =
    True`` to end the run after this epoch."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("on_") and name not in _HOOKS:
                near = difflib.get_close_matches(name, _HOOKS, 1, cutoff=0)[0]
                raise TypeError(f"{cls.__name__}.{name} would never be called; did you mean '{near}'? "
                                f"There are: {', '.join(_HOOKS)}")

    def on_train_begin(self, trainer: Trainer) -> None:
        """Called before the first epoch."""

    def on_batch_end(self, trainer: Trainer, result: StepResult) -> None:
        """Called with the result of each step, in order; the device may be some steps ahead."""

    def on_evaluation(self, trainer: Trainer, done: int, batches: Optional[int]) -> Optional[bool]:
        """Called after each batch of the evaluation on ``validation``, on the thread that
        evaluates. ``batches`` is their number, or None if it is not known. The trainer must not be
        used meanwhile. Returning False ends this evaluation; training continues."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Dict[str, float]) -> None:
        """Called after each epoch and its evaluation. ``logs`` has "loss" and "accuracy", and with
        ``validation`` also "val_loss" and "val_accuracy"."""

    def on_train_end(self, trainer: Trainer, history: History) -> None:
        """Called after the last epoch."""


_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class EarlyStopping(Callback):
    """Ends the run when ``monitor`` has not improved for ``patience`` epochs. Epochs whose
    evaluation was stopped do not count."""

    def __init__(self, monitor: str = "val_loss", patience: int = 3) -> None:
        self.monitor = monitor
        self.patience = patience
        self.best: Optional[float] = None
        self.wait: int = 0

    def on_train_begin(self, trainer: Trainer) -> None:
        self.best, self.wait = None, 0

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Dict[str, float]) -> None:
        if self.monitor not in logs:
            raise ValueError(f"EarlyStopping watches '{self.monitor}'; there is {', '.join(logs)}")
        value = logs[self.monitor] * (-1 if "accuracy" in self.monitor else 1)
        if math.isnan(value):
            return
        if self.best is None or value < self.best:
            self.best, self.wait = value, 0
        else:
            self.wait += 1
            trainer.stop_training = trainer.stop_training or self.wait >= self.patience


class SaveCheckpoint(Callback):
    """Saves a checkpoint below ``directory`` after each epoch; the two newest are kept."""

    def __init__(self, directory: StrPath) -> None:
        self.directory = directory

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Dict[str, float]) -> None:
        trainer.save(self.directory)


class _Function(Callback):
    def __init__(self, function: CallbackFunction) -> None:
        self._function = function

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: Dict[str, float]) -> None:
        self._function(epoch, logs)


def as_callbacks(given: Iterable[Union[Callback, CallbackFunction]]) -> List[Callback]:
    """Returns the callbacks for `Trainer.fit`; raises TypeError for objects that could never be
    called."""
    if isinstance(given, Callback) or callable(given):
        raise TypeError(f"callbacks is {given!r}; give a list: callbacks=[...]")
    out: List[Callback] = []
    for one in given:
        if isinstance(one, Callback):
            out.append(one)
        elif isinstance(one, type):
            raise TypeError(f"{one.__name__} is a class; give one of its objects: {one.__name__}()")
        elif any(hasattr(one, hook) for hook in _HOOKS):
            raise TypeError(f"{one!r} is not an echotrain.Callback; derive its class from that")
        elif callable(one):
            out.append(_Function(one))
        else:
            raise TypeError(f"{one!r} is neither a Callback nor a function of (epoch, logs)")
    return out
