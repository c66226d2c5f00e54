"""Input pipelines and their batches."""

from __future__ import annotations

import atexit
import collections
import html
import json
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import (TYPE_CHECKING, Any, Callable, Deque, Dict, Iterable, Iterator, List, Literal, NamedTuple, NoReturn,
                    Optional, Tuple, Union, cast, overload)

import numpy as np

from . import _log, _schema, native
from .errors import CallbackError
from ._schema import Spec, Stage

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack
    from ._calls import OnProgress
    from ._job import PipelineOptions
    from ._types import Array, Fields, StrPath

    _Function = Callable[[Dict[str, Array]], Fields]
    _FunctionWithInfo = Callable[[Dict[str, Array], "SampleInfo"], Fields]
    _Samples = Union[Iterable[Fields], Callable[[int], Iterable[Fields]]]  # of an epoch

__all__ = ["Batch", "Pipeline", "SampleInfo", "Tensor", "map", "pack_folder", "source", "tune"]

_DTYPES: Tuple[np.dtype[Any], ...] = (  # by ETR_*
    np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.uint16))
_I32, _F32 = _DTYPES[1:3]
# Every batch comes this way.
_asarray, _field_of = np.asarray, native.echotrain_field_of
_BatchHandle = native.BatchHandle
_INDEX_IN_PASS = (1 << 40) - 1  # of a sample's ordinal
_POLL_SECONDS = 0.1  # how long a blocking call leaves Ctrl-C waiting

_open_pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Worker threads must not call the interpreter once it is gone.
    for pipeline in list(_open_pipelines):
        pipeline.close()


class _NotPicklable:
    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} lives in this process's memory and cannot be pickled; "
                        "build it in the process that uses it")


class Tensor(_NotPicklable):
    """A field of a batch in host memory. NumPy (``numpy.asarray``), PyTorch (``torch.from_dlpack``)
    and everything else that supports DLPack read it without a copy; the memory lives as long as
    anything uses it. Do not write to it: other batches may share it (echoes)."""

    def __init__(self, batch: native.BatchHandle, field: str) -> None:
        self._batch = batch
        self._field = field
        self._memory = _field_of(batch, field)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The extents of the axes."""
        return self._memory.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements: uint8, uint16, int32 or float32."""
        return _DTYPES[self._memory.dtype]

    @property
    def __array_struct__(self) -> object:
        return self._memory.__array_struct__

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str,
                "data": (self._memory.address, True)}

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"device {tuple(dl_device)} was asked for; the tensor is in CPU memory, device (1, 0)")
        if copy:
            raise BufferError("a copy was asked for; use numpy.array(tensor)")
        return native.echotrain_dlpack_capsule(self._batch, self._field)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)  # CPU

    def numpy(self) -> Array:
        """Returns a read-only array on the same memory."""
        return np.asarray(self)

    def __repr__(self) -> str:
        return f"Tensor({self._field!r}, {self.dtype}, {list(self.shape)})"


def field_type(dtype: np.dtype[Any]) -> Optional[np.dtype[Any]]:
    """Returns the type in which a field holds such values: other integers become int32, other
    floats float32; None: it cannot."""
    if dtype in _DTYPES:
        return dtype
    return {"b": _I32, "i": _I32, "u": _I32, "f": _F32}.get(dtype.kind)


def _converted(field: str, array: Array, to: np.dtype[Any]) -> Array:
    """Returns a converted copy; raises ValueError for a value that does not fit."""
    if to == _F32:
        with np.errstate(over="ignore"):
            out = array.astype(to)
        outside = np.isinf(out) & np.isfinite(array)
    else:
        out, limits = array.astype(to), np.iinfo(to)
        outside = (array < limits.min) | (array > limits.max) if array.dtype.kind != "b" else np.zeros((), bool)
    if outside.any():
        raise ValueError(f"field '{field}' is {array.dtype} and holds {array[outside].flat[0]}, which does not fit {to}: "
                         f"fields hold uint8, uint16, int32 or float32")
    return out


def _as_array(field: str, value: Any) -> Array:
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, list, tuple)):
        try:
            array = np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise ValueError(f"field '{field}': {error}") from None
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    else:
        raise TypeError(f"field '{field}' is a {type(value).__name__}; give numbers: a NumPy array, a tensor that knows "
                        "DLPack, a number or a list of them")
    to = field_type(array.dtype)
    if to is None:
        raise TypeError(f"field '{field}' is {array.dtype} {list(array.shape)}; fields hold numbers: uint8, uint16, int32 "
                        "or float32, and what can be converted to int32 or float32")
    if to is not array.dtype:
        array = _converted(field, array, to)
    return np.ascontiguousarray(array).reshape(array.shape)


