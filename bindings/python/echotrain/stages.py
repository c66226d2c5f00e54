"""The stages of a pipeline: ``stages.echo(factor=2.5)``. Made from the library's own schema."""

from . import _schema

_schema.fill(globals(), "stages", leave_out=("map", "source"))  # functions go into a pipeline as they are
