#!/usr/bin/env python3
"""Every layer and ready-made model as an ONNX file, run by ONNX Runtime beside our own inference, and imported again.

    PYTHONPATH=build-test/bindings/python python3 tests/golden/onnx_check.py      (pip install onnxruntime)

Each model is trained for three steps before, so that running statistics are not what they began with, and run on fewer rows
than it was trained on. Fails where an output differs by more than 1e-4 of the largest.
"""

import sys
import tempfile
from pathlib import Path

import echotrain as et
import numpy as np
import onnxruntime

import golden

LIMIT = 1e-4
UNSUPPORTED = {"adaptive_avg_pool": "differ in size", "glsl": "has no counterpart"}  # and how the error says why


def check(name, case, folder):
    inputs = case["spec"].get("inputs", ["image"])
    inputs = [inputs] if isinstance(inputs, str) else inputs
    fields = {field: case["fields"][field] for field in inputs}
    trainer = golden.trainer_of(case, {"optimizer": "sgd"}, 0.01)
    golden.with_target(case, trainer.predict(et.Batch(fields)))
    for _ in range(3):
        trainer.step(case["fields"])
    path = Path(folder) / "model.onnx"
    trainer.export_onnx(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    fewer = {field: value[:-1] for field, value in fields.items()}
    ours, (theirs,) = trainer.predict(et.Batch(fewer)), session.run(None, fewer)
    again = et.Trainer(et.Model.from_onnx(path, loss="mse"), et.optimizers.sgd(), 0.01)
    imported = again.predict(et.Batch(fewer))
    again.export_onnx(Path(folder) / "again.onnx")
    if not ours.shape == theirs.shape == imported.shape:
        return float("inf")
    return max(golden.difference({"": ours}, {"": other}) for other in (theirs, imported))


def main():
    et.prefer_wide_cpu_vectors()
    onnxruntime.set_default_logger_severity(3)
    failed, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, case in {**golden.layer_cases(), **golden.model_cases()}.items():
            if name in UNSUPPORTED:
                try:
                    check(name, case, folder)
                    failed.append(f"{name}: exported, but ONNX has no such op")
                except et.EchoTrainError as error:
                    if UNSUPPORTED[name] not in str(error):
                        failed.append(f"{name}: {error}")
                continue
            found = check(name, case, folder)
            count += 1
            print(f"{name:40} {found:9.0e}", flush=True)
            if not found <= LIMIT:
                failed.append(name)
    if failed:
        sys.exit("onnx_check.py: " + "; ".join(failed))
    print(f"{count} models: ONNX Runtime {onnxruntime.__version__} and EchoTrain agree")


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
