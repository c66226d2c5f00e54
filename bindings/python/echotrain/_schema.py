"""Functions with signatures and documentation, generated from the library's schemas at import."""

from __future__ import annotations

import difflib
import inspect
import json
import math
import os
import sys
import warnings
from typing import Any, Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Tuple, Type, Union, cast

from . import native

_Option = Dict[str, Any]  # a row of a schema

_TYPES: Dict[str, Any] = {
    "integer": int, "number": float, "boolean": bool, "string": str, "list of numbers": List[float],
    "list of integers": List[int], "list of strings": Union[str, List[str]], "list of stages": List,
    "list of layers": List}


class Spec:
    """A stage, layer, optimizer, schedule or loss with its options. It is validated where it is
    used."""

    __slots__ = ("kind", "name", "options")

    def __init__(self, kind: str, name: str, options: Dict[str, Any]) -> None:
        self.kind: str = kind
        self.name: str = name
        self.options: Dict[str, Any] = options

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{self.kind}.{self.name}({options})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and repr(self) == repr(other)


class Stage(Spec):
    """A stage of a pipeline: ``stages.batch(128)``."""

    __slots__ = ()


class Layer(Spec):
    """A layer of a model: ``layers.dense(10)``."""

    __slots__ = ()


class ReadyModel(Spec):
    """A ready-made model: ``models.cifar_resnet(depth=20)``."""

    __slots__ = ()


class Optimizer(Spec):
    """An optimizer: ``optimizers.sgd(momentum=0.9)``."""

    __slots__ = ()


class Schedule(Spec):
    """How the learning rate changes over the steps of a run: ``schedule(0.1, schedule="cosine")``."""

    __slots__ = ()


_CLASSES: Dict[str, Type[Spec]] = {"stages": Stage, "layers": Layer, "models": ReadyModel, "optimizers": Optimizer,
                                   "schedule": Schedule}


def plain(value: Any) -> Any:
    """Converts a value for JSON: paths to text, NumPy scalars and arrays to numbers and lists."""
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, Spec):  # a source within mix, a layer within residual
        return {value.kind[:-1]: value.name, **{key: plain(option) for key, option in value.options.items()}}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast(Iterable[Any], value)]
    return value


def to_json(options: Mapping[str, Any]) -> str:
    """Writes options as a JSON object; raises TypeError for values that no option can have."""
    for key, value in options.items():
        if not isinstance(plain(value), (bool, int, float, str, list)):
            raise TypeError(f"option '{key}' is a {type(value).__name__}; "
                            "options are numbers, text, booleans or lists of numbers, text, stages or layers")
    return dumps({key: plain(value) for key, value in options.items()})


def dumps(value: Any, key: str = "") -> str:
    """Writes the value of ``key`` (by default a whole document) as JSON. Raises ValueError with the
    place of a number that is not finite, or too large for one."""
    for path, number in _not_finite(value, key):
        raise ValueError(f"option '{path}' is {number}; it takes finite numbers")
    return json.dumps(value, allow_nan=False)


def _not_finite(value: Any, path: str) -> Iterator[Tuple[str, str]]:
    parts: Iterable[Tuple[Any, Any]] = ()
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path, str(value)
    elif isinstance(value, int):
        try:
            float(value)
        except OverflowError:  # json writes what no reader of JSON takes
            yield path, f"an integer beyond {sys.float_info.max:.1e}"
    elif isinstance(value, Mapping):
        parts = cast("Iterable[Tuple[Any, Any]]", value.items())
    elif isinstance(value, (list, tuple)):
        parts = enumerate(cast("List[Any]", value))
    for key, part in parts:
        yield from _not_finite(part, f"{path}.{key}" if path else str(key))


def from_json(text: str) -> Dict[str, Any]:
    """Reads a JSON object of the library."""
    parsed: Dict[str, Any] = json.loads(text)
    return parsed


def rows_from_json(text: str) -> List[Dict[str, Any]]:
    """Reads a JSON array of objects."""
    parsed: List[Dict[str, Any]] = json.loads(text)
    return parsed


def load(kind: str) -> Any:
    """Returns a schema of the library: a list of rows, or a dict of such lists."""
    return json.loads(native.schema(kind))


def _document(doc: str, options: List[_Option]) -> str:
    lines = [doc[:1].upper() + doc[1:] + ".", ""]
    if options:
        lines += ["Parameters", "----------"]
    for option in options:
        default = "required" if option["required"] else f"default {option['default']!r}"
        extras = [option["type"], default]
        if "choices" in option:
            extras.insert(1, "one of " + ", ".join(repr(c) for c in option["choices"]))
        if "unit" in option:
            extras.append("in " + option["unit"])
        lines += [f"{option['name']} : {', '.join(extras)}", f"    {option['doc']}"]
    return "\n".join(lines)


def signature_of(options: List[_Option]) -> inspect.Signature:
    """Returns the signature of the function that takes these options."""
    parameters: List[inspect.Parameter] = []
    for option in sorted(options, key=lambda o: not o["required"]):
        parameters.append(inspect.Parameter(
            option["name"], inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if option["required"] else option["default"],
            annotation=_TYPES[option["type"]]))
    return inspect.Signature(parameters)


