"""The Python side of boundary_bench.py: see boundary.c."""

import statistics
import sys
import time

import echotrain as et

ROUNDS, WARM_UP, TAKEN = 40, 20, 400


def images(root):
    stages = [et.stages.folder(root), et.stages.repeat(10), et.stages.decode(),
              et.stages.batch(32, drop_remainder=True)]
    batches, total = 0, 0
    with et.Pipeline(stages, threads=2, epochs=1) as pipeline:
        begin = time.perf_counter()
        for batch in pipeline:
            total += batch["image"].item(0)
            batches += 1
        print(f"{32 * batches / (time.perf_counter() - begin):.1f}")


def ready(root):
    stages = [et.stages.folder(root), et.stages.repeat(100000), et.stages.batch(1)]
    us, total = [], 0
    with et.Pipeline(stages, threads=2, epochs=1, prefetch=1024) as pipeline:
        batches = iter(pipeline)
        for _ in range(WARM_UP + ROUNDS):
            time.sleep(0.1)  # in which the pipeline fills its prefetch queue
            begin = time.perf_counter()
            for _ in range(TAKEN):
                total += next(batches)["png"].item(0)
            us.append(1e6 * (time.perf_counter() - begin) / TAKEN)
    print(f"{statistics.median(us[WARM_UP:]):.4f}")


{"images": images, "ready": ready}[sys.argv[1]](sys.argv[2])
