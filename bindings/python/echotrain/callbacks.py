"""Callbacks of `Trainer.fit`."""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Optional, Union

if TYPE_CHECKING:
    from .training import History, StepResult, Trainer


class Callback:
    """Base class of callbacks. Override the methods that you need. Set ``trainer.stop_training =
    True`` to end the run after this epoch."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("on_") and name not in _HOOKS:
                near = difflib.get_close_matches(name, _HOOKS, 1, cutoff=0)[0]
                raise TypeError(f"{cls.__name__}.{name} would never be called; did you mean '{near}'? "
                                f"There are: {', '.join(_HOOKS)}")

    def on_train_begin(self, trainer: "Trainer") -> None: ...

    def on_batch_end(self, trainer: "Trainer", result: "StepResult") -> None: ...

    def on_evaluation(self, trainer: "Trainer", done: int, batches: Optional[int]) -> Optional[bool]:
        """Called after each batch of the evaluation on ``validation``, on the thread that
        evaluates. ``batches`` is their number, or None if it is not known. The trainer must not be
        used meanwhile. Returning False ends this evaluation; training continues."""

    def on_epoch_end(self, trainer: "Trainer", epoch: int, logs: Dict[str, float]) -> None: ...

    def on_train_end(self, trainer: "Trainer", history: "History") -> None: ...


_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class EarlyStopping(Callback):
    """Ends the run when ``monitor`` has not improved for ``patience`` epochs. Epochs whose
    evaluation was stopped do not count."""

    def __init__(self, monitor: str = "val_loss", patience: int = 3):
        self.monitor, self.patience, self.best, self.wait = monitor, patience, None, 0

    def on_epoch_end(self, trainer, epoch, logs):
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

    def __init__(self, directory):
        self.directory = directory

    def on_epoch_end(self, trainer, epoch, logs):
        trainer.save(self.directory)


class _Function(Callback):
    def __init__(self, function: Callable[[int, Dict[str, float]], None]):
        self._function = function

    def on_epoch_end(self, trainer, epoch, logs):
        self._function(epoch, logs)


def as_callbacks(given: Union[Callback, Iterable[Union[Callback, Callable]]]) -> List[Callback]:
    """Returns the callbacks for `Trainer.fit`; raises TypeError for objects that could never be
    called."""
    if isinstance(given, Callback) or callable(given):
        raise TypeError(f"callbacks is {given!r}; give a list: callbacks=[...]")
    out = []
    for one in given:
        if isinstance(one, Callback):
            out.append(one)
        elif isinstance(one, type):
            raise TypeError(f"{one.__name__} is a class; give one of its objects: {one.__name__}()")
        elif any(hasattr(one, hook) for hook in _HOOKS):
            raise TypeError(f"{one!r} is no echotrain.Callback; derive its class from that")
        elif callable(one):
            out.append(_Function(one))
        else:
            raise TypeError(f"{one!r} is neither a Callback nor a function of (epoch, logs)")
    return out
