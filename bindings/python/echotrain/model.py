"""Models and their summaries."""

# Annotations are not postponed here: pdoc cannot resolve those of a NamedTuple then.

import json
import os
import sys
from typing import (TYPE_CHECKING, Any, Dict, Iterable, List, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple,
                    Union)

import numpy as np

from . import _log, _schema, native
from ._schema import Layer, ReadyModel, Spec
from .pipeline import field_type

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from typing import Unpack
    else:
        from typing_extensions import Unpack
    from ._job import LossName, LossOptions
    from ._types import Shaped, StrPath

__all__ = ["LayerSummary", "Model", "Summary"]


class LayerSummary(NamedTuple):
    """A layer of a `Summary`."""

    name: str
    op: str  # the first of the layer's operations
    shape: Tuple[Optional[int], ...]  # of what it gives; None: the batch axis
    parameters: int


class Summary:
    """A summary of a model: ``print(trainer.summary())``, or its ``layers``, ``parameters``,
    ``frozen`` (how many of the parameters are frozen) and ``states`` (the number of running
    statistics)."""

    def __init__(self, text: str, parts: Mapping[str, Any]) -> None:
        self._text = text
        self.layers: List[LayerSummary] = [
            LayerSummary(row["name"], row["op"], tuple(None if extent < 0 else extent for extent in row["shape"]),
                         row["parameters"]) for row in parts["layers"]]
        self.parameters: int = parts["parameters"]
        self.frozen: int = parts["frozen"]
        self.states: int = parts["states"]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text.rstrip("\n")  # what an interpreter or a notebook shows


def _sample(name: str, given: Any) -> Any:
    """Returns a field's type and shape in the form that the library takes."""
    if hasattr(given, "dtype") and hasattr(given, "shape"):
        names: Dict[Optional[np.dtype[Any]], str] = {
            np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.uint8): "u8"}
        dtype = field_type(np.dtype(given.dtype))
        if dtype not in names:
            raise TypeError(f"field '{name}' is {given.dtype}; models read uint8, int32 and float32")
        return {"dtype": names[dtype], "shape": list(given.shape)}
    return [int(extent) for extent in given]


def _options(inputs: Iterable[str], recompute: bool, precision: str, frozen: Union[str, Iterable[str]],
             lora: Optional[Mapping[str, Any]], quantize: int) -> Dict[str, Any]:
    """Options of a model, in the form that jobs use; those that have their default are left out."""
    spec: Dict[str, Any] = {}
    if inputs:
        spec["inputs"] = [inputs] if isinstance(inputs, str) else list(inputs)
    if recompute:
        spec["recompute"] = True
    if frozen:
        spec["frozen"] = [frozen] if isinstance(frozen, str) else list(frozen)
    if lora is not None:
        if not isinstance(lora, Mapping):
            raise TypeError(f'lora is {lora!r}; give a dict: {{"layers": ["*.query"], "rank": 8}}')
        spec["lora"] = json.loads(_schema.to_json(dict(lora)))
    if quantize:
        spec["quantize"] = quantize
    if precision != "fp32":
        spec["precision"] = precision
    return spec


