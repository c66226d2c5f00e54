"""The layers of a model: ``layers.conv2d(32, activation="relu")``. Generated from the library's
schema."""

from . import _schema

_schema.fill(globals(), "layers")