def _set_field(handle: native.BatchHandle, field: str, value: Any) -> None:
    array = _as_array(field, value)
    native.echotrain_wrap_object(handle, field, _DTYPES.index(array.dtype), list(array.shape),
                                 array.__array_interface__["data"][0], array)


class Batch(_NotPicklable, Mapping[str, "Array"]):
    """Named tensors. ``batch["image"]`` is a read-only NumPy array on the library's memory;
    ``batch.tensor("image")`` is for other libraries.

    ``Batch({"image": x, "label": y})`` makes a batch from arrays. It shares the memory of uint8,
    uint16, int32 and float32 arrays: do not change them. Other integers (such as NumPy's int64) are
    copied into int32, other floats (float64) into float32; Python's numbers and lists are converted
    likewise. An integer that does not fit, or a float that would become infinite, is a ValueError.
    """

    __slots__ = ("_handle", "__weakref__")

    def __init__(self, fields: Union[Fields, native.BatchHandle]) -> None:
        if isinstance(fields, _BatchHandle):
            self._handle = fields
        else:
            if not hasattr(fields, "items"):
                raise TypeError(f"{fields!r:.80} is a {type(fields).__name__}; give a dict of arrays")
            self._handle = native.BatchHandle()
            for name, value in fields.items():
                _set_field(self._handle, name, value)

    def tensor(self, field: str) -> Tensor:
        """Returns a field for libraries that read DLPack or NumPy's array interface."""
        return Tensor(self._handle, field)

    def __getitem__(self, field: str) -> Array:
        try:
            return _asarray(_field_of(self._handle, field))
        except (LookupError, TypeError, UnicodeError) as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._handle.fields()))

    def __len__(self) -> int:
        return len(self._handle.fields())

    @property
    def samples(self) -> int:
        """Number of samples in the batch; 0 for a single sample of a pipeline without a batch
        stage."""
        return self._handle.samples()

    @property
    def fresh(self) -> int:
        """Number of samples that were read from upstream for this batch."""
        return self._handle.fresh()

    @property
    def echoed(self) -> int:
        """Number of samples that an echo stage repeated."""
        return self._handle.echoed()

    @property
    def unique(self) -> int:
        """Number of distinct samples in the batch."""
        return self._handle.unique()

    @property
    def mean_age(self) -> float:
        """Mean age of the samples: how many fresh samples echo stages have received since they
        received this one."""
        return self._handle.mean_age()

    def close(self) -> None:
        """Releases the memory now. Arrays that were taken from the batch keep theirs."""
        self._handle.close()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """For Jupyter."""
        if self._handle.is_closed():
            return "<i>a batch that was closed</i>"
        rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{a.dtype}</td><td>{list(a.shape)}</td>"
                       f"<td>{a.min():.4g} … {a.max():.4g}</td></tr>" if a.size else
                       f"<tr><td>{html.escape(name)}</td><td>{a.dtype}</td><td>{list(a.shape)}</td><td></td></tr>"
                       for name, a in self.items())
        return (f"<p>{self.samples} samples: {self.fresh} fresh, {self.echoed} echoed, {self.unique} different</p><table>"
                f"<tr><th>field</th><th>type</th><th>shape</th><th>values</th></tr>{rows}</table>")

    def __repr__(self) -> str:
        if self._handle.is_closed():
            return "Batch(closed)"
        return "Batch(" + ", ".join(repr(self.tensor(name)) for name in self) + ")"


class SampleInfo(NamedTuple):
    """Identifies a sample for a map function. Random numbers that are derived from it are the same
    at any number of threads."""

    epoch: int
    ordinal: int  # of the (first) sample in its epoch's source order
    replica: int  # 0: fresh; n: the n-th echo


def _reason_of(failure: BaseException) -> str:
    told = f"{type(failure).__name__}: {failure}".replace("\0", "\\0")
    return told.encode(errors="backslashreplace").decode()


