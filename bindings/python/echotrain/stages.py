"""The stages of a pipeline: ``stages.echo(factor=2.5)``. Generated from the library's schema."""

from . import _schema

_schema.fill(globals(), "stages", leave_out=("map", "source"))  # functions go into a pipeline as they are
