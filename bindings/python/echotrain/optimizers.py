"""Optimizers: ``optimizers.sgd(momentum=0.9)``. Made from the library's own schema."""

from . import _schema

_schema.fill(globals(), "optimizers")
