"""Ready-made models: ``Model(models.cifar_resnet(depth=20))``. Generated from the library's
schema."""

from . import _schema

_schema.fill(globals(), "models")
