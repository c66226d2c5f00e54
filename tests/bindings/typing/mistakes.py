"""Mistakes that type checkers report. They also report a comment that ignores nothing, so each mistake counts."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any, Dict, List

import numpy as np
from numpy.typing import NDArray

import echotrain as et

pipeline = et.Pipeline([et.stages.folder("images"), et.stages.batch(32)])
model = et.Model([et.layers.flatten(), et.layers.dense(10)])
trainer = et.Trainer(model, et.optimizers.sgd(), learning_rate=0.1)
images, labels = np.zeros((8, 8, 8, 1), np.float32), np.zeros(8, np.int32)


# Options.
et.stages.batch("128")  # type: ignore[arg-type]
et.stages.echo(2, mode="fixd")  # type: ignore[arg-type]
et.stages.shuffle(bufer=100)  # type: ignore[call-arg]
et.layers.conv2d(32, kernel_size=3)  # type: ignore[call-arg]
et.layers.dense()  # type: ignore[call-arg]
et.optimizers.sgd(lr=0.1)  # type: ignore[call-arg]
et.schedule(0.1, schedule="cosin")  # type: ignore[arg-type]

# Pipelines.
et.Pipeline([et.layers.dense(10)])  # type: ignore[list-item]
et.Pipeline([et.stages.folder("images")], sed=1)  # type: ignore[call-arg]
et.Pipeline([et.stages.folder("images")], on_error="ignore")  # type: ignore[arg-type]
et.Batch({"image": "cat.png"})  # type: ignore[dict-item]
pipeline.explain("html")  # type: ignore[arg-type]


def only_image(sample: Dict[str, NDArray[Any]]) -> NDArray[Any]:
    return sample["image"]


def with_info(sample: Dict[str, NDArray[Any]], info: et.SampleInfo) -> Dict[str, NDArray[Any]]:
    return sample


et.Pipeline([et.stages.folder("images"), only_image])  # type: ignore[list-item]
et.map(with_info)  # type: ignore[arg-type]
et.source([images])  # type: ignore[list-item]
for batch in pipeline:
    batch["image"] = images  # type: ignore[index]
    batch.sample  # type: ignore[attr-defined]

# Models and trainers.
et.Model([et.stages.batch(32)])  # type: ignore[list-item]
et.Model([et.layers.dense(10)], loss="crossentropy")  # type: ignore[arg-type]
et.Model([et.layers.dense(10)], label_smooth=0.1)  # type: ignore[call-arg]
et.Model([et.layers.dense(10)], precision="fp8")  # type: ignore[arg-type]
et.Trainer([et.layers.dense(10)], et.optimizers.sgd(), 0.1)  # type: ignore[arg-type]
et.Trainer(model, et.layers.dense(10), 0.1)  # type: ignore[arg-type]
et.Trainer(model, et.optimizers.sgd())  # type: ignore[call-arg]
trainer.fit(images, labels)  # type: ignore[arg-type]
trainer.fit(pipeline, callbacks=et.EarlyStopping())  # type: ignore[arg-type]
trainer.fit(pipeline, callbacks=[et.EarlyStopping])  # type: ignore[list-item]
trainer.fit(pipeline, callback=[])  # type: ignore[call-arg]
trainer.result().loss  # type: ignore[union-attr]
trainer.predict("cat.png")  # type: ignore[arg-type]
trainer.set_weights({"dense.weight": "zeros"})  # type: ignore[dict-item]


class Watch(et.Callback):
    def on_epoch_end(self, epoch: int, logs: Dict[str, float]) -> None:  # type: ignore[override]
        pass


# Jobs.
class Alone(et.Transport):
    def all_reduce(self, array: List[float], op: str) -> None:  # type: ignore[override]
        pass


job = et.Job("job.json")
job.run(start="again")  # type: ignore[arg-type]
job.run(transport=print)  # type: ignore[arg-type]
for event in job.run():
    event.kind == "evaluate"  # type: ignore[comparison-overlap]
    event.acuracy  # type: ignore[attr-defined]
et.write_report("Runs", {"first": 3}, "report.html")  # type: ignore[arg-type]