class Model:
    """Layers in a row: ``Model([layers.conv2d(32), layers.flatten(), layers.dense(10)])``, or a
    ready-made model: ``Model(models.cifar_resnet(depth=20))``.

    A layer may have a name and read others by their names: ``layers.add(input=["a", "b"])``.
    ``inputs`` are the fields of the batch that the layers read. ``loss`` is "softmax_cross_entropy"
    (integer labels), "binary_cross_entropy", "mse", "l1", "huber" or "multibox" (detectors), unless
    the ready-made model has chosen one already; further keyword arguments are options of the loss.
    With ``recompute`` training stores only the values that cross between parts of the model, and
    computes the others again for the gradients: less memory, more time. ``precision`` is the type
    to which matrix products and convolutions round their operands: "fp32", "bf16" or "fp16".
    ``frozen`` names parameters that training leaves as they are; * stands for any characters:
    ``frozen="conv2d_*"``. ``lora`` gives dense layers and the projections of attention layers
    low-rank adapters and freezes the rest: ``lora={"layers": ["*.query", "*.value"], "rank": 8,
    "alpha": 16}``; with "train" it names parameters that are trained as they are. ``quantize``
    keeps the frozen weights of products and convolutions in 8 or 4 bits in device memory.

    A model is a description without weights: it can be copied and pickled.
    """

    _file: str  # of a model from an ONNX file: what to read again

    def __init__(self, layers: Union[Layer, ReadyModel, Iterable[Union[Layer, ReadyModel]]], inputs: Iterable[str] = (),
                 loss: Optional["LossName"] = None, recompute: bool = False,
                 precision: Literal["fp32", "bf16", "fp16"] = "fp32",
                 frozen: Union[str, Iterable[str]] = (),
                 lora: Optional[Mapping[str, Any]] = None, quantize: int = 0,
                 **loss_options: "Unpack[LossOptions]") -> None:
        self.layers: List[Union[Layer, ReadyModel]] = [layers] if isinstance(layers, Spec) else list(layers)
        if len(self.layers) == 1 and getattr(self.layers[0], "kind", "") == "models":
            spec: Dict[str, Any] = _schema.plain(self.layers[0])
        else:
            for layer in self.layers:
                if not isinstance(layer, Spec) or layer.kind != "layers":
                    raise TypeError(f"{layer!r} is not a layer")
            spec = {"layers": _schema.plain(self.layers)}
        spec.update(_options(inputs, recompute, precision, frozen, lora, quantize))
        if loss_options and loss is None:
            spec["loss"] = json.loads(_schema.to_json(loss_options))
        _log.start()
        self._handle = native.ModelHandle(_schema.dumps(spec))
        if loss is not None:
            self._handle.loss(loss, _schema.to_json(loss_options))

    @classmethod
    def from_json(cls, spec: Union[str, Mapping[str, Any]]) -> "Model":
        """Creates a model from the form that jobs use: layers, inputs and loss, or the name of a
        ready-made model with its options."""
        model = cls.__new__(cls)
        model.layers = []
        _log.start()
        model._handle = native.ModelHandle(spec if isinstance(spec, str) else _schema.dumps(spec))
        return model

    @classmethod
    def from_onnx(cls, path: "StrPath", layers: Iterable[Layer] = (), until: str = "",
                  inputs: Iterable[str] = (), loss: Optional["LossName"] = None,
                  frozen: Union[str, Iterable[str]] = (), recompute: bool = False,
                  precision: Literal["fp32", "bf16", "fp16"] = "fp32",
                  lora: Optional[Mapping[str, Any]] = None, quantize: int = 0,
                  **loss_options: "Unpack[LossOptions]") -> "Model":
        """Creates a model from an ONNX file, for fine-tuning: a trainer begins with the file's
        weights. ``until`` cuts the network behind a value, a node or a layer of that name, and
        ``layers`` follow there: ``Model.from_onnx("resnet.onnx", [layers.dense(10, name="head")],
        until="flatten")``. Fields have the names of the file's inputs unless ``inputs`` renames
        them; images are [N, C, H, W] in the file and [N, H, W, C] here. The other options are those
        of `Model`. Copies and pickles of the model read the file again."""
        spec: Dict[str, Any] = {"onnx": os.fspath(path), "layers": _schema.plain(list(layers))}
        if until:
            spec["until"] = until
        spec.update(_options(inputs, recompute, precision, frozen, lora, quantize))
        if loss is not None:
            spec["loss"] = {"loss": loss, **json.loads(_schema.to_json(loss_options))}
        elif loss_options:
            spec["loss"] = json.loads(_schema.to_json(loss_options))
        model = cls.from_json(spec)
        model._file = _schema.dumps(spec)
        return model

    @property
    def json(self) -> Dict[str, Any]:
        """The model in the form that jobs use; a ready-made model is written with all its
        layers."""
        return _schema.from_json(self._handle.json())

    def summary(self, **samples: Union["Shaped", Sequence[int]]) -> Summary:
        """Lists layers, shapes and parameters for samples of these shapes:
        ``model.summary(image=(28, 28, 1))``. For a field of another type than float32, pass an
        array like a sample: ``text=numpy.zeros(12, numpy.int32)``."""
        fields = json.dumps({name: _sample(name, given) for name, given in samples.items()})
        return Summary(self._handle.summary(fields, "text"), _schema.from_json(self._handle.summary(fields, "json")))

    def __getstate__(self) -> Dict[str, Any]:
        kept = {key: value for key, value in vars(self).items() if key != "_handle"}
        return {**kept, "_json": getattr(self, "_file", None) or self._handle.json()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        state = dict(state)
        _log.start()
        self._handle = native.ModelHandle(state.pop("_json"))
        vars(self).update(state)

    def __eq__(self, other: object) -> bool:
        """Compares the models' layers: a ready-made model equals the model that lists its
        layers."""
        return self.json == other.json if isinstance(other, Model) else NotImplemented

    def __repr__(self) -> str:
        return f"Model({self.layers!r})" if self.layers else f"Model.from_json({self.json!r})"
