"""Optimizers: ``optimizers.sgd(momentum=0.9)``. Generated from the library's schema."""

from . import _schema

_schema.fill(globals(), "optimizers")