# What other libraries call an option, and its name or place here.
_ELSEWHERE: Dict[str, Dict[str, str]] = {"optimizers": dict.fromkeys(
    ("lr", "learning_rate", "rate", "alpha", "eta"),
    "the rate is the trainer's: Trainer(model, optimizers.{name}(), learning_rate=0.01)")}
_OTHER_NAMES = {"lr": "learning_rate", "wd": "weight_decay", "kernel_size": "kernel", "out_channels": "filters",
                "out_features": "units", "num_embeddings": "entries", "embedding_dim": "width", "num_heads": "heads",
                "p": "rate", "eps": "epsilon", "batch_size": "size"}


def _unknown_option(kind: str, name: str, key: str, known: Collection[str]) -> str:
    if key in _ELSEWHERE.get(kind, ()):
        hint = _ELSEWHERE[kind][key].format(name=name)
    else:
        near = [_OTHER_NAMES[key]] if _OTHER_NAMES.get(key) in known else difflib.get_close_matches(key, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known) or 'none'}"
    return f"{kind}.{name}() has no option '{key}'; {hint}"


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _all(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(of(item) for item in cast(Iterable[Any], value))


_HAS_TYPE: Dict[str, Callable[[Any], bool]] = {
    "integer": _integer, "number": _number, "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str), "list of numbers": _all(_number),
    "list of integers": _all(lambda v: _number(v) and v == v // 1),
    "list of strings": lambda value: isinstance(value, str) or _all(lambda v: isinstance(v, str))(value),
    "list of stages": _all(lambda v: isinstance(v, dict) or _all(lambda of: isinstance(of, dict))(v)),  # a branch may be a list
    "list of layers": _all(lambda v: isinstance(v, dict))}


def check_option(function: str, option: _Option, value: Any) -> None:
    """Checks what can be told from the value alone: its type, and that it is one of the choices.
    The library checks ranges."""
    value, name = plain(value), option["name"]
    if not _HAS_TYPE[option["type"]](value):
        if option["type"] == "list of stages" and isinstance(value, list):
            branches = [cast(Iterable[Any], v) if isinstance(v, list) else [v] for v in cast(Iterable[Any], value)]
            other = next(item for branch in branches for item in branch if not isinstance(item, dict))
            raise TypeError(f"{function}(): {name} contains {other!r}; it takes stages, but no sources or functions of your own")
        raise TypeError(f"{function}(): {name}={value!r} is a {type(value).__name__}; it takes type {option['type']}")
    if "choices" in option and value not in option["choices"]:
        near = difflib.get_close_matches(value, option["choices"], 1)
        hint = f"did you mean '{near[0]}'?" if near else f"it is one of {', '.join(option['choices'])}"
        raise ValueError(f"{function}(): {name} cannot be '{value}'; {hint}")


def warn_of_former_name(former: str, name: str, level: int) -> None:
    """``level``: that of the program's call, counted from here."""
    warnings.warn(f"'{former}' is now called '{name}'; the old name will stop working", DeprecationWarning,
                  stacklevel=level + 1)


def former_argument(arguments: Dict[str, Any], former: str, name: str, value: Any) -> Any:
    """Takes an argument that was given under its former name out of ``arguments``; else ``value``."""
    if former not in arguments:
        return value
    warn_of_former_name(former, name, level=3)
    return arguments.pop(former)


def make_function(kind: str, name: str, doc: str, options: List[_Option]) -> Callable[..., Spec]:
    """Makes the function of a row of a schema."""
    signature, made = signature_of(options), _CLASSES[kind]
    by_name = {option["name"]: option for option in options}
    by_former_name = {option["former"]: option["name"] for option in options if "former" in option}

    def function(*args: Any, **kwargs: Any) -> Spec:
        for key in list(kwargs):
            present = by_former_name.get(key)
            if present and present not in kwargs:
                warn_of_former_name(key, present, level=2)
                kwargs[present] = kwargs.pop(key)
            elif key not in signature.parameters:
                raise TypeError(_unknown_option(kind, name, key, list(signature.parameters)))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{kind}.{name}(): {error}") from None
        for key, value in bound.arguments.items():
            check_option(f"{kind}.{name}", by_name[key], value)
        return made(kind, name, dict(bound.arguments))

    function.__name__ = function.__qualname__ = name
    function.__module__ = "echotrain." + kind
    function.__doc__ = _document(doc, options)
    setattr(function, "__signature__", signature.replace(return_annotation=made))
    return function


def fill(namespace: Dict[str, Any], kind: str, leave_out: Collection[str] = ()) -> None:
    """Adds a function for each row of a schema to a module."""
    names: List[str] = []
    for row in load(kind):
        if row["name"] in leave_out:
            continue
        namespace[row["name"]] = make_function(kind, row["name"], row["doc"], row["options"])
        names.append(row["name"])
    namespace["__all__"] = names