class _Failures:
    """The exceptions that a pipeline's functions raised. Only the latest are kept, because with
    on_error="skip" there may be many that nobody asks for.

    The functions refer to this object weakly. The library owns the functions, and the traceback of
    an exception that was raised again refers to the pipeline: with a reference from the functions,
    this would be a cycle that Python's collector cannot see."""

    def __init__(self) -> None:
        self._kept: Deque[Tuple[str, BaseException]] = collections.deque(maxlen=64)
        self._lock = threading.Lock()  # a deque that another thread appends to cannot be copied

    def add(self, name: str, failure: BaseException) -> str:
        """Keeps the exception and returns the reason to report to the library."""
        reason = _reason_of(failure)
        with self._lock:
            self._kept.append((f"the function '{name}' failed: {reason}", failure))
        return reason

    def original(self, error: CallbackError) -> BaseException:
        """Returns the exception that ended the run, or the error itself if that exception is no
        longer known."""
        told = str(error)
        with self._lock:
            kept = tuple(self._kept)
        # One reason may be a prefix of another (an exception without a message: "ValueError: ").
        known = [(said, failure) for said, failure in kept if said in told]
        if not known:
            return error
        failure = max(known, key=lambda pair: len(pair[0]))[1]
        failure.__cause__ = error
        return failure


class _Callback(native.MapFunction):
    """A Python function that the pipeline's threads call."""

    def __init__(self, name: str, failures: _Failures) -> None:
        super().__init__()
        self._name, self._failures = name, weakref.ref(failures)

    def _failed(self, error: BaseException) -> str:
        """Returns the reason to report to the library."""
        failures = self._failures()
        return failures.add(self._name, error) if failures else _reason_of(error)


class _MapFunction(_Callback):
    """Calls a map's function."""

    def __init__(self, name: str, function: Callable[..., Fields], with_info: bool, failures: _Failures) -> None:
        super().__init__(name, failures)
        self._function, self._with_info = function, with_info

    def apply(self, item: native.BatchHandle) -> str:
        try:
            before = {name: _asarray(_field_of(item, name)) for name in item.fields()}
            info = (SampleInfo(item.epoch(), item.ordinal(), item.replica()),) if self._with_info else ()
            after = self._function(dict(before), *info)
            if not isinstance(after, Mapping):
                raise TypeError(f"the map function returned {type(after).__name__}; "
                                "it must return the fields, as a dict")
            if not after:
                raise TypeError("the map function returned a dict without fields; it must return at least one")
            for name in before:
                if name not in after:
                    item.remove(name)
            for name, value in after.items():
                if value is not before.get(name):
                    _set_field(item, name, value)
            return ""
        except BaseException as error:  # it must not leave the callback
            return self._failed(error)


class map:  # noqa: A001: the field's own word
    """A Python function as a stage: ``map(function, name=None, with_info=False)``.

    The function receives a dict of read-only arrays (one sample, or a whole batch after ``batch``)
    and returns a dict with the fields to pass on, at least one. Several threads call it. With
    ``with_info`` it also receives a `SampleInfo`. A bare function among a pipeline's stages is the
    same as ``map(function)``.
    """

    @overload
    def __init__(self, function: _Function, name: Optional[str] = None, with_info: Literal[False] = False) -> None: ...

    @overload
    def __init__(self, function: _FunctionWithInfo, name: Optional[str] = None, *,
                 with_info: Literal[True]) -> None: ...

    @overload
    def __init__(self, function: _FunctionWithInfo, name: Optional[str], with_info: Literal[True]) -> None: ...

    def __init__(self, function: Callable[..., Fields], name: Optional[str] = None, with_info: bool = False) -> None:
        self.function = function
        self.with_info = with_info
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))

    def __repr__(self) -> str:
        return f"map({self.name})"


class source:
    """Your own samples as a pipeline's source: ``source(samples, name=None)``.

    ``samples`` is an iterable of dicts of arrays that can be iterated again for each pass (a list,
    a dataset), or a function of the epoch that returns an iterable. A thread of the pipeline
    iterates over it. A restored pipeline iterates from the beginning of the epoch, and expects the
    same samples.
    """

    def __init__(self, samples: _Samples, name: Optional[str] = None) -> None:
        if not callable(samples) and iter(samples) is samples:
            raise TypeError("an iterator can be walked once only, and a pipeline needs its samples for each pass; "
                            "give a list, or a function that returns an iterator")
        self.samples = samples
        self.name: str = name or str(getattr(samples, "__name__", type(samples).__name__))

    def __repr__(self) -> str:
        return f"source({self.name})"


_NO_MORE = object()


