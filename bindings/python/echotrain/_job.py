"""The parts of the package that come from the schema of a job: the function `schedule`, and the types of options."""

from typing import Any, Dict

from . import _schema

__all__ = ["schedule"]

schedule = _schema.make_function("schedule", "schedule", "the learning rate over the steps of a run",
                                 _schema.load("job")["schedule"])

# For annotations. The stub has their keys, from the schema.
PipelineOptions = LossOptions = Dict[str, Any]
LossName = str
