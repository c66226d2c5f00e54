"""Schemas, explanations of statistics, and reports: functions of the library as a whole."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, Literal, Mapping, Tuple, Union, cast

from . import _schema, native

if TYPE_CHECKING:
    from ._types import StrPath

__all__ = ["explain_stats", "schema", "write_report"]


def schema(kind: str) -> Any:
    """Returns the options of "stages", "layers", "models", "optimizers", "job", "study" or
    "pack"."""
    return _schema.load(kind)


def explain_stats(stats: Mapping[str, Any], format: Literal["text", "svg", "json"] = "text") -> str:
    """Explains the speed of a pipeline from its statistics, those of `Pipeline.stats` or
    `JobRun.stats`: rates, loads, the bottleneck, and what would help. ``format``: "text", "svg" (a
    drawing) or "json"."""
    return native.explain_stats(json.dumps(stats), format)


def write_report(title: str, runs: Union[Mapping[str, StrPath], Iterable[Tuple[str, StrPath]]], path: StrPath,
                 target_accuracy: float = 0) -> Dict[str, Any]:
    """Compares runs in one self-contained HTML file, and returns the table. ``runs`` are pairs of a
    name and the run's metrics.jsonl or its folder; runs of the same name are repetitions with other
    seeds. ``target_accuracy`` is an accuracy that they are to reach, 0 to 1; 0: none."""
    pairs = list(cast("Mapping[str, StrPath]", runs).items() if isinstance(runs, Mapping) else runs)
    names, paths = [str(name) for name, _ in pairs], [os.fsdecode(metrics) for _, metrics in pairs]
    return _schema.from_json(native.write_report(title, names, paths, os.fsdecode(path), target_accuracy))