class _SourceFunction(_Callback):
    """Iterates over the samples of a `source`, one for each call."""

    def __init__(self, name: str, samples: _Samples, failures: _Failures) -> None:
        super().__init__(name, failures)
        self._samples = samples
        self._walk: Iterator[Any] = iter(())

    def _begin(self, epoch: int) -> Iterator[Any]:
        samples = self._samples(epoch) if callable(self._samples) else self._samples
        try:
            return iter(samples)
        except TypeError:
            raise TypeError(f"the source's function returned {type(samples).__name__}; it must return an iterable of the "
                            "epoch's samples, or yield them") from None

    def apply(self, item: native.BatchHandle) -> str:
        try:
            if item.ordinal() & _INDEX_IN_PASS == 0:
                self._walk = self._begin(item.epoch())
            sample = next(self._walk, _NO_MORE)
            if sample is _NO_MORE:
                item.end_pass()
                return ""
            if not isinstance(sample, Mapping):
                raise TypeError(f"the source gave {type(sample).__name__}; a sample is a dict of arrays, and the pass is over "
                                "where the iterator ends")
            if not sample:
                raise TypeError("the source gave a dict without fields; a sample has at least one")
            for name, value in cast("Fields", sample).items():
                _set_field(item, name, value)
            return ""
        except BaseException as error:  # it must not leave the callback
            return self._failed(error)


class Pipeline(_NotPicklable):
    """Stages from a source to batches: ``for batch in pipeline`` reads one epoch.

    ``stages`` are `echotrain.stages`, a `source` of your own, and Python functions. The other
    options are those of a job's section "pipeline", such as ``threads``, ``seed``, ``epochs`` and
    ``on_error``. Iterating again reads the next epoch, and after a ``break`` the rest of this one.
    One thread reads; any thread may call `cancel`, `stats` and `bad_records`.
    """

    def __init__(self, stages: Iterable[Union[Stage, source, map, _Function]],
                 **options: Unpack[PipelineOptions]) -> None:
        self._failures = _Failures()
        _log.start()
        self._handle = native.PipelineHandle(_schema.to_json(options))
        _open_pipelines.add(self)
        names: List[str] = []
        shown: List[str] = []
        for stage in stages:
            shown.append(repr(stage if isinstance(stage, (Spec, source, map)) or not callable(stage) else map(stage)))
            if isinstance(stage, Spec):
                if stage.kind != "stages":
                    raise TypeError(f"{stage!r} is not a stage of a pipeline")
                self._handle.add(stage.name, _schema.to_json(stage.options))
                continue
            if isinstance(stage, source):
                walk = _SourceFunction(stage.name, stage.samples, self._failures)
                self._handle.add_source(stage.name, walk.__disown__())
                names.append(stage.name)
                continue
            if not isinstance(stage, map):
                if not callable(stage):
                    raise TypeError(f"{stage!r} is neither a stage nor a function")
                stage = map(stage)
            name = stage.name
            while name in names:
                name += "_"
            names.append(name)
            # The pipeline owns the function from here on, and drops it on whichever thread is last.
            function = _MapFunction(name, stage.function, stage.with_info, self._failures)
            self._handle.add_map(name, function.__disown__())
        more = "".join(f", {key}={value!r}" for key, value in options.items())
        self._shown = f"Pipeline([{', '.join(shown)}]{more})"

    @classmethod
    def from_json(cls, spec: Union[str, Mapping[str, Any]]) -> Pipeline:
        """Creates a pipeline from the form of the job section "pipeline": a dict, or its text, with
        "stages" and options."""
        text = spec if isinstance(spec, str) else _schema.dumps(spec)
        pipeline = cls.__new__(cls)
        pipeline._failures = _Failures()
        _log.start()
        pipeline._handle = native.PipelineHandle.from_json(text)
        pipeline._shown = f"Pipeline.from_json({text!r})"
        _open_pipelines.add(pipeline)
        return pipeline

    def __repr__(self) -> str:
        return self._shown

    def __len__(self) -> int:
        """Number of batches in an epoch, provided that no record is dropped. Raises TypeError if it
        is not known: for shards before their first pass is over, for endless epochs, and for echo
        on demand."""
        length = self._handle.length()
        if length < 0:
            raise TypeError("this pipeline's length is not known: shards are counted in their first pass, "
                            "and an epoch may have no end or echo on demand")
        return length

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Batch]:
        poll = self._handle.poll
        while True:
            try:
                handle = poll(_POLL_SECONDS)  # between two, Python looks after signals
            except CallbackError as error:
                raise self._failures.original(error)
            if handle is not None:
                yield Batch(handle)
            elif self._handle.ended():
                return

    def cancel(self) -> None:
        """Stops all work; a thread that is waiting for a batch gets a CancelledError."""
        self._handle.cancel()

    def stats(self) -> Dict[str, Any]:
        """Returns the statistics of each stage (items, busy and waiting time, queue) and of the
        consumer."""
        return _schema.from_json(self._handle.stats())

    def explain(self, format: Literal["text", "svg", "json"] = "text") -> str:
        """Explains the speed of a pipeline that has run for a while: rates, loads, the bottleneck,
        and what more threads, a cache or an echo stage would gain. ``format``: "text", "svg" (a
        drawing) or "json"."""
        return self._handle.explain(format)

    def trace(self) -> str:
        """Returns what each thread did when, as a Chrome trace (JSON). Needs the option
        ``trace_events``, such as 100000."""
        return self._handle.trace()

    def bad_records(self) -> List[Dict[str, Any]]:
        """Returns the records that on_error="skip" or "quarantine" dropped: dicts with "stage", "shard",
        "key", "reason" and "occurrences", and with the byte "offset" in the shard if it is known."""
        return _schema.rows_from_json(self._handle.bad_records())

    def save(self) -> Dict[str, Any]:
        """Returns the position after the last batch that was read; it is small and suits
        json.dump."""
        return _schema.from_json(self._handle.save())

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues where a pipeline of the same stages was saved. Call it once, before the
        first batch."""
        self._handle.restore(json.dumps(state))

    def close(self) -> None:
        """Stops all work and releases the pipeline's memory."""
        self._handle.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tune(stages: Iterable[Stage], seconds: float = 2, step_ms: float = 0, *,
         progress: Optional[OnProgress] = None,
         **options: Unpack[PipelineOptions]) -> Dict[str, Any]:
    """Finds good settings (threads, connections, prefetching) for a pipeline of stages, without
    Python functions, by trying them, each for ``seconds``, with a consumer that takes ``step_ms``
    for a batch. ``Pipeline(stages, **tune(stages)["options"])`` uses the result.

    ``progress(trials, None, text)`` is called after each trial, on the thread that tries; ``text``
    is the trial as JSON. If it returns False, this raises CancelledError. Ctrl-C ends it after the
    current trial."""
    from ._calls import reporting  # which imports this module
    rows = [_schema.plain(stage) for stage in stages]
    if not all(isinstance(row, dict) for row in rows):
        raise TypeError("tune takes stages of echotrain.stages; Python functions would time the interpreter")
    spec = json.loads(_schema.to_json(options))
    text = _schema.dumps({"stages": rows, **spec})
    return _schema.from_json(reporting(lambda told: native.tune(text, seconds, step_ms, told), progress))


