"""A program with typical uses of the package, for type checkers: nobody runs it."""

import pathlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import echotrain as et


# Pipelines -----------------------------------------------------------------------------------------


def darker(sample: Dict[str, NDArray[np.uint8]]) -> Dict[str, NDArray[np.uint8]]:
    return {**sample, "image": sample["image"] // 2}


def noisy(sample: Dict[str, NDArray[Any]], info: et.SampleInfo) -> Dict[str, NDArray[Any]]:
    random = np.random.default_rng((info.epoch, info.ordinal, info.replica))
    return {**sample, "image": sample["image"] + random.normal(size=sample["image"].shape)}


def samples(epoch: int) -> Iterator[Dict[str, Any]]:
    for i in range(100):
        yield {"image": np.full((8, 8, 1), i, np.uint8), "label": i % 10}


def augmented(strength: int) -> List[et.Stage]:
    return [et.stages.random_crop(pad=strength), et.stages.flip()]


root = pathlib.Path("images")
pipeline = et.Pipeline([et.stages.folder(root / "train"), et.stages.label(), et.stages.decode(channels="gray"), darker,
                        et.map(darker, "darker"), et.map(noisy, with_info=True), et.map(noisy, "noisy", True),
                        et.stages.echo(2.5), *augmented(4), et.stages.batch(32),
                        et.stages.normalize(mean=np.zeros(3), std=[0.5])],
                       threads=2, seed=1, on_error="skip", remote_cache_dir=root)
mixed = et.Pipeline([et.stages.mix([et.stages.folder("a"), [et.stages.folder("b"), et.stages.shuffle()]],
                                   weights=[1, 2])])
of_arrays = et.Pipeline([et.source([{"image": np.zeros((8, 8, 1)), "label": 3}]), et.stages.batch(1)])
of_function = et.Pipeline([et.source(samples, "numbers"), et.stages.batch(8)],
                          **et.tune([et.stages.folder("a")])["options"])
for batch in pipeline:
    assert_type(batch, et.Batch)
    assert_type(batch["image"], NDArray[Any])
    assert_type(batch.tensor("image").shape, Tuple[int, ...])
    assert_type(batch.samples, int)
    assert_type(np.from_dlpack(batch.tensor("image")).ndim, int)
assert_type(et.stages.echo(2), et.Stage)
assert_type(len(pipeline), int)
assert_type(pipeline.explain("svg"), str)
assert_type(pipeline.bad_records(), List[Dict[str, Any]])
pipeline.restore(pipeline.save())
own = et.Batch({"image": np.zeros((1, 8, 8, 1), np.float32), "label": [1], "weight": [[0.5, 1]], "id": np.int64(3)})


# Models and trainers -------------------------------------------------------------------------------


def block(width: int) -> et.Layer:
    return et.layers.residual([et.layers.conv2d(width, activation="relu"), et.layers.conv2d(width)])


model = et.Model([block(16), et.layers.flatten(), et.layers.dense(10, name="head")], loss="softmax_cross_entropy",
                 label_smoothing=0.1, precision="bf16", frozen="conv2d_*", lora={"layers": ["head"], "rank": 4})
ready = et.Model(et.models.cifar_resnet(depth=20))
tuned = et.Model.from_onnx(root / "net.onnx", [et.layers.dense(10)], until="flatten", loss="mse")
assert_type(model.summary(image=(28, 28, 1), text=np.zeros(12, np.int32)), et.Summary)
assert_type(model.summary(image=(28, 28, 1)).layers[0].shape, Tuple[Optional[int], ...])
assert_type(et.layers.dense(10), et.Layer)
assert_type(et.optimizers.sgd(momentum=0.9), et.Optimizer)
assert_type(et.models.cifar_resnet(), et.ReadyModel)


class Watch(et.Callback):
    def on_epoch_end(self, trainer: et.Trainer, epoch: int, logs: Dict[str, float]) -> None:
        trainer.stop_training = logs["val_loss"] < 0.1

    def on_evaluation(self, trainer: et.Trainer, done: int, batches: Optional[int]) -> bool:
        return batches is None or done < batches


losses: List[float] = []
trainer = et.Trainer(model, et.optimizers.adamw(), et.schedule(3e-3, schedule="cosine", warmup_steps=50),
                     device=et.Runtime(0, memory_limit_bytes=1 << 30, hang_seconds=600), seed=3)
history = trainer.fit(pipeline, epochs=2, validation=of_arrays,
                      callbacks=[Watch(), et.EarlyStopping(patience=2), et.SaveCheckpoint(root),
                                 lambda epoch, logs: losses.append(logs["loss"])])
assert_type(history, et.History)
assert_type(history.history["loss"], List[float])
assert_type(trainer.evaluate(pipeline, lambda done, batches: done < 3), Dict[str, float])
assert_type(trainer.predict(np.zeros((1, 8, 8, 1), np.float32)), NDArray[np.float32])
assert_type(trainer.weights(), Dict[str, NDArray[np.float32]])
trainer.set_weights({name: weight * 2 for name, weight in trainer.weights().items()})
trainer.step(own)
trainer.step({"image": np.zeros((1, 8, 8, 1)), "label": np.arange(1)})
result = trainer.result(wait=False)
assert_type(result, Optional[et.StepResult])
if result is not None:
    assert_type(result.loss, float)
output = trainer.forward(own, input_gradients=True)
assert_type(trainer.backward(output - 1), Optional[Dict[str, NDArray[np.float32]]])
trainer.save(root)


# Jobs ----------------------------------------------------------------------------------------------


class Alone(et.Transport):
    def all_reduce(self, array: NDArray[Any], op: str) -> None:
        pass

    def all_gather(self, part: NDArray[Any], sizes: Sequence[int], array: NDArray[Any]) -> None:
        array[:] = part

    def broadcast(self, array: NDArray[Any], root: int) -> None:
        pass

    def split(self, colour: int, key: int) -> Optional[et.Transport]:
        return Alone(0, 1) if colour >= 0 else None


job = et.Job({"data": "shards"}, {"train.steps": 100})
with job.run(device=0, start="resume", transport=Alone(0, 1), on_evaluation=lambda done, batches: None) as run:
    for event in run:
        assert_type(event, et.Event)
        if event.kind == "evaluation":
            assert_type(event.eval_accuracy, float)
            assert_type(run.trainer, et.Trainer)
        elif event.kind == "checkpoint":
            run.stop()
assert_type(et.Job(root / "job.json").advise(check=True, progress=lambda calls, total, text: bool(text)), Dict[str, Any])
for event in trainer.run(pipeline):
    print(event.kind == "epoch", event.loss)
with et.Server(job, shard=0) as server:
    assert_type(server.wait(timeout=3), bool)
with et.Study(root / "study.json", {"data": "shards"}) as study:
    assert_type(study.run(device="cpu", parallel=2), List[Dict[str, Any]])


# The rest ------------------------------------------------------------------------------------------

for device in et.devices():
    assert_type(device, et.Device)
    assert_type(device.memory_bytes, int)
    print(device.kind == "discrete")
et.write_report("Runs", {"first": root / "a", "second": root / "b"}, root / "report.html")
et.pack_folder(root, root / "train", format="fast", progress=lambda done, total: done < total)
try:
    trainer.load("runs")
except et.errors.RankLostError as error:
    assert_type(error.missing, Tuple[int, ...])
except et.EchoTrainError as error:
    assert_type(error.status, int)
