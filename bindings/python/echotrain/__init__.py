"""EchoTrain: input pipelines with echo nodes, and training on any Vulkan device.

    import echotrain as et

    pipeline = et.Pipeline([
        et.stages.webdataset("train-*.tar.zst"),
        et.stages.label(classes=10),
        et.stages.decode(),
        et.stages.echo(2),
        et.stages.random_crop(pad=4),
        et.stages.flip(),
        et.stages.batch(128),
        et.stages.normalize(),
    ], seed=1)
    model = et.Model([et.layers.conv2d(32, activation="relu"), et.layers.flatten(), et.layers.dense(10)])
    trainer = et.Trainer(model, et.optimizers.sgd(momentum=0.9), learning_rate=0.05)
    history = trainer.fit(pipeline, epochs=2)

Log lines go to the logger "echotrain" of the module logging, those about bad records that a pipeline
drops to "echotrain.bad_records".
"""

# First, for a clear error where the native library is missing.
from . import _loader  # noqa: F401  # pyright: ignore[reportUnusedImport]
# Before the modules that log at exit.
from . import _log  # noqa: F401  # pyright: ignore[reportUnusedImport]
from . import errors, native
from .errors import EchoTrainError

native.echotrain_set_error_factory(errors.make_error)

from . import layers, models, optimizers, stages  # noqa: E402
from .library import explain_stats, schema, write_report  # noqa: E402
from .pipeline import Batch, Pipeline, SampleInfo, Tensor, map, pack_folder, source, tune  # noqa: E402
from ._schema import Layer, Optimizer, ReadyModel, Schedule, Spec, Stage  # noqa: E402
from .callbacks import Callback, EarlyStopping, SaveCheckpoint  # noqa: E402
from .model import LayerSummary, Model, Summary  # noqa: E402
from .device import Device, Runtime, devices  # noqa: E402
from .job import Event, Job, JobRun  # noqa: E402
from .training import History, StepResult, Trainer, schedule  # noqa: E402
from .server import Server, ServerStatus  # noqa: E402
from .study import Study  # noqa: E402
from .transport import Transport  # noqa: E402

__version__ = native.version()


def prefer_wide_cpu_vectors() -> None:
    """Speeds up training on a CPU device (Mesa lavapipe): asks for 512-bit vectors if the processor
    has them and the driver gains by them (Mesa 25 and later). Call it before the first device is
    opened."""
    native.prefer_wide_cpu_vectors()


__all__ = [
    "Batch", "Callback", "Device", "EarlyStopping", "EchoTrainError", "Event", "History", "Job", "JobRun", "Layer",
    "LayerSummary", "Model", "Optimizer", "Pipeline", "ReadyModel", "Runtime", "SampleInfo", "SaveCheckpoint", "Schedule",
    "Server", "ServerStatus", "Spec", "Stage", "StepResult", "Study", "Summary", "Tensor", "Trainer", "Transport",
    "devices", "errors", "explain_stats", "layers", "map", "models", "optimizers", "pack_folder",
    "prefer_wide_cpu_vectors", "schedule", "schema", "source", "stages", "tune", "write_report",
]