def pack_folder(root: StrPath, prefix: StrPath, per_shard: int = 1000, level: int = 3,
                seed: int = 0, format: Literal["webdataset", "fast"] = "webdataset", validation: float = 0,
                overwrite: bool = False, orientation: Literal["exif", "stored"] = "exif",
                progress: Optional[Callable[[int, int], Optional[bool]]] = None, **former: int) -> Dict[str, Any]:
    """Packs ``root/CLASS/NAME.png`` into ``PREFIX-000000.tar.zst`` and so on for
    `stages.webdataset`, or with ``format="fast"`` into ``PREFIX-000000.ets`` for
    `stages.fast_shard`, whose images decode several times as fast.

    ``validation`` is the share of each class to set aside in shards named ``validation-*`` beside
    the others. Shards of an earlier packing are an error unless ``overwrite`` replaces them. The
    names of the classes are written to ``classes.txt`` beside the shards. ``skipped`` in the result
    lists the files that were left out, with the reasons. PNGs are stored in fast shards turned as
    their EXIF ``orientation`` says, or with ``"stored"`` as they are in the file.

    ``progress(done, total)`` is called after each file, on the thread that packs; returning False
    stops the packing, as Ctrl-C does, and no shard of it is left.

    ``per_shard`` is the number of samples in each shard, ``level`` the zstd level (0: .tar files
    without compression). Their former names, ``samples_per_shard`` and ``zstd_level``, still work,
    with a DeprecationWarning."""
    from ._calls import reporting, without_text  # which imports this module
    per_shard = _schema.former_argument(former, "samples_per_shard", "per_shard", per_shard)
    level = _schema.former_argument(former, "zstd_level", "level", level)
    if former:
        raise TypeError(f"pack_folder() has no argument '{next(iter(former))}'")
    options = {"per_shard": per_shard, "level": level, "seed": seed, "format": format,
               "validation": validation, "overwrite": overwrite, "orientation": orientation}
    return _schema.from_json(reporting(
        lambda told: native.pack_folder(os.fsdecode(root), os.fsdecode(prefix), _schema.to_json(options), told), without_text(progress)))
